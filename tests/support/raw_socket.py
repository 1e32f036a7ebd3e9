"""Clients without a library: bytes in, bytes out, so that they can do what no library does."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

UPGRADE = (
    "Host: 127.0.0.1",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    """A request of HTTP/1.1; without headers it has a Host alone."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", *(headers or ("Host: 127.0.0.1",)), "", "")).encode("latin-1")


def upgrade(query: str, *headers: str) -> bytes:
    """An opening handshake that is good."""
    return request(f"/v1/listen?{query}", *UPGRADE, *headers)


def frame(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True) -> bytes:
    """A frame of RFC 6455 as a client sends it; the mask is zero, so that damage to it is damage to the payload."""
    length = len(payload)
    mask_bit = 0x80 if masked else 0
    head = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        head += bytes([mask_bit | length])
    elif length < 65_536:
        head += bytes([mask_bit | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([mask_bit | 127]) + length.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSocket:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Raises: ConnectionError: it is closed."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        """The head of the answer."""
        async with asyncio.timeout(10):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def to_close(self) -> bytes:
        """All that comes until the service closes, in whatever way."""
        heard = b""
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                while piece := await self.reader.read(65_536):
                    heard += piece
        return heard


@asynccontextmanager
async def raw_socket(port: int) -> AsyncIterator[RawSocket]:
    """A connection to a service on loopback, torn down at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawSocket(reader=reader, writer=writer)
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answer(port: int, data: bytes | Sequence[bytes]) -> bytes:
    """What the service says to ``data`` until it closes."""
    async with raw_socket(port) as each:
        with suppress(ConnectionError):
            await each.send(data if isinstance(data, bytes) else b"".join(data))
        return await each.to_close()


def open_files() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/fd"))
