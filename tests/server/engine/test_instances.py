"""Copies of a model at work: where they are, that they run at the same time, that they share what is scarce."""

import asyncio
from dataclasses import replace

import pytest

from asr_model.transcript import Word
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig, InstanceGroup, LiveSettings
from server.events import Partial, UtteranceFinal
from server.ids import SequenceId
from server.workers import pool
from server.workers.orders import LoadLimits, ModelSource
from tests.support.accumulator_model import CRASH, exact_audio, summary
from tests.support.engines import (
    CONFIG,
    Heard,
    floats,
    further,
    integers,
    listen,
    live_only,
    output,
    running,
    speak,
    turn,
    until,
    with_models,
)

LIGHT = LiveSettings(source=ModelSource(name="light-lstm"), device="cpu", threads=1, slots=4, max_delay_ms=0.0)


def in_flight(engine: Engine) -> tuple[int, ...]:
    """Steps that run now, by instance of the live model."""
    return tuple(each.steps_in_flight for each in engine.stats().sequence_batchers["live"].instances)


async def test_two_sequences_run_on_two_instances_at_the_same_time() -> None:
    audio = exact_audio(1, 100)
    async with running(live_only(instances=2, slots=1, step_s=0.04)) as engine:
        handles = [engine.open(SequenceId(name)) for name in "ab"]
        for handle in handles:
            await handle.send(audio)
        await until(lambda: in_flight(engine) == (1, 1))
        for handle in handles:
            await handle.end()
        heard = await asyncio.gather(*(asyncio.wait_for(listen(handle), 20) for handle in handles))
        assert [each.live_texts for each in heard] == [[summary(audio)]] * 2
        assert {each.finals[0].step.instance for each in heard} == {0, 1}
        assert set(engine.stats().live.busy_s) == {0, 1}


async def test_places_of_instances() -> None:
    groups = (InstanceGroup(device="cpu", count=2, threads=1), InstanceGroup(device="cpu", count=1))
    live = replace(CONFIG.live, groups=groups, slots=2)
    async with running(replace(CONFIG, live=live)) as engine:
        (model, _) = engine.stats().models
        assert (model.instances, model.devices, model.instance_slots) == (3, ("cpu",) * 3, (2, 2, 2))
        handles = [engine.open(SequenceId(str(index))) for index in range(6)]
        held = [each.slots_held for each in engine.stats().sequence_batchers["live"].instances]
        assert held == [2, 2, 2], "they are spread"
        for handle in handles:
            await handle.cancel()
        assert [each.failures for each in await asyncio.gather(*(speak(engine, seed) for seed in range(9)))] == [[]] * 9


async def most_at_once(config: EngineConfig) -> tuple[int, int]:
    """The most batches of the live and the final model together that ran at a time; and how many did in all."""
    most, is_over = 0, False

    async def look(engine: Engine) -> None:
        nonlocal most
        while not is_over:
            stats = engine.stats()
            final = stats.request_batchers["final"]
            most = max(most, sum(in_flight(engine)) + 1 - final.instances_idle)
            await asyncio.sleep(0)

    async with running(config) as engine:
        looking = asyncio.create_task(look(engine))
        heard = await asyncio.gather(*(speak(engine, seed) for seed in range(12)))
        is_over = True
        await looking
        assert [each.failures for each in heard] == [[]] * 12
        stats = engine.stats()
        assert stats.resources is None or stats.resources.in_use == {"core": 0}
        assert stats.final is not None
        return most, stats.live.batch_size.count + stats.final.batch_size.count


async def test_models_that_share_a_resource_take_turns_and_all_get_theirs() -> None:
    assert CONFIG.final is not None
    live = replace(CONFIG.live, source=replace(CONFIG.live.source, options={"step_s": 0.005}))
    final = replace(CONFIG.final, source=replace(CONFIG.final.source, options={"run_s": 0.005}))
    free = replace(CONFIG, live=live, final=final)
    shared = replace(
        free,
        live=replace(live, resources={"core": 1}),
        final=replace(final, resources={"core": 1}, resource_priority=2),
        resources={"core": 1},
    )
    assert (await most_at_once(free))[0] > 1, "without the limit nothing would be shown"
    most, count = await most_at_once(shared)
    assert (most, count > 24) == (1, True)


async def test_further_models_share_with_each_other() -> None:
    config = with_models(
        further("sum", "accumulator", resources={"core": 1}),
        further("mean", "mean", resources={"core": 2}),
        resources={"core": 2},
    )
    async with running(config) as engine:
        adder, mean = (engine.repository.get(name) for name in ("sum", "mean"))
        calls = [adder.infer(integers(1), turn=turn(name, start=True, end=True)) for name in range(1, 5)]
        answers = await asyncio.gather(*calls, *(mean.infer(floats(float(value))) for value in range(5)))
        assert [output(each) for each in answers[:4]] == [[1.0]] * 4
        assert [output(each, "MEAN") for each in answers[4:]] == [[float(value)] for value in range(5)]
        assert engine.stats().resources is not None
        await engine.repository.load("sum")  # the share of a copy that has ended is free again
        assert output(await adder.infer(integers(1), turn=turn(9, start=True, end=True))) == [1]


def ahead(step_s: float) -> EngineConfig:
    """One instance that gets its next step while one runs."""
    config = live_only(instances=1, slots=4, step_s=step_s)
    return replace(config, live=replace(config.live, lead_ms=1000.0, limits=LoadLimits(max_batch=1)))


async def test_the_next_step_waits_at_the_instance_while_one_runs() -> None:
    audio = exact_audio(1, 400)
    async with running(ahead(0.01)) as engine:
        handles = [engine.open(SequenceId(name)) for name in "abcd"]
        for handle in handles:
            await handle.send(audio)
        await until(lambda: in_flight(engine) == (2,))
        for handle in handles:
            await handle.end()
        heard = await asyncio.gather(*(asyncio.wait_for(listen(handle), 20) for handle in handles))
        assert [each.live_texts for each in heard] == [[summary(audio)]] * 4


async def test_an_instance_that_is_lost_with_a_step_in_line_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_RETRY_S", 0.0)
    audio = exact_audio(1, 400)
    broken = audio.copy()
    broken[200] = CRASH
    async with running(ahead(0.01)) as engine:
        handles = [engine.open(SequenceId(name)) for name in "abc"]
        for handle, samples in zip(handles, (audio, broken, audio), strict=True):
            await handle.send(samples)
        heard = await asyncio.gather(*(asyncio.wait_for(listen(handle), 20) for handle in handles))
        assert [each.failure for each in heard] == ["instance_failed"] * 3
        await until(lambda: engine.is_ready and engine.stats().slots_quarantined == 0)
        assert in_flight(engine) == (0,)
        again = engine.open(SequenceId("again"))
        await again.send(audio)
        await again.end()
        assert (await asyncio.wait_for(listen(again), 20)).live_texts == [summary(audio)]


async def read(settings: LiveSettings, voices: int) -> list[Heard]:
    """What streams hear that are given their audio at once, so that rows pile up."""
    async with running(EngineConfig(live=settings, final=None, worker_kind=CONFIG.worker_kind)) as engine:
        handles = [engine.open(SequenceId(str(index))) for index in range(voices)]
        for index, handle in enumerate(handles):
            await handle.send(exact_audio(index, 16_000 + 1_000 * index))
            await handle.end()
        return list(await asyncio.gather(*(asyncio.wait_for(listen(handle), 60) for handle in handles)))


def said(heard: Heard) -> list[tuple[str, tuple[Word, ...]]]:
    """Everything but where and when it was computed."""
    return [
        (type(event).__name__, event.live_words if isinstance(event, UtteranceFinal) else event.committed)
        for event in heard.events
        if isinstance(event, Partial | UtteranceFinal)
    ][-1:]


async def test_however_steps_are_formed_the_light_model_says_the_same() -> None:
    plain = await read(LIGHT, 3)
    assert any(text for each in plain for text in each.live_texts), "it says nothing at all"
    direct = replace(LIGHT, strategy="direct", min_slot_utilisation=0.5, max_delay_ms=5.0, max_ticks=4)
    timely = replace(LIGHT, lead_ms=5.0, deadline_ms=50.0, flush_deadline_ms=10.0, preferred_sizes=(2, 4))
    for settings in (direct, timely):
        formed = await read(settings, 3)
        assert [each.live_texts for each in formed] == [each.live_texts for each in plain]
        assert [said(each) for each in formed] == [said(each) for each in plain]
