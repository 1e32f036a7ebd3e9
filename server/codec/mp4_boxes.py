"""Whether an MP4 can be read as it comes. Pure."""

from typing import Final

from server.errors import BadAudio

BOX_HEADER_BYTES: Final = 8
LONG_BOX_HEADER_BYTES: Final = 16


class BoxOrder:
    """Watches a file's bytes go by and refuses it where its audio comes before what describes it."""

    def __init__(self) -> None:
        self._head = b""
        self._skip_bytes = 0
        self._is_settled = False

    def check(self, data: bytes) -> None:
        """The next bytes.

        Raises:
            BadAudio: The media data comes first.
        """
        while data and not self._is_settled:
            skipped = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped
            needed = LONG_BOX_HEADER_BYTES if self._head[:4] == b"\x00\x00\x00\x01" else BOX_HEADER_BYTES
            taken = data[skipped : skipped + needed - len(self._head)]
            self._head += taken
            data = data[skipped + len(taken) :]
            self._read_header()

    def _read_header(self) -> None:
        head = self._head
        if len(head) < BOX_HEADER_BYTES:
            return
        size, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if kind == b"mdat":
            raise BadAudio(
                "the MP4 file has its index (moov) after its audio, so that nothing can be decoded as it comes: send "
                "fragmented MP4, or move the index to the front (ffmpeg -movflags +faststart)"
            )
        if kind == b"moov":
            self._is_settled = True
        elif size == 1:
            if len(head) == LONG_BOX_HEADER_BYTES:
                self._skip(int.from_bytes(head[8:16], "big") - LONG_BOX_HEADER_BYTES)
        else:
            self._skip(size - BOX_HEADER_BYTES)

    def _skip(self, n_bytes: int) -> None:
        """To the next box; what no box can be is left for the demuxer to refuse."""
        self._head, self._skip_bytes = b"", n_bytes
        self._is_settled = n_bytes < 0
