"""A service on loopback with accumulator models, and clients that speak to it without any help from ours."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.app import Service
from server.clock import SystemClock
from server.configuration.config import MoorageConfig, ServerConfig
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig
from server.wire.messages import ModelCards
from tests.support.engines import live_only
from tests.support.wire import FINAL, LIVE

Sent = bytes | str


@asynccontextmanager
async def serving(
    engine: EngineConfig | None = None, sections: Mapping[str, Any] | None = None, **server: Any
) -> AsyncIterator[Service]:
    """A started service on a free port. ``server`` are fields of its section; ``sections`` are others, whole."""
    config = MoorageConfig(server=ServerConfig(port=0, **server), **(sections or {}))
    engine = engine or live_only()
    cards = ModelCards(live=LIVE, final=FINAL if engine.final else None)
    service = Service(config, Engine(engine, SystemClock()), cards)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


@dataclass(kw_only=True)
class Heard:
    """What a client heard, to the close."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    """Close code; None if the connection was lost."""
    reason: str = ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    @property
    def interims(self) -> list[dict[str, Any]]:
        return [each for each in self.of("Results") if not each["is_final"]]

    @property
    def finals(self) -> list[dict[str, Any]]:
        return [each for each in self.of("Results") if each["is_final"]]

    @property
    def texts(self) -> list[str]:
        """Text of each final."""
        return [each["channel"]["alternatives"][0]["transcript"] for each in self.finals]


class Client:
    """One websocket; a task collects what it hears."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard = Heard()
        self._news = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def send(self, *messages: Sent) -> None:
        """The messages in order, as long as the service takes them."""
        for message in messages:
            await self.socket.send(message)

    async def end(self) -> Heard:
        """CloseStream, then all that is heard until the service closes."""
        await self.send(json.dumps({"type": "CloseStream"}))
        return await self.to_close()

    async def to_close(self) -> Heard:
        """All that is heard until the service closes."""
        async with asyncio.timeout(20):
            return await self._listening

    async def hears(self, n: int) -> None:
        """Waits for the n-th message."""
        async with asyncio.timeout(20):
            while len(self.heard.messages) < n:
                await self._news.wait()
                self._news.clear()

    async def _listen(self) -> Heard:
        try:
            while True:
                self.heard.messages.append(json.loads(await self.socket.recv()))
                self._news.set()
        except ConnectionClosed as error:
            if error.rcvd is not None:
                self.heard.code, self.heard.reason = error.rcvd.code, error.rcvd.reason
        return self.heard


def address(service: Service, query: str = "", *, encoding: str = "linear16") -> str:
    """Of the websocket. The encoding is declared unless it is empty or the query has one."""
    parts = [query] if query else []
    if encoding and "encoding=" not in query:
        parts.insert(0, f"encoding={encoding}")
    return f"ws://127.0.0.1:{service.gateway.port}/v1/listen?{'&'.join(parts)}"


@asynccontextmanager
async def client(service: Service, query: str = "", **options: Any) -> AsyncIterator[Client]:
    """A connected client; the connection is dropped at the end without further words."""
    socket = await connect(address(service, query), proxy=None, compression=None, **options)
    try:
        yield Client(socket)
    finally:
        socket.transport.abort()
        await socket.wait_closed()


async def exchange(service: Service, messages: Sequence[Sent], query: str = "") -> Heard:
    """Sends the messages and listens to the close, which the service must bring about."""
    async with client(service, query) as each:
        with suppress(ConnectionClosed):  # it closed before it had everything: what it said is in what was heard
            await each.send(*messages)
        return await each.to_close()


async def slots_used(service: Service, expected: int) -> None:
    """Waits until that many slots are held; fails if it does not come to that."""
    async with asyncio.timeout(10):
        while service.engine.stats().slots_used != expected:  # noqa: ASYNC110  # the engine announces no such thing
            await asyncio.sleep(0.005)
