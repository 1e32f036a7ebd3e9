"""The service's port: websockets to sequences and back, from the first connection to the last."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, cast

from websockets.asyncio.server import Server, ServerConnection, serve

from server.errors import ShuttingDown
from server.figures.metrics import GatewayStats
from server.gateway.entrance import Entrance, GatewayParts, ListenConnection, select_subprotocol
from server.gateway.link import Link, LinkParts
from server.wire.messages import Identity
from server.wire.session import Session, SessionLimits

SPARE_SIZE: Final = 2
"""Messages so many times the allowed size are still read whole, so that the client is told in words what it did."""
MAX_QUEUED_MESSAGES: Final = 4
"""Messages of one client that are read ahead; then its socket is not read until they are taken."""

CLOSING_S: Final = 1.0
"""Of the time for the shutdown, half of it at most: kept for the ends of the workers, and the closes of those whose
answers have taken the rest."""


class Gateway:
    """The service's port."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._entrance = Entrance(parts)
        self._server: Server | None = None
        self._links: set[Link] = set()
        self._last_closed = asyncio.Event()
        self._opened = 0
        self._received_bytes = 0
        self._stop_by_s: float | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def sockets(self) -> frozenset[ListenConnection]:
        """All that are open, in whatever state."""
        return frozenset(self._entrance.sockets)

    @property
    def is_draining(self) -> bool:
        """Whether new streams are refused because the service is about to stop."""
        return self._entrance.is_closed

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: The address cannot be had.
        """
        config, rest = self._config, self._parts.rest
        if rest is not None:
            await rest.start()
        self._server = await serve(
            self._serve,
            config.host,
            config.port,
            ssl=self._parts.tls,
            ssl_handshake_timeout=config.handshake_timeout_s if self._parts.tls is not None else None,
            process_request=self._entrance.process_request,
            process_response=self._entrance.process_response,
            select_subprotocol=select_subprotocol,
            # annotated as a class, called as a factory; what it makes hands the socket to a connection, or to another
            create_connection=cast(type[ServerConnection], self._entrance.make_connection),
            compression=None,
            server_header=None,
            open_timeout=config.handshake_timeout_s,
            ping_interval=config.ping_interval_s,
            ping_timeout=None,
            close_timeout=config.send_timeout_s,
            max_size=SPARE_SIZE * config.max_message_bytes,
            max_queue=MAX_QUEUED_MESSAGES,
            write_limit=config.write_buffer_bytes,
        )

    async def drain(self) -> None:
        """Refuses new streams, lets the live ones come to their ends within the limit, then ends those that are left.

        Those are closed with 1012 after everything that they had sent is answered. Those that still wait for a slot are
        ended first, so that none of them gets one that another gives back: there is no time to answer them.
        """
        self._entrance.is_closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain_timeout_s):
                await asyncio.gather(self._all_closed(), *([self._parts.rest.drain()] if self._parts.rest else []))
        error = ShuttingDown("the service is shutting down")
        for link in self._links:
            link.give_up_waiting(error)
        with suppress(TimeoutError):
            closing_s = min(CLOSING_S, self._config.shutdown_timeout_s / 2)
            async with asyncio.timeout_at(self._stop_by() - closing_s):
                await asyncio.gather(*(link.wind_up(error) for link in list(self._links)))
                await self._all_closed()

    def stop_accepting(self) -> None:
        """Nobody can connect any more; live connections go on until the engine ends their sequences."""
        self._entrance.is_closed = True
        self._stop_by()
        if self._server is not None:
            self._server.close(close_connections=False)

    async def stop(self) -> None:
        """Waits for the connections to close, as long as the configuration allows, then cuts them off.

        The time runs from where the drain was over, or from ``stop_accepting``.
        """
        self.stop_accepting()
        if self._parts.rest is not None:
            await self._parts.rest.stop(max(0.0, self._stop_by() - asyncio.get_running_loop().time()))
        if self._server is not None:
            for connection in [each for each in self._entrance.sockets if not each.handles]:
                connection.transport.abort()
            try:
                async with asyncio.timeout_at(self._stop_by()):
                    await self._server.wait_closed()
            except TimeoutError:
                for connection in list(self._entrance.sockets):
                    connection.transport.abort()
                await self._server.wait_closed()
        await self._entrance.settle()
        await self._parts.codecs.close()

    def stats(self) -> GatewayStats:
        """A snapshot."""
        codecs = self._parts.codecs.stats()
        return GatewayStats(
            connections=len(self._links),
            connections_opened=self._opened,
            connections_closed=dict(self._entrance.closed),
            refusals=dict(self._entrance.refusals),
            received_bytes=self._received_bytes,
            key_streams=self._parts.access.streams(),
            codec_streams=codecs.streams,
            codec_processes=codecs.processes,
            codec_processes_lost=codecs.lost_processes,
            http_active=self._parts.rest.active if self._parts.rest else 0,
            http_answered=dict(self._parts.rest.answered) if self._parts.rest else {},
        )

    def count_received(self, n_bytes: int) -> None:
        """A client's audio came in."""
        self._received_bytes += n_bytes

    def _stop_by(self) -> float:
        """When the last connection is cut off, on the loop's clock."""
        if self._stop_by_s is None:
            self._stop_by_s = asyncio.get_running_loop().time() + self._config.shutdown_timeout_s
        return self._stop_by_s

    async def _all_closed(self) -> None:
        while self._links:
            self._last_closed.clear()
            await self._last_closed.wait()

    async def _serve(self, connection: ServerConnection) -> None:
        """One client, from upgrade to close."""
        assert isinstance(connection, ListenConnection)
        link = self._link(connection)
        self._links.add(link)
        self._opened += 1
        try:
            await link.run()
        finally:
            self._links.discard(link)
            self._last_closed.set()

    def _link(self, connection: ListenConnection) -> Link:
        options, grant, intake, config = connection.options, connection.grant, connection.intake, self._config
        assert options is not None, "every upgraded connection is to the websocket"
        assert grant is not None, "and was granted"
        assert intake is not None, "and can be heard"
        connection.intake = None
        limits = SessionLimits(max_message_bytes=config.max_message_bytes, max_sequence_s=config.max_sequence_s)
        identity = Identity(
            request_id=connection.request_id,
            sequence_ids=tuple(handle.sequence_id for handle in connection.handles),
            created=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            models=self._parts.cards,
        )
        return Link(
            LinkParts(
                socket=connection,
                session=Session(options, identity, limits),
                handles=connection.handles,
                intake=intake,
                grant=grant,
                clock=self._parts.clock,
                cancel=self._parts.engine.cancel,
                count_received=self.count_received,
                send_timeout_s=config.send_timeout_s,
                logs_transcripts=self._parts.logs_transcripts,
            )
        )
