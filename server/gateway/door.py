"""A socket from its first byte to its last. It looks at the first request line, and hands everything to the server that
takes such requests; what that may read in one turn of the loop stays bounded.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from server.gateway.bounded_socket import BoundedSocket
from server.gateway.request_line import Target, target

MAX_ANSWER_BYTES: Final = 1_048_576
"""What may wait to be sent beyond the write buffer: one long result, or answers to pings."""


class RestPort(Protocol):
    """The server of requests with a body, as the gateway sees it."""

    @property
    def active(self) -> int:
        """Requests that are worked on."""

    @property
    def answered(self) -> Mapping[tuple[str, int], int]:
        """Requests by pattern of the address and status."""

    async def start(self) -> None:
        """Before the first connection."""

    def connect(self, tell_busy: Callable[[bool], None]) -> asyncio.Protocol:
        """A protocol for a connection that begins now. ``tell_busy`` is told when a request is worked on and when none
        is.
        """

    async def drain(self) -> None:
        """Takes nothing new; returns when everything that was taken is answered."""

    async def stop(self, within_s: float) -> None:
        """Ends what is left, within so much time. Nothing is running then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorParts:
    """What a door leads to."""

    listen: asyncio.Protocol
    """Connected only if the first request is one of its kind."""
    rest: RestPort | None
    opened: Callable[[asyncio.Transport], None]
    """The socket is there."""
    tell_busy: Callable[[bool], None]
    """Whether a request with a body is worked on."""
    dawdled: Callable[[], bool]
    """Whether it still waits for its first request, when its time for that is over."""
    closed: Callable[[], None]
    """The socket is gone, in whatever state."""
    buffer_bytes: int
    """What the kernel may hold of what is sent; Linux takes twice as much."""
    first_request_s: float
    """Time until the first request must be there."""


class Door(BoundedSocket):
    """What the event loop knows of a connection."""

    def __init__(self, parts: DoorParts) -> None:
        self.max_unsent_bytes = parts.buffer_bytes + MAX_ANSWER_BYTES
        self._parts = parts
        self._seen = b""
        self._taker: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        with suppress(OSError):  # the peer may have left by now
            # the kernel's own choice is megabytes: results would seem to be read long after nobody reads
            sender = transport.get_extra_info("socket")
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._parts.buffer_bytes)
        self._timer = asyncio.get_running_loop().call_later(self._parts.first_request_s, self._time_is_over)
        self._parts.opened(transport)
        if self._parts.rest is None:
            self._hand_to(self._parts.listen)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._taker is not None:
            self._taker.data_received(data)
            return
        self._seen += data
        match target(self._seen):
            case Target.LISTEN:
                self._hand_to(self._parts.listen)
            case Target.REST:
                assert self._parts.rest is not None
                self.max_unsent_bytes = sys.maxsize  # it sends one answer after the other, and waits for each
                self._hand_to(self._parts.rest.connect(self._parts.tell_busy))

    def _hand_to(self, taker: asyncio.Protocol) -> None:
        self._taker = taker
        seen, self._seen = self._seen, b""
        taker.connection_made(self.transport)
        if seen:
            taker.data_received(seen)

    def _time_is_over(self) -> None:
        if self._parts.dawdled():
            self.transport.abort()

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return None if self._taker is None else self._taker.eof_received()

    def pause_writing(self) -> None:
        """The client does not read."""
        if self._taker is not None:
            self._taker.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._taker is not None:
            self._taker.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._taker is not None:
            self._taker.connection_lost(exc)
        self._parts.closed()
