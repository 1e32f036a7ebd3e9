"""Whether an Ogg stream is whole, page by page as its bytes arrive. Pure.

Demuxers drop a page whose checksum does not fit and go on with the next one: a second of audio is gone, and everything
after it is heard at the wrong time.
"""

import zlib
from typing import Final

from server.errors import BadAudio

MAGIC: Final = b"OggS"
HEADER_BYTES: Final = 27
POSITION: Final = slice(6, 14)
SERIAL: Final = slice(14, 18)
NUMBER: Final = slice(18, 22)
CHECKSUM: Final = slice(22, 26)
IS_FIRST, IS_LAST = 2, 4
NO_AUDIO_YET: Final = (0, (1 << 64) - 1)
"""Positions of pages of headers, and of pages on which no packet ends."""
ONES: Final = 0xFFFF_FFFF


class OggPages:
    """Watches a stream's bytes go by. Files may follow one another (chains), and streams run side by side."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left_bytes = 0
        """Of the page's content."""
        self._checksum = 0
        self._numbers: dict[bytes, int | None] = {}
        """Of each stream's last page; None while only headers were seen: a stream that was joined late jumps then."""
        self._is_in_group = False
        """The last page was a stream's first one: those of all streams side by side come together."""
        self._is_over = False
        """No page has followed a file's last one yet; a tag may, by other formats' habits."""
        self._reversed = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

    def check(self, data: bytes) -> None:
        """The next bytes.

        Raises:
            BadAudio: A page is damaged, missing, or comes again.
        """
        while data:
            if self._left_bytes:
                content, data = data[: self._left_bytes], data[self._left_bytes :]
                self._left_bytes -= len(content)
                self._add(content)
            else:
                needed = self._header_bytes() - len(self._head)
                self._head += data[:needed]
                data = data[needed:]
                if not self._has_header():
                    continue
                self._start_page()
            if not self._left_bytes:
                self._end_page()

    def _header_bytes(self) -> int:
        """As far as it is known yet."""
        return HEADER_BYTES if len(self._head) < HEADER_BYTES else HEADER_BYTES + self._head[26]

    def _has_header(self) -> bool:
        """Whether the page's header is whole, sizes included."""
        head = self._head
        if self._is_over and not MAGIC.startswith(head[:4]):
            self._seek_magic()
        elif not MAGIC.startswith(head[:4]):
            raise BadAudio(f"the Ogg audio is damaged: a page starts with {bytes(head[:4]).hex(' ')}, not OggS")
        return len(head) >= HEADER_BYTES and len(head) == self._header_bytes()

    def _seek_magic(self) -> None:
        """Over what is no page behind a file's last one; should a page have been lost there, the next one tells."""
        found = self._head.find(MAGIC)
        del self._head[: found if found >= 0 else -len(MAGIC) + 1]

    def _start_page(self) -> None:
        head = self._head
        self._left_bytes = sum(head[HEADER_BYTES:])
        self._checksum = 0
        self._is_over = False
        self._add(bytes(head[: CHECKSUM.start]) + bytes(4) + bytes(head[CHECKSUM.stop :]))

    def _add(self, data: bytes) -> None:
        """The checksum is the usual one of 32 bits with each byte's bits turned round, and nothing inverted."""
        self._checksum = zlib.crc32(data.translate(self._reversed), self._checksum ^ ONES) ^ ONES

    def _end_page(self) -> None:
        head = bytes(self._head)
        self._head.clear()
        serial, number = head[SERIAL], int.from_bytes(head[NUMBER], "little")
        if self._checksum.to_bytes(4, "little").translate(self._reversed)[::-1] != head[CHECKSUM]:
            raise BadAudio(f"the Ogg audio is damaged: the checksum of page {number} does not fit")
        self._follow(serial, number, head[5])
        if self._numbers[serial] is not None or int.from_bytes(head[POSITION], "little") not in NO_AUDIO_YET:
            self._numbers[serial] = number
        if head[5] & IS_LAST:
            del self._numbers[serial]
            self._is_over = not self._numbers

    def _follow(self, serial: bytes, number: int, flags: int) -> None:
        """Raises: BadAudio: this is not the stream's next page."""
        if flags & IS_FIRST:
            if not self._is_in_group:
                self._numbers.clear()  # the files before are over, whether or not they said so
            self._numbers[serial] = None
        self._is_in_group = bool(flags & IS_FIRST)
        if serial not in self._numbers:
            raise BadAudio(f"the Ogg audio is damaged: page {number} is of a stream that has not started")
        last = self._numbers[serial]
        if last is not None and number != (last + 1) & ONES:
            raise BadAudio(f"the Ogg audio is damaged: page {number} follows page {last}")
