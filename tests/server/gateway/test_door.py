"""A door hands a connection over whole: every byte in order, however they arrived, and every event after them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from server.gateway.bounded_socket import READ_BYTES
from server.gateway.door import Door, DoorParts
from tests.support.raw_socket import RawSocket, raw_socket, request

POST = request("/v2/models/m/infer", "Host: x", "Content-Length: 3", method="POST") + b"abc"
GET = request("/healthz")


class Taker(asyncio.Protocol):
    """Keeps what it is told, and says the number of the bytes back."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.pieces.append(data)
        self.transport.write(f"{len(b''.join(self.pieces))}\n".encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Rest(Taker):
    """Implements ``RestPort`` for one connection."""

    tell_busy: Callable[[bool], None]
    active = 0
    answered: ClassVar[Mapping[tuple[str, int], int]] = {}

    async def start(self) -> None: ...

    def connect(self, tell_busy: Callable[[bool], None]) -> asyncio.Protocol:
        self.tell_busy = tell_busy
        return self

    async def drain(self) -> None: ...

    async def stop(self, within_s: float) -> None: ...


class House:
    """A listening socket whose doors lead to two takers."""

    def __init__(self, *, has_rest: bool, first_request_s: float) -> None:
        self.listen, self.rest = Taker(), Rest()
        self.told: list[str] = []
        self._has_rest = has_rest
        self._first_request_s = first_request_s
        self.is_dawdling = True
        self.closed = asyncio.Event()

    def door(self) -> Door:
        return Door(
            DoorParts(
                listen=self.listen,
                rest=self.rest if self._has_rest else None,
                opened=lambda transport: self.told.append("opened"),
                tell_busy=lambda is_busy: self.told.append(f"busy {is_busy}"),
                dawdled=lambda: self.is_dawdling,
                closed=self.closed.set,
                buffer_bytes=65_536,
                first_request_s=self._first_request_s,
            )
        )


@asynccontextmanager
async def visiting(*, has_rest: bool = True, first_request_s: float = 60.0) -> AsyncIterator[tuple[House, RawSocket]]:
    house = House(has_rest=has_rest, first_request_s=first_request_s)
    server = await asyncio.get_running_loop().create_server(house.door, "127.0.0.1", 0)
    try:
        async with raw_socket(server.sockets[0].getsockname()[1]) as each:
            yield house, each
    finally:
        server.close()
        await server.wait_closed()


async def heard(taker: Taker, each: RawSocket, n_bytes: int) -> bytes:
    """What a taker got, once it is so many bytes."""
    async with asyncio.timeout(10):
        while int(await each.reader.readline() or b"-1") != n_bytes:
            pass
    return b"".join(taker.pieces)


@pytest.mark.parametrize("pieces", [(POST,), tuple(bytes([byte]) for byte in POST), (POST[:4], POST[4:])])
async def test_a_body_is_for_the_rest(pieces: Sequence[bytes]) -> None:
    async with visiting() as (house, each):
        for piece in pieces:
            await each.send(piece)
            await asyncio.sleep(0)
        assert await heard(house.rest, each, len(POST)) == POST
        assert house.listen.transport is None
        each.writer.close()
        async with asyncio.timeout(10):
            await house.rest.lost.wait()
            await house.closed.wait()


async def test_a_page_is_for_the_websockets() -> None:
    async with visiting() as (house, each):
        await each.send(GET)
        assert await heard(house.listen, each, len(GET)) == GET
        assert house.rest.transport is None


async def test_without_a_rest_everything_is_for_the_websockets() -> None:
    async with visiting(has_rest=False) as (house, each):
        await each.send(POST)
        assert await heard(house.listen, each, len(POST)) == POST


async def test_reads_stay_bounded() -> None:
    body = POST + bytes(20 * READ_BYTES)
    async with visiting() as (house, each):
        await each.send(body)
        assert await heard(house.rest, each, len(body)) == body
        assert max(map(len, house.rest.pieces)) <= READ_BYTES


@pytest.mark.parametrize("said", [b"", b"PO", b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"])
async def test_one_that_dawdles_is_cut_off_and_forgotten(said: bytes) -> None:
    async with visiting(first_request_s=0.1) as (house, each):
        await each.send(said)
        await each.to_close()
        async with asyncio.timeout(10):
            await house.closed.wait()


async def test_one_that_had_its_request_is_not() -> None:
    async with visiting(first_request_s=0.05) as (house, each):
        house.is_dawdling = False
        await each.send(POST)
        await heard(house.rest, each, len(POST))
        await asyncio.sleep(0.15)
        await each.send(POST)
        await heard(house.rest, each, 2 * len(POST))
