"""Channels at the client's rate to rows at the models' rate, in blocks of bounded size."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from server.codec.audio_format import MAX_CHANNELS
from server.codec.resampler import MAX_RATE, MIN_RATE, Resampler
from server.errors import BadAudio
from server.plan import Samples

Block = Samples
"""float32 [R, N], 16 kHz, N from 1 to ``BLOCK_SAMPLES``."""
BLOCK_SAMPLES: Final = 8_000


class Rows:
    """Mixes (or keeps) and resamples the channels of one connection.

    Args:
        rate: Samples per second of what comes in, within the resampler's bounds.
        channels: C, 1 to 8.
        mixdown: One row, the mean of the channels; else one row per channel.
    """

    __slots__ = ("_mixdown", "_resamplers")

    def __init__(self, rate: int, channels: int, *, mixdown: bool) -> None:
        self._mixdown = mixdown
        self._resamplers = [Resampler(rate) for _ in range(1 if mixdown else channels)]

    def process(self, samples: Samples) -> Iterator[Block]:
        """What the next float32 [C, N] bring out; values beyond [-1, 1] are clipped."""
        rows = [_mean(samples)] if self._mixdown else list(samples)
        clipped = [np.clip(row, np.float32(-1), np.float32(1)) for row in rows]
        return _blocks([resampler.process(row) for resampler, row in zip(self._resamplers, clipped, strict=True)])

    def finish(self) -> Iterator[Block]:
        """What the resamplers still hold. The audio has ended."""
        return _blocks([resampler.finish() for resampler in self._resamplers])


def open_rows(rate: int, channels: int, *, mixdown: bool, declared: int) -> Rows:
    """Rows for audio as it was found to be; ``declared`` channels are what the client said.

    Raises:
        BadAudio: A rate or a number of channels that is not taken; channels to be kept apart that are not as declared.
    """
    if not MIN_RATE <= rate <= MAX_RATE:
        raise BadAudio(f"the audio has {rate} samples a second, allowed: {MIN_RATE} to {MAX_RATE}")
    if not 1 <= channels <= MAX_CHANNELS:
        raise BadAudio(f"the audio has {channels} channels, allowed: 1 to {MAX_CHANNELS}")
    if not mixdown and channels != declared:
        raise BadAudio(
            f"the audio has {channels} channels, but multichannel audio with channels={declared} is declared"
        )
    return Rows(rate, channels, mixdown=mixdown)


def _mean(samples: Samples) -> Samples:
    """float32 [N] of [C, N]: summed channel by channel, so that no bit depends on how the audio was cut."""
    total: Samples = samples[0]
    for channel in samples[1:]:
        total = total + channel
    return total / np.float32(len(samples)) if len(samples) > 1 else total


def _blocks(rows: list[Samples]) -> Iterator[Block]:
    for start in range(0, len(rows[0]), BLOCK_SAMPLES):
        parts = [row[start : start + BLOCK_SAMPLES] for row in rows]
        yield parts[0][np.newaxis] if len(parts) == 1 else np.stack(parts)
