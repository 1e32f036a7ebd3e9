"""Plain GETs on the service's port, as pure functions: a path and the state of the service in, a response out."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from server.errors import CapacityExceeded, MoorageError
from server.stats import EngineStats, ModelStats
from server.wire.close_codes import public_message
from server.wire.query import BadQuery

LISTEN_PATH: Final = "/v1/listen"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
RETRY_AFTER_S: Final = 1
MAX_HEADER_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the routes show."""

    stats: Callable[[], EngineStats]
    metrics: Callable[[], bytes]
    """The Prometheus page."""
    version: str


def respond(method: str, path: str, site: Site) -> Reply:
    """The response to a request that is not for the websocket. ``path`` is without its query."""
    route = ROUTES.get(path)
    if route is None:
        known = ", ".join((*ROUTES, LISTEN_PATH))
        return Reply(status=HTTPStatus.NOT_FOUND, body=f"not found; known paths: {known}\n".encode())
    if method != "GET":
        return Reply(status=HTTPStatus.METHOD_NOT_ALLOWED, body=b"only GET\n", headers={"Allow": "GET"})
    return route(site)


def refusal(error: MoorageError, *, request_id: str) -> Reply:
    """The answer to a refused upgrade: 400 for a query that is wrong, 503 for a service that cannot take it."""
    message = public_message(error)
    body: dict[str, str | None] = {"err_code": error.code, "err_msg": message, "request_id": request_id}
    headers = {"dg-error": _header_text(message), "dg-request-id": request_id}
    if isinstance(error, BadQuery):
        body |= {"parameter": error.parameter, "value": error.value, "allowed": error.allowed}
        return _json(HTTPStatus.BAD_REQUEST, body, headers)
    retry_after_s = error.retry_after_s if isinstance(error, CapacityExceeded) else RETRY_AFTER_S
    return _json(HTTPStatus.SERVICE_UNAVAILABLE, body, headers | {"Retry-After": str(retry_after_s)})


def _index(site: Site) -> Reply:
    lines = (
        f"Moorage {site.version}: streaming speech recognition.",
        "",
        f"{LISTEN_PATH}  websocket: binary linear16 audio in, JSON results out (Deepgram's live protocol)",
        "/v1/models  what is loaded",
        "/healthz    200 while the service runs",
        "/readyz     200 while it takes new sequences",
        "/metrics    Prometheus",
        "",
    )
    return Reply(status=HTTPStatus.OK, body="\n".join(lines).encode())


def _healthz(site: Site) -> Reply:
    return Reply(status=HTTPStatus.OK, body=b"ok\n")


def _readyz(site: Site) -> Reply:
    stats = site.stats()
    body = {
        "ready": stats.is_ready,
        "models": {model.role: f"{model.instances_ready}/{model.instances} instances ready" for model in stats.models},
    }
    return _json(HTTPStatus.OK if stats.is_ready else HTTPStatus.SERVICE_UNAVAILABLE, body)


def _metrics(site: Site) -> Reply:
    return Reply(status=HTTPStatus.OK, body=site.metrics(), content_type=METRICS_TEXT)


def _models(site: Site) -> Reply:
    return _json(HTTPStatus.OK, {"models": [_model(model) for model in site.stats().models]})


def _model(model: ModelStats) -> dict[str, str | int | None]:
    return {
        "role": model.role,
        "name": model.name,
        "scheduler": model.scheduler,
        "device": model.device,
        "instances": model.instances,
        "instances_ready": model.instances_ready,
        "slots": model.slots,
        "slot_bytes": model.slot_bytes,
        "streams": model.streams,
    }


def _header_text(text: str) -> str:
    """Printable ASCII alone: what a client wrote must not end a header and start another."""
    return "".join(mark if " " <= mark <= "~" else "?" for mark in text)[:MAX_HEADER_CHARS]


def _json(status: HTTPStatus, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Reply:
    text = json.dumps(body, ensure_ascii=False) + "\n"
    return Reply(status=status, body=text.encode(errors="replace"), content_type=JSON, headers=headers or {})


ROUTES: Final[Mapping[str, Callable[[Site], Reply]]] = {
    "/": _index,
    "/healthz": _healthz,
    "/readyz": _readyz,
    "/metrics": _metrics,
    "/v1/models": _models,
}
