"""A microphone on a service: what is heard, how it ends, and what happens when the service is not there."""

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import pytest
import soundfile
from rich.console import Console
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from clients.connection import Access, ConnectionFailed, Refused
from clients.mic.audio_source import NoMicrophone
from clients.mic.session import MicSession
from clients.mic.view import MicView
from clients.transcribe.audio_file import Samples
from tests.support.accumulator_model import ENDPOINT, exact_audio, summary
from tests.support.engines import CONFIG, live_only
from tests.support.file_source import FileSource, playing
from tests.support.results import metadata, results
from tests.support.service import client, serving, slots_used


def recording(folder: Path, n_samples: int, endpoint_at: int | None = None) -> tuple[Path, Samples]:
    """A file that holds exact samples, and these."""
    samples = exact_audio(9, n_samples)
    if endpoint_at is not None:
        samples[endpoint_at - 1] = ENDPOINT
    path = folder / "a.flac"
    soundfile.write(path, samples, 16_000, subtype="PCM_16")
    return path, samples


RAW = "encoding=linear16&sample_rate=16000"


@dataclass
class Screen:
    """Where a view shows what it has."""

    out: io.StringIO = field(default_factory=io.StringIO)
    errors: io.StringIO = field(default_factory=io.StringIO)

    @contextmanager
    def view(self) -> Iterator[MicView]:
        with MicView(Console(file=self.out, width=200), Console(file=self.errors, width=200)) as view:
            yield view

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()

    @property
    def notes(self) -> list[str]:
        return self.errors.getvalue().splitlines()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what other threads bring about
            await asyncio.sleep(0.002)


async def listen(session: MicSession, source: FileSource) -> None:
    """As a user: speak to the end, then Ctrl-C."""
    running = asyncio.create_task(session.run())
    await asyncio.wait([running, asyncio.create_task(until(source.played.is_set))], return_when="FIRST_COMPLETED")
    if not running.done():
        session.stop()
    async with asyncio.timeout(20):
        await running


async def test_a_service_hears_what_is_recorded_and_its_finals_are_shown(tmp_path: Path) -> None:
    cut = 64 * 100 + 7  # ends an utterance with the hundredth tick of the accumulator
    path, samples = recording(tmp_path, 16_000, endpoint_at=cut)
    screen = Screen()
    async with serving(CONFIG) as service:
        with playing(path, speed=4.0) as source, screen.view() as view:
            session = MicSession(source=source, view=view, url=f"ws://127.0.0.1:{service.gateway.port}")
            await listen(session, source)
        await slots_used(service, 0)
    assert screen.lines == [summary(samples[:cut]), summary(samples[cut:])]  # the last one came after Ctrl-C
    assert screen.notes == ["listening to a.flac, 16000 samples a second; Ctrl-C ends"]
    assert source.lost_s == 0.0


async def test_a_full_service_is_asked_again_and_hears_what_was_said_meanwhile(tmp_path: Path) -> None:
    path, samples = recording(tmp_path, 8_000)
    screen = Screen()
    async with serving(live_only(instances=1, slots=1)) as service:
        with playing(path, speed=4.0) as source, screen.view() as view:
            session = MicSession(source=source, view=view, url=f"ws://127.0.0.1:{service.gateway.port}")
            async with client(service, RAW):
                await slots_used(service, 1)
                running = asyncio.create_task(session.run())
                await until(lambda: "every slot is taken; asking again" in screen.notes)
                await until(source.played.is_set)
            await until(lambda: len(screen.notes) > 1)
            session.stop()
            async with asyncio.timeout(20):
                await running
    assert screen.lines == [summary(samples)]
    assert source.lost_s == 0.0


async def test_patience_ends(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 8_000)
    async with serving(live_only(instances=1, slots=1)) as service, client(service, RAW):
        await slots_used(service, 1)
        with playing(path, speed=4.0) as source, Screen().view() as view:
            url = f"ws://127.0.0.1:{service.gateway.port}"
            session = MicSession(source=source, view=view, url=url, patience_s=0.0)
            with pytest.raises(Refused, match="refused with 503: every slot is taken"):
                await session.run()


async def test_ctrl_c_ends_the_wait_at_once(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 8_000)
    screen = Screen()

    def refuse(socket: ServerConnection, request: Request) -> Response:
        response = socket.respond(HTTPStatus.SERVICE_UNAVAILABLE, "full")
        response.headers["Retry-After"] = "3000"
        return response

    async with peer(answer(), refuse) as url:
        with playing(path, speed=4.0) as source, screen.view() as view:
            session = MicSession(source=source, view=view, url=url)
            running = asyncio.create_task(session.run())
            await until(lambda: screen.notes == ["full; asking again"])
            session.stop()
            async with asyncio.timeout(5):
                with pytest.raises(Refused, match="refused with 503: full"):
                    await running


Script = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def peer(
    script: Script, refuse: Callable[[ServerConnection, Request], Response | None] | None = None
) -> AsyncIterator[str]:
    async with serve(script, "127.0.0.1", 0, process_request=refuse) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def answer(*, drops: int = 0, heard: list[bytes] | None = None) -> Script:
    """Says something at once; drops so many connections after half a second of audio, answers the next in full."""
    left = iter(range(drops))

    async def script(socket: ServerConnection) -> None:
        audio = b""
        await socket.send(results("open utter", is_final=False))
        drop = next(left, None) is not None
        async for message in socket:
            if isinstance(message, str):
                break
            audio += message
            if drop and len(audio) > 16_000:
                socket.transport.abort()
                return
        if heard is not None:
            heard.append(audio)
        await socket.send(results(f"{len(audio) // 2} samples.", is_final=True))
        await socket.send(metadata())

    return script


async def test_a_service_that_goes_is_found_again_and_the_cut_utterance_stands(tmp_path: Path) -> None:
    path, samples = recording(tmp_path, 24_000)
    screen = Screen()
    heard: list[bytes] = []
    async with peer(answer(drops=1, heard=heard)) as url:
        with playing(path, speed=4.0) as source, screen.view() as view:
            session = MicSession(source=source, view=view, url=url)
            running = asyncio.create_task(session.run())
            await until(source.played.is_set)
            await until(lambda: any("again to" in note for note in screen.notes))
            session.stop()
            async with asyncio.timeout(20):
                await running
    assert screen.lines[0] == "open utter …"
    assert screen.notes == [
        "listening to a.flac, 16000 samples a second; Ctrl-C ends",
        "the connection was lost; asking again",
        "listening again to a.flac, 16000 samples a second; Ctrl-C ends",
    ]
    (audio,) = heard
    rest = struct.unpack(f"<{len(audio) // 2}h", audio)
    assert 0 < len(rest) < 16_000  # what the first connection had not taken, to the end
    assert [round(value * 32_768) for value in samples[-len(rest) :].tolist()] == list(rest)


@pytest.mark.parametrize("status", [401, 403, 400])
async def test_a_service_that_refuses_is_not_asked_again(tmp_path: Path, status: int) -> None:
    path, _ = recording(tmp_path, 8_000)
    asked = []

    def refuse(socket: ServerConnection, request: Request) -> Response:
        asked.append(request.headers.get("Authorization"))
        response = socket.respond(HTTPStatus(status), "no")
        response.headers["Retry-After"] = "1"
        return response

    async with peer(answer(), refuse) as url:
        with playing(path, speed=4.0) as source, Screen().view() as view:
            session = MicSession(source=source, view=view, url=url, access=Access(key="k"))
            with pytest.raises(Refused, match=f"refused with {status}: no"):
                await session.run()
    assert asked == ["Token k"]


async def test_nobody_there_from_the_start_is_told_at_once(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 8_000)
    with playing(path, speed=4.0) as source, Screen().view() as view:
        session = MicSession(source=source, view=view, url="ws://127.0.0.1:1")
        with pytest.raises(ConnectionFailed, match=r"cannot connect to ws://127\.0\.0\.1:1"):
            await session.run()


async def test_a_microphone_that_goes_ends_the_session(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 8_000)
    async with peer(answer()) as url:
        with playing(path, speed=10.0, breaks=True) as source, Screen().view() as view:
            session = MicSession(source=source, view=view, url=url)
            with pytest.raises(NoMicrophone, match=r"a\.flac has stopped recording"):
                await session.run()


@pytest.mark.parametrize(("status", "n_asked"), [(502, 3), (400, 2)])
async def test_a_gateway_whose_service_restarts_is_asked_again_but_not_one_that_refuses(
    tmp_path: Path, status: int, n_asked: int
) -> None:
    path, _ = recording(tmp_path, 24_000)
    answers: Iterator[int | None] = iter((None, status, 401))
    asked: list[int | None] = []

    def refuse(socket: ServerConnection, request: Request) -> Response | None:
        asked.append(next(answers))
        return None if asked[-1] is None else socket.respond(HTTPStatus(asked[-1]), "no")

    async with peer(answer(drops=1), refuse) as url:
        with playing(path, speed=4.0) as source, Screen().view() as view:
            session = MicSession(source=source, view=view, url=url)
            async with asyncio.timeout(20):
                with pytest.raises(Refused):
                    await session.run()
    assert len(asked) == n_asked


async def test_a_service_that_goes_after_ctrl_c_is_not_asked_again(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 8_000)
    screen = Screen()

    async def drop_at_the_end(socket: ServerConnection) -> None:
        async for message in socket:
            if isinstance(message, str):
                socket.transport.abort()

    async with peer(drop_at_the_end) as url:
        with playing(path, speed=10.0) as source, screen.view() as view:
            session = MicSession(source=source, view=view, url=url)
            with pytest.raises(ConnectionFailed, match="was lost"):
                await listen(session, source)
    assert [note for note in screen.notes if "asking again" in note] == []
