"""An engine starts only with models that are what their scheduler needs, whatever they say of themselves."""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from asr_model.contract import Samples, SlotRange, State, StepOutput, StepRow
from server.clock import SystemClock
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig, FinalSettings
from server.errors import ConfigError
from server.ids import SequenceId
from server.workers.orders import ModelSource
from tests.server.proving.wrong_models import said
from tests.support.accumulator_model import CRASH, AccumulatorModel, exact_audio
from tests.support.engines import CONFIG, FINAL, listen, live_only, running, until

LIVE = live_only().live


class OtherCopy(AccumulatorModel):
    """Says something of its own."""

    def step(self, rows: list[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:  # type: ignore[override]
        output = super().step(rows, state)
        return StepOutput(outputs=[said(each, "something else") for each in output.outputs])


loads: list[int] = []
"""Instances of the model below that were loaded, over all engines of this process."""


def make_copies(options: Mapping[str, object], device: torch.device) -> AccumulatorModel:
    """Factory for a ModelSource: its copy with the number ``wrong`` is another model."""
    loads.append(1)
    return OtherCopy() if len(loads) == options["wrong"] else AccumulatorModel()


@pytest.fixture
def copies() -> ModelSource:
    """Counts from none."""
    loads.clear()
    return ModelSource(name="copies", factory="tests.server.engine.test_proved_start:make_copies", options={"wrong": 2})


def wrong(factory: str) -> ModelSource:
    return ModelSource(name=factory.removeprefix("make_"), factory=f"tests.server.proving.wrong_models:{factory}")


def live(source: ModelSource, *, scheduler: str = "", allow_wrong_scheduler: bool = False) -> EngineConfig:
    settings = replace(LIVE, source=source, scheduler=scheduler, allow_wrong_scheduler=allow_wrong_scheduler)
    return replace(CONFIG, live=settings, final=None)


async def refusal(config: EngineConfig) -> str:
    """Why it does not start; nothing is left of it."""
    tasks = asyncio.all_tasks()
    with pytest.raises(ConfigError) as caught:
        await Engine(config, SystemClock()).start()
    assert asyncio.all_tasks() == tasks
    return str(caught.value)


class TestRefused:
    async def test_the_swapped_scheduler_of_the_live_model(self) -> None:
        told = await refusal(live(LIVE.source, scheduler="dynamic"))
        assert told.startswith(
            "live.scheduler: the configuration says dynamic (the model declares sequence), but accumulator is stateful"
            " and needs the sequence batcher: tick 3 of a sequence was answered “"
        )

    async def test_the_swapped_scheduler_of_the_final_model(self) -> None:
        told = await refusal(replace(CONFIG, final=replace(FINAL, scheduler="sequence")))
        assert told.startswith(
            "final.scheduler: the configuration says sequence (the model declares dynamic), but sum is"
        )
        assert "the second part of an utterance is answered" in told

    @pytest.mark.parametrize("is_allowed", [False, True])
    async def test_a_model_that_is_right_under_none_whatever_is_allowed(self, is_allowed: bool) -> None:
        told = await refusal(live(wrong("make_own_memory"), allow_wrong_scheduler=is_allowed))
        assert told.startswith("live.model: own_memory is right under no scheduler (the model declares sequence): ")
        assert told.endswith("something is remembered outside of the slots")

    async def test_a_model_with_slots_that_forgets(self) -> None:
        told = await refusal(live(wrong("make_forgetful")))
        assert "the model declares sequence, but forgetful is stateless and needs the dynamic batcher" in told

    async def test_a_model_with_state_that_declares_none(self) -> None:
        told = await refusal(live(wrong("make_says_it_is_stateless")))
        assert "the model declares dynamic, but says_it_is_stateless is stateful and needs the sequence" in told

    async def test_a_final_model_that_remembers(self) -> None:
        final: FinalSettings = replace(FINAL, source=wrong("make_remembers"))
        told = await refusal(replace(CONFIG, final=final))
        assert "final.scheduler: the model declares dynamic, but remembers is stateful" in told
        assert "after something else" in told

    async def test_two_copies_that_differ(self, copies: ModelSource) -> None:
        told = await refusal(live(copies))
        assert "live.model: copies is right under no scheduler" in told
        assert re.search(r"two copies differ: “.+” by one, “.+” by another$", told)
        assert "“something else” by " in told


class TestServed:
    async def test_what_was_proved_is_told(self) -> None:
        async with running(replace(CONFIG, final=FINAL)) as engine:
            models = {each.role: each for each in engine.stats().models}
        assert {role: each.proved_scheduler for role, each in models.items()} == {
            "live": "sequence",
            "final": "dynamic",
        }
        assert models["live"].evidence[0].startswith("tick 3 of a sequence was answered")
        assert not models["live"].is_wrong_scheduler

    async def test_the_configuration_may_be_right_where_the_model_is_not(self) -> None:
        async with running(live(wrong("make_says_it_is_stateless"), scheduler="sequence")) as engine:
            stats = engine.stats().models[0]
            assert (stats.scheduler, stats.proved_scheduler, stats.is_wrong_scheduler) == (
                "sequence",
                "sequence",
                False,
            )

    async def test_the_wrong_one_if_it_is_allowed_and_shouted(self, caplog: pytest.LogCaptureFixture) -> None:
        async with running(live(LIVE.source, scheduler="dynamic", allow_wrong_scheduler=True)) as engine:
            stats = engine.stats().models[0]
            assert (stats.scheduler, stats.proved_scheduler, stats.is_wrong_scheduler) == ("dynamic", "sequence", True)
        (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert line.startswith("WRONG SCHEDULER, by allow_wrong_scheduler: ")
        assert "accumulator is stateful and needs the sequence batcher: tick 3" in line

    async def test_one_that_cannot_be_told_is_served_as_it_declares(self, caplog: pytest.LogCaptureFixture) -> None:
        async with running(live(wrong("make_mute"))) as engine:
            assert engine.stats().models[0].proved_scheduler == ""
        assert any("is undecided: everything is answered nothing" in each.getMessage() for each in caplog.records)


class TestReplaced:
    async def test_an_instance_that_answers_otherwise_takes_no_place(
        self, copies: ModelSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = replace(copies, options={"wrong": 3})  # the first to come in the place of a lost one
        async with running(live(source)) as engine:
            handle = engine.open(SequenceId("s"))
            audio: Samples = exact_audio(0, 100)
            audio[3] = np.float32(CRASH)
            await handle.send(audio)
            await listen(handle)
            await until(lambda: engine.stats().models[0].instances_ready == 2)
            assert len(loads) == 4
        assert any("two copies differ: “" in record.getMessage() for record in caplog.records)
