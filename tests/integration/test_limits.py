"""What a client can make the service hold is bounded, whoever it is: sockets, headers, messages, audio, time."""

import asyncio
import json
import struct
import time

import numpy as np
import pytest

from server.app import Service
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import live_only
from tests.support.raw_socket import UPGRADE, RawSocket, answer, frame, raw_socket, request, upgrade
from tests.support.service import client, exchange, serving, slots_used
from tests.support.wire import linear16

AUDIO = exact_audio(21, 1000)
DATA = linear16(AUDIO)
QUERY = "encoding=linear16&sample_rate=16000"
CLOSE_STREAM = json.dumps({"type": "CloseStream"})
BINARY, TEXT, PING = 2, 1, 9


async def serves_others(service: Service) -> None:
    """A client that behaves is served at once, and exactly."""
    async with asyncio.timeout(10):
        assert (await exchange(service, [DATA, CLOSE_STREAM], QUERY)).texts == [summary(AUDIO)]


async def upgraded(each: RawSocket) -> None:
    await each.send(upgrade(QUERY))
    assert (await each.head()).startswith(b"HTTP/1.1 101")


def close_code(heard: bytes) -> int | None:
    """Of the close frame that is the last thing that was heard."""
    at = heard.rfind(b"\x88")
    return None if at < 0 or len(heard) < at + 4 else struct.unpack(">H", heard[at + 2 : at + 4])[0]


async def no_sockets(service: Service) -> None:
    """Waits until the service has given back every socket."""
    async with asyncio.timeout(10):
        while service.gateway.sockets:  # noqa: ASYNC110  # the gateway announces no such thing
            await asyncio.sleep(0.005)


class TestHandshakes:
    @pytest.mark.parametrize("said", [b"", b"GET /v1/listen HTTP/1.1\r\nHost: x\r\n", b"\r\n"])
    async def test_one_that_is_not_finished_in_time_is_closed(self, said: bytes) -> None:
        async with serving(handshake_timeout_s=0.3) as service, raw_socket(service.gateway.port) as each:
            started_s = time.monotonic()
            await each.send(said)
            assert b"101" not in await each.to_close()
            assert time.monotonic() - started_s < 5.0
            each.writer.close()
            await no_sockets(service)

    async def test_a_letter_at_a_time_does_not_prolong_it(self) -> None:
        async with serving(handshake_timeout_s=0.5) as service, raw_socket(service.gateway.port) as each:
            closed = asyncio.create_task(each.to_close())
            letters = iter(upgrade(QUERY) * 100)
            while not closed.done():
                each.writer.write(bytes([next(letters)]))
                await asyncio.sleep(0.02)
            assert b"101" not in await closed

    async def test_those_that_dawdle_never_keep_others_out(self) -> None:
        """More sockets than there is room for say nothing; the longest waiting go, and who comes ready is served."""
        async with serving(max_handshakes=4, handshake_timeout_s=60.0) as service:
            silent = [await asyncio.open_connection("127.0.0.1", service.gateway.port) for _ in range(30)]
            await serves_others(service)
            async with asyncio.timeout(10):
                for reader, _ in silent[:26]:
                    assert await reader.read() == b""
            assert len(service.gateway.sockets) <= 4
            assert service.gateway.stats().refusals["handshake_evicted"] >= 26
            for _, writer in silent:
                writer.transport.abort()

    async def test_a_stream_is_never_taken_for_a_dawdler(self) -> None:
        async with serving(max_handshakes=1) as service, client(service, QUERY) as first:
            for _ in range(5):
                await serves_others(service)
            await first.send(DATA)
            assert (await first.end()).texts == [summary(AUDIO)]

    async def test_sockets_are_bounded_whatever_they_do(self) -> None:
        async with serving(max_connections=2, max_handshakes=3, handshake_timeout_s=60.0) as service:
            silent = [await asyncio.open_connection("127.0.0.1", service.gateway.port) for _ in range(3)]
            async with client(service, QUERY), client(service, QUERY):
                sockets = [await asyncio.open_connection("127.0.0.1", service.gateway.port) for _ in range(20)]
                for _, writer in sockets:
                    writer.write(upgrade(QUERY))
                answers = await asyncio.gather(*(reader.read(1000) for reader, _ in sockets), return_exceptions=True)
                assert len(service.gateway.sockets) <= 5
                assert service.gateway.stats().connections == 2
            heard = [each for each in answers if isinstance(each, bytes) and each]
            assert all(each.startswith(b"HTTP/1.1 503") for each in heard)
            for _, writer in (*silent, *sockets):
                writer.transport.abort()
            await slots_used(service, 0)
            await serves_others(service)

    async def test_a_closed_handshake_that_the_peer_keeps_open_ends_too(self) -> None:
        """Half-closed by the service, and never by the client."""
        async with serving(handshake_timeout_s=0.5) as service, raw_socket(service.gateway.port) as each:
            await each.send(b"no HTTP\r\n\r\n")
            await each.to_close()
            await no_sockets(service)


BAD_REQUESTS: dict[str, bytes] = {
    "a long path": request("/" + "a" * 20_000),
    "a long query": upgrade("tag=" + "a" * 7_000),
    "a long header": request(f"/v1/listen?{QUERY}", *UPGRADE, "X: " + "a" * 20_000),
    "many headers": request(f"/v1/listen?{QUERY}", *UPGRADE, *(f"X{index}: y" for index in range(500))),
    "headers without end": b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 5_000_000,
    "a body": request("/metrics", "Host: x", "Content-Length: 100000", method="POST") + bytes(100_000),
    "chunks": request("/", "Host: x", "Transfer-Encoding: chunked") + b"5\r\naaaaa\r\n" * 1000,
    "more than a request": upgrade(QUERY) + frame(BINARY, DATA),
    "two requests": request("/healthz") * 2,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
    "HTTP/1.0": b"GET /v1/listen HTTP/1.0\r\n\r\n",
    "an old version": request(f"/v1/listen?{QUERY}", *UPGRADE[:4], "Sec-WebSocket-Version: 8"),
    "no key": request(f"/v1/listen?{QUERY}", *UPGRADE[:3], UPGRADE[4]),
    "two keys": upgrade(QUERY, UPGRADE[3]),
    "a header in two lines": request(f"/v1/listen?{QUERY}", *UPGRADE[:4], "X: a\r\n b"),
    "bytes of no script": request("/\xff\xfe", "X\xff: \xfe"),
    "a null": b"GET /\0 HTTP/1.1\r\nHost: \0\r\n\r\n",
    "lines without CR": upgrade(QUERY).replace(b"\r\n", b"\n"),
}


class TestRequests:
    @pytest.mark.parametrize("name", BAD_REQUESTS)
    async def test_bad_ones_take_nothing(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        async with serving(handshake_timeout_s=2.0) as service:
            heard = await answer(service.gateway.port, BAD_REQUESTS[name])
            assert not heard.startswith((b"HTTP/1.1 101", b"HTTP/1.1 2", b"HTTP/1.1 500")), heard[:500]
            await slots_used(service, 0)
            await serves_others(service)
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


class TestMessages:
    async def test_compression_is_never_agreed_on(self) -> None:
        """A megabyte of zeros compresses to a kilobyte, so a limit on messages would limit nothing."""
        offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
        async with serving() as service, raw_socket(service.gateway.port) as each:
            await each.send(upgrade(QUERY, offer))
            head = await each.head()
            assert head.startswith(b"HTTP/1.1 101")
            assert b"extensions" not in head.lower()
            compressed = bytearray(frame(BINARY, DATA))
            compressed[0] |= 0x40
            await each.send(bytes(compressed))
            assert close_code(await each.to_close()) == 1002
            each.writer.close()
            await slots_used(service, 0)

    @pytest.mark.parametrize(
        ("sent", "code"),
        [
            (b"\x82\xff" + struct.pack(">Q", 2**62) + bytes(4), 1009),
            (b"\x82\xff" + struct.pack(">Q", 2**63 + 5) + bytes(4), 1009),
            (frame(BINARY, bytes(60_000), fin=False) + frame(0, bytes(60_000), fin=False) * 4, 1009),
            (frame(BINARY, DATA, masked=False), 1002),
            (frame(3, DATA), 1002),
            (frame(0, DATA), 1002),
            (frame(PING, bytes(126)), 1002),
            (frame(PING, b"", fin=False), 1002),
            (frame(8, b"\x03"), 1002),
            (frame(8, struct.pack(">H", 999)), 1002),
            (frame(TEXT, b"\xff\xfe{}"), 1007),
        ],
        ids=[
            "declared huge", "declared negative", "fragments without end", "unmasked", "unknown opcode",
            "continues nothing", "long ping", "fragmented ping", "short close", "bad close code", "no UTF-8",
        ],
    )  # fmt: skip
    async def test_frames_that_break_the_protocol(self, sent: bytes, code: int) -> None:
        async with serving(max_message_bytes=32_768) as service, raw_socket(service.gateway.port) as each:
            await upgraded(each)
            await each.send(sent)
            assert close_code(await each.to_close()) == code
            each.writer.close()
            await slots_used(service, 0)
            await serves_others(service)

    async def test_pings_that_nobody_reads_the_answers_of_do_not_pile_up(self) -> None:
        async with serving(write_buffer_bytes=65_536) as service, raw_socket(service.gateway.port) as each:
            await upgraded(each)
            each.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
            [connection] = service.gateway.sockets
            pings = frame(PING, bytes(125)) * 500
            most_bytes = 0
            async with asyncio.timeout(20):
                while not connection.transport.is_closing():
                    if each.writer.transport.get_write_buffer_size() < 1_000_000:
                        each.writer.write(pings)
                    await asyncio.sleep(0)
                    most_bytes = max(most_bytes, connection.transport.get_write_buffer_size())
                    assert most_bytes < 2_000_000
            await slots_used(service, 0)

    @pytest.mark.parametrize("sent", [frame(BINARY, b""), frame(PING, b""), frame(BINARY, b"", fin=False)])
    async def test_a_flood_of_small_frames_does_not_hold_up_the_others(self, sent: bytes) -> None:
        async with serving() as service, raw_socket(service.gateway.port) as each:
            await upgraded(each)
            listening = asyncio.create_task(each.to_close())
            each.writer.write(sent * 60_000)
            longest_s = await longest_turn(0.5)
            assert longest_s < 0.2
            listening.cancel()
            await serves_others(service)


async def longest_turn(for_s: float) -> float:
    """The most work that the event loop did in one turn, in seconds of its thread's own time: cores may be short."""
    longest_s, last_s = 0.0, time.thread_time()
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    return longest_s


class TestAudio:
    async def test_a_sequence_too_long_ends_with_all_its_results(self) -> None:
        audio = np.tile(AUDIO, 20)
        async with serving(max_sequence_s=1.0) as service:
            heard = await exchange(service, [linear16(audio)], QUERY)
            await slots_used(service, 0)
        assert heard.code == 1008
        assert [each["code"] for each in heard.of("Error")] == ["sequence_too_long"]
        [text] = heard.texts
        n_samples = int(text.partition(":")[0])
        assert 16_000 <= n_samples <= 16_000 + 8_000, "the limit, to the end of the block that reached it"
        assert text == summary(audio[:n_samples])

    async def test_one_that_is_just_not_too_long(self) -> None:
        audio = np.tile(AUDIO, 16)
        async with serving(max_sequence_s=1.0) as service:
            heard = await exchange(service, [linear16(audio), CLOSE_STREAM], QUERY)
        assert (heard.texts, heard.code) == ([summary(audio)], 1000)

    async def test_what_is_read_ahead_of_the_model_is_bounded(self) -> None:
        """A client that sends faster than the model takes it waits in its own socket."""
        engine = live_only(step_s=0.05, max_queued_s=1.0)
        async with serving(engine, max_message_bytes=65_536, ping_interval_s=0.2) as service:
            async with raw_socket(service.gateway.port) as each:
                await upgraded(each)
                piece = frame(BINARY, DATA * 30)
                for _ in range(200):
                    each.writer.write(piece)
                await longest_turn(0.5)
                assert service.gateway.stats().received_bytes < 1_000_000 < 200 * len(piece)
            # nobody reads from its socket, so it takes a ping or two to find that it is gone
            await slots_used(service, 0)
