"""The service over real sockets: text is right in any framing, every bad input has its words, no slot is ever lost."""

import asyncio
import hashlib
import json
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from server.engine.engine_config import EngineConfig
from tests.support.accumulator_model import BOMB, exact_audio, summary
from tests.support.engines import CONFIG, live_only
from tests.support.service import Sent, address, client, exchange, serving, slots_used
from tests.support.wire import linear16

AUDIO = exact_audio(11, 2000)
DATA = linear16(AUDIO)
FINALIZE, CLOSE_STREAM, KEEP_ALIVE = (json.dumps({"type": name}) for name in ("Finalize", "CloseStream", "KeepAlive"))


def idle_after(timeout_s: float) -> EngineConfig:
    return replace(live_only(), idle_timeout_s=timeout_s)


async def refusal(url: str, **options: Any) -> InvalidStatus:
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, proxy=None, **options)
    return caught.value


class TestText:
    @pytest.mark.parametrize("size", [1, 7, 1281, 4000])
    async def test_any_framing_gives_the_same_text(self, size: int) -> None:
        data = DATA[: 2 * 300] if size == 1 else DATA
        async with serving() as service:
            pieces: list[Sent] = [data[at : at + size] for at in range(0, len(data), size)]
            heard = await exchange(service, [*pieces, CLOSE_STREAM])
        assert heard.texts == [summary(AUDIO[: len(data) // 2])]
        assert heard.code == 1000
        [metadata] = heard.of("Metadata")
        assert metadata["sha256"] == hashlib.sha256(data).hexdigest()
        assert heard.messages[-1] is metadata

    async def test_the_final_model_is_heard_too(self) -> None:
        async with serving(CONFIG) as service:
            heard = await exchange(service, [DATA, b""])
        [result] = heard.finals
        assert heard.texts == [summary(AUDIO)]
        assert result["metadata"]["moorage"]["live_text"] == summary(AUDIO)
        assert [info["name"] for info in heard.of("Metadata")[0]["model_info"].values()] == ["accumulator", "sum"]

    async def test_many_at_once_keep_apart(self) -> None:
        async def one(seed: int) -> tuple[list[str], list[str]]:
            audio = exact_audio(seed, 500 + 37 * seed)
            data = linear16(audio)
            size = 30 + 11 * seed
            async with client(service) as each:
                for at in range(0, len(data), size):
                    await each.send(data[at : at + size])
                    await asyncio.sleep(0)
                heard = await each.end()
            return heard.texts, [summary(audio)]

        async with serving() as service:
            outcomes = await asyncio.gather(*(one(seed) for seed in range(8)))
        for texts, expected in outcomes:
            assert texts == expected

    async def test_an_interim_per_tick(self) -> None:
        async with serving() as service:
            heard = await exchange(service, [DATA, CLOSE_STREAM], "interim_results=true")
        covered = [each["metadata"]["moorage"]["covered_s"] for each in heard.interims]
        assert covered == sorted(covered)
        # ticks of 64 samples, the first one complete with its look-ahead of 7
        assert covered[-1] == pytest.approx((64 * ((2000 - 7) // 64) + 7) / 16_000)

    async def test_resampled_audio_arrives_whole(self) -> None:
        async with serving() as service:
            heard = await exchange(
                service, [DATA[at : at + 333] for at in range(0, 4000, 333)] + [b""], "sample_rate=8000"
            )
        count = int(heard.texts[0].partition(":")[0])
        assert count == 4000
        assert heard.of("Metadata")[0]["duration"] == 0.25


class TestFinalize:
    async def test_each_is_answered_once_even_when_empty(self) -> None:
        half = len(DATA) // 2
        async with serving() as service:
            messages: list[Sent] = [FINALIZE, DATA[:half], FINALIZE, FINALIZE, DATA[half:], CLOSE_STREAM]
            heard = await exchange(service, messages)
        assert [each["from_finalize"] for each in heard.finals] == [True, True, True, False]
        assert heard.texts == ["", summary(AUDIO[:1000]), "", summary(AUDIO)]

    async def test_finals_tile_the_timeline(self) -> None:
        async with serving() as service:
            messages: list[Sent] = [DATA[:1000], FINALIZE, DATA[1000:1002], FINALIZE, DATA[1002:], CLOSE_STREAM]
            heard = await exchange(service, messages)
        ends_s = [each["start"] + each["duration"] for each in heard.finals]
        assert [each["start"] for each in heard.finals] == pytest.approx([0.0, *ends_s[:-1]], abs=2e-6)
        assert ends_s[-1] == pytest.approx(2000 / 16_000)

    async def test_the_answer_covers_what_came_before_it(self) -> None:
        async with serving() as service, client(service) as each:
            for answers, (start, end) in enumerate(((0, 100), (100, 350), (350, 351)), start=1):
                await each.send(DATA[2 * start : 2 * end], FINALIZE)
                await each.hears(answers)
            heard = await each.end()
        assert heard.texts[:3] == [summary(AUDIO[:end]) for end in (100, 350, 351)]


BAD: dict[str, tuple[Sequence[Sent], int, str, str]] = {
    "wav": ([b"RIFF" + bytes(400)], 1003, "bad_audio", "a WAV file"),
    "flac": ([b"fL", b"aC", bytes(400)], 1003, "bad_audio", "a FLAC file"),
    "ogg": ([b"OggS"], 1003, "bad_audio", "an Ogg file"),
    "no json": ([DATA, "audio"], 1007, "bad_message", "'audio' is not JSON"),
    "unknown type": ([DATA, '{"type": "Reset"}'], 1007, "bad_message", "message type 'Reset' is not known"),
    "audio as text": (["A" * 6400], 1007, "bad_message", "a text of 6400 characters is no control message"),
    "json without type": (['{"pcm": [0.1, NaN]}'], 1007, "bad_message", "message type None is not known"),
}


class TestBadInput:
    @pytest.mark.parametrize("name", BAD)
    async def test_it_is_named_and_the_neighbour_does_not_notice(self, name: str) -> None:
        messages, code, kind, text = BAD[name]
        async with serving(live_only(instances=1)) as service, client(service) as neighbour:
            await neighbour.send(DATA[:1700])
            heard = await exchange(service, messages)
            await neighbour.send(DATA[1700:])
            assert (await neighbour.end()).texts == [summary(AUDIO)]
            await slots_used(service, 0)
        error = heard.messages[-1]
        assert (error["type"], error["code"], error["closes"]) == ("Error", kind, True)
        assert text in error["message"]
        assert error["description"] == error["message"]
        assert (heard.code, heard.reason) == (code, error["message"].encode()[:123].decode())

    async def test_what_was_said_before_it_is_answered_and_its_cause_counted(self) -> None:
        async with serving(CONFIG) as service:
            heard = await exchange(service, [DATA, "?"])
            await slots_used(service, 0)
            assert service.engine.stats().sequences_ended == {"bad_message": 1}
        assert (heard.texts, heard.code) == ([summary(AUDIO)], 1007)
        assert [message["type"] for message in heard.messages[-2:]] == ["Results", "Error"]

    async def test_a_message_too_large(self) -> None:
        async with serving(max_message_bytes=4096) as service, client(service) as neighbour:
            await neighbour.send(DATA[:1700])
            heard = await exchange(service, [bytes(4097)])
            await neighbour.send(DATA[1700:])
            assert (await neighbour.end()).texts == [summary(AUDIO)]
            await slots_used(service, 0)
            await neighbour.socket.wait_closed()
            assert service.gateway.stats().connections_closed == {"1009": 1, "1000": 1}
        [error] = heard.of("Error")
        assert (heard.code, error["code"]) == (1009, "message_too_large")
        assert "4097 bytes" in heard.reason
        assert "4096 bytes" in heard.reason

    async def test_a_message_far_too_large_is_not_even_read(self) -> None:
        async with serving(max_message_bytes=1024) as service:
            heard = await exchange(service, [bytes(5000)])
            await slots_used(service, 0)
        assert (heard.code, heard.messages) == (1009, [])

    async def test_no_audio_at_all(self) -> None:
        async with serving() as service:
            heard = await exchange(service, [CLOSE_STREAM])
        assert (heard.texts, heard.code) == ([""], 1000)
        assert heard.of("Metadata")[0]["duration"] == 0.0

    async def test_an_empty_message_ends(self) -> None:
        async with serving() as service:
            heard = await exchange(service, [b"", DATA])
        assert (heard.texts, heard.code) == ([""], 1000)

    async def test_audio_after_the_end_is_refused_and_the_rest_is_told(self) -> None:
        async with serving(live_only(step_s=0.05)) as service:
            heard = await exchange(service, [DATA, CLOSE_STREAM, DATA, FINALIZE, KEEP_ALIVE])
        assert [each["code"] for each in heard.of("Error")] == ["sequence_ended"]
        assert (heard.texts, heard.code) == ([summary(AUDIO)], 1000)

    async def test_a_model_that_fails_takes_only_its_batch(self) -> None:
        bomb = linear16(np.full(100, BOMB, dtype=np.float32))
        async with serving(live_only(instances=1)) as service:
            heard = await exchange(service, [bomb])
            [after] = (await exchange(service, [DATA, CLOSE_STREAM])).texts
        assert (heard.code, heard.reason) == (1011, "the service failed; its log has the reason")
        assert [each["code"] for each in heard.of("Error")] == ["step_failed"]
        assert after == summary(AUDIO)

    @pytest.mark.parametrize(
        ("query", "parameter", "value", "allowed"),
        [
            ("sample_rate=0", "sample_rate", "0", "an integer from"),
            ("encoding=speex", "encoding", "speex", "linear16"),
            ("channels=9", "channels", "9", "8"),
            ("interim_results=maybe", "interim_results", "maybe", "true, false"),
            ("language=fr", "language", "fr", "en-gb"),
        ],
    )
    async def test_a_query_value(self, query: str, parameter: str, value: str, allowed: str) -> None:
        async with serving() as service:
            response = (await refusal(address(service, query))).response
            assert service.engine.stats().sequences_started == 0
            assert service.gateway.stats().refusals == {"bad_parameter": 1}
        body = json.loads(response.body or b"")
        assert response.status_code == 400
        assert (body["parameter"], body["value"], body["err_code"]) == (parameter, value, "bad_parameter")
        assert allowed in body["allowed"]
        assert f"query parameter {parameter} is {value!r}; allowed: " in body["err_msg"]
        assert response.headers["dg-error"] == body["err_msg"][:500]
        assert response.headers["dg-request-id"] == body["request_id"]

    async def test_a_query_parameter_that_would_write_headers(self) -> None:
        async with serving() as service:
            response = (await refusal(address(service, "a%0D%0ASet-Cookie:%20b=1"))).response
        assert response.status_code == 400
        assert "Set-Cookie" not in response.headers
        assert json.loads(response.body or b"")["parameter"] == "a\r\nSet-Cookie: b"


class TestSlots:
    async def test_a_full_service_refuses_before_the_upgrade_and_a_freed_slot_is_taken(self) -> None:
        async with serving(live_only(instances=1, slots=1)) as service:
            async with client(service) as first:
                await first.send(DATA[:100])
                response = (await refusal(address(service))).response
                assert response.status_code == 503
                assert int(response.headers["Retry-After"]) >= 1
                assert json.loads(response.body or b"")["err_code"] == "capacity_exceeded"
            await slots_used(service, 0)
            assert (await exchange(service, [DATA, CLOSE_STREAM])).texts == [summary(AUDIO)]
            assert service.engine.stats().refusals == {"capacity_exceeded": 1}

    @pytest.mark.parametrize(
        "sent",
        [[], [DATA], [DATA, FINALIZE], [DATA[:3]], [DATA, CLOSE_STREAM], [b"RIFF"], ["?"], [DATA * 40]],
        ids=["nothing", "audio", "finalize", "half a sample", "end", "bad audio", "bad text", "much"],
    )
    async def test_a_dropped_connection_gives_its_slot_back(self, sent: list[Sent]) -> None:
        async with serving(live_only(step_s=0.01, instances=1, slots=1)) as service:
            for _ in range(3):
                async with client(service) as each:
                    await each.send(*sent)
                await slots_used(service, 0)
            assert service.engine.stats().sequences_started == 3
            assert (await exchange(service, [DATA, CLOSE_STREAM])).texts == [summary(AUDIO)]

    async def test_a_failed_handshake_takes_none(self) -> None:
        async with serving(live_only(instances=1, slots=1)) as service:
            response = await raw(service.gateway.port, upgrade_request(key="short"))
            assert response.startswith(b"HTTP/1.1 400")
            plain = await raw(service.gateway.port, b"GET /v1/listen HTTP/1.1\r\nHost: x\r\n\r\n")
            head, _, body = plain.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            assert lines[0] == "HTTP/1.1 426 Upgrade Required"
            told = json.loads(body)
            assert told["err_code"] == "upgrade_required"
            said = {"Upgrade: websocket", f"dg-request-id: {told['request_id']}", f"dg-error: {told['err_msg']}"}
            assert said <= set(lines)
            assert service.engine.stats().sequences_started == 0

    async def test_a_client_that_leaves_in_the_handshake_gives_its_slot_back(self) -> None:
        async with serving(live_only(instances=1, slots=1)) as service:
            for _ in range(5):
                await reset_after(service.gateway.port, upgrade_request())
                await slots_used(service, 0)
            assert (await exchange(service, [CLOSE_STREAM])).code == 1000

    async def test_too_many_connections(self) -> None:
        async with serving(max_connections=1) as service, client(service):
            response = (await refusal(address(service))).response
        assert response.status_code == 503
        assert json.loads(response.body or b"")["err_msg"] == "all 1 connections are taken"


class TestTime:
    async def test_an_idle_client_is_told(self) -> None:
        async with serving(idle_after(0.3)) as service:
            heard = await exchange(service, [DATA])
            await slots_used(service, 0)
        assert heard.code == 1011
        assert heard.reason.startswith("NET-0001: ")
        assert heard.texts == [summary(AUDIO)], "what was said is answered all the same"
        assert [each["code"] for each in heard.of("Error")] == ["idle_timeout"]

    async def test_keep_alive_keeps(self) -> None:
        async with serving(idle_after(0.5)) as service, client(service) as each:
            for _ in range(8):
                await asyncio.sleep(0.15)
                await each.send(KEEP_ALIVE)
            await each.send(DATA)
            heard = await each.end()
        assert (heard.texts, heard.code) == ([summary(AUDIO)], 1000)

    async def test_a_ping_is_answered_whatever_the_model_does(self) -> None:
        async with serving(live_only(step_s=0.4)) as service, client(service) as each:
            await each.send(DATA[:800])
            for _ in range(20):
                await (await each.socket.ping())
            assert service.engine.stats().live.step_s.count <= 1

    async def test_a_fast_sender_waits_for_the_model(self) -> None:
        """More audio than the queues hold: nothing is lost and nothing grows."""
        data = DATA * 30
        async with serving(live_only(step_s=0.001, max_queued_s=1.0)) as service, client(service) as each:
            await each.send(*(data[at : at + 50_000] for at in range(0, len(data), 50_000)))
            heard = await each.end()
        assert heard.texts == [summary(np.tile(AUDIO, 30))]

    async def test_a_client_that_does_not_read_is_cut_off(self) -> None:
        async with serving(send_timeout_s=0.5, write_buffer_bytes=1024) as service:
            writer = await deaf_client(service.gateway.port)
            frame = b"\x82\xfe" + struct.pack(">H", 4000) + bytes(4) + DATA
            with pytest.raises(ConnectionError):
                await write_on(writer, frame)
            await slots_used(service, 0)
            writer.close()
            assert (await exchange(service, [DATA, CLOSE_STREAM])).texts == [summary(AUDIO)]

    async def test_it_is_noticed_before_megabytes_wait_in_the_kernel(self, caplog: pytest.LogCaptureFixture) -> None:
        """A few hundred kilobytes of results are more than a socket and its peer's take."""
        async with serving(send_timeout_s=0.5) as service:
            writer = await deaf_client(service.gateway.port)
            words = FINALIZE.encode()
            finalize = b"\x81" + bytes([0x80 | len(words)]) + bytes(4) + words
            data = b"\x82\xfe" + struct.pack(">H", 800) + bytes(4) + DATA[:800]
            with suppress(ConnectionError):
                for _ in range(400):
                    writer.write(data + finalize)
                    await writer.drain()
            await slots_used(service, 0)
            writer.close()
        assert "results were not read for 0.5 s" in caplog.text


class TestShutdown:
    async def test_live_clients_are_told(self) -> None:
        async with serving() as service, client(service) as each:
            await each.send(DATA)
            port = service.gateway.port
            await service.stop()
            heard = await each.to_close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        assert (heard.code, heard.reason) == (1012, "the service is shutting down")
        assert [each["code"] for each in heard.of("Error")] == ["shutting_down"]

    async def test_a_silent_socket_does_not_hold_it_up(self) -> None:
        async with serving(handshake_timeout_s=60.0, shutdown_timeout_s=30.0) as service:
            _, writer = await asyncio.open_connection("127.0.0.1", service.gateway.port)
            await asyncio.sleep(0.05)
            started_s = time.monotonic()
            await service.stop()
            assert time.monotonic() - started_s < 10
            writer.close()

    async def test_a_client_that_does_not_answer_the_close_is_cut_off(self) -> None:
        async with serving(shutdown_timeout_s=0.3, send_timeout_s=60.0) as service:
            writer = await deaf_client(service.gateway.port)
            await slots_used(service, 1)
            started_s = time.monotonic()
            await service.stop()
            assert time.monotonic() - started_s < 10
            writer.close()


class TestPages:
    async def test_while_it_runs(self) -> None:
        async with serving() as service:
            await exchange(service, [DATA, CLOSE_STREAM])
            health, ready, models, page = [
                await raw(service.gateway.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                for path in ("/healthz", "/readyz", "/v1/models", "/metrics")
            ]
            missing = await raw(service.gateway.port, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        assert health.startswith(b"HTTP/1.1 200")
        assert ready.startswith(b"HTTP/1.1 200")
        assert json.loads(models.partition(b"\r\n\r\n")[2])["models"][0]["name"] == "accumulator"
        assert b'moorage_sequences_ended_total{cause="end"} 1.0' in page
        assert b"moorage_connections_opened_total 1.0" in page
        assert missing.startswith(b"HTTP/1.1 404")

    async def test_before_the_models_are_loaded(self) -> None:
        async with serving() as service:
            await service.engine.stop()
            assert (await raw(service.gateway.port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert (await raw(service.gateway.port, b"GET /readyz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503")
            response = (await refusal(address(service))).response
        assert response.status_code == 503
        assert json.loads(response.body or b"")["err_code"] == "not_ready"

    async def test_browsers_offer_their_key_as_a_subprotocol(self) -> None:
        async with serving() as service, client(service, subprotocols=["token", "key"]) as each:
            assert each.socket.subprotocol == "token"
            assert (await each.end()).code == 1000


def upgrade_request(query: str = "interim_results=true", key: str = "dGhlIHNhbXBsZSBub25jZQ==") -> bytes:
    lines = (
        f"GET /v1/listen?encoding=linear16&{query} HTTP/1.1",
        "Host: 127.0.0.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    )
    return "\r\n".join((*lines, "", "")).encode()


async def raw(port: int, request: bytes) -> bytes:
    """The whole answer to a request that is not upgraded."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def reset_after(port: int, request: bytes) -> None:
    """Sends a request and tears the connection down without reading."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.write(request)
    await writer.drain()
    writer.transport.abort()


async def write_on(writer: asyncio.StreamWriter, data: bytes) -> None:
    """The same again and again, until the connection is lost."""
    async with asyncio.timeout(20):
        while True:
            writer.write(data)
            await writer.drain()


async def deaf_client(port: int) -> asyncio.StreamWriter:
    """A client that upgrades and never reads again, with a receive buffer that is soon full."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=1024)
    writer.write(upgrade_request())
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    return writer
