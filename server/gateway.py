"""Websockets to sequences and back; the only file of the service that imports websockets.

A sequence is taken before the upgrade (a full service says 503, not a close code) and given back when its socket is
lost, however far it came: in the handshake, in the middle of audio, or while results are on their way.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from server.config import ServerConfig
from server.engine import Engine
from server.errors import CapacityExceeded, MoorageError, ServiceError, ShuttingDown
from server.http import LISTEN_PATH, Reply, Site, refusal, respond
from server.ids import SequenceId
from server.metrics import GatewayStats
from server.sequence_handle import SequenceHandle
from server.wire.messages import Identity, ModelCards
from server.wire.query import SessionOptions, parse_query
from server.wire.session import Close, Command, End, Fail, Finalize, KeepAlive, Outgoing, SendAudio, Session

PIECE_BYTES: Final = 8192
"""A large message is taken in pieces, so that converting it never holds up the event loop; 0.5 s at 8 kHz."""
MAX_QUEUED_MESSAGES: Final = 4
"""Messages of one client that are read ahead; then its socket is not read until they are taken."""
SWITCHING_PROTOCOLS: Final = 101
REQUEST_ID_HEADER: Final = "dg-request-id"

logger = logging.getLogger(__name__)


class ListenConnection(ServerConnection):
    """A socket with what it has taken of the service."""

    request_id: str = ""
    options: SessionOptions | None = None
    """Set for a request to the websocket whose query is good."""
    handle: SequenceHandle | None = None
    """Set once a sequence is taken, just before the upgrade."""
    gateway: "Gateway"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        super().connection_made(transport)
        self.gateway.sockets.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, in whatever state: what it has taken is given back."""
        super().connection_lost(exc)
        self.gateway.release(self)


class Gateway:
    """The service's port.

    Args:
        engine: Where sequences live.
        config: Address and limits.
        site: What plain GETs show.
        cards: The loaded models.
    """

    def __init__(self, engine: Engine, config: ServerConfig, site: Site, cards: ModelCards) -> None:
        self.sockets: set[ListenConnection] = set()
        self.engine = engine
        self.config = config
        self._site = site
        self._cards = cards
        self._server: Server | None = None
        self._is_stopping = False
        self._open = 0
        self._opened = 0
        self._received_bytes = 0
        self._closed: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: The address cannot be had.
        """
        config = self.config
        self._server = await serve(
            self._serve,
            config.host,
            config.port,
            process_request=self._process_request,
            process_response=self._process_response,
            select_subprotocol=_select_subprotocol,
            # annotated as a class, called as a factory
            create_connection=cast(type[ServerConnection], self._make_connection),
            compression=None,
            server_header=None,
            open_timeout=config.handshake_timeout_s,
            ping_interval=config.ping_interval_s,
            ping_timeout=None,
            close_timeout=config.send_timeout_s,
            max_size=config.max_message_bytes,
            max_queue=MAX_QUEUED_MESSAGES,
            write_limit=config.write_buffer_bytes,
        )

    def stop_accepting(self) -> None:
        """New connections are refused from now on; live ones go on until the engine ends their sequences."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close(close_connections=False)

    async def stop(self) -> None:
        """Waits for the connections to close, as long as the configuration allows, then cuts them off."""
        self.stop_accepting()
        if self._server is None:
            return
        for connection in [each for each in self.sockets if each.handle is None]:
            connection.transport.abort()
        try:
            async with asyncio.timeout(self.config.shutdown_timeout_s):
                await self._server.wait_closed()
        except TimeoutError:
            for connection in list(self.sockets):
                connection.transport.abort()
            await self._server.wait_closed()

    def stats(self) -> GatewayStats:
        """A snapshot."""
        return GatewayStats(
            connections=self._open,
            connections_opened=self._opened,
            connections_closed=dict(self._closed),
            refusals=dict(self._refusals),
            received_bytes=self._received_bytes,
        )

    def count_received(self, n_bytes: int) -> None:
        """A client's audio came in."""
        self._received_bytes += n_bytes

    def release(self, connection: ListenConnection) -> None:
        """Gives back what a lost socket had taken."""
        self.sockets.discard(connection)
        if connection.handle is not None:
            self.engine.cancel(connection.handle)
            close = connection.protocol.close_rcvd or connection.protocol.close_sent
            self._closed["abort" if close is None else str(close.code)] += 1

    def _make_connection(self, protocol: ServerProtocol, server: Server, **options: object) -> ListenConnection:
        connection = ListenConnection(protocol, server, **options)  # type: ignore[arg-type]  # passed on as they came
        connection.gateway = self
        return connection

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Before the handshake: plain GETs are answered, a bad query or a service that is not ready refused."""
        assert isinstance(connection, ListenConnection)
        path, _, query = request.path.partition("?")
        if path != LISTEN_PATH:
            return _response(respond(request.method, path, self._site))
        connection.request_id = str(uuid.uuid4())
        try:
            connection.options = parse_query(query)
            self._check_open()
        except MoorageError as error:
            return self._refused(error, connection.request_id)
        return None

    def _process_response(self, connection: ServerConnection, request: Request, response: Response) -> Response | None:
        """After the handshake was checked, the last thing before the upgrade: takes the sequence."""
        assert isinstance(connection, ListenConnection)
        if response.status_code != SWITCHING_PROTOCOLS or connection.options is None:
            return None
        try:
            connection.handle = self.engine.open(SequenceId(connection.request_id))
        except MoorageError as error:
            # the engine counts its own refusals
            return _response(refusal(error, request_id=connection.request_id))
        response.headers[REQUEST_ID_HEADER] = connection.request_id
        return None

    def _check_open(self) -> None:
        if self._is_stopping:
            raise ShuttingDown("the service is shutting down")
        if not self.engine.is_ready:
            raise ServiceNotReady
        if len(self.sockets) > self.config.max_connections:
            raise CapacityExceeded(f"all {self.config.max_connections} connections are taken")

    def _refused(self, error: MoorageError, request_id: str) -> Response:
        self._refusals[error.code] += 1
        return _response(refusal(error, request_id=request_id))

    async def _serve(self, connection: ServerConnection) -> None:
        """One client, from upgrade to close."""
        assert isinstance(connection, ListenConnection)
        handle, options = connection.handle, connection.options
        assert handle is not None
        assert options is not None
        self._open += 1
        self._opened += 1
        link = _Link(self, connection, handle, Session(options, self._identity(connection)))
        try:
            await link.run()
        finally:
            self._open -= 1

    def _identity(self, connection: ListenConnection) -> Identity:
        return Identity(
            request_id=connection.request_id,
            sequence_id=connection.request_id,
            created=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            models=self._cards,
        )


class ServiceNotReady(ServiceError):
    """The models are not loaded, or an instance is being replaced."""

    code = "not_ready"


class _Link:
    """One open connection: a task that reads and one that writes, with the session between them."""

    def __init__(
        self, gateway: Gateway, connection: ListenConnection, handle: SequenceHandle, session: Session
    ) -> None:
        self._gateway = gateway
        self._connection = connection
        self._handle = handle
        self._session = session

    async def run(self) -> None:
        """Until the sequence has ended and its end is told, or the client has left."""
        reader = asyncio.create_task(self._read())
        try:
            async for event in self._handle.events():
                for outgoing in self._session.translate(event):
                    await self._send(outgoing)
        except ConnectionClosed:
            pass  # the client has left; nobody is there to be told
        except TimeoutError:
            logger.warning("%s reads too slowly, closing", self._connection.request_id)
            self._connection.transport.abort()
        finally:
            reader.cancel()
            await asyncio.wait([reader])

    async def _read(self) -> None:
        try:
            async for message in self._connection:
                await self._take(message)
        except (ConnectionClosed, TimeoutError):
            pass  # a lost socket cancels the sequence, which ends the writing side
        except Exception:
            logger.exception("%s: reading failed", self._connection.request_id)
            self._session.fail(ServiceError("reading failed"))
        self._gateway.engine.cancel(self._handle)

    async def _take(self, message: str | bytes) -> None:
        if isinstance(message, str):
            await self._apply(self._session.receive_text(message))
        else:
            self._gateway.count_received(len(message))
            for piece in _pieces(message):
                await self._apply(self._session.receive_binary(piece))
        for outgoing in self._session.pending():
            await self._send(outgoing)

    async def _apply(self, commands: Sequence[Command]) -> None:
        for command in commands:
            try:
                await self._apply_one(command)
            except MoorageError as error:
                # the sequence is over; its terminal event tells the client why
                logger.debug("%s: %s", self._connection.request_id, error)

    async def _apply_one(self, command: Command) -> None:
        match command:
            case SendAudio(samples):
                await self._handle.send(samples)
            case Finalize():
                await self._handle.finalize()
            case End():
                await self._handle.end()
            case KeepAlive():
                self._handle.keep_alive()
            case Fail():
                self._gateway.engine.cancel(self._handle)

    async def _send(self, outgoing: Outgoing) -> None:
        """Raises: TimeoutError: the client does not read. ConnectionClosed: it has left."""
        if isinstance(outgoing, Close):
            await self._connection.close(outgoing.code, outgoing.reason)
            return
        async with asyncio.timeout(self._gateway.config.send_timeout_s):
            await self._connection.send(outgoing.text)


def _pieces(message: bytes) -> Iterator[bytes]:
    """The message in order; an empty one once."""
    yield message[:PIECE_BYTES]
    for start in range(PIECE_BYTES, len(message), PIECE_BYTES):
        yield message[start : start + PIECE_BYTES]


def _response(reply: Reply) -> Response:
    headers = Headers(
        {
            "Content-Type": reply.content_type,
            "Content-Length": str(len(reply.body)),
            "Connection": "close",
            "Cache-Control": "no-store",
            **reply.headers,
        }
    )
    return Response(reply.status.value, reply.status.phrase, headers, reply.body)


def _select_subprotocol(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Browsers cannot set headers, so they offer ``token`` and their key; one of them must be picked."""
    return next((name for name in offered if name in ("token", "bearer")), None)
