"""Bodies that come compressed, unpacked in bounded pieces. A body that ends before its packing does is none: aiohttp's
own unpacking takes half of one for a whole.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from server.wire.request_errors import BadRequest, shown

PIECE_BYTES: Final = 65_536
"""Most that is unpacked at a time, however small it was packed."""
PLAIN: Final = frozenset({"", "identity"})
GZIP: Final = frozenset({"gzip", "x-gzip"})
DEFLATE: Final = "deflate"
GZIP_BITS: Final = 16 + zlib.MAX_WBITS
ZLIB_METHOD: Final = 8
"""In the low bits of the first byte of zlib's format, which ``deflate`` means; some clients send it without."""


class Unpacker:
    """Of one body.

    Args:
        encoding: The header ``Content-Encoding``; "": there is none.

    Raises:
        BadRequest: It is packed in a way that is not taken.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        if self._encoding not in PLAIN | GZIP | {DEFLATE}:
            raise BadRequest(f"Content-Encoding is {shown(encoding)}; allowed: gzip, deflate, or none")
        self._inflater: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` unpacks to, in pieces.

        Raises:
            BadRequest: It is not packed as it says.
        """
        if self._encoding in PLAIN:
            yield data
            return
        while data:
            if self._inflater is None or (self._inflater.eof and self._encoding in GZIP):
                self._inflater = self._begun(data[0])  # gzip may be several of them in a row
            try:
                piece = self._inflater.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise self._refusal("is not") from None
            is_over = self._inflater.eof
            if is_over and self._inflater.unused_data and self._encoding not in GZIP:
                raise self._refusal("does not end as")
            data = self._inflater.unused_data if is_over else self._inflater.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> None:
        """The body is over.

        Raises:
            BadRequest: What it is packed in is not.
        """
        if self._inflater is not None and not self._inflater.eof:
            raise self._refusal("breaks off: it is not whole")

    def _begun(self, first: int) -> "zlib._Decompress":
        if self._encoding in GZIP:
            return zlib.decompressobj(GZIP_BITS)
        return zlib.decompressobj(zlib.MAX_WBITS if first & 0xF == ZLIB_METHOD else -zlib.MAX_WBITS)

    def _refusal(self, what: str) -> BadRequest:
        return BadRequest(f"the body cannot be read: it {what} {self._encoding}, which is its Content-Encoding")
