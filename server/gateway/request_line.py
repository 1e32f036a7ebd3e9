"""Which of the port's two HTTP servers gets a connection, by its first request line. Pure.

Websockets and plain pages are one request each and have no body. Requests with a body, and the addresses of models, go
to a server that keeps connections.
"""

from enum import Enum
from typing import Final

MAX_LINE_BYTES: Final = 8_192
PLAIN_METHODS: Final = frozenset({b"GET", b"HEAD"})
MODELS_PATH: Final = b"/v2"


class Target(Enum):
    """Who takes a connection."""

    LISTEN = "listen"
    """Websockets to ``/v1/listen``, and plain pages."""
    REST = "rest"
    """Requests with a body, and everything below ``/v2``."""


def target(seen: bytes) -> Target | None:
    """Who takes the connection that began with ``seen``; None while that is not certain. What is no request line of
    HTTP goes to LISTEN, which refuses it.
    """
    line, end, _ = seen.partition(b"\n")
    if not end:
        return None if len(seen) < MAX_LINE_BYTES else Target.LISTEN
    method, _, rest = line.partition(b" ")
    if not (method.isalpha() and method.isupper()):
        return Target.LISTEN
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in PLAIN_METHODS or path == MODELS_PATH or path.startswith(MODELS_PATH + b"/"):
        return Target.REST
    return Target.LISTEN
