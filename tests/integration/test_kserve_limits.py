"""What requests with a body can make the service hold is bounded, and it stops only when they are answered."""

import asyncio
import gzip
import json
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.app import Service
from server.configuration.config import HttpConfig
from server.configuration.model_sections import TensorModelConfig
from tests.integration.test_kserve import LENGTH, SEQUENCE, WAITING, refused, send, whole
from tests.integration.test_limits import serves_others
from tests.support.certificates import make_pair
from tests.support.engines import until
from tests.support.models import MODELS, http, output, serving_models, turn
from tests.support.raw_socket import answer, raw_socket, request

ECHO = "/v2/models/echo/infer"
SOON = (
    TensorModelConfig(
        name="simple_sequence", model="accumulator", device="cpu", threads=1, slots=4, max_delay_ms=800.0
    ),
)
"""A turn waits most of a second for the other live sequences."""


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A whole request."""
    return request(path, "Host: x", f"Content-Length: {len(body)}", *headers, method="POST") + body


BODY = json.dumps(turn(1, 5, start=True, end=True)).encode()


class TestBodies:
    async def test_large_ones(self) -> None:
        async def without_length() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield bytes(100_000)

        limits = {"http": HttpConfig(max_body_bytes=2_000_000)}
        packed = gzip.compress(bytes(50_000_000))
        async with serving_models(sections=limits) as service, http(service) as client:
            for said in (
                await client.post(ECHO, content=bytes(2_000_001)),
                await client.post(ECHO, content=without_length()),
                await client.post(ECHO, content=packed, headers={"Content-Encoding": "gzip"}),
            ):
                assert (said.status_code, said.json()["code"]) == (413, "body_too_large")
                assert "larger than 2000000 bytes" in said.json()["error"]
            said = await client.post(ECHO, content=b" " * 1_500_000)
            assert (said.status_code, said.json()["code"]) == (413, "body_too_large")
            assert "tensors beside it as binary data" in said.json()["error"]
            assert await whole(client, 1, [1, 2]) == [1, 3]

    async def test_compressed_ones(self) -> None:
        packed = {"Content-Encoding": "gzip"}
        async with serving_models() as service, http(service) as client:
            assert output(await client.post(SEQUENCE, content=gzip.compress(BODY), headers=packed)) == [1]
            said = await client.post(SEQUENCE, content=BODY, headers=packed)
            assert said.status_code == 400

    @pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_compressed_ones_that_break_off(self, encoding: str, pack: Callable[[bytes], bytes]) -> None:
        """Told at once, even where all of the JSON is there and only the end of its packing is not."""
        async with serving_models() as service, http(service) as client, asyncio.timeout(20.0):
            said = await client.post(SEQUENCE, content=pack(BODY)[:-3], headers={"Content-Encoding": encoding})
        assert (said.status_code, said.json()["code"]) == (400, "bad_request")
        assert "breaks off" in said.json()["error"]

    async def test_slow_ones(self) -> None:
        limits = {"http": HttpConfig(body_timeout_s=0.3)}
        async with serving_models(sections=limits) as service, raw_socket(service.gateway.port) as each:
            await each.send(request(SEQUENCE, "Host: x", "Content-Length: 100", method="POST") + b"{")
            said = await each.to_close()
            assert said.startswith(b"HTTP/1.1 408")
            assert b"the body did not come in 0.3 s" in said

    async def test_broken_off(self, caplog: pytest.LogCaptureFixture) -> None:
        async with serving_models() as service:
            async with raw_socket(service.gateway.port) as each:
                await each.send(request(SEQUENCE, "Host: x", "Content-Length: 100", method="POST") + b"{")
            await no_sockets(service)
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []

    async def test_what_an_answer_takes_is_bounded_by_its_reader(self) -> None:
        """A client that does not read its answer is cut off, and what it took is given back."""
        n_bytes = 20_000_000
        text = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]}
        wave = {"name": "NUMBERS", "shape": [1, n_bytes // 4], "datatype": "FP32"}
        head = json.dumps(
            {
                "inputs": [{**wave, "parameters": {"binary_data_size": n_bytes}}, text],
                "parameters": {"binary_data_output": True},
            }
        ).encode()
        async with serving_models(send_timeout_s=0.5) as service, raw_socket(service.gateway.port) as each:
            each.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
            await each.send(post(ECHO, head + bytes(n_bytes), f"{LENGTH}: {len(head)}"))
            await no_sockets(service)


async def longest_turn(work: asyncio.Task[Any]) -> float:
    """Seconds of the longest turn of the loop until ``work`` is done."""
    longest_s = 0.0
    while not work.done():
        began_s = time.monotonic()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.monotonic() - began_s)
    return longest_s


async def no_sockets(service: Service) -> None:
    """Waits until the service has given back every socket."""
    await until(lambda: not service.gateway.sockets)


class TestRequestsAtOnce:
    async def test_more_are_refused(self) -> None:
        limits = {"http": HttpConfig(max_requests=1)}
        async with serving_models(SOON, sections=limits) as service, http(service) as client:
            await send(client, 1, "company", start=True)
            first = asyncio.create_task(send(client, 5, 1, start=True))
            await asyncio.sleep(0.2)
            said = await client.post(SEQUENCE, json=turn(1, 2, start=True))
            assert (said.status_code, said.json()["code"]) == (503, "capacity_exceeded")
            assert int(said.headers["Retry-After"]) >= 1
            assert (await client.get("/v2/models/simple_sequence")).status_code == 200
            assert await first == 5
            assert await send(client, 1, "company") == 2

    async def test_kept_connections_take_no_streams_place(self) -> None:
        async with serving_models(max_connections=1, max_handshakes=3) as service, AsyncExitStack() as stack:
            for _ in range(6):
                each = await stack.enter_async_context(raw_socket(service.gateway.port))
                await each.send(post(SEQUENCE, BODY))
                assert (await each.head()).startswith(b"HTTP/1.1 200")
            await serves_others(service)
            assert len(service.gateway.sockets) <= 4
            assert service.gateway.stats().refusals["handshake_evicted"] >= 2

    async def test_one_that_is_worked_on_is_not_idle(self) -> None:
        async with serving_models(SOON, max_handshakes=1) as service, http(service) as client:
            await send(client, 1, "company", start=True)
            waiting = asyncio.create_task(send(client, 5, 1, start=True))
            await asyncio.sleep(0.2)
            async with AsyncExitStack() as stack:
                for _ in range(3):
                    await stack.enter_async_context(raw_socket(service.gateway.port))
                assert await waiting == 5

    async def test_one_kept_longer_than_a_handshake_may_take(self) -> None:
        async with serving_models(handshake_timeout_s=0.2) as service, http(service) as client:
            assert await send(client, 1, 3, start=True) == 1
            await asyncio.sleep(0.5)
            assert len(service.gateway.sockets) == 1
            assert await send(client, 1, 3, end=True) == 2

    @pytest.mark.parametrize("said", [b"POST ", b"POST /v2/models/mean/infer HTTP/1.1\r\nHost: x\r\n"])
    async def test_heads_that_do_not_end(self, said: bytes) -> None:
        async with serving_models(handshake_timeout_s=0.3) as service, raw_socket(service.gateway.port) as each:
            await each.send(said)
            assert await each.to_close() == b""
            each.writer.close()
            await no_sockets(service)


BROKEN = {
    "a header without end": b"POST /v2 HTTP/1.1\r\nX: " + b"a" * 200_000,
    "many headers": request("/v2", *(f"X{index}: y" for index in range(2000)), method="POST"),
    "two lengths": request(SEQUENCE, "Host: x", "Content-Length: 1", "Content-Length: 2", method="POST") + b"ab",
    "length and chunks": request(SEQUENCE, "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked", method="POST")
    + b"0\r\n\r\n",
    "a length that is none": request(SEQUENCE, "Host: x", "Content-Length: x", method="POST"),
    "chunks that are none": request(SEQUENCE, "Host: x", "Transfer-Encoding: chunked", method="POST") + b"zz\r\n" * 9,
    "a long path": request("/v2/" + "a" * 20_000, method="POST"),
    "no version": b"POST /v2/models/mean/infer\r\n\r\n",
    "bytes": b"POST \xff\xfe\0 HTTP/1.1\r\n\r\n",
}


class TestBrokenRequests:
    @pytest.mark.parametrize("name", BROKEN)
    async def test_take_nothing(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        async with serving_models(MODELS[:1], handshake_timeout_s=2.0, sections=SHORT) as service:
            said = await answer(service.gateway.port, BROKEN[name])
            assert not said.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5")), said[:300]
            await no_sockets(service)
            await serves_others(service)
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []

    async def test_a_flood_of_tiny_chunks_does_not_hold_up_the_others(self) -> None:
        head = request(SEQUENCE, "Host: x", "Transfer-Encoding: chunked", method="POST")
        async with serving_models(MODELS[:1]) as service, raw_socket(service.gateway.port) as each:
            each.writer.write(head + b"1\r\nA\r\n" * 400_000 + b"0\r\n\r\n")
            assert await longest_turn(asyncio.create_task(asyncio.sleep(1.0))) < 0.5
            assert (await each.head()).startswith(b"HTTP/1.1 413")
            await serves_others(service)


SHORT = {"http": HttpConfig(body_timeout_s=1.0)}


class TestStopping:
    async def test_what_is_taken_is_answered_and_what_is_new_is_refused(self) -> None:
        async with serving_models(SOON, drain_timeout_s=20.0) as service, http(service) as client:
            await send(client, 1, "company", start=True)
            waiting = asyncio.create_task(whole(client, 1, [5]))
            await asyncio.sleep(0.2)
            draining = asyncio.create_task(service.drain())
            await asyncio.sleep(0.1)
            assert not draining.done()
            assert await refused(client, SEQUENCE, turn(1, 2, start=True)) == (503, "shutting_down")
            assert (await client.get("/v2/health/ready")).status_code == 503
            assert (await client.get("/v2/health/live")).status_code == 200
            assert await send(client, 2, "company", end=True) == 3
            assert await waiting == [5]
            await asyncio.wait_for(draining, 10)

    async def test_a_live_sequence_comes_to_its_end_between_its_requests(self) -> None:
        async with serving_models(drain_timeout_s=20.0) as service, http(service) as client:
            await send(client, 1, 7, start=True)
            draining = asyncio.create_task(service.drain())
            await asyncio.sleep(0.1)
            assert await send(client, 1, 7) == 2
            assert not draining.done()
            assert await send(client, 1, 7, end=True) == 3
            await asyncio.wait_for(draining, 10)

    async def test_one_whose_body_is_on_its_way_is_answered(self) -> None:
        async with serving_models(drain_timeout_s=20.0) as service, raw_socket(service.gateway.port) as each:
            whole_request = post(SEQUENCE, BODY)
            await each.send(whole_request[:-5])
            await asyncio.sleep(0.2)
            draining = asyncio.create_task(service.drain())
            await asyncio.sleep(0.2)
            assert not draining.done()
            await each.send(whole_request[-5:])
            assert (await each.head()).startswith(b"HTTP/1.1 503")
            await asyncio.wait_for(draining, 10)

    async def test_one_that_waits_too_long_is_told(self) -> None:
        async with serving_models(WAITING, drain_timeout_s=0.2) as service, http(service) as client:
            await send(client, 1, "company", start=True)
            waiting = asyncio.create_task(client.post(SEQUENCE, json=turn(1, 1, start=True)))
            await asyncio.sleep(0.3)
            await service.drain()
            await service.stop()
            said = await waiting
            assert (said.status_code, said.json()["code"]) == (503, "shutting_down")

    async def test_idle_connections_do_not_hold_it_up(self) -> None:
        async with serving_models(shutdown_timeout_s=20.0) as service, http(service) as client:
            await whole(client, 1, [1])
            async with asyncio.timeout(5):
                await service.drain()
                await service.stop()
            with pytest.raises(httpx.TransportError):
                await client.get("/v2")


class TestTls:
    async def test_it_is_spoken(self, tmp_path: Path) -> None:
        pair = make_pair()
        context: ssl.SSLContext = pair.trusting()
        async with serving_models(sections={"tls": pair.write(tmp_path)}) as service:
            address = f"https://127.0.0.1:{service.gateway.port}"
            async with httpx.AsyncClient(base_url=address, verify=context, trust_env=False) as client:
                assert await whole(client, 1, [1, 2]) == [1, 3]
                assert (await client.get("/healthz")).text == "ok\n"
