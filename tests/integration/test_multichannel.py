"""Several channels of one stream: a sequence each, all or none, told apart by ``channel_index``."""

import json
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.accumulator_model import POISON, exact_audio, summary
from tests.support.engines import CONFIG, live_only
from tests.support.service import Heard, address, client, exchange, serving, slots_used
from tests.support.wire import linear16

LEFT, RIGHT = exact_audio(1, 1500), exact_audio(2, 1500)
QUERY = "channels=2&multichannel=true"
FINALIZE, CLOSE_STREAM = (json.dumps({"type": name}) for name in ("Finalize", "CloseStream"))


def interleaved(*channels: Any) -> bytes:
    return linear16(np.stack(channels, axis=1).reshape(-1))


def by_channel(heard: Heard) -> dict[int, list[str]]:
    texts: dict[int, list[str]] = {}
    for result in heard.finals:
        index, n_channels = result["channel_index"]
        assert n_channels == 2
        texts.setdefault(index, []).append(result["channel"]["alternatives"][0]["transcript"])
    return texts


@pytest.mark.parametrize("size", [1, 3, 1001, 6000])
async def test_each_channel_has_its_own_text_in_any_framing(size: int) -> None:
    n = 300 if size == 1 else 1500
    data = interleaved(LEFT[:n], RIGHT[:n])
    async with serving(CONFIG) as service:
        heard = await exchange(service, [*(data[at : at + size] for at in range(0, len(data), size)), b""], QUERY)
        await slots_used(service, 0)
    assert by_channel(heard) == {0: [summary(LEFT[:n])], 1: [summary(RIGHT[:n])]}
    assert heard.messages[-1]["type"] == "Metadata"
    assert heard.messages[-1]["channels"] == 2
    assert heard.messages[-1]["duration"] == n / 16_000
    assert heard.code == 1000


async def test_finalize_is_answered_once_for_each() -> None:
    data = interleaved(LEFT, RIGHT)
    async with serving(CONFIG) as service:
        heard = await exchange(service, [data[:3000], FINALIZE, data[3000:], CLOSE_STREAM], QUERY)
    answers = [each["channel_index"][0] for each in heard.finals if each["from_finalize"]]
    assert sorted(answers) == [0, 1]
    assert by_channel(heard) == {
        0: [summary(LEFT[:750]), summary(LEFT[750:])],
        1: [summary(RIGHT[:750]), summary(RIGHT[750:])],
    }


async def test_without_multichannel_they_are_mixed() -> None:
    data = interleaved(LEFT, RIGHT)
    async with serving(CONFIG) as service:
        heard = await exchange(service, [data, b""], "channels=2")
    assert heard.texts == [summary((LEFT + RIGHT) / np.float32(2))]
    assert heard.finals[0]["channel_index"] == [0, 1]


async def test_all_or_none_are_taken() -> None:
    async with serving(live_only(instances=1, slots=3)) as service:
        async with client(service, QUERY):
            await slots_used(service, 2)
            with pytest.raises(InvalidStatus) as refused:
                await connect(address(service, QUERY), proxy=None)
            assert refused.value.response.status_code == 503
            await slots_used(service, 2)
        await slots_used(service, 0)


async def test_a_channel_that_fails_ends_the_stream_and_frees_all() -> None:
    poisoned = RIGHT.copy()
    poisoned[700] = POISON
    async with serving(CONFIG) as service:
        heard = await exchange(service, [interleaved(LEFT, poisoned)], QUERY)
        await slots_used(service, 0)
    assert [error["code"] for error in heard.of("Error")] == ["step_failed"]
    assert heard.code == 1011
