"""The client side of ``/v1/listen`` over loopback, against a peer that follows a script."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from asr_model.transcript import UtteranceEnd, Word
from clients.connection import (
    ConnectionFailed,
    ListenOptions,
    Metadata,
    Refusal,
    Results,
    ServerMessage,
    open_connection,
)
from server.errors import StepFailed
from server.events import Partial, StepInfo, UtteranceFinal
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.wire.messages import (
    Identity,
    ModelCard,
    ModelCards,
    Span,
    error_message,
    final_results,
    interim_results,
    metadata_message,
)

CARD = ModelCard(name="model", version="1", arch="test")
IDENTITY = Identity(
    request_id="r", sequence_id="s", created="2026-01-01T00:00:00Z", models=ModelCards(live=CARD, final=CARD)
)
STEP = StepInfo(instance=InstanceIndex(1), slot=SlotIndex(2), batch_size=3, queue_ms=4.0, step_ms=5.0)

Script = Callable[[ServerConnection], Awaitable[None]]


def spoken(*texts: str) -> tuple[Word, ...]:
    return tuple(
        Word(text=text, start_s=index / 2, end_s=index / 2 + 0.25, confidence=0.5) for index, text in enumerate(texts)
    )


def interim() -> str:
    event = Partial(
        sequence_id=SequenceId("s"),
        utterance=7,
        start_s=0.0,
        covered_s=0.48,
        committed=spoken("Well-known,"),
        draft=spoken("fact", "so"),
        is_speech=True,
        step=STEP,
    )
    return json.dumps(interim_results(event, Span(start_s=0.0, end_s=0.48), IDENTITY))


def final(live: tuple[Word, ...]) -> str:
    event = UtteranceFinal(
        sequence_id=SequenceId("s"),
        utterance=7,
        cause=UtteranceEnd.FINALIZE,
        start_s=0.0,
        end_s=1.0,
        words=spoken("Final", "text."),
        live_words=live,
        step=STEP,
    )
    return json.dumps(final_results(event, Span(start_s=0.0, end_s=1.0), IDENTITY))


def metadata() -> str:
    return json.dumps(metadata_message(IDENTITY, sha256="", duration_s=1.0))


@asynccontextmanager
async def peer(
    script: Script, refuse: Callable[[ServerConnection, Request], Response | None] | None = None
) -> AsyncIterator[str]:
    async with serve(script, "127.0.0.1", 0, process_request=refuse) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def listen(url: str) -> list[ServerMessage]:
    async with open_connection(url, ListenOptions(sample_rate=8000)) as connection:
        return [message async for message in connection.messages()]


async def test_messages_of_the_service_are_understood() -> None:
    async def script(socket: ServerConnection) -> None:
        for message in (interim(), final(spoken("Live", "text")), final(()), metadata()):
            await socket.send(message)

    async with peer(script) as url:
        partial, with_live, without_live, last = await listen(url)
    assert isinstance(partial, Results)
    assert partial.split() == ("Well-known,", "fact so")
    assert (partial.moorage.utterance, partial.moorage.covered_s, partial.moorage.slot) == (7, 0.48, 2)
    assert isinstance(with_live, Results)
    assert with_live.is_final
    assert with_live.from_finalize
    assert (with_live.transcript, with_live.live_text) == ("Final text.", "Live text")
    assert with_live.split() == ("Final text.", "")
    assert isinstance(without_live, Results)
    assert without_live.live_text == ""  # the live model said nothing, which is not "no live text given"
    assert isinstance(last, Metadata)


async def test_what_is_sent_is_the_protocol() -> None:
    received: list[object] = []

    async def script(socket: ServerConnection) -> None:
        assert socket.request is not None
        received.append(socket.request.path)
        for _ in range(4):
            received.append(await socket.recv())
        await socket.send(metadata())

    async with peer(script) as url, open_connection(url, ListenOptions(sample_rate=44_100)) as connection:
        await connection.send_audio(b"\x01\x02")
        await connection.send_audio(b"")  # an empty message would close the stream
        await connection.finalize()
        await connection.keep_alive()
        await connection.close_stream()
        assert len([message async for message in connection.messages()]) == 1
    assert received == [
        "/v1/listen?encoding=linear16&sample_rate=44100&channels=1&interim_results=true",
        b"\x01\x02",
        '{"type": "Finalize"}',
        '{"type": "KeepAlive"}',
        '{"type": "CloseStream"}',
    ]


async def test_a_refusal_that_ends_nothing_is_a_message() -> None:
    async def script(socket: ServerConnection) -> None:
        await socket.send(json.dumps(error_message(StepFailed("x"), closes=False)))
        await socket.send(metadata())

    async with peer(script) as url:
        refusal, _ = await listen(url)
    assert isinstance(refusal, Refusal)


async def send_error(socket: ServerConnection) -> None:
    await socket.send(json.dumps(error_message(StepFailed("x"), closes=True)))
    await socket.close(1011, "step_failed")


async def close_badly(socket: ServerConnection) -> None:
    await socket.close(1011, "NET-0001")


async def close_early(socket: ServerConnection) -> None:
    await socket.close(1000)


async def drop(socket: ServerConnection) -> None:
    socket.transport.abort()


async def send_nonsense(socket: ServerConnection) -> None:
    await socket.send('{"type": "Results", "start": "soon"}')


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (send_error, "step_failed: "),
        (close_badly, "closed the connection with 1011: NET-0001"),
        (close_early, "before everything was answered"),
        (drop, "was lost"),
        (send_nonsense, "no message of the protocol"),
    ],
)
async def test_an_end_without_all_answers_is_an_error(script: Script, reason: str) -> None:
    async with peer(script) as url:
        with pytest.raises(ConnectionFailed, match=reason):
            await listen(url)


@pytest.mark.parametrize(("header", "said"), [("", "in the body"), ("in the header", "in the header")])
async def test_a_refused_connection_says_why_and_when_to_try_again(header: str, said: str) -> None:
    def full(socket: ServerConnection, request: Request) -> Response:
        response = socket.respond(HTTPStatus.SERVICE_UNAVAILABLE, "in the body\n")
        response.headers["Retry-After"] = "3"
        if header:
            response.headers["dg-error"] = header
        return response

    async with peer(close_early, full) as url:
        with pytest.raises(ConnectionFailed, match=f"^refused with 503: {said}; try again in 3 s$"):
            await listen(url)


async def test_nobody_there_is_an_error_with_the_address() -> None:
    async with peer(close_early) as url:
        pass
    with pytest.raises(ConnectionFailed, match=f"cannot connect to {url}"):
        await listen(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:8765", "ws://", "nonsense"])
async def test_what_is_no_websocket_address_is_refused(url: str) -> None:
    with pytest.raises(ConnectionFailed, match="is no websocket address"):
        await listen(url)


def test_the_address_keeps_its_own_path_and_query() -> None:
    options = ListenOptions(sample_rate=16_000, interim_results=False)
    assert options.apply("wss://host:1/asr/v1/listen?interim_results=true&tag=a%20b") == (
        "wss://host:1/asr/v1/listen?encoding=linear16&sample_rate=16000&channels=1&interim_results=true&tag=a+b"
    )
