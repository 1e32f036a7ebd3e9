"""What one socket can make the event loop do and hold, bounded, whatever its peer sends.

A read of asyncio takes up to 256 KiB, which may be forty thousand empty frames: half a second in which nobody else is
served. And answers to pings go out without asking whether the peer reads, so that one that does not could fill memory.
"""

import asyncio
from typing import Final

READ_BYTES: Final = 8_192
"""Most that is taken in one turn of the loop: a quarter of a second of linear16 at 16 kHz, or some 20 ms of work."""


class BoundedSocket(asyncio.Protocol, asyncio.BufferedProtocol):
    """The last base of a protocol, whose ``data_received`` then gets at most READ_BYTES a turn, over TLS as well.

    asyncio lets a buffered protocol say how much it takes; its other verbs stay those of a plain one.
    """

    transport: asyncio.Transport
    """Set by the protocol when it has one."""
    max_unsent_bytes: int
    """A socket with more waiting to be sent is cut off. Whoever sends results waits long before; only answers to pings
    and closes do not."""
    _buffer: memoryview | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be put. A view, because asyncio slices it to put one record behind another."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(READ_BYTES))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        assert self._buffer is not None
        self.data_received(bytes(self._buffer[:nbytes]))
        if self.transport.get_write_buffer_size() > self.max_unsent_bytes:
            self.transport.abort()
