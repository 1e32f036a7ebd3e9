"""What the load client puts on the wire, against a server that only listens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from multiprocessing import Pipe

import numpy as np
from websockets.asyncio.server import ServerConnection, serve

from clients.bench.load_client import run_job
from clients.bench.load_job import LoadJob

AUDIO = np.arange(4_000, dtype=np.int16)
"""A quarter of a second."""
JOB = LoadJob(
    url="",
    streams=2,
    audio=AUDIO,
    tick_samples=2_560,
    chunk_ms=20,
    settle_s=0.2,
    measure_s=0.3,
    grace_s=0.3,
)


@asynccontextmanager
async def listening(*, greet: str = "", hang_up: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Its address, and what each client has sent so far."""
    heard: list[bytes] = []

    async def take(socket: ServerConnection) -> None:
        index = len(heard)
        heard.append(b"")
        if greet:
            await socket.send(greet)
        async for message in socket:
            assert isinstance(message, bytes)
            heard[index] += message
            if hang_up:
                await socket.close(1011, "tired")
                return

    async with serve(take, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}", heard


async def test_every_stream_sends_its_part_of_the_endless_track() -> None:
    ours, theirs = Pipe()
    async with listening(greet="hello") as (url, heard):
        record = await run_job(replace(JOB, url=url), theirs)
    n_samples = 8_000
    expected = [np.resize(np.roll(AUDIO, -offset), n_samples).tobytes() for offset in (0, 2_000)]
    assert sorted(heard) == sorted(expected)
    assert [stream.offset_samples for stream in record.streams] == [0, 2_000]
    assert [len(stream.late_ns) for stream in record.streams] == [25, 25]
    assert all(stream.failure == "" for stream in record.streams)
    assert [[text for _, text in stream.received] for stream in record.streams] == [["hello"], ["hello"]]
    first, second = (stream.started_at_ns for stream in record.streams)
    assert second - first == 80_000_000, "half a tick"
    assert record.began_at_ns - first == 200_000_000
    assert all(late_ns >= 0 for stream in record.streams for late_ns in stream.late_ns), "never before it is due"
    assert (ours.recv(), ours.recv()) == ("meter", "meter")


async def test_a_stream_that_is_ended_says_so() -> None:
    ours, theirs = Pipe()
    async with listening(hang_up=True) as (url, _):
        record = await run_job(replace(JOB, url=url), theirs)
    ours.close()
    assert all("tired" in stream.failure for stream in record.streams)


async def test_nobody_there() -> None:
    ours, theirs = Pipe()
    record = await run_job(replace(JOB, url="ws://127.0.0.1:9"), theirs)
    ours.close()
    assert record.streams == ()
    assert "ConnectionRefusedError" in record.failure or "OSError" in record.failure
