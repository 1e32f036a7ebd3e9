"""Plain GETs on the service's port, as pure functions: a path and the state of the service in, a response out."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from server.codec.audio_format import CONTAINERS, ENCODINGS
from server.errors import CapacityExceeded, KeyLimit, MoorageError, OriginRefused, PeerError, Unauthorized
from server.figures.stats import EngineStats
from server.gateway.model_page import model_entry
from server.wire.close_codes import public_message
from server.wire.query import BadQuery
from server.wire.recordings.openai_answer import error_body
from server.wire.request_errors import MethodRefused

LISTEN_PATH: Final = "/v1/listen"
TRANSCRIPTIONS_PATH: Final = "/v1/audio/transcriptions"
READY_PATH: Final = "/readyz"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
RETRY_AFTER_S: Final = 1
MAX_HEADER_CHARS: Final = 500
OPEN_PATHS: Final = frozenset({"/", "/healthz", "/readyz"})
"""Shown to everybody: load balancers have no keys, and there is nothing in them."""


class UpgradeRequired(PeerError):
    """A plain GET of the websocket's path."""

    code = "upgrade_required"


REFUSAL_STATUS: Final[Mapping[type[MoorageError], HTTPStatus]] = {
    UpgradeRequired: HTTPStatus.UPGRADE_REQUIRED,
    PeerError: HTTPStatus.BAD_REQUEST,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    OriginRefused: HTTPStatus.FORBIDDEN,
    KeyLimit: HTTPStatus.TOO_MANY_REQUESTS,
    MoorageError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""By the nearest class."""
REFUSAL_CODES: Final[Mapping[type[MoorageError], str]] = {
    Unauthorized: "INVALID_AUTH",
    KeyLimit: "TOO_MANY_REQUESTS",
}
"""Where clients of this wire look for a word of Deepgram's."""


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
    is_draining: Callable[[], bool] = lambda: False
    """Whether new streams are refused because the service is about to stop."""


def respond(method: str, path: str, site: Site, query: str = "") -> Reply:
    """The response to a request that is not for the websocket. ``path`` is without its ``query``."""
    reply = _whole(method, path, site, query)
    if method != "HEAD":
        return reply
    return replace(reply, body=b"", headers={**reply.headers, "Content-Length": str(len(reply.body))})


def refusal(error: MoorageError, *, request_id: str) -> Reply:
    """The answer to a refused request, with the status of ``REFUSAL_STATUS``."""
    message = public_message(error)
    code = REFUSAL_CODES.get(type(error), error.code)
    body: dict[str, str | None] = {"err_code": code, "err_msg": message, "request_id": request_id}
    headers = {"dg-error": _header_text(message), "dg-request-id": request_id}
    status = next(REFUSAL_STATUS[kind] for kind in type(error).__mro__ if kind in REFUSAL_STATUS)
    if isinstance(error, BadQuery):
        body |= {"parameter": error.parameter, "value": error.value, "allowed": error.allowed}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Token"
    if status is HTTPStatus.UPGRADE_REQUIRED:
        headers["Upgrade"] = "websocket"
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        hint_s = error.retry_after_s if isinstance(error, CapacityExceeded | KeyLimit) else RETRY_AFTER_S
        headers["Retry-After"] = str(hint_s)
    return _json(status, body, headers)


def _whole(method: str, path: str, site: Site, query: str) -> Reply:
    route = ROUTES.get(path)
    if path == TRANSCRIPTIONS_PATH:
        refused = MethodRefused(f"{method} is not served here; allowed: POST", allowed="POST")
        return _json(HTTPStatus.METHOD_NOT_ALLOWED, error_body(refused), {"Allow": refused.allowed})
    if route is None:
        known = ", ".join((*ROUTES, LISTEN_PATH, TRANSCRIPTIONS_PATH))
        return Reply(status=HTTPStatus.NOT_FOUND, body=f"not found; known paths: {known}\n".encode())
    if method not in ("GET", "HEAD"):
        return Reply(status=HTTPStatus.METHOD_NOT_ALLOWED, body=b"only GET and HEAD\n", headers={"Allow": "GET, HEAD"})
    return route(site) if path != READY_PATH else _readyz(site, is_strict=_is_asked(query, "strict"))


def _is_asked(query: str, name: str) -> bool:
    """Whether a query has that word, be it alone or with a value that is no refusal."""
    values = parse_qs(query, keep_blank_values=True).get(name)
    return values is not None and values[-1].lower() not in ("0", "false", "no")


def _index(site: Site) -> Reply:
    lines = (
        f"Moorage {site.version}: streaming speech recognition.",
        "",
        f"{LISTEN_PATH}  websocket: audio in, JSON results out (Deepgram's live protocol)",
        f"            encoding: {', '.join(ENCODINGS)}",
        f"            or without it: {', '.join(CONTAINERS)}",
        "            POST: a whole recording (Deepgram's API for recordings)",
        f"{TRANSCRIPTIONS_PATH}",
        "            POST: a whole recording (OpenAI's API)",
        "/v1/models  what is loaded",
        "/v2         models that take tensors (KServe's protocol, with Triton's extensions)",
        "/healthz    200 while the service runs",
        "/readyz     200 while it takes new sequences; with ?strict: and no audit of late found a wrong text",
        "/metrics    Prometheus",
        "",
    )
    return Reply(status=HTTPStatus.OK, body="\n".join(lines).encode())


def _healthz(site: Site) -> Reply:
    return Reply(status=HTTPStatus.OK, body=b"ok\n")


def _readyz(site: Site, *, is_strict: bool = False) -> Reply:
    """Strict: what is served must be right too, as far as audits tell."""
    stats = site.stats()
    reasons = _reasons(stats, is_draining=site.is_draining())
    if is_strict and stats.audit.alarm is not None:
        reasons.append(stats.audit.alarm)
    is_ready = not reasons
    missing = {model.role: model.instances - model.instances_ready for model in stats.models}
    body = {
        "ready": is_ready,
        "reasons": reasons,
        "degraded": is_ready and any(missing.values()),
        "models": {model.role: f"{model.instances_ready}/{model.instances} instances ready" for model in stats.models},
    }
    return _json(HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE, body)


def _reasons(stats: EngineStats, *, is_draining: bool) -> list[str]:
    """Why no sequence is taken. A final model that is down is none: the live text is the final text then."""
    if is_draining:
        return ["draining: the service is about to stop"]
    if stats.is_ready:
        return []
    return ["live model down: its instances are being replaced" if stats.is_loaded else "loading models"]


def _metrics(site: Site) -> Reply:
    return Reply(status=HTTPStatus.OK, body=site.metrics(), content_type=METRICS_TEXT)


def _models(site: Site) -> Reply:
    stats = site.stats()
    return _json(HTTPStatus.OK, {"models": [model_entry(model, stats) for model in stats.models]})


def _header_text(text: str) -> str:
    """Printable ASCII alone: what a client wrote must not end a header and start another."""
    return "".join(mark if " " <= mark <= "~" else "?" for mark in text)[:MAX_HEADER_CHARS]


def _json(status: HTTPStatus, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Reply:
    text = json.dumps(body, ensure_ascii=False) + "\n"
    return Reply(status=status, body=text.encode(errors="replace"), content_type=JSON, headers=headers or {})


ROUTES: Final[Mapping[str, Callable[[Site], Reply]]] = {
    "/": _index,
    "/healthz": _healthz,
    READY_PATH: _readyz,
    "/metrics": _metrics,
    "/v1/models": _models,
}
PROTECTED_PATHS: Final = frozenset(ROUTES) - OPEN_PATHS
"""Shown only to clients with a key, where there are keys."""
