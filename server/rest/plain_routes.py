"""What stands at no address of its own: the plain pages, on a connection that is kept; else what is known."""

from aiohttp import web

from server.access.access import Credentials
from server.errors import MoorageError, ShuttingDown
from server.gateway.http import LISTEN_PATH, PROTECTED_PATHS, TRANSCRIPTIONS_PATH, UpgradeRequired, respond
from server.rest.parts import REQUEST_ID, Refusal, RestParts, Route
from server.rest.refusals import kserve_refusal, listen_refusal, openai_refusal
from server.wire.request_errors import MethodRefused, NotSupported, UnknownPath

MODELS_PATH = "/v2"
POSTED = {LISTEN_PATH: "GET, POST", TRANSCRIPTIONS_PATH: "POST"}
"""Methods of the addresses of recordings; a GET of the first is a websocket."""
NOT_SERVED = {
    "systemsharedmemory": "shared memory",
    "cudasharedmemory": "shared memory",
    "trace": "tracing",
    "logging": "log settings over the network",
    "generate": "generation",
    "generate_stream": "generation",
}
"""Parts of Triton's protocol, by a word of their addresses."""


def plain_route(parts: RestParts) -> Route:
    """The last of the routes: any method, any path."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == MODELS_PATH or request.path.startswith(f"{MODELS_PATH}/"):
            response = _response(kserve_refusal(await _unknown(request), request[REQUEST_ID]), request)
        else:
            response = _page(parts, request)
        if not request.content.at_eof() or request.method not in ("GET", "HEAD"):
            response.force_close()
        return response

    return Route(method="*", path="/{path:.*}", handler=answer, refuse=kserve_refusal, is_open=True, is_work=False)


def _page(parts: RestParts, request: web.Request) -> web.Response:
    try:
        if request.path in POSTED and request.method not in ("GET", "HEAD"):
            allowed = POSTED[request.path]
            raise MethodRefused(f"{request.method} is not served here; allowed: {allowed}", allowed=allowed)
        if request.path == LISTEN_PATH:
            raise _misplaced(parts, request)
        if request.path in PROTECTED_PATHS:
            credentials = Credentials.of_headers(lambda name: request.headers.getall(name, []))
            parts.access.check_page(credentials)
    except MoorageError as error:
        refuse = openai_refusal if request.path == TRANSCRIPTIONS_PATH else listen_refusal
        response = _response(refuse(error, request[REQUEST_ID]), request)
        if request.path == LISTEN_PATH:
            response.force_close()  # the next request may be the first of a connection
        return response
    reply = respond(request.method, request.path, parts.site, request.query_string)
    headers = {"Content-Type": reply.content_type, **reply.headers}
    return web.Response(status=reply.status.value, body=reply.body, headers=headers)


def _misplaced(parts: RestParts, request: web.Request) -> MoorageError:
    """Why there is no websocket on a connection that had requests before."""
    is_upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
    if is_upgrade and parts.site.is_draining():
        return ShuttingDown("the service is shutting down")
    return UpgradeRequired(f"{LISTEN_PATH} is a websocket: open it with the first request of a connection")


async def _unknown(request: web.Request) -> MoorageError:
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        if resource.canonical != "/{path}":
            _, methods = await resource.resolve(request)
            allowed |= methods
    if allowed:
        methods_text = ", ".join(sorted(allowed))
        return MethodRefused(f"{request.method} is not served here; allowed: {methods_text}", allowed=methods_text)
    for word in request.path.split("/"):
        if word in NOT_SERVED:
            return NotSupported(f"{NOT_SERVED[word]} is a part of Triton's protocol that is not served here")
    known = ", ".join(
        sorted({each.canonical for each in request.app.router.resources() if each.canonical.startswith(MODELS_PATH)})
    )
    return UnknownPath(f"nothing is served there; known: {known}")


def _response(refused: Refusal, request: web.Request) -> web.Response:
    body = refused.body if request.method != "HEAD" else b""
    return web.Response(status=refused.status, body=body, headers=refused.headers)
