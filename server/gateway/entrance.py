"""From an opened socket to the upgrade: who is let in, what it takes of the service, and giving that back.

Sequences are taken just before the upgrade, so that a full service says 503 and not a close code, and given back when
the socket is lost, however far it came: in the handshake, in the middle of audio, or while results are on their way.
"""

import asyncio
import ssl
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from websockets.asyncio.server import Server, ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from server.access.access import SCHEMES, AccessControl, Credentials, Grant
from server.clock import Clock
from server.codec.intake import Intake, open_intake
from server.codec.pool import CodecPool
from server.configuration.config import ServerConfig
from server.engine.engine import Engine
from server.engine.sequence_handle import SequenceHandle
from server.errors import CapacityExceeded, MoorageError, PeerError, ServiceError, ShuttingDown
from server.gateway.door import Door, DoorParts, RestPort
from server.gateway.http import LISTEN_PATH, PROTECTED_PATHS, Reply, Site, UpgradeRequired, refusal, respond
from server.gateway.lobby import Lobby
from server.gateway.stream_log import StreamSource, log_ended, log_opened, log_refused
from server.ids import SequenceId
from server.wire.messages import ModelCards
from server.wire.query import SessionOptions, parse_query, sentiment_refused

SWITCHING_PROTOCOLS: Final = 101
END_OF_HEAD: Final = b"\r\n\r\n"
REQUEST_ID_HEADER: Final = "dg-request-id"


class ListenConnection(ServerConnection):
    """A socket with what it has taken of the service. Only its place among the sockets, where it turns out that its
    requests have bodies.
    """

    request_id: str = ""
    options: SessionOptions | None = None
    """Set for a request to the websocket that is let in and whose query is good."""
    grant: Grant | None = None
    """Set once the client's key lets it open its sequences."""
    handles: tuple[SequenceHandle, ...] = ()
    """Set once the sequences are taken, just before the upgrade."""
    opened_at_ns: int = 0
    """When that was."""
    intake: Intake | None = None
    """Set with the handles; a link closes it once there is one."""
    entrance: "Entrance"
    had_request: bool = False
    """Whether a request of it was whole, ever."""

    @property
    def source(self) -> StreamSource:
        """Whose stream it is, for logs."""
        return StreamSource(
            request_id=self.request_id, key_name=self.grant.key_name if self.grant is not None else None
        )

    def data_received(self, data: bytes) -> None:
        """Nothing may follow a request before it is answered: websockets logs that as an internal error of its own."""
        if self.protocol.state is State.CONNECTING and (self.request is not None or data.partition(END_OF_HEAD)[2]):
            self.transport.abort()
        else:
            super().data_received(data)


class ListenDoor(Door):
    """What websockets takes for the connection that it asked for, until a connection has the socket."""

    def __init__(self, parts: DoorParts, protocol: ServerProtocol) -> None:
        super().__init__(parts)
        self.protocol = protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """What a gateway joins."""

    engine: Engine
    """Where sequences live."""
    config: ServerConfig
    """Address and limits."""
    site: Site
    """What plain GETs show."""
    cards: ModelCards
    """The loaded models."""
    access: AccessControl
    """Who may come in."""
    codecs: CodecPool
    """Decoders of compressed audio; the gateway closes it."""
    clock: Clock
    tls: ssl.SSLContext | None = None
    """None: plain sockets."""
    logs_transcripts: bool = False
    """Whether final texts go to the log."""
    rest: RestPort | None = None
    """Who takes requests with bodies, and all below ``/v2``; None: they are refused."""


class Entrance:
    """Everything that happens to a connection before it has a link, and after."""

    def __init__(self, parts: GatewayParts) -> None:
        self.sockets: set[ListenConnection] = set()
        """All that are open, in whatever state."""
        self.is_closed = False
        """Set when new streams are refused because the service is about to stop."""
        self.refusals: Counter[str] = Counter()
        """Upgrades refused before the engine was asked, by error code."""
        self.closed: Counter[str] = Counter()
        """Websockets closed, by code."""
        self._parts = parts
        self._lobby: Lobby[ListenConnection] = Lobby(parts.config.max_handshakes)
        self._model_names = frozenset(card.name for card in (parts.cards.live, parts.cards.final) if card is not None)
        self._closing: set[asyncio.Task[None]] = set()
        """Intakes of connections that were lost before they had a link."""

    async def settle(self) -> None:
        """Waits until what lost connections had taken is given back."""
        await asyncio.gather(*self._closing)

    def make_connection(self, protocol: ServerProtocol, server: Server, **options: object) -> ListenDoor:
        """What a socket that is about to open talks to."""
        connection = ListenConnection(protocol, server, **options)  # type: ignore[arg-type]  # passed on as they came
        connection.entrance = self
        return ListenDoor(
            DoorParts(
                listen=connection,
                rest=self._parts.rest,
                opened=lambda transport: self.receive(connection, transport),
                tell_busy=lambda is_busy: self.tell_busy(connection, is_busy),
                dawdled=lambda: connection in self._lobby and not connection.had_request,
                closed=lambda: self.release(connection),
                buffer_bytes=self._parts.config.write_buffer_bytes,
                first_request_s=self._parts.config.handshake_timeout_s,
            ),
            protocol,
        )

    def process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Before the handshake: plain GETs are answered, everything that is not to be served is refused."""
        assert isinstance(connection, ListenConnection)
        connection.request_id = str(uuid.uuid4())
        path, _, query = request.path.partition("?")
        credentials = Credentials.of_headers(request.headers.get_all)
        try:
            if path != LISTEN_PATH:
                if path in PROTECTED_PATHS:
                    self._parts.access.check_page(credentials)
                return _response(respond(request.method, path, self._parts.site, query))
            if connection not in self.sockets:
                raise ClientLeft("the client has left")  # nobody would give back what is taken for it
            self._parts.access.check(credentials)
            _check_upgrade(request)
            options = parse_query(query, self._model_names)
            self._check_open()
            if options.sentiment:
                self._check_sentiment()
            connection.grant = self._parts.access.admit(credentials, options.sequences, self._parts.clock.now_ns())
        except MoorageError as error:
            self.refusals[error.code] += 1
            log_refused(connection.request_id, error.code)
            return _response(refusal(error, request_id=connection.request_id))
        connection.options = options
        return None

    def process_response(self, connection: ServerConnection, request: Request, response: Response) -> Response | None:
        """After the handshake was checked, the last thing before the upgrade: takes the sequences, all or none."""
        assert isinstance(connection, ListenConnection)
        self._lobby.leave(connection)
        connection.had_request = True
        options = connection.options
        if response.status_code != SWITCHING_PROTOCOLS or options is None:
            return None
        handles: list[SequenceHandle] = []
        try:
            intake = open_intake(options.audio, not options.multichannel, self._parts.codecs)
        except MoorageError as error:
            self.refusals[error.code] += 1
            return _response(refusal(error, request_id=connection.request_id))
        connection.intake = intake
        try:
            priority = 0 if connection.grant is None else connection.grant.priority
            sentiments = self._parts.engine.sentiment_reader if options.sentiment else None
            for sequence_id in _sequence_ids(connection.request_id, options.sequences):
                asked = options.sequence_options()
                handle = self._parts.engine.open(sequence_id, asked, priority=priority, sentiments=sentiments)
                handles.append(handle)
        except MoorageError as error:
            for handle in handles:
                self._parts.engine.cancel(handle)
            log_refused(connection.request_id, error.code)
            # the engine counts its own refusals
            return _response(refusal(error, request_id=connection.request_id))
        connection.handles = tuple(handles)
        connection.opened_at_ns = self._parts.clock.now_ns()
        log_opened(connection.source, options.audio, handles)
        response.headers[REQUEST_ID_HEADER] = connection.request_id
        return None

    def _check_sentiment(self) -> None:
        """Raises: BadQuery: nobody tells it, or not now."""
        reader = self._parts.engine.sentiment_reader
        if reader is None or not reader.is_ready:
            raise sentiment_refused(is_configured=reader is not None)

    def _check_open(self) -> None:
        if self.is_closed:
            raise ShuttingDown("the service is shutting down")
        if not self._parts.engine.is_ready:
            raise ServiceNotReady
        # those in the lobby, as this one is, take no stream's place
        if len(self.sockets) - len(self._lobby) >= self._parts.config.max_connections:
            raise CapacityExceeded(f"all {self._parts.config.max_connections} connections are taken")

    def receive(self, connection: ListenConnection, transport: asyncio.Transport) -> None:
        """A socket was opened. More than can be refused in words are cut off, and so are those that dawdle over it."""
        connection.transport = transport
        self.sockets.add(connection)
        config = self._parts.config
        longest = self._lobby.enter(connection)
        excess = connection if len(self.sockets) > config.max_connections + config.max_handshakes else None
        for each in (longest, excess):
            if each is not None:
                self.refusals["handshake_evicted"] += 1
                each.transport.abort()

    def tell_busy(self, connection: ListenConnection, is_busy: bool) -> None:
        """A socket that is kept between requests waits with those that have said nothing yet: it takes no stream's
        place, and the longest idle goes first.
        """
        connection.had_request = True
        if is_busy:
            self._lobby.leave(connection)
        elif connection in self.sockets and (longest := self._lobby.enter(connection)) is not None:
            self.refusals["handshake_evicted"] += 1
            longest.transport.abort()

    def release(self, connection: ListenConnection) -> None:
        """Gives back what a lost socket had taken."""
        self.sockets.discard(connection)
        self._lobby.leave(connection)
        for handle in connection.handles:
            self._parts.engine.cancel(handle)
        if connection.intake is not None:
            closing = asyncio.create_task(connection.intake.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        if connection.grant is not None:
            connection.grant.release()
        if connection.handles:
            close = connection.protocol.close_rcvd or connection.protocol.close_sent
            self.closed["abort" if close is None else str(close.code)] += 1
            connected_s = (self._parts.clock.now_ns() - connection.opened_at_ns) / 1e9
            log_ended(connection.source, connection.handles, None if close is None else close.code, connected_s)


class ClientLeft(PeerError):
    """The socket is gone before its request was looked at."""

    code = "client_left"


class ServiceNotReady(ServiceError):
    """The models are not loaded, or an instance is being replaced."""

    code = "not_ready"


def _check_upgrade(request: Request) -> None:
    """Raises: UpgradeRequired: a plain GET. What else a handshake lacks, websockets says."""
    connection, upgrade = (
        [each.strip().lower() for value in request.headers.get_all(name) for each in value.split(",")]
        for name in ("Connection", "Upgrade")
    )
    if request.method == "GET" and not ("upgrade" in connection and "websocket" in upgrade):
        raise UpgradeRequired(
            f"{LISTEN_PATH} is a websocket: connect with a websocket client, which sends Connection: Upgrade and "
            "Upgrade: websocket"
        )


def _sequence_ids(request_id: str, sequences: int) -> list[SequenceId]:
    """The request's own id for its only sequence, with the channel's number for one of several."""
    if sequences == 1:
        return [SequenceId(request_id)]
    return [SequenceId(f"{request_id}/{channel}") for channel in range(sequences)]


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


def select_subprotocol(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Browsers cannot set headers, so they offer ``token`` and their key; one of them must be picked."""
    return next((name for name in offered if name.lower() in SCHEMES), None)
