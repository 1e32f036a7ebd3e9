"""Errors to websocket close codes: one table for every protocol."""

from typing import Final

from server.errors import (
    BacklogTimeout,
    BadAudio,
    BadMessage,
    CapacityExceeded,
    IdleTimeout,
    MessageTooLarge,
    MoorageError,
    PeerError,
    RequestTimeout,
    ServiceError,
    ShuttingDown,
)

NORMAL: Final = 1000
MAX_REASON_BYTES: Final = 123
"""RFC 6455, 5.5: a control frame holds 125 bytes, two of them the code."""

CLOSE_CODES: Final[dict[type[MoorageError], int]] = {
    BadAudio: 1003,
    BadMessage: 1007,
    PeerError: 1008,
    MessageTooLarge: 1009,
    IdleTimeout: 1011,
    ServiceError: 1011,
    ShuttingDown: 1012,
    CapacityExceeded: 1013,
    BacklogTimeout: 1013,
}
"""By the nearest class."""

REASON_PREFIXES: Final[dict[type[MoorageError], str]] = {IdleTimeout: "NET-0001: "}
"""Words that clients of this wire look for in a close reason."""


def close_code(error: MoorageError) -> int:
    """The code that a connection closes with when ``error`` ends it."""
    return next(CLOSE_CODES[kind] for kind in type(error).__mro__ if kind in CLOSE_CODES)


def close_reason(error: MoorageError) -> str:
    """The reason beside the code, cut to what a close frame holds."""
    reason = REASON_PREFIXES.get(type(error), "") + public_message(error)
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def public_message(error: MoorageError) -> str:
    """What a client is told: its own mistake in full, of ours only the kind."""
    if isinstance(error, PeerError | CapacityExceeded | BacklogTimeout | RequestTimeout | ShuttingDown):
        return str(error)
    return "the service failed; its log has the reason"
