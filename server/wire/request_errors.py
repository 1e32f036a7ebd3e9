"""What is answered to a request that is refused: ``{"error": text, "code": word}`` with an HTTP status."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from server.errors import (
    BacklogTimeout,
    CapacityExceeded,
    InstanceFailed,
    KeyLimit,
    MoorageError,
    OriginRefused,
    PeerError,
    QueueFull,
    RequestTimeout,
    Scope,
    ServiceError,
    ShuttingDown,
    Unauthorized,
    UnknownModel,
)

MAX_SHOWN_CHARS: Final = 80
FAILED: Final = "the service failed; its log has the reason"


class BadRequest(PeerError):
    """A request outside the protocol; the message says what is allowed."""

    code = "bad_request"
    scope = Scope.REQUEST


class UnknownPath(PeerError):
    """Nothing is served there."""

    code = "unknown_path"
    scope = Scope.REQUEST


class MethodRefused(PeerError):
    """Something is served there, but not by this method."""

    code = "method_not_allowed"
    scope = Scope.REQUEST

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class NotSupported(PeerError):
    """A part of the protocol that is not served here."""

    code = "not_supported"
    scope = Scope.REQUEST


class NotPermitted(PeerError):
    """The configuration does not let clients do this."""

    code = "not_permitted"
    scope = Scope.REQUEST


class NotReady(ServiceError):
    """A model that takes no requests now."""

    code = "not_ready"
    scope = Scope.REQUEST


class BodyTooLarge(PeerError):
    """A body, or its JSON part, above the allowed size."""

    code = "body_too_large"
    scope = Scope.REQUEST


class BodyTooSlow(PeerError):
    """A body that did not come in whole in time."""

    code = "body_timeout"
    scope = Scope.REQUEST


STATUSES: Final[Mapping[type[MoorageError], HTTPStatus]] = {
    PeerError: HTTPStatus.BAD_REQUEST,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    OriginRefused: HTTPStatus.FORBIDDEN,
    NotPermitted: HTTPStatus.FORBIDDEN,
    UnknownModel: HTTPStatus.NOT_FOUND,
    UnknownPath: HTTPStatus.NOT_FOUND,
    MethodRefused: HTTPStatus.METHOD_NOT_ALLOWED,
    BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    KeyLimit: HTTPStatus.TOO_MANY_REQUESTS,
    NotSupported: HTTPStatus.NOT_IMPLEMENTED,
    MoorageError: HTTPStatus.INTERNAL_SERVER_ERROR,
    CapacityExceeded: HTTPStatus.SERVICE_UNAVAILABLE,
    QueueFull: HTTPStatus.SERVICE_UNAVAILABLE,
    RequestTimeout: HTTPStatus.SERVICE_UNAVAILABLE,
    BacklogTimeout: HTTPStatus.SERVICE_UNAVAILABLE,
    ShuttingDown: HTTPStatus.SERVICE_UNAVAILABLE,
    InstanceFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    NotReady: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""By the nearest class."""
TOLD: Final = (PeerError, CapacityExceeded, QueueFull, RequestTimeout, BacklogTimeout, ShuttingDown, NotReady)
"""Errors whose words are for clients; of others only the code is told."""


def status_of(error: MoorageError) -> HTTPStatus:
    """The status that ``error`` is answered with."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_body(error: MoorageError) -> dict[str, str]:
    """The JSON object that says what was wrong."""
    return {"error": str(error) if isinstance(error, TOLD) else FAILED, "code": error.code}


def error_headers(error: MoorageError) -> dict[str, str]:
    """What belongs beside the status."""
    status = status_of(error)
    if isinstance(error, MethodRefused):
        return {"Allow": error.allowed}
    if status is HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Token"}
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        hint_s = error.retry_after_s if isinstance(error, CapacityExceeded | KeyLimit) else 1
        return {"Retry-After": str(hint_s)}
    return {}


def unexpected() -> ServiceError:
    """What is told where something failed that never should."""
    return ServiceError(FAILED)


def shown(value: object) -> str:
    """A value of a request for a message: JSON, cut."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"
