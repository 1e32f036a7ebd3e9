"""Recordings over real sockets, to a final model whose words are sums of what it was given: any sample that is lost,
doubled or swapped is a wrong number. What a request can make the service hold is bounded, and given back.
"""

import asyncio
import base64
import gzip
import hashlib
import io
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import soundfile

from server.app import Service
from server.configuration.config import FinalConfig, HttpConfig
from server.engine.engine_config import EngineConfig
from server.plan import Samples
from tests.integration.test_access import KEY, OTHER, keyed
from tests.support.accumulator_model import POISON, SLOW, exact_audio, summary
from tests.support.engines import CONFIG, FINAL, until
from tests.support.models import http
from tests.support.raw_socket import answer, raw_socket, request, upgrade
from tests.support.service import client, serving
from tests.support.wire import linear16

RAW = "/v1/listen?encoding=linear16&sample_rate=16000"
FORM = "/v1/audio/transcriptions"
AUDIO = exact_audio(1, 8_000)
SECOND = 16_000

pytestmark = pytest.mark.asyncio(loop_scope="module")


def wav(audio: Samples) -> bytes:
    """A file; [N] or [N, channels]."""
    file = io.BytesIO()
    soundfile.write(file, audio, SECOND, format="WAV", subtype="PCM_16")
    return file.getvalue()


def loud(seconds: float) -> Samples:
    """Without a pause, so that it is cut where pieces are longest; exact in 16 bits."""
    chance = np.random.default_rng(7)
    return (chance.integers(1, 64, size=round(seconds * SECOND)) / 1024).astype(np.float32)


@asynccontextmanager
async def reading(
    engine: EngineConfig = CONFIG, headers: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """A service and a client of it; a recording leaves nothing behind, however it ended."""
    async with serving(engine, **options) as service, http(service, **(headers or {})) as web:
        yield service, web
        await left_nothing(service)


async def left_nothing(service: Service) -> None:
    """Waits until all that requests had taken is given back."""

    def is_free() -> bool:
        engine, gateway = service.engine.stats(), service.gateway.stats()
        waiting = engine.request_batchers["final"].queued if "final" in engine.request_batchers else 0
        return not (waiting or gateway.http_active or gateway.codec_streams or any(gateway.key_streams.values()))

    await until(is_free)


def slow(seconds: float) -> Samples:
    """Of which every piece takes the model a fifth of a second."""
    audio = loud(seconds)
    audio[::8_000] = SLOW
    return audio


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncIterator[Service]:
    """One for all tests that need no settings of their own."""
    async with serving(CONFIG) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def web(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it; a recording leaves nothing behind, however it ended."""
    async with http(service) as web:
        yield web
    await left_nothing(service)


async def listened(web: httpx.AsyncClient, body: bytes, query: str = "") -> dict[str, Any]:
    """What Deepgram's shape answers to raw samples."""
    said = await web.post(f"{RAW}&{query}" if query else RAW, content=body)
    assert said.status_code == 200, said.text
    found: dict[str, Any] = said.json()
    return found


async def transcribed(web: httpx.AsyncClient, file: bytes, **fields: str) -> httpx.Response:
    """What OpenAI's shape answers to a file."""
    return await web.post(FORM, data={"model": "whisper-1"} | fields, files={"file": ("a.wav", file)})


def transcripts(body: Mapping[str, Any]) -> list[str]:
    return [channel["alternatives"][0]["transcript"] for channel in body["results"]["channels"]]


def parts(*fields: tuple[str, bytes], heads: str = "") -> bytes:
    """A form as clients write it; ``heads`` are more headers of each field."""
    pieces = b"".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n{heads}\r\n'.encode() + value + b"\r\n"
        for name, value in fields
    )
    return pieces + b"--x--\r\n"


MULTIPART = {"Content-Type": "multipart/form-data; boundary=x"}
SILENT = wav(np.zeros(400, np.float32))
GOOD = parts(("model", b"whisper-1"), ("file", wav(AUDIO)))


class TestWhatIsHeard:
    async def test_every_sample_once(self, service: Service, web: httpx.AsyncClient) -> None:
        before_s = service.engine.stats().recorded_s
        raw = await listened(web, linear16(AUDIO), "tag=a%26b&extra=k:v%2Bw")
        form = await transcribed(web, wav(AUDIO))
        assert transcripts(raw) == [summary(AUDIO)]
        metadata = raw["metadata"]
        assert metadata["sha256"] == hashlib.sha256(linear16(AUDIO)).hexdigest()
        assert (metadata["duration"], metadata["channels"], metadata["tags"]) == (0.5, 1, ["a&b"])
        assert metadata["extra"] == {"k": "v+w"}
        assert form.json() == {"text": summary(AUDIO), "usage": {"type": "duration", "seconds": 1}}
        assert service.engine.stats().recorded_s == before_s + 1.0

    @pytest.mark.parametrize("size", [777, 100_000])
    async def test_a_long_one_in_pieces(self, web: httpx.AsyncClient, size: int) -> None:
        audio = loud(60.0)
        data = linear16(audio)

        async def body() -> AsyncIterator[bytes]:
            for at in range(0, len(data), size):
                yield data[at : at + size]

        said = (await web.post(RAW, content=body())).json()
        counts = [
            tuple(map(int, word["word"].split(":")))
            for word in said["results"]["channels"][0]["alternatives"][0]["words"]
        ]
        assert len(counts) >= 3
        assert sum(count for count, _ in counts) == audio.size
        assert sum(total for _, total in counts) == round(float(audio.sum(dtype=np.float64)) * 1024)

    async def test_channels_apart_and_mixed(self, web: httpx.AsyncClient) -> None:
        left, right = AUDIO, exact_audio(2, AUDIO.size)
        both = np.stack((left, right), axis=1)
        apart = await listened(web, linear16(both), "channels=2&multichannel=true")
        mixed = await listened(web, linear16(both), "channels=2")
        form = await transcribed(web, wav(both))
        assert transcripts(apart) == [summary(left), summary(right)]
        assert apart["metadata"]["channels"] == 2
        assert [len(transcripts(mixed)), transcripts(mixed)[0].split(":")[0]] == [1, str(AUDIO.size)]
        assert form.json()["text"] == transcripts(mixed)[0]

    async def test_many_at_once_wait_for_their_turn(self) -> None:
        sections = {"final": FinalConfig(recordings_max_queued=1)}
        engine = replace(CONFIG, final=replace(FINAL, recordings_max_queued=1))
        recordings = [exact_audio(seed, 4_000) for seed in range(8)]
        async with reading(engine, sections=sections) as (_, web):
            said = await asyncio.gather(*(listened(web, linear16(each)) for each in recordings))
        assert [transcripts(each) for each in said] == [[summary(each)] for each in recordings]

    async def test_live_streams_go_first(self) -> None:
        one_by_one = replace(CONFIG, final=replace(FINAL, target_size=1))
        async with reading(one_by_one) as (service, web), client(service, "sample_rate=16000") as each:

            def answered() -> int:
                return service.engine.stats().request_batchers["final"].ended.get("completed", 0)

            data = linear16(slow(100.0))
            recordings = [asyncio.create_task(listened(web, data)) for _ in range(3)]
            await until(lambda: service.engine.stats().request_batchers["final"].queued >= 10)
            before = answered()
            await each.send(linear16(AUDIO))
            heard = await each.end()
            assert heard.texts == [summary(AUDIO)]
            assert answered() - before <= 6, "the piece that ran, those of a busy machine's second, and the utterance"
            for recording in recordings:
                recording.cancel()
            await asyncio.wait(recordings)


class TestForms:
    async def test_fields_behind_the_file(self, web: httpx.AsyncClient) -> None:
        body = parts(("file", wav(AUDIO)), ("response_format", b"text"), ("model", b"whisper-1"))
        said = await web.post(FORM, content=body, headers=MULTIPART)
        assert (said.status_code, said.text) == (200, summary(AUDIO) + "\n")

    async def test_pieces_are_told_as_they_are_read(self, web: httpx.AsyncClient) -> None:
        said = await transcribed(web, wav(loud(30.0)), stream="true")
        assert said.headers["Content-Type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in said.text.splitlines() if line]
        assert [event["type"] for event in events] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
        assert "".join(event["delta"] for event in events[:-1]) == events[-1]["text"]

    async def test_an_error_in_the_middle_is_an_event(self, web: httpx.AsyncClient) -> None:
        audio = loud(50.0)
        audio[-SECOND] = POISON
        said = await transcribed(web, wav(audio), stream="true")
        assert (await transcribed(web, wav(AUDIO))).json()["text"] == summary(AUDIO)
        assert said.status_code == 200
        events = [json.loads(line.removeprefix("data: ")) for line in said.text.splitlines() if line]
        assert events[0]["type"] == "transcript.text.delta"
        assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "server_error")

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            (parts(("file", wav(AUDIO))), "model"),
            (parts(("model", b"whisper-1")), "file"),
            (parts(("model", b"whisper-9"), ("file", wav(AUDIO))), "model"),
            (parts(("model", b"whisper-1"), ("file", wav(AUDIO)), ("colour", b"red")), "colour"),
            (parts(("model", b"whisper-1"), ("file", wav(AUDIO)), ("file", wav(AUDIO))), "file"),
            (parts(("model", b"whisper-1"), ("prompt", b"a" * 70_000)), "prompt"),
        ],
    )
    async def test_what_is_wrong_with_a_field_is_told(self, web: httpx.AsyncClient, body: bytes, param: str) -> None:
        said = await web.post(FORM, content=body, headers=MULTIPART)
        assert (said.status_code, said.json()["error"]["param"]) == (400, param)

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (
                parts(
                    ("model", b"whisper-1"),
                    ("file", base64.b64encode(wav(AUDIO))),
                    heads="Content-Transfer-Encoding: base64\r\n",
                ),
                "encoded",
            ),
            (parts(*((f"f{at}", b"") for at in range(40))), "32 fields"),
            (parts(("file", b""), heads="Content-Type: multipart/mixed; boundary=y\r\n"), "form within the form"),
            (GOOD[:-20], "cannot be read"),
            (b"nothing of a form", "cannot be read"),
            (b"", "cannot be read"),
        ],
    )
    async def test_what_is_no_form_is_refused(self, web: httpx.AsyncClient, body: bytes, said: str) -> None:
        refused = await web.post(FORM, content=body, headers=MULTIPART)
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        assert said in refused.json()["error"]["message"]

    @pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionHeader")
    @pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionParam")
    async def test_damaged_forms(self, service: Service, caplog: pytest.LogCaptureFixture) -> None:
        """Whatever is sent, the answer is one, and never that the service has failed."""
        chance = random.Random(11)
        small = parts(("model", b"whisper-1"), ("response_format", b"json"), ("file", SILENT))
        for _ in range(80):
            body = bytearray(small)
            for _ in range(chance.randrange(1, 6)):
                at = chance.randrange(len(body) - 800)
                match chance.randrange(3):
                    case 0:
                        body[at] = chance.randrange(256)
                    case 1:
                        del body[at : at + chance.randrange(40)]
                    case _:
                        body[at:at] = small[: chance.randrange(60)]
            head = request(
                FORM,
                "Host: x",
                f"Content-Length: {len(body)}",
                "Content-Type: multipart/form-data; boundary=x",
                "Connection: close",
                method="POST",
            )
            said = await answer(service.gateway.port, head + bytes(body))
            assert said.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400")), (said[:300], bytes(body[:400]))
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "headers", "body", "code"),
        [
            ("/v1/listen?diarize=true", {}, wav(AUDIO), "bad_parameter"),
            ("/v1/listen?encoding=opus", {}, b"x", "bad_parameter"),
            ("/v1/listen?sentiment=true", {}, wav(AUDIO), "bad_parameter"),
            ("/v1/listen", {"Content-Type": "application/json"}, b'{"url": "https://x"}', "bad_request"),
            ("/v1/listen", {}, b"", "bad_audio"),
            (RAW, {}, b"", "bad_audio"),
            ("/v1/listen", {}, b"no audio at all", "bad_audio"),
            (RAW, {}, wav(AUDIO), "bad_audio"),
            ("/v1/listen?channels=2&multichannel=true", {}, wav(AUDIO), "bad_audio"),
        ],
    )
    async def test_of_what_a_client_may_not_send(
        self, web: httpx.AsyncClient, path: str, headers: dict[str, str], body: bytes, code: str
    ) -> None:
        said = await web.post(path, content=body, headers=headers)
        assert (said.status_code, said.json()["err_code"]) == (400, code), said.text
        assert said.headers["dg-request-id"] == said.json()["request_id"]

    async def test_of_other_methods(self, web: httpx.AsyncClient) -> None:
        assert (await web.get("/v1/listen")).status_code == 426
        for method, path, allowed in (
            ("GET", FORM, "POST"),
            ("DELETE", FORM, "POST"),
            ("PUT", "/v1/listen", "GET, POST"),
        ):
            said = await web.request(method, path)
            assert (said.status_code, said.headers["Allow"]) == (405, allowed), (method, path)
            code = said.json()["error"]["code"] if path == FORM else said.json()["err_code"]
            assert code == "method_not_allowed"

    async def test_of_a_query_where_options_are_fields(self, web: httpx.AsyncClient) -> None:
        said = await web.post(f"{FORM}?language=de&x=1", content=GOOD, headers=MULTIPART)
        assert (said.status_code, said.json()["error"]["param"]) == (400, "language"), said.text
        assert "fields of the form" in said.json()["error"]["message"]

    async def test_where_recordings_are_not_read(self) -> None:
        for final in (FinalConfig(model="none"), FinalConfig(recordings_max_queued=0)):
            async with reading(sections={"final": final}) as (_, web):
                said = await web.post(RAW, content=linear16(AUDIO))
                form = await transcribed(web, wav(AUDIO))
            assert (said.status_code, said.json()["err_code"]) == (501, "not_supported")
            assert (form.status_code, form.json()["error"]["code"]) == (501, "not_supported")

    async def test_while_the_final_model_is_not_there(self, service: Service, web: httpx.AsyncClient) -> None:
        await service.engine.repository.unload("final")
        said = await web.post(RAW, content=linear16(AUDIO))
        assert (said.status_code, said.json()["err_code"]) == (503, "not_ready")
        await service.engine.repository.load("final")
        assert transcripts(await listened(web, linear16(AUDIO))) == [summary(AUDIO)]

    async def test_a_piece_that_fails(self, web: httpx.AsyncClient) -> None:
        audio = AUDIO.copy()
        audio[5] = POISON
        said = await web.post(RAW, content=linear16(audio))
        form = await transcribed(web, wav(audio))
        assert transcripts(await listened(web, linear16(AUDIO))) == [summary(AUDIO)]
        assert (said.status_code, said.json()["err_code"]) == (500, "step_failed")
        assert (form.status_code, form.json()["error"]["type"]) == (500, "server_error")
        assert "poison" not in said.text + form.text


class TestConnections:
    async def test_each_recording_is_the_last_on_its_own(self, service: Service, web: httpx.AsyncClient) -> None:
        """So that a client with a pool of connections opens another for its websocket."""
        for said in (
            await web.post(RAW, content=linear16(AUDIO)),
            await web.post(f"{RAW}&unknown=1", content=linear16(AUDIO)),
            await transcribed(web, wav(AUDIO)),
            await transcribed(web, wav(AUDIO), stream="true"),
            await transcribed(web, wav(AUDIO), language="de"),
        ):
            assert said.headers["Connection"] == "close", said.text
        body = linear16(AUDIO)
        async with raw_socket(service.gateway.port) as each:
            await each.send(request(RAW, "Host: x", f"Content-Length: {len(body)}", method="POST") + body)
            assert summary(AUDIO).encode() in await each.to_close()

    async def test_an_upgrade_on_a_connection_that_is_kept(self) -> None:
        async with reading(drain_timeout_s=20.0) as (service, _), AsyncExitStack() as stack:
            said = []
            for is_draining in (False, True):
                each = await stack.enter_async_context(raw_socket(service.gateway.port))
                await each.send(request("/v2/health/live"))
                await each.head()
                if is_draining:
                    await service.drain()
                await each.send(upgrade("sample_rate=16000"))
                said.append(await each.to_close())
        assert said[0].partition(b"{")[2], "the rest of the first answer comes before"
        assert b"HTTP/1.1 426" in said[0]
        assert b"Connection: close" in said[0]
        assert b"first request of a connection" in said[0]
        assert b"HTTP/1.1 503" in said[1]
        assert b"shutting_down" in said[1]
        assert b"Retry-After" in said[1]


class TestBounds:
    async def test_bytes(self) -> None:
        async def without_length() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield linear16(loud(1.0))

        sections = {"http": HttpConfig(max_body_bytes=100_000)}
        packed = gzip.compress(bytes(50_000_000))
        async with reading(sections=sections) as (_, web):
            for said in (
                await web.post(RAW, content=bytes(100_001)),
                await web.post(RAW, content=without_length()),
                await web.post(RAW, content=packed, headers={"Content-Encoding": "gzip"}),
            ):
                assert (said.status_code, said.json()["err_code"]) == (413, "body_too_large")
            for size in (200_000, 6_000_000):
                form = await transcribed(web, bytes(size))
                assert form.status_code in (400, 413)
            said = await transcribed(web, wav(loud(4.0)))
            assert (said.status_code, said.json()["error"]["code"]) == (413, "body_too_large")

    async def test_packed_audio(self, web: httpx.AsyncClient) -> None:
        headers = {"Content-Encoding": "gzip"}
        said = await web.post(RAW, content=gzip.compress(linear16(AUDIO)), headers=headers)
        assert transcripts(said.json()) == [summary(AUDIO)]
        assert (await web.post(RAW, content=linear16(AUDIO), headers=headers)).status_code == 400

    @pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_packed_audio_that_breaks_off(
        self, web: httpx.AsyncClient, encoding: str, pack: Callable[[bytes], bytes]
    ) -> None:
        """At once: nobody waits for what the client has not announced."""
        packed = pack(linear16(loud(2.0)))
        async with asyncio.timeout(10.0):
            said = await web.post(RAW, content=packed[: len(packed) // 2], headers={"Content-Encoding": encoding})
        assert (said.status_code, said.json()["err_code"]) == (400, "bad_request")
        assert "breaks off" in said.json()["err_msg"]

    async def test_a_packed_form(self, web: httpx.AsyncClient) -> None:
        said = await web.post(FORM, content=gzip.compress(GOOD), headers=MULTIPART | {"Content-Encoding": "gzip"})
        assert (said.status_code, said.json()["error"]["code"]) == (400, "bad_request")
        assert "Content-Encoding is" in said.json()["error"]["message"]

    async def test_seconds(self) -> None:
        async with reading(max_sequence_s=1.0) as (_, web):
            said = await web.post(RAW, content=linear16(loud(1.1)))
            assert (said.status_code, said.json()["err_code"]) == (400, "sequence_too_long")
            await listened(web, linear16(loud(1.0)))

    async def test_bodies_that_do_not_go_on(self) -> None:
        async def stalled(port: int, path: str, begun: bytes) -> bytes:
            kind = "Content-Type: multipart/form-data; boundary=x"
            async with raw_socket(port) as each:
                await each.send(request(path, "Host: x", "Content-Length: 900000", kind, method="POST") + begun)
                return await each.head()

        begun = [(RAW, b""), (RAW, linear16(AUDIO))]
        begun += [(FORM, each) for each in (b"", b"\r\n\r\n", GOOD[:20], GOOD[:70], GOOD[:1000], GOOD[:-4])]
        async with reading(sections={"http": HttpConfig(body_timeout_s=0.3)}) as (service, _):
            port = service.gateway.port
            for said in await asyncio.gather(*(stalled(port, path, each) for path, each in begun)):
                assert said.startswith(b"HTTP/1.1 408"), said

    async def test_a_body_in_drops(self) -> None:
        """Each comes in time; all of them would take for ever."""
        head = request(RAW, "Host: x", "Content-Length: 900000", method="POST")
        sections = {"http": HttpConfig(body_timeout_s=0.4)}
        async with reading(sections=sections) as (service, _), raw_socket(service.gateway.port) as each:
            await each.send(head)
            for _ in range(8):
                await each.send(b"\0\0")
                await asyncio.sleep(0.1)
            assert (await each.head()).startswith(b"HTTP/1.1 408")

    async def test_a_body_at_the_pace_of_speech(self) -> None:
        audio = loud(1.2)

        async def body() -> AsyncIterator[bytes]:
            for at in range(0, audio.size, 1_600):
                yield linear16(audio[at : at + 1_600])
                await asyncio.sleep(0.09)

        sections = {"http": HttpConfig(body_timeout_s=0.5)}
        async with reading(sections=sections) as (_, web):
            assert transcripts((await web.post(RAW, content=body())).json()) == [summary(audio)]


class TestKeys:
    async def test_who_has_none_is_not_read(self) -> None:
        async with reading(sections=keyed()) as (service, web):
            said, form = await web.post(RAW, content=linear16(AUDIO)), await transcribed(web, wav(AUDIO))
            assert (said.status_code, said.json()["err_code"]) == (401, "INVALID_AUTH")
            assert (form.status_code, form.json()["error"]["code"]) == (401, "invalid_auth")
            async with http(service, Authorization=f"Bearer {KEY}") as known:
                assert (await transcribed(known, wav(AUDIO))).status_code == 200

    async def test_its_streams_at_once(self) -> None:
        two = linear16(np.stack((slow(2.0), slow(2.0)), axis=1))
        headers = {"Authorization": f"Token {KEY}"}
        async with reading(CONFIG, headers, sections=keyed(max_streams=2)) as (service, web):
            first = asyncio.create_task(listened(web, two, "channels=2&multichannel=true"))
            await until(lambda: service.gateway.stats().key_streams["team"] == 2)
            said = await transcribed(web, wav(AUDIO))
            assert (said.status_code, said.json()["error"]["code"]) == (429, "key_limit")
            assert int(said.headers["Retry-After"]) >= 1
            async with http(service, Authorization=f"Token {OTHER}") as other:
                assert (await transcribed(other, wav(AUDIO))).status_code == 200
            await first

    async def test_its_audio(self) -> None:
        headers = {"Authorization": f"Token {KEY}"}
        async with reading(CONFIG, headers, sections=keyed(max_audio_s_per_minute=6.0)) as (_, web):
            first = asyncio.create_task(listened(web, linear16(loud(6.2))))
            async with asyncio.timeout(10):
                while (said := await web.post(RAW, content=b"")).status_code == 400:
                    pass  # no audio, which costs nothing: its key has some left
            assert (said.status_code, said.json()["err_code"]) == (429, "TOO_MANY_REQUESTS")
            assert not first.done()
            await first


class TestLeaving:
    @pytest.mark.parametrize("n_sent", [0, 10, 16_000, 3_200_000])
    async def test_a_client_that_leaves_takes_its_recording_along(self, n_sent: int) -> None:
        data, key = linear16(slow(100.0)), f"Token {KEY}"
        head = request(RAW, "Host: x", f"Content-Length: {len(data)}", f"Authorization: {key}", method="POST")
        async with reading(CONFIG, {"Authorization": key}, sections=keyed()) as (service, web):
            async with raw_socket(service.gateway.port) as each:
                await each.send(head + data[:n_sent])
                await until(lambda: service.gateway.stats().key_streams["team"] == 1)
                if n_sent > 1_000_000:
                    await until(lambda: service.engine.stats().request_batchers["final"].queued > 0)
            await left_nothing(service)
            if n_sent > 1_000_000:
                assert service.engine.stats().request_batchers["final"].ended["cancelled"] > 1
            assert transcripts(await listened(web, linear16(AUDIO))) == [summary(AUDIO)]

    async def test_a_stopping_service_reads_what_it_has_taken(self) -> None:
        async with reading(drain_timeout_s=20.0) as (service, web):
            waiting = asyncio.create_task(listened(web, linear16(slow(2.0))))
            await until(lambda: service.gateway.stats().http_active == 1)
            draining = asyncio.create_task(service.drain())
            await asyncio.sleep(0.05)
            said = await web.post(RAW, content=linear16(AUDIO))
            assert (said.status_code, said.json()["err_code"]) == (503, "shutting_down")
            assert transcripts(await waiting) == [summary(slow(2.0))]
            await draining

    async def test_one_that_stops_at_once_says_so(self) -> None:
        async with serving(CONFIG, drain_timeout_s=0.0) as service, http(service) as web:
            waiting = asyncio.create_task(web.post(RAW, content=linear16(slow(100.0))))
            await until(lambda: service.engine.stats().request_batchers["final"].queued > 0)
            await service.stop()
            said = await waiting
        assert (said.status_code, said.json()["err_code"]) == (503, "shutting_down")
