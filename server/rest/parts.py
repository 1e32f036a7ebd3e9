"""What the handlers of requests with a body need of the service."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from server.access.access import AccessControl
from server.clock import Clock
from server.codec.pool import CodecPool
from server.configuration.config import MoorageConfig
from server.engine.engine import Engine
from server.errors import MoorageError
from server.gateway.http import Site
from server.wire.messages import ModelCards

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestParts:
    """The service, as handlers see it."""

    engine: Engine
    access: AccessControl
    codecs: CodecPool
    config: MoorageConfig
    cards: ModelCards
    site: Site
    """What plain GETs show."""
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer to a request that is refused."""

    status: int
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One address."""

    method: str
    path: str
    """With names in braces, as aiohttp reads them."""
    handler: Handler
    """May raise any MoorageError: it is answered by ``refuse``."""
    refuse: Callable[[MoorageError, str], Refusal]
    """Takes the error and the request's id."""
    is_open: bool = False
    """Whether it needs no key where there are keys."""
    is_work: bool = True
    """Whether it counts among the requests that are worked on at once."""
    closes: bool = False
    """Whether its answer is the last on its connection: clients that pool connections would try a websocket on it, and
    websockets need one of their own."""


REQUEST_ID: Final = web.RequestKey("request_id", str)
"""Of every request: what logs call it."""
