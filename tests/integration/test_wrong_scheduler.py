"""A service whose live model has the wrong scheduler: everybody is answered to the end, with words that are wrong.

What such a model says contradicts itself: positions go back, words lie before the utterance that they belong to, an
utterance ends before it began. None of it may raise, hang or leave a slot behind.
"""

import asyncio
import itertools
import json
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from server.engine.engine_config import EngineConfig
from tests.support.accumulator_model import ENDPOINT, exact_audio, summary
from tests.support.engines import CONFIG
from tests.support.service import exchange, serving, slots_used
from tests.support.wire import linear16

CLIENTS = 6
FINALIZE, CLOSE_STREAM = (json.dumps({"type": name}) for name in ("Finalize", "CloseStream"))


def wrong(engine: EngineConfig) -> EngineConfig:
    source = replace(engine.live.source, options={"step_s": 0.003})  # so that one instance cannot take it all
    live = replace(engine.live, source=source, scheduler="dynamic", allow_wrong_scheduler=True, slots=8)
    live = replace(live, limits=replace(live.limits, max_batch=2))
    return replace(engine, live=live, audit=replace(engine.audit, share=1.0))


def audio(seed: int) -> Any:
    """Some ticks with endpoints in them."""
    samples = exact_audio(seed, 1_500)
    samples[[70 + 64 * 5, 70 + 64 * 12]] = ENDPOINT
    return samples


@pytest.mark.parametrize("engine", [CONFIG, replace(CONFIG, final=None)], ids=["with finals", "live text alone"])
async def test_everybody_is_answered_to_the_end(engine: EngineConfig, caplog: pytest.LogCaptureFixture) -> None:
    caught: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: caught.append(context))
    query = "vad_events=true&utterance_end_ms=1000&interim_results=true"
    with caplog.at_level(logging.ERROR):
        async with serving(wrong(engine)) as service:
            heard = await asyncio.gather(*(exchange(service, messages(seed), query) for seed in range(CLIENTS)))
            await slots_used(service, 0)
    assert caught == []
    assert not [record for record in caplog.records if record.exc_info]
    for each in heard:
        assert each.code == 1000, each.reason
        assert each.messages[-1]["type"] == "Metadata"
        spans = [(final["start"], round(final["start"] + final["duration"], 6)) for final in each.finals]
        assert all(end >= start for start, end in spans)
        gaps = [round(later[0] - earlier[1], 5) for earlier, later in itertools.pairwise(spans)]
        assert set(gaps) <= {0.0}, spans
    wrong_texts = [
        each.finals[-1]["metadata"]["moorage"]["live_text"] != summary(audio(seed)) for seed, each in enumerate(heard)
    ]
    assert any(wrong_texts)  # else this test shows nothing


def messages(seed: int) -> list[bytes | str]:
    data = linear16(audio(seed))
    sizes = np.random.default_rng(seed).integers(100, 500, 60) * 2
    ends = [int(end) for end in np.cumsum(sizes) if end < len(data)]
    pieces = [data[first:end] for first, end in zip([0, *ends], [*ends, len(data)], strict=True)]
    middle = len(pieces) // 2
    return [*pieces[:middle], FINALIZE, *pieces[middle:], CLOSE_STREAM]
