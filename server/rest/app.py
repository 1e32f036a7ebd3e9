"""The HTTP server of requests with a body: its routes, who may use them, how many at once, and their answers."""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from aiohttp import web

from server.access.access import Credentials
from server.errors import MoorageError, ServiceError
from server.rest.bodies import send
from server.rest.inference import Inference
from server.rest.limits import RequestLimit
from server.rest.model_routes import model_routes
from server.rest.model_stream import ModelStreams
from server.rest.parts import REQUEST_ID, Handler, Refusal, RestParts, Route
from server.rest.plain_routes import plain_route
from server.rest.recordings_routes import recording_routes
from server.rest.repository_routes import repository_routes
from server.rest.rest_socket import RestSocket
from server.wire.request_errors import unexpected

IDLE_S: Final = 75.0
"""Time for which a connection is kept between two requests, and within which the head of the next must be whole."""
SHORTEST_S: Final = 0.05
"""aiohttp takes no time at all for no limit."""
LINGER_S: Final = 2.0
"""Time for which the rest of a refused body is read, so that the client sees why."""
MAX_HEADER_BYTES: Final = 8_190

logger = logging.getLogger(__name__)


def build_rest(parts: RestParts) -> "RestApp":
    """The server of everything that has a body, and of ``/v2``."""
    inference = Inference(parts)
    streams = ModelStreams(inference)
    routes = (
        *model_routes(parts, inference),
        *streams.routes(),
        *repository_routes(parts),
        *recording_routes(parts),
    )
    return RestApp(parts, routes, inference, streams)


class RestApp:
    """Implements ``server.gateway.door.RestPort``.

    Args:
        parts: The service.
        routes: What is served; plain pages are besides.
        inference: Whose sequences may go on when the service is about to stop.
        streams: Connections that end when they are told to.
    """

    def __init__(self, parts: RestParts, routes: Sequence[Route], inference: Inference, streams: ModelStreams) -> None:
        self._parts = parts
        self._inference = inference
        self._streams = streams
        self.routes = tuple(routes)
        """What is served, without plain pages."""
        self._limit = RequestLimit(parts.config.http.max_requests)
        self._answered: Counter[tuple[str, int]] = Counter()
        self._sockets: dict[asyncio.BaseProtocol, RestSocket] = {}
        app = web.Application(client_max_size=parts.config.http.max_body_bytes)
        for route in (*routes, plain_route(parts)):
            serve = self._serving(route)
            app.router.add_route(route.method, route.path, serve)
            if route.method == "GET" and not route.is_work:
                app.router.add_route("HEAD", route.path, serve)
        app.on_response_prepare.append(_without_server_header)
        # what the parser refuses it would log with a traceback each, at the client's will; handlers log for themselves
        silent = logging.Logger("aiohttp", level=logging.CRITICAL + 1)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=silent,
            handler_cancellation=True,
            auto_decompress=False,  # it takes half of a packed body for a whole one
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            shutdown_timeout=parts.config.server.shutdown_timeout_s,
        )

    @property
    def active(self) -> int:
        """Requests that are worked on."""
        return self._limit.active

    @property
    def answered(self) -> Mapping[tuple[str, int], int]:
        """Requests by pattern of the address and status."""
        return self._answered

    async def start(self) -> None:
        """Before the first connection."""
        await self._runner.setup()

    def connect(self, tell_busy: Callable[[bool], None]) -> asyncio.Protocol:
        """A protocol for a connection that begins now."""
        server = self._runner.server
        assert server is not None, "it was started"
        inner = server()
        socket = RestSocket(inner, tell_busy, lambda: self._forget(inner))
        self._sockets[inner] = socket
        return socket

    def _forget(self, inner: asyncio.BaseProtocol) -> None:
        self._sockets.pop(inner, None)

    async def drain(self) -> None:
        """Returns when live sequences have come to their ends and everything that was taken is answered."""
        self._streams.wind_down()
        await self._inference.drained()
        await self._limit.all_done()

    async def stop(self, within_s: float) -> None:
        """Ends what is left, within so much time."""
        began_s = asyncio.get_running_loop().time()
        await self._streams.close(within_s)
        server = self._runner.server
        if server is not None:
            left_s = began_s + within_s - asyncio.get_running_loop().time()
            # before the runner, which has the same time for every stop, so that it finds nothing
            server.pre_shutdown()
            await server.shutdown(max(SHORTEST_S, left_s))
        await self._runner.cleanup()

    def _serving(self, route: Route) -> Handler:
        async def serve(request: web.Request) -> web.StreamResponse:
            socket = self._sockets.get(request.protocol)
            if socket is not None:
                socket.tell_busy(True)
            request[REQUEST_ID] = str(uuid.uuid4())
            try:
                response = await self._answer(route, request)
                self._answered[route.path, response.status] += 1
                return response
            finally:
                if socket is not None:
                    socket.tell_busy(False)

        return serve

    async def _answer(self, route: Route, request: web.Request) -> web.StreamResponse:
        timeout_s = self._parts.config.server.send_timeout_s
        try:
            if not route.is_open:
                self._parts.access.check(credentials_of(request))
            taken: AbstractContextManager[None] = self._limit.one_more() if route.is_work else nullcontext()
            with taken:
                response = await route.handler(request)
                if isinstance(response, web.Response) and not response.prepared:
                    if route.closes:
                        response.force_close()
                    await send(request, response, timeout_s=timeout_s)
                return response
        except MoorageError as error:
            if isinstance(error, ServiceError):
                logger.info("refused %s: %s", request.path[:200], error, extra={"request_id": request[REQUEST_ID]})
            refused = route.refuse(error, request[REQUEST_ID])
        except (ConnectionError, web.HTTPException):
            raise
        except Exception:
            logger.exception("a request failed", extra={"request_id": request[REQUEST_ID]})
            refused = route.refuse(unexpected(), request[REQUEST_ID])
        return await send(request, _response(refused, request, closes=route.closes), timeout_s=timeout_s)


def credentials_of(request: web.Request) -> Credentials:
    """What a request says of who sends it."""
    return Credentials.of_headers(lambda name: request.headers.getall(name, []))


def _response(refused: Refusal, request: web.Request, *, closes: bool) -> web.Response:
    body = refused.body if request.method != "HEAD" else b""
    response = web.Response(status=refused.status, body=body, headers=refused.headers)
    if closes or not request.content.at_eof():
        response.force_close()  # what follows is the body that was refused
    return response


async def _without_server_header(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop("Server", None)
    response.headers.setdefault("Cache-Control", "no-store")
