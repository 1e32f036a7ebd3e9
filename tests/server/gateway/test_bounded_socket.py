"""Reading and answering are bounded, over plain sockets and TLS alike."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from server.access.tls import TlsContext
from server.gateway.bounded_socket import READ_BYTES, BoundedSocket
from tests.support.certificates import Pair, make_pair

N_BYTES = 40 * READ_BYTES + 7


class Echo(asyncio.Protocol):
    """Says everything back, without asking whether it is read."""

    transport: asyncio.Transport

    def __init__(self, received: list[bytes], lost: asyncio.Event) -> None:
        self.received, self.lost = received, lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        self.transport.write(data)

    def eof_received(self) -> None:
        self.received.append(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class BoundedEcho(Echo, BoundedSocket):
    max_unsent_bytes = 300_000


class Server:
    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost = asyncio.Event()
        self.port = 0

    def protocol(self) -> BoundedEcho:
        return BoundedEcho(self.received, self.lost)


@asynccontextmanager
async def serving(context: ssl.SSLContext | None) -> AsyncIterator[Server]:
    each = Server()
    server = await asyncio.get_running_loop().create_server(each.protocol, "127.0.0.1", 0, ssl=context)
    each.port = server.sockets[0].getsockname()[1]
    try:
        yield each
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair()


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
class TestReading:
    async def test_every_byte_in_order_in_pieces_of_bounded_size(
        self, is_tls: bool, pair: Pair, tmp_path: Path
    ) -> None:
        data = bytes(index % 251 for index in range(N_BYTES))
        async with serving(TlsContext(pair.write(tmp_path)).context if is_tls else None) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pair.trusting() if is_tls else None
            )
            writer.write(data)
            assert await reader.readexactly(N_BYTES) == data
            writer.close()
            await server.lost.wait()
        assert b"".join(server.received) == data
        assert max(len(piece) for piece in server.received) <= READ_BYTES
        assert len(server.received) > 40
        assert server.received[-1] == b"", "the end is heard, too"

    async def test_small_writes_that_arrive_together(self, is_tls: bool, pair: Pair, tmp_path: Path) -> None:
        """Each is a record of TLS, and several are put into one buffer, one behind the other."""
        data = bytes(range(250)) * 40
        async with serving(TlsContext(pair.write(tmp_path)).context if is_tls else None) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pair.trusting() if is_tls else None
            )
            for start in range(0, len(data), 100):
                writer.write(data[start : start + 100])
            assert await reader.readexactly(len(data)) == data
            writer.close()
            await server.lost.wait()

    async def test_others_have_their_turns_between_the_pieces(self, is_tls: bool, pair: Pair, tmp_path: Path) -> None:
        async with serving(TlsContext(pair.write(tmp_path)).context if is_tls else None) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pair.trusting() if is_tls else None
            )
            reading = asyncio.create_task(reader.readexactly(10 * N_BYTES))
            writer.write(bytes(10 * N_BYTES))
            most_pieces, heard = 0, 0
            while not reading.done():
                await asyncio.sleep(0)
                most_pieces, heard = max(most_pieces, len(server.received) - heard), len(server.received)
            assert most_pieces <= (8 if is_tls else 1), "TLS reads ahead, to a limit of its own"
            writer.close()
            await server.lost.wait()

    async def test_a_peer_that_does_not_read_its_answers_is_cut_off(
        self, is_tls: bool, pair: Pair, tmp_path: Path
    ) -> None:
        async with serving(TlsContext(pair.write(tmp_path)).context if is_tls else None) as server:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pair.trusting() if is_tls else None, limit=1024
            )
            async with asyncio.timeout(20):
                while not server.lost.is_set():
                    writer.write(bytes(READ_BYTES))
                    await asyncio.sleep(0)
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
        assert len(server.received) < 4_000
