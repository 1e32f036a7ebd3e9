"""A FLAC file cut into frames as its bytes arrive. Pure.

Parsers that look for the next few frames before they believe in one hold back seconds of live audio. Here a frame is
whole when its checksum fits where the bytes stop, or where the next frame's header starts.
"""

import re
from dataclasses import dataclass
from typing import Final

from server.codec.crc16 import crc16
from server.errors import BadAudio

MAGIC: Final = b"fLaC"
SYNCS: Final = (b"\xff\xf8", b"\xff\xf9")
"""A frame's first bytes: blocks of one size, or of any."""
TRAILERS: Final = (b"TAG", b"ID3", b"APETAGEX")
"""Tags that are written behind the last frame, by other formats' habits."""
STARTS: Final = (*SYNCS, MAGIC, *TRAILERS)
"""What may follow a frame."""
LONGEST_START_BYTES: Final = 8
STREAMINFO_BYTES: Final = 34
MAX_METADATA_BYTES: Final = 1 << 24
"""Skipped, not kept: pictures are often larger than a minute of speech."""
FRAME_OVERHEAD_BYTES: Final = 256
"""Headers of a frame and its channels, generously."""
MIN_FRAME_BYTES: Final = 9
LONGEST_HEADER_BYTES: Final = 16
CRC8_POLYNOMIAL: Final = 0x07


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """What a FLAC file says of itself."""

    raw: bytes
    """The metadata block, for the decoder."""

    @property
    def max_frame_bytes(self) -> int:
        """Of its largest block, not compressed at all: where no frame has ended by then, one is damaged."""
        block_samples = int.from_bytes(self.raw[2:4], "big")
        channels, bits = (self.raw[12] >> 1 & 7) + 1, (self.raw[12] & 1) << 4 | self.raw[13] >> 4
        return block_samples * channels * (bits + 2) // 8 + FRAME_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FlacFrame:
    """One frame, and the file that it is of."""

    info: StreamInfo
    data: bytes


class FlacFraming:
    """Bytes in any cuts to frames. One file may follow another."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._info: StreamInfo | None = None
        self._skip_bytes = 0
        self._metadata_bytes = 0
        self._in_metadata = True
        self._is_last_block = False
        self._is_over = False
        """Only a tag follows."""
        self._start = re.compile(b"|".join(map(re.escape, STARTS)))
        self._searched = 0
        self._crc, self._crc_bytes = 0, 0

    def push(self, data: bytes) -> list[FlacFrame]:
        """The frames that are whole because what follows them has started.

        Raises:
            BadAudio: This is no FLAC, or a frame is damaged.
        """
        if self._is_over:
            return []
        self._data += data
        frames = []
        while self._skip_metadata() if self._in_metadata else self._is_at_frame():
            if not self._in_metadata:
                frame = self._next_frame()
                if frame is None:
                    break
                frames.append(frame)
        if self._info is not None and len(self._data) > self._info.max_frame_bytes:
            raise BadAudio(f"the FLAC audio is damaged: no frame ends within {self._info.max_frame_bytes} bytes")
        return frames

    def candidate(self) -> FlacFrame | None:
        """What may be one whole frame: its checksum fits. One in 65,536 is none: it must be decoded to be believed."""
        data = self._data
        if self._in_metadata or self._info is None or len(data) < MIN_FRAME_BYTES:
            return None
        if crc16(bytes(data[self._crc_bytes :]), self._crc):
            return None
        return FlacFrame(info=self._info, data=bytes(data))

    def accept_candidate(self) -> None:
        """It was a frame: the next one starts after it."""
        self._take(len(self._data))

    def _skip_metadata(self) -> bool:
        """Goes on by one metadata block, or by a part of it. False: more bytes are needed."""
        if self._info is None:
            return self._read_stream_info()
        skipped = min(self._skip_bytes, len(self._data))
        del self._data[:skipped]
        self._skip_bytes -= skipped
        if self._skip_bytes:
            return False
        if self._is_last_block:
            self._in_metadata = False
            return True
        if len(self._data) < 4:
            return False
        self._is_last_block = bool(self._data[0] & 0x80)
        self._skip_bytes = 4 + int.from_bytes(self._data[1:4], "big")
        self._metadata_bytes += self._skip_bytes
        if self._metadata_bytes > MAX_METADATA_BYTES:
            raise BadAudio(f"the FLAC audio starts with more than {MAX_METADATA_BYTES >> 20} MiB of metadata")
        return True

    def _read_stream_info(self) -> bool:
        data, size = self._data, len(MAGIC) + 4 + STREAMINFO_BYTES
        if not MAGIC.startswith(data[:4]):
            raise BadAudio(f"the audio starts with {bytes(data[:4]).hex(' ')}, but FLAC starts with fLaC")
        if len(data) < size:
            return False
        if data[4] & 0x7F or int.from_bytes(data[5:8], "big") != STREAMINFO_BYTES:
            raise BadAudio("the FLAC audio does not start with its stream info")
        self._info = StreamInfo(raw=bytes(data[8:size]))
        self._is_last_block = bool(data[4] & 0x80)
        self._metadata_bytes = 0
        del data[:size]
        return True

    def _is_at_frame(self) -> bool:
        """Looks at what follows a frame or the metadata. False: more bytes are needed, or none.

        Raises:
            BadAudio: Nothing that may.
        """
        head = bytes(self._data[:LONGEST_START_BYTES])
        if head.startswith(SYNCS):
            return True
        if head.startswith(MAGIC):
            self._info, self._in_metadata = None, True
            return True
        if head.startswith(TRAILERS):
            self._is_over = True
            self._data.clear()
            return False
        if any(start.startswith(head) for start in STARTS):
            return False
        raise BadAudio(f"the FLAC audio is damaged: a frame starts with {head[:2].hex(' ')}")

    def _next_frame(self) -> FlacFrame | None:
        data = self._data
        while found := self._start.search(data, max(self._searched, MIN_FRAME_BYTES)):
            end = found.start()
            is_start: bool | None = True
            if found.group() in SYNCS:
                is_start = is_frame_header(bytes(data[end : end + LONGEST_HEADER_BYTES]))
            if is_start is None:
                break
            self._searched = end + 1
            if is_start and self._crc_until(end) == 0:
                return self._take(end)
        end = found.start() if found else len(data) - LONGEST_START_BYTES + 1
        self._searched = max(self._searched, end)
        self._crc_until(self._searched)
        return None

    def _crc_until(self, end: int) -> int:
        """Never computed twice over the same bytes, however few arrive at a time."""
        self._crc = crc16(bytes(self._data[self._crc_bytes : end]), self._crc)
        self._crc_bytes = end
        return self._crc

    def _take(self, n_bytes: int) -> FlacFrame:
        assert self._info is not None
        frame = FlacFrame(info=self._info, data=bytes(self._data[:n_bytes]))
        del self._data[:n_bytes]
        self._searched = self._crc = self._crc_bytes = 0
        return frame


def is_frame_header(head: bytes) -> bool | None:
    """Whether ``head`` starts with a frame header whose checksum fits; None if it is too short to say."""
    if len(head) < 5:
        return None
    size_code, rate_code = head[2] >> 4, head[2] & 0x0F
    if size_code == 0 or rate_code == 0x0F or head[3] >> 4 > 10 or head[3] & 1:
        return False
    number_bytes = _coded_number_bytes(head[4])
    n_bytes = 4 + number_bytes + {6: 1, 7: 2}.get(size_code, 0) + {12: 1, 13: 2, 14: 2}.get(rate_code, 0)
    if number_bytes == 0:
        return False
    if len(head) <= n_bytes:
        return None
    return crc8(head[:n_bytes]) == head[n_bytes]


def _coded_number_bytes(first: int) -> int:
    """Bytes of a number in UTF-8's manner, 0 if none starts so."""
    ones = 8 - (first ^ 0xFF).bit_length()
    return 1 if ones == 0 else ones if 2 <= ones <= 7 else 0


def crc8(data: bytes) -> int:
    """The checksum of a frame header."""
    state = 0
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state << 1) ^ CRC8_POLYNOMIAL if state & 0x80 else state << 1
        state &= 0xFF
    return state
