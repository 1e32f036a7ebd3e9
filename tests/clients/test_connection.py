"""The client side of ``/v1/listen`` over loopback, against a peer that follows a script."""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from clients.connection import Access, ConnectionFailed, ListenOptions, Refused, open_connection
from clients.messages import Metadata, Refusal, Results, ServerMessage
from server.errors import BadParameter
from tests.support.certificates import make_pair
from tests.support.results import error, metadata, results

Script = Callable[[ServerConnection], Awaitable[None]]


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
        for message in (
            results("Well-known, fact so", is_final=False, utterance=7, covered_s=0.48),
            results("Final text.", is_final=True, live="Live text"),
            json.dumps({"type": "SpeechStarted", "channel": [0], "timestamp": 0.5}),  # no client asked for it
            results("Final text.", is_final=True, live=""),
            metadata(),
        ):
            await socket.send(message)

    async with peer(script) as url:
        partial, with_live, without_live, last = await listen(url)
    assert isinstance(partial, Results)
    assert partial.split() == ("Well-known,", "fact so")
    assert (partial.moorage.utterance, partial.moorage.covered_s, partial.moorage.slot) == (7, 0.48, 2)
    assert isinstance(with_live, Results)
    assert with_live.is_final
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
        await socket.send(error("step_failed", closes=False))
        await socket.send(metadata())

    async with peer(script) as url:
        refusal, _ = await listen(url)
    assert isinstance(refusal, Refusal)


async def send_error(socket: ServerConnection) -> None:
    await socket.send(error("step_failed", closes=True))
    await socket.close(1011, "step_failed")


async def close_badly(socket: ServerConnection) -> None:
    await socket.close(1011, "NET-0001")


async def close_early(socket: ServerConnection) -> None:
    await socket.close(1000)


async def drop(socket: ServerConnection) -> None:
    socket.transport.abort()


async def send_nonsense(socket: ServerConnection) -> None:
    await socket.send('{"type": "Results", "start": "soon"}')


async def send_no_json(socket: ServerConnection) -> None:
    await socket.send("hello")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (send_error, "step_failed: "),
        (close_badly, "closed the connection with 1011: NET-0001"),
        (close_early, "before everything was answered"),
        (drop, "was lost"),
        (send_nonsense, "no message of the protocol"),
        (send_no_json, "no message of the protocol"),
    ],
)
async def test_an_end_without_all_answers_is_an_error(script: Script, reason: str) -> None:
    async with peer(script) as url:
        with pytest.raises(ConnectionFailed, match=reason):
            await listen(url)


def refusing(status: HTTPStatus, body: str, **headers: str) -> Callable[[ServerConnection, Request], Response]:
    def refuse(socket: ServerConnection, request: Request) -> Response:
        response = socket.respond(status, body)
        for name, value in headers.items():
            response.headers[name.replace("_", "-")] = value
        return response

    return refuse


@pytest.mark.parametrize(
    ("status", "headers", "message", "retry_after_s", "is_busy"),
    [
        (503, {"Retry_After": "3"}, "refused with 503: in the body; try again in 3 s", 3.0, True),
        (429, {"Retry_After": "9", "dg_error": "too many"}, "refused with 429: too many; try again in 9 s", 9.0, True),
        (503, {"Retry_After": "tomorrow"}, "refused with 503: in the body; try again in tomorrow s", None, True),
        (503, {}, "refused with 503: in the body", None, True),
        (401, {"dg_error": "no such key", "Retry_After": "3"}, "refused with 401: no such key; try", None, False),
        (403, {"dg_error": "no such origin"}, "refused with 403: no such origin", None, False),
    ],
)
async def test_a_refused_connection_says_why_and_when_to_try_again(
    status: int, headers: dict[str, str], message: str, retry_after_s: float | None, is_busy: bool
) -> None:
    async with peer(close_early, refusing(HTTPStatus(status), "in the\n body\n", **headers)) as url:
        with pytest.raises(Refused) as caught:
            await listen(url)
    assert str(caught.value).startswith(message)
    assert (caught.value.status, caught.value.retry_after_s, caught.value.is_busy) == (status, retry_after_s, is_busy)


async def test_the_page_of_another_server_is_one_line_of_bounded_length() -> None:
    async with peer(close_early, refusing(HTTPStatus.BAD_GATEWAY, "<html>\n" * 1000)) as url:
        with pytest.raises(Refused) as caught:
            await listen(url)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 350


async def test_the_key_is_shown_as_deepgrams_clients_show_it_and_not_in_logs() -> None:
    shown: list[str | None] = []

    def look(socket: ServerConnection, request: Request) -> None:
        shown.append(request.headers.get("Authorization"))

    async def script(socket: ServerConnection) -> None:
        await socket.send(metadata())

    async with peer(script, look) as url:
        for access in (Access(), Access(key="s3cret")):
            async with open_connection(url, ListenOptions(sample_rate=8000), access) as connection:
                assert len([message async for message in connection.messages()]) == 1
    assert shown == [None, "Token s3cret"]
    assert "s3cret" not in repr(Access(key="s3cret"))


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX-Other: 1", "schlüssel"])
def test_a_key_that_cannot_stand_in_a_header_is_refused(key: str) -> None:
    with pytest.raises(BadParameter, match="printable ASCII"):
        Access(key=key).headers()


async def test_a_service_is_trusted_by_its_authority(tmp_path: Path) -> None:
    pair = make_pair().write(tmp_path)
    certificate = Path(pair.certificate)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pair.certificate, pair.private_key)

    async def script(socket: ServerConnection) -> None:
        await socket.send(metadata())

    async with serve(script, "127.0.0.1", 0, ssl=server_side) as server:
        url = f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_connection(url, ListenOptions(sample_rate=8000), Access(ca_file=certificate)) as connection:
            assert [type(message) async for message in connection.messages()] == [Metadata]
        with pytest.raises(ConnectionFailed, match=f"cannot trust {url}: self.signed certificate; --ca names"):
            await listen(url)


@pytest.mark.parametrize(
    ("url", "name", "message"),
    [
        ("wss://h", "nowhere.pem", r"nowhere.pem: no certificates can be read \(No such file or directory\)"),
        ("wss://h", "text.pem", "text.pem: no certificates can be read"),
        ("ws://h", "text.pem", "authorities are for wss:// addresses"),
    ],
)
def test_a_file_of_authorities_that_is_of_no_use_is_refused(tmp_path: Path, url: str, name: str, message: str) -> None:
    (tmp_path / "text.pem").write_text("no certificate")
    with pytest.raises(BadParameter, match=message):
        Access(ca_file=tmp_path / name).tls(url)
    assert Access().tls("ws://h") is None


async def test_nobody_there_is_an_error_with_the_address() -> None:
    async with peer(close_early) as url:
        pass
    with pytest.raises(ConnectionFailed, match=f"cannot connect to {url}"):
        await listen(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "127.0.0.1:8765", "ws://", "nonsense", "ws://[::1", "ws://h:port"]
)
async def test_what_is_no_websocket_address_is_refused(url: str) -> None:
    with pytest.raises(ConnectionFailed, match="is no websocket address"):
        await listen(url)


def test_the_address_keeps_its_own_path_and_query() -> None:
    options = ListenOptions(sample_rate=16_000, interim_results=False)
    assert options.apply("wss://host:1/asr/v1/listen?interim_results=true&tag=a%20b") == (
        "wss://host:1/asr/v1/listen?encoding=linear16&sample_rate=16000&channels=1&interim_results=true&tag=a+b"
    )
