"""One sequence's sample rate conversion to 16 kHz, with its state carried from chunk to chunk.

The output is a function of the samples alone: any chunking gives the same bits, and how many samples have come out
depends only on how many went in (I7). Nothing but the end of the audio flushes it: a Finalize leaves it alone, so that
words after it are untouched (I8).
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from server.plan import Samples

if TYPE_CHECKING:
    import soxr

MODEL_RATE: Final = 16_000
MIN_RATE: Final = 4_000
MAX_RATE: Final = 192_000
NOTHING: Final = np.zeros(0, dtype=np.float32)


class Resampler:
    """Converts float32 [N] at ``rate`` to float32 [M] at 16 kHz; exact pass-through at 16 kHz.

    It holds back what its filter has not seen enough of: 30 ms at 8 kHz, 40 ms at 48 kHz, 90 ms at most.
    """

    __slots__ = ("_soxr",)

    def __init__(self, rate: int) -> None:
        """``rate`` in samples per second, 4000 to 192000; the caller has checked it."""
        assert MIN_RATE <= rate <= MAX_RATE
        self._soxr = None if rate == MODEL_RATE else _resample_stream(rate)

    def process(self, samples: Samples) -> Samples:
        """The next samples at 16 kHz: none, or many at once, as the filter releases them."""
        if self._soxr is None:
            return samples
        output: Samples = self._soxr.resample_chunk(samples)
        return output

    def finish(self) -> Samples:
        """What is still held back. The audio has ended: nothing may be processed after it."""
        if self._soxr is None:
            return NOTHING
        output: Samples = self._soxr.resample_chunk(NOTHING, last=True)
        return output


def _resample_stream(rate: int) -> "soxr.ResampleStream":
    """soxr's block filters hold back up to 116 ms at telephone rates, its variable-rate filter a steady 30 ms there.

    At higher rates it is the other way round, at a tenth of the time.
    """
    import soxr  # here, so that the doctor can come where it is missing

    if rate > MODEL_RATE:
        return soxr.ResampleStream(rate, MODEL_RATE, 1, dtype="float32", quality="HQ")
    stream = soxr.ResampleStream(rate, MODEL_RATE, 1, dtype="float32", quality="HQ", vr=True)
    stream.set_io_ratio(rate, MODEL_RATE, 0)
    return stream
