"""WAV as it arrives: header, then samples, converted where they are; nothing of it needs a decoder."""

import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.codec.audio_format import AudioFormat
from server.codec.pcm import PIECE_BYTES, PcmDecoder
from server.codec.rows import Block, Rows, open_rows
from server.errors import BadAudio

RIFF_BYTES: Final = 12
RIFFS: Final = (b"RIFF", b"RF64")
CHUNK_HEADER_BYTES: Final = 8
FORMAT_BYTES: Final = 16
MAX_HEADER_BYTES: Final = 1 << 20
"""Before the samples: room for every tag, none for a flood."""
EXTENSIBLE: Final = 0xFFFE
SUBFORMAT: Final = slice(24, 26)
OPEN_ENDS: Final = (0, 0x7FFFFFFF, 0xFFFFFFFF)
"""Sizes that a writer to a pipe gives, who cannot know: the samples go on to the end."""
ENCODINGS: Final = {
    (1, 1): "unsigned8",
    (1, 2): "linear16",
    (1, 3): "linear24",
    (1, 4): "integer32",
    (3, 4): "linear32",
    (3, 8): "float64",
    (6, 1): "alaw",
    (7, 1): "mulaw",
}
"""By format tag and bytes a sample."""
ALLOWED: Final = "PCM of 8, 16, 24 or 32 bits, float of 32 or 64, A-law, mu-law"


@dataclass(frozen=True, slots=True, kw_only=True)
class WavFormat:
    """What a ``fmt`` chunk says."""

    encoding: str
    rate: int
    channels: int


class _Part(Enum):
    HEADER = "header"
    SAMPLES = "samples"
    REST = "rest"
    """What follows the samples: tags, which nobody needs."""


class WavReader:
    """Bytes in any cuts to the bytes of samples. Pure."""

    def __init__(self) -> None:
        self.format: WavFormat | None = None
        """Known before the first samples."""
        self._part = _Part.HEADER
        self._head = bytearray()
        """Not parsed yet."""
        self._header_bytes = 0
        self._left_bytes: int | None = None
        """Of the samples; None: to the end."""
        self._long_bytes: int | None = None
        self._pad_bytes = 0

    def push(self, data: bytes) -> bytes:
        """The samples in ``data``, as bytes of ``format``.

        Raises:
            BadAudio: This is no WAV that is taken.
        """
        if self._part is _Part.HEADER:
            self._head += data
            while self._part is _Part.HEADER and self._parse():
                pass
            if self._part is _Part.HEADER:
                if self._header_bytes + len(self._head) > MAX_HEADER_BYTES:
                    raise _too_long()
                return b""
            data = bytes(self._head)
            self._head.clear()
        samples = b""
        if self._part is _Part.SAMPLES:
            samples = data if self._left_bytes is None else data[: self._left_bytes]
            data = data[len(samples) :]
            if self._left_bytes is not None:
                self._left_bytes -= len(samples)
                if not self._left_bytes:
                    self._part = _Part.REST
        if self._part is _Part.REST:
            self._check_rest(data)
        return samples

    def _parse(self) -> bool:
        """Goes on by one chunk. False: more bytes are needed."""
        head = self._head
        if not self._header_bytes:
            if len(head) < RIFF_BYTES:
                return False
            if bytes(head[:4]) not in RIFFS or head[8:12] != b"WAVE":
                raise BadAudio(f"the audio starts with {bytes(head[:12]).hex(' ')}, which is no WAV header")
            self._take(RIFF_BYTES)
            return True
        if len(head) < CHUNK_HEADER_BYTES:
            return False
        name, size = bytes(head[:4]), int.from_bytes(head[4:8], "little")
        if name == b"data":
            self._start_samples(size)
            self._take(CHUNK_HEADER_BYTES)
            return True
        end = CHUNK_HEADER_BYTES + size + size % 2
        if self._header_bytes + end > MAX_HEADER_BYTES:
            raise _too_long()
        if len(head) < end:
            return False
        content = bytes(head[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + size])
        if name == b"fmt ":
            self.format = _format(content)
        elif name == b"ds64" and size >= 16:
            self._long_bytes = int.from_bytes(content[8:16], "little")
        self._take(end)
        return True

    def _take(self, n_bytes: int) -> None:
        del self._head[:n_bytes]
        self._header_bytes += n_bytes

    def _start_samples(self, size: int) -> None:
        if self.format is None:
            raise BadAudio("the WAV file has samples before the chunk that describes them (fmt)")
        self._part = _Part.SAMPLES
        if size == OPEN_ENDS[-1] and self._long_bytes:
            size = self._long_bytes
        self._left_bytes = None if size in OPEN_ENDS else size
        self._pad_bytes = size % 2

    def _check_rest(self, data: bytes) -> None:
        """Clients that write every message as a file of its own would otherwise be heard for one message.

        Raises:
            BadAudio: Another WAV file follows.
        """
        needed = self._pad_bytes + 4
        if len(self._head) < needed:
            self._head += data[: needed - len(self._head)]
            if bytes(self._head[self._pad_bytes :]) in RIFFS:
                raise BadAudio("a second WAV header follows the samples: send one header, then samples alone")


def _too_long() -> BadAudio:
    return BadAudio(f"the WAV file has no samples within its first {MAX_HEADER_BYTES >> 20} MiB")


def _format(chunk: bytes) -> WavFormat:
    """Raises: BadAudio: not a format that is taken."""
    if len(chunk) < FORMAT_BYTES:
        raise BadAudio(f"the WAV file has a fmt chunk of {len(chunk)} bytes, at least {FORMAT_BYTES} are needed")
    tag, channels, rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == EXTENSIBLE and len(chunk) >= SUBFORMAT.stop:
        tag = int.from_bytes(chunk[SUBFORMAT], "little")
    sample_bytes, odd_bytes = divmod(frame_bytes, max(channels, 1))
    encoding = ENCODINGS.get((tag, sample_bytes))
    if encoding is None or odd_bytes:
        raise BadAudio(
            f"the WAV file has samples of format {tag:#x}, {bits} bits, {frame_bytes} bytes a frame; allowed: {ALLOWED}"
        )
    return WavFormat(encoding=encoding, rate=rate, channels=channels)


class WavIntake:
    """An ``Intake`` for WAV: no process, no place.

    Args:
        audio: What the client declares; the file says the rest.
        mixdown: One row; else one per declared channel.
    """

    def __init__(self, audio: AudioFormat, *, mixdown: bool) -> None:
        self._audio = audio
        self._mixdown = mixdown
        self._reader = WavReader()
        self._decoder: PcmDecoder | None = None
        self._rows: Rows | None = None

    async def feed(self, data: bytes) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        samples = self._reader.push(data)
        if not samples:
            return
        if self._decoder is None or self._rows is None:
            self._decoder, self._rows = self._open()
        for start in range(0, len(samples), PIECE_BYTES):
            for block in self._rows.process(self._decoder.decode(samples[start : start + PIECE_BYTES])):
                yield block

    async def finish(self) -> AsyncGenerator[Block, None]:
        """See ``Intake``."""
        if self._rows is not None:
            for block in self._rows.finish():
                yield block

    async def close(self) -> None:
        """Nothing is held elsewhere."""

    def _open(self) -> tuple[PcmDecoder, Rows]:
        found = self._reader.format
        assert found is not None, "samples before their format"
        rows = open_rows(found.rate, found.channels, mixdown=self._mixdown, declared=self._audio.channels)
        return PcmDecoder(found.encoding, found.channels), rows
