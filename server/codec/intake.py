"""One connection's audio, from bytes to rows: what the gateway feeds, whatever the client sends."""

from collections.abc import AsyncGenerator
from typing import Protocol

from server.codec.audio_format import AudioFormat
from server.codec.coded import CodedIntake
from server.codec.container import ContainerIntake
from server.codec.magic import RawGuard
from server.codec.pcm import PIECE_BYTES, PcmDecoder
from server.codec.pool import CodecPool
from server.codec.rows import Block, Rows


class Intake(Protocol):
    """The audio of one connection. One ``feed`` or ``finish`` at a time; ``finish`` once, then only ``close``.

    Both are generators, to be exhausted or closed. After a ``feed`` that was not taken to its end only ``finish`` and
    ``close`` have a meaning: nothing of the rest is heard.
    """

    def feed(self, data: bytes) -> AsyncGenerator[Block, None]:
        """The rows that ``data`` completes: float32 [R, N], 16 kHz. Ends when all of them have come out.

        Raises:
            BadAudio: These bytes cannot be what they are declared to be, or are damaged.
            ServiceError: The decoder is gone, or there is none to be had.
        """

    def finish(self) -> AsyncGenerator[Block, None]:
        """The audio has ended: what decoder and resampler still hold. An incomplete last sample or packet is dropped.

        Raises:
            BadAudio, ServiceError: as ``feed``.
        """

    async def close(self) -> None:
        """Gives everything back, at any time; again does nothing."""


class PcmIntake:
    """Raw samples, converted here and now."""

    def __init__(self, audio: AudioFormat, *, mixdown: bool) -> None:
        assert audio.encoding is not None
        assert audio.sample_rate is not None
        self._guard = RawGuard(audio.encoding)
        self._decoder = PcmDecoder(audio.encoding, audio.channels)
        self._rows = Rows(audio.sample_rate, audio.channels, mixdown=mixdown)

    async def feed(self, data: bytes) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        self._guard.check(data)
        for start in range(0, len(data), PIECE_BYTES):
            for block in self._rows.process(self._decoder.decode(data[start : start + PIECE_BYTES])):
                yield block

    async def finish(self) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        for block in self._rows.finish():
            yield block

    async def close(self) -> None:
        """Nothing is held elsewhere."""


def open_intake(audio: AudioFormat, mixdown: bool, codecs: CodecPool) -> Intake:
    """The intake for ``audio``; starts nothing before the first bytes.

    Args:
        audio: What the client declares.
        mixdown: All channels to one row; else a row per channel of ``audio.channels``.
        codecs: Where what is no raw PCM is decoded.

    Raises:
        CapacityExceeded: The audio may need a decoder, and all are taken.
    """
    if audio.is_pcm:
        return PcmIntake(audio, mixdown=mixdown)
    if audio.encoding is None:
        return ContainerIntake(audio, mixdown=mixdown, codecs=codecs)
    return CodedIntake(audio, mixdown=mixdown, codecs=codecs)
