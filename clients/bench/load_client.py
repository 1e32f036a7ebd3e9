"""The load client: paced websocket streams in a process of its own, which does nothing else while they run."""

import asyncio
import gc
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from clients.bench.load_job import LoadJob, LoadRecord, StreamRecord
from clients.connection import ListenOptions
from clients.replay.latency import NS
from clients.transcribe.audio_file import MODEL_RATE

HANDSHAKES: Final = 16
"""At the same time."""
LEAD_S: Final = 0.05
"""From the last handshake to the first sample."""
METER: Final = "meter"
"""Sent when the measurement begins, and again when it ends: the parent reads its meters then."""


def load_main(pipe: "Pipe[str | LoadRecord, LoadJob]") -> None:
    """Runs jobs until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    with pipe:
        while True:
            try:
                pipe.send(asyncio.run(run_job(pipe.recv(), pipe)))
            except (EOFError, OSError):
                return


async def run_job(job: LoadJob, pipe: "Pipe[str | LoadRecord, LoadJob]") -> LoadRecord:
    """Connects all streams, then plays them from one moment on, evenly spread over a tick."""
    try:
        sockets = await _connect_all(job)
    except (OSError, InvalidHandshake, TimeoutError) as error:
        return LoadRecord(began_at_ns=0, streams=(), failure=f"{type(error).__name__}: {error}")
    start_ns = time.monotonic_ns() + round(LEAD_S * NS)
    tick_ns = job.tick_samples * NS // MODEL_RATE
    records = [
        StreamRecord(
            offset_samples=len(job.audio) * index // job.streams,
            started_at_ns=start_ns + tick_ns * index // job.streams,
        )
        for index in range(job.streams)
    ]
    gc.disable()  # a collection among so many messages would be taken for latency
    tasks = [
        asyncio.create_task(verb(job, socket, record))
        for socket, record in zip(sockets, records, strict=True)
        for verb in (_send, _receive)
    ]
    began_at_ns = start_ns + round(job.settle_s * NS)
    await _until(began_at_ns)
    pipe.send(METER)
    await _until(began_at_ns + round(job.measure_s * NS))
    pipe.send(METER)
    await asyncio.sleep(job.grace_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _leave(sockets)
    gc.enable()
    return LoadRecord(began_at_ns=began_at_ns, streams=tuple(records))


async def _connect_all(job: LoadJob) -> list[ClientConnection]:
    address = ListenOptions(sample_rate=MODEL_RATE).apply(job.url)
    turn = asyncio.Semaphore(HANDSHAKES)

    async def one() -> ClientConnection:
        async with turn:
            return await connect(
                address,
                additional_headers=job.access.headers(),
                ssl=job.access.tls(address),
                compression=None,
                ping_interval=None,
                max_size=2**24,
            )

    found = await asyncio.gather(*(one() for _ in range(job.streams)), return_exceptions=True)
    sockets = [each for each in found if not isinstance(each, BaseException)]
    for each in found:
        if isinstance(each, BaseException):
            await _leave(sockets)
            raise each
    return sockets


async def _leave(sockets: Sequence[ClientConnection]) -> None:
    """Drops the connections: nobody waits for what an overloaded service still has to say."""
    for socket in sockets:
        socket.transport.abort()
    await asyncio.gather(*(socket.wait_closed() for socket in sockets))


async def _send(job: LoadJob, socket: ClientConnection, record: StreamRecord) -> None:
    """Every chunk is due when its last sample has been spoken: a schedule counted from the start, without drift."""
    chunk_samples = MODEL_RATE * job.chunk_ms // 1000
    data = job.audio.tobytes()
    begin = record.offset_samples
    n_chunks = int(job.seconds * 1000) // job.chunk_ms
    try:
        for index in range(1, n_chunks + 1):
            due_ns = record.started_at_ns + index * chunk_samples * NS // MODEL_RATE
            await _until(due_ns)
            record.late_ns.append(time.monotonic_ns() - due_ns)
            end = begin + chunk_samples
            chunk = data[2 * begin : 2 * end]
            if end >= len(job.audio):
                end -= len(job.audio)
                chunk += data[: 2 * end]
            begin = end
            await socket.send(chunk)
    except ConnectionClosed as error:
        record.failure = record.failure or str(error)


async def _receive(job: LoadJob, socket: ClientConnection, record: StreamRecord) -> None:
    try:
        while True:
            message = await socket.recv()
            record.received.append((time.monotonic_ns(), message))
    except ConnectionClosed as error:
        record.failure = record.failure or str(error)


async def _until(at_ns: int) -> None:
    await asyncio.sleep(max(0, at_ns - time.monotonic_ns()) / NS)
