"""One connection of requests with bodies, between the door and aiohttp's own protocol."""

import asyncio
from collections.abc import Callable


class RestSocket(asyncio.Protocol):
    """Passes everything on, and knows whether a request is worked on.

    Args:
        inner: aiohttp's protocol of the connection.
        tell_busy: Is told when a request begins and when one is answered.
        closed: Is told when the socket is gone.
    """

    def __init__(self, inner: asyncio.Protocol, tell_busy: Callable[[bool], None], closed: Callable[[], None]) -> None:
        self._inner = inner
        self._tell_busy = tell_busy
        self._closed = closed
        self._is_lost = False

    def tell_busy(self, is_busy: bool) -> None:
        """A request is whole up to its body; or it is answered, and the client may send the next."""
        if not self._is_lost:
            self._tell_busy(is_busy)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._is_lost = True
        self._inner.connection_lost(exc)
        self._closed()
