"""A service that is asked to stop: new streams are refused, live ones end or are ended, with their text."""

import asyncio
import json
import time
from dataclasses import replace

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from server.engine.engine_config import EngineConfig
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG, live_only
from tests.support.service import address, client, exchange, serving, slots_used
from tests.support.wire import linear16

AUDIO = exact_audio(12, 2000)
DATA = linear16(AUDIO)
CLOSE_STREAM = json.dumps({"type": "CloseStream"})


async def test_a_live_stream_comes_to_its_own_end_and_new_ones_are_refused() -> None:
    async with serving(CONFIG, drain_timeout_s=20.0) as service, client(service) as each:
        await each.send(DATA[:2000])
        await slots_used(service, 1)
        draining = asyncio.create_task(service.drain())
        await asyncio.sleep(0.05)
        with pytest.raises(InvalidStatus) as refused:
            await connect(address(service), proxy=None)
        await each.send(DATA[2000:])
        heard = await each.end()
        await draining
    assert (heard.texts, heard.code) == ([summary(AUDIO)], 1000)
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["Retry-After"]) >= 1
    assert json.loads(refused.value.response.body or b"")["err_code"] == "shutting_down"


async def test_a_stream_that_goes_on_is_ended_with_its_final_text() -> None:
    async with serving(CONFIG, drain_timeout_s=0.2) as service, client(service) as each:
        await each.send(DATA)
        await slots_used(service, 1)
        await service.drain()
        heard = await each.to_close()
        assert service.engine.stats().sequences_ended == {"shutting_down": 1}
    assert heard.texts == [summary(AUDIO)]
    assert [error["code"] for error in heard.of("Error")] == ["shutting_down"]
    assert heard.of("Metadata") == []
    assert (heard.code, heard.reason) == (1012, "the service is shutting down")


async def test_every_channel_is_ended_with_its_text() -> None:
    query = "channels=2&multichannel=true"
    async with serving(CONFIG, drain_timeout_s=0.0) as service, client(service, query) as each:
        await each.send(linear16(exact_audio(1, 1000).repeat(2)))
        await slots_used(service, 2)
        await asyncio.sleep(0.1)
        await service.drain()
        heard = await each.to_close()
    assert heard.texts == [summary(exact_audio(1, 1000))] * 2
    assert heard.code == 1012


async def test_one_that_cannot_be_ended_in_time_does_not_hold_it_up() -> None:
    """Its model takes a second a step, and it has sent far more than that."""
    limits = {"drain_timeout_s": 0.1, "shutdown_timeout_s": 0.3}
    async with serving(live_only(step_s=1.0), **limits) as service, client(service) as each:  # type: ignore[arg-type]
        await each.send(DATA)
        started_s = time.monotonic()
        await service.drain()
        await service.stop()
        assert time.monotonic() - started_s < 10
        heard = await each.to_close()
    assert heard.code == 1012


def one_slot(*, slots: int = 1, step_s: float = 0.0) -> EngineConfig:
    config = live_only(instances=1, slots=slots, step_s=step_s, max_queued_s=1.0)
    return replace(config, live=replace(config.live, backlog=4))


async def test_streams_that_still_wait_for_a_slot_are_told_so_and_nothing_else() -> None:
    """The last has sent more than may wait, so that its reader stands."""
    limits = {"drain_timeout_s": 0.2, "shutdown_timeout_s": 10.0}
    async with (
        serving(one_slot(step_s=0.02), **limits) as service,  # type: ignore[arg-type]
        client(service, "sample_rate=16000") as first,
        client(service, "sample_rate=16000") as second,
        client(service, "sample_rate=16000") as third,
    ):
        await slots_used(service, 1)
        for each in (first, second):
            await each.send(DATA)
        await third.send(linear16(exact_audio(3, 20_000)), linear16(exact_audio(3, 20_000)))
        await asyncio.gather(second.hears(1), third.hears(1))
        started_s = time.monotonic()
        await service.drain()
        assert time.monotonic() - started_s < 5
        answered = await first.to_close()
        waited = [await each.to_close() for each in (second, third)]
        ended = service.engine.stats().sequences_ended
    assert (answered.texts, answered.code) == ([summary(AUDIO)], 1012)
    for heard in waited:
        assert [message["type"] for message in heard.messages] == ["Queued", "Error"]
        assert heard.messages[0]["position"] >= 1
        assert (heard.of("Error")[0]["code"], heard.code) == ("shutting_down", 1012)
    assert ended == {"shutting_down": 3}


async def test_a_channel_that_has_its_slot_is_answered_where_another_waits() -> None:
    query = "channels=2&multichannel=true&sample_rate=16000"
    async with (
        serving(one_slot(), drain_timeout_s=0.1) as service,
        client(service, query) as each,
    ):
        await each.send(linear16(exact_audio(1, 1000).repeat(2)))
        await slots_used(service, 1)
        await asyncio.sleep(0.05)
        await service.drain()
        heard = await each.to_close()
    assert heard.texts == [summary(exact_audio(1, 1000))]
    assert [error["code"] for error in heard.of("Error")] == ["shutting_down"]
    assert all(message["position"] for message in heard.of("Queued"))
    assert heard.code == 1012


async def test_what_the_decoder_still_holds_goes_to_the_channel_that_has_its_slot() -> None:
    query = "channels=2&multichannel=true&sample_rate=8000"
    async with serving(one_slot(), drain_timeout_s=0.1) as service, client(service, query) as each:
        await each.send(linear16(exact_audio(1, 1000).repeat(2)))
        await slots_used(service, 1)
        await asyncio.sleep(0.05)
        started_s = time.monotonic()
        await service.drain()
        assert time.monotonic() - started_s < 3
        heard = await each.to_close()
    assert (len(heard.finals), heard.code) == (1, 1012)
    assert heard.texts[0].startswith("2000:"), "all samples, at 16 kHz"


async def test_clients_that_do_not_read_their_close_do_not_hold_it_up() -> None:
    """One has a slot, one waits for one; neither reads a byte after the upgrade."""
    limits = {"drain_timeout_s": 0.2, "shutdown_timeout_s": 1.5}
    async with serving(one_slot(), **limits) as service:  # type: ignore[arg-type]
        writers = []
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", service.gateway.port)
            writer.write(
                b"GET /v1/listen?encoding=linear16 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            writers.append(writer)
        async with asyncio.timeout(10):
            while service.engine.stats().sequences_live < 2:  # noqa: ASYNC110  # nobody announces it
                await asyncio.sleep(0.005)
        started_s = time.monotonic()
        await service.drain()
        await service.stop()
        took_s = time.monotonic() - started_s
        for writer in writers:
            writer.close()
    assert took_s < 0.2 + 1.5 + 0.5


async def test_nothing_to_drain_ends_at_once() -> None:
    async with serving(drain_timeout_s=60.0) as service:
        assert (await exchange(service, [DATA, CLOSE_STREAM])).code == 1000
        async with asyncio.timeout(5):
            await service.drain()


async def test_a_page_says_so() -> None:
    async with serving(drain_timeout_s=20.0) as service, client(service):
        draining = asyncio.create_task(service.drain())
        await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.gateway.port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        page = await reader.read()
        writer.close()
        draining.cancel()
    assert page.startswith(b"HTTP/1.1 503")
    assert b"draining" in page
