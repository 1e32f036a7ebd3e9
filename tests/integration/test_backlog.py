"""Streams that wait for a slot, and streams whose model is replaced under them, over real sockets."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from server.access.keys import hash_of
from server.configuration.config import AccessConfig, AccessKey
from server.engine.engine_config import EngineConfig
from server.plan import Samples
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG, live_only
from tests.support.service import Client, client, serving, slots_used
from tests.support.wire import linear16

QUERY = "interim_results=true&sample_rate=16000"


def lined_up(backlog: int, wait_s: float = 0.0) -> EngineConfig:
    config = live_only(instances=1, slots=1)
    return replace(config, live=replace(config.live, backlog=backlog, backlog_wait_s=wait_s))


def texts(each: Client) -> list[str]:
    return each.heard.texts


def places(each: Client) -> list[int]:
    return [message["position"] for message in each.heard.of("Queued")]


async def hears_a_place(each: Client) -> dict[str, Any]:
    await each.hears(1)
    first: dict[str, Any] = each.heard.messages[0]
    assert first["type"] == "Queued"
    return first


def pcm(samples: Samples) -> bytes:
    return linear16(samples)


async def test_a_stream_that_waits_is_told_its_place_and_then_everything_it_said() -> None:
    audio = exact_audio(5, 600)
    async with serving(lined_up(2)) as service, client(service, QUERY) as first:
        await slots_used(service, 1)
        async with client(service, QUERY) as second, client(service, QUERY) as third:
            assert await hears_a_place(second) == {
                "type": "Queued",
                "channel": [0, 1],
                "position": 1,
                "expected_wait_ms": None,
            }
            assert (await hears_a_place(third))["position"] == 2
            await second.send(pcm(audio), json.dumps({"type": "CloseStream"}))
            await first.end()
            heard = await second.to_close()
            assert (heard.code, heard.texts) == (1000, [summary(audio)])
            assert places(second) == [1, 0]
            assert heard.messages[1]["type"] == "Queued", "the slot comes before what is read in it"
            assert heard.messages[1]["expected_wait_ms"] == 0
            await third.send(pcm(audio))
            assert (await third.end()).texts == [summary(audio)]
            assert places(third) == [2, 1, 0]


async def test_a_full_line_is_refused_with_503_and_a_hint() -> None:
    async with serving(lined_up(1)) as service, client(service, QUERY), client(service, QUERY) as second:
        await hears_a_place(second)
        with pytest.raises(InvalidStatus) as refused:
            async with client(service, QUERY):
                pass
        assert refused.value.response.status_code == 503
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        assert json.loads(refused.value.response.body)["err_code"] == "capacity_exceeded"


async def test_a_wait_that_is_too_long_is_told_and_closed() -> None:
    async with serving(lined_up(1, wait_s=0.1)) as service, client(service, QUERY), client(service, QUERY) as second:
        await hears_a_place(second)
        heard = await second.to_close()
        assert (heard.code, heard.of("Error")[0]["code"]) == (1013, "backlog_timeout")
        assert heard.reason == "no slot became free in time"


async def test_who_leaves_the_line_and_who_has_a_better_key() -> None:
    keys = tuple(
        AccessKey(name=name, sha256=hash_of(f"key-{name}"), priority=priority)
        for name, priority in (("plain", 0), ("urgent", 1))
    )

    def key(name: str) -> dict[str, Any]:
        return {"additional_headers": {"Authorization": f"Token key-{name}"}}

    async with serving(lined_up(3), {"access": AccessConfig(keys=keys)}) as service:
        async with client(service, QUERY, **key("plain")) as first:
            await slots_used(service, 1)
            async with client(service, QUERY, **key("plain")) as leaving:
                await hears_a_place(leaving)
                async with client(service, QUERY, **key("plain")) as plain:
                    assert (await hears_a_place(plain))["position"] == 2
                    async with client(service, QUERY, **key("urgent")) as urgent:
                        assert (await hears_a_place(urgent))["position"] == 1
                        leaving.socket.transport.abort()
                        await first.end()
                        await urgent.end()
                        assert places(urgent) == [1, 0]
                        await plain.end()
                        assert places(plain)[-1] == 0
        await slots_used(service, 0)


async def test_the_live_model_is_replaced_under_its_streams() -> None:
    audio = exact_audio(6, 1_200)
    halves = [pcm(audio[:600]), pcm(audio[600:])]
    config = replace(CONFIG, live=replace(CONFIG.live, instances=1))
    async with serving(config) as service, client(service, QUERY) as old:
        await old.send(halves[0])
        await old.hears(1)
        loading = asyncio.create_task(service.engine.repository.load("live"))
        await old.send(halves[1])
        await loading
        async with client(service, QUERY) as new:
            await new.send(*halves)
            answers = [await old.end(), await new.end()]
        assert [(each.code, each.texts) for each in answers] == [(1000, [summary(audio)])] * 2
        async with asyncio.timeout(10):
            while service.engine.stats().models[0].copies_ending:  # noqa: ASYNC110  # nobody announces it
                await asyncio.sleep(0.005)
