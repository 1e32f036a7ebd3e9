"""``moorage serve`` as a user has it: a process of its own with the real live model, from start to signal."""

import asyncio
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import numpy as np
import psutil
import pytest
from websockets.asyncio.client import connect

from server.workers.capacity import speech
from tests.support.service import Client

START_S = 100.0


@dataclass(kw_only=True)
class Served:
    """A running service."""

    process: Process
    port: int
    printed: str

    async def ends(self) -> tuple[int, str]:
        """Exit code, and what it said on the error output."""
        async with asyncio.timeout(30):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


async def launch(*arguments: str, **environment: str) -> Process:
    """In a process group of its own, as under a shell."""
    settings = {
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "MOORAGE_LIVE__THREADS": "1",
        "MOORAGE_LOG__LEVEL": "warning",
        **environment,
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "server", "serve", "--device", "cpu", "--final-model", "none"),
        *("--live-instances", "1", "--live-slots", "2"),
        *arguments,
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ | settings,
        start_new_session=True,
    )


@asynccontextmanager
async def served(*arguments: str, **environment: str) -> AsyncIterator[Served]:
    """Ready to take streams; whatever happens, nothing of it is left."""
    process = await launch("--port", "0", *arguments, **environment)
    assert process.stdout is not None
    printed = ""
    try:
        async with asyncio.timeout(START_S):
            while "health" not in printed:
                line = await process.stdout.readline()
                assert line, f"it ended: {await process.communicate()}"
                printed += line.decode()
        found = re.search(r"ws://127\.0\.0\.1:(\d+)/v1/listen", printed)
        assert found is not None
        yield Served(process=process, port=int(found[1]), printed=printed)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_from_start_to_signal(number: signal.Signals) -> None:
    """A stream that goes on past the time for draining is ended with its final text."""
    data = (np.clip(speech(seconds=2.0), -1, 32767 / 32768) * 32768).astype("<i2").tobytes()
    async with served(MOORAGE_SERVER__DRAIN_TIMEOUT_S="0.5") as service:
        lines = service.printed.splitlines()
        assert lines[0].split() == ["model", "scheduler", "device", "instances", "slots"]
        assert lines[1].split()[:7] == ["live", "moonshine-live", "sequence", "cpu", "1", "2", "each,"]
        assert f"moorage replay speech.wav --url ws://127.0.0.1:{service.port}" in service.printed
        assert f"http://127.0.0.1:{service.port}/healthz" in service.printed
        children = psutil.Process(service.process.pid).children(recursive=True)
        assert children
        url = f"ws://127.0.0.1:{service.port}/v1/listen?sample_rate=16000&interim_results=true"
        async with connect(url, proxy=None) as socket:
            client = Client(socket)
            await client.send(data)
            await client.hears(5)
            # a terminal sends its signal to the whole group, an init system to the process alone
            (os.killpg if number is signal.SIGINT else os.kill)(service.process.pid, number)
            heard = await client.to_close()
        code, errors = await service.ends()
    assert (heard.code, heard.reason) == (1012, "the service is shutting down")
    assert heard.interims
    assert len(heard.texts[-1].split()) > 2
    assert heard.messages[-1]["code"] == "shutting_down"
    assert (code, errors) == (0, "")
    # the helper of multiprocessing that outlives its parent by a moment is among them
    _, left = await asyncio.to_thread(psutil.wait_procs, children, timeout=10)
    assert not left


async def test_a_second_signal_stops_at_once() -> None:
    async with served(MOORAGE_SERVER__DRAIN_TIMEOUT_S="600") as service:
        async with connect(f"ws://127.0.0.1:{service.port}/v1/listen?sample_rate=16000", proxy=None) as socket:
            client = Client(socket)
            os.kill(service.process.pid, signal.SIGTERM)
            async with asyncio.timeout(30):
                while await status_of(service.port, "/readyz") != 503:  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.02)
            os.kill(service.process.pid, signal.SIGTERM)
            heard = await client.to_close()
        code, errors = await service.ends()
    assert (heard.code, code, errors) == (1012, 0, "")


async def status_of(port: int, path: str) -> int | None:
    """Of a GET; None while nobody listens."""
    try:
        async with httpx.AsyncClient(trust_env=False) as http:
            return (await http.get(f"http://127.0.0.1:{port}{path}")).status_code
    except httpx.ConnectError:
        return None


async def test_a_signal_while_models_load() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await launch("--port", str(port))
    async with asyncio.timeout(60):
        while await status_of(port, "/healthz") is None:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.02)
        assert await status_of(port, "/readyz") == 503
        process.terminate()
        _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")


async def test_a_taken_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await launch("--port", str(port))
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode() == (f"server.host, server.port: cannot listen on 127.0.0.1:{port}: Address already in use\n")


async def test_an_option_that_the_model_does_not_know() -> None:
    process = await launch("--port", "0", MOORAGE_LIVE__OPTIONS__NONSENSE="1", MOORAGE_LOG__LEVEL="error")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "nonsense" in errors.decode().splitlines()[-1]
