"""Models loaded, replaced and unloaded while they serve: nobody hears anything of it but who has to."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

from server.clock import SystemClock
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig
from server.engine.model_settings import AnySettings, FinalSettings, LiveSettings, TensorSettings
from server.engine.repository import Overrides, SettingsOf
from server.engine.served_model import ModelState
from server.errors import (
    ConfigError,
    DuplicateSequence,
    MissingStart,
    QueueFull,
    RequestTimeout,
    SequenceAlreadyEnded,
    ShuttingDown,
    UnknownModel,
)
from server.ids import SequenceId
from server.plan import Tensors
from server.workers.orders import ModelSource
from tests.support.accumulator_model import SLOW, exact_audio, summary
from tests.support.engines import (
    CONFIG,
    floats,
    further,
    integers,
    listen,
    output,
    running,
    speak,
    turn,
    until,
    with_models,
)


def settings_of(config: EngineConfig) -> SettingsOf:
    """Overrides are fields of the settings themselves."""

    def changed(name: str, overrides: Overrides) -> AnySettings:
        present: AnySettings | None = {"live": config.live, "final": config.final}.get(name)
        if present is None:
            present = next(model for model in config.models if model.name == name)
        assert isinstance(present, LiveSettings | FinalSettings | TensorSettings)
        return replace(present, **overrides)  # type: ignore[arg-type]  # given by the tests

    return changed


def workers() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("live", "final", "sum"))}


def ending(engine: Engine) -> dict[str, int]:
    return {model.role: model.copies_ending for model in engine.stats().models}


async def test_the_live_model_is_replaced_under_its_streams() -> None:
    audio = exact_audio(1, 1000)
    async with running(replace(CONFIG, live=replace(CONFIG.live, instances=1))) as engine:
        old = engine.open(SequenceId("old"))
        await old.send(audio[:500])
        await engine.repository.load("live")
        assert ending(engine) == {"live": 1, "final": 0}
        assert (engine.stats().slots_total, engine.stats().slots_used) == (8, 1), "both copies have slots for now"
        new = engine.open(SequenceId("new"))
        for handle, samples in ((old, audio[500:]), (new, audio)):
            await handle.send(samples)
            await handle.end()
        heard = await asyncio.gather(*(asyncio.wait_for(listen(each), 20) for each in (old, new)))
        assert [each.live_texts for each in heard] == [[summary(audio)]] * 2
        assert [each.final_texts for each in heard] == [[summary(audio)]] * 2
        await until(lambda: ending(engine)["live"] == 0)
        assert workers() == {"live.2-0", "final-0"}
        assert (engine.stats().slots_total, engine.is_ready) == (4, True)
        assert [each.failures for each in await asyncio.gather(*(speak(engine, seed) for seed in range(6)))] == [[]] * 6


async def test_an_id_that_is_live_on_the_old_copy_is_live() -> None:
    async with running(CONFIG) as engine:
        old = engine.open(SequenceId("a"))
        await engine.repository.load("live")
        with pytest.raises(DuplicateSequence):
            engine.open(SequenceId("a"))
        await old.cancel()
        again = engine.open(SequenceId("a"))
        await again.cancel()


async def test_stopping_ends_the_streams_of_both_copies() -> None:
    async with running(CONFIG) as engine:
        old = engine.open(SequenceId("old"))
        await engine.repository.load("live")
        new = engine.open(SequenceId("new"))
    for handle in (old, new):
        assert (await listen(handle)).failure == "shutting_down"
    with pytest.raises(ShuttingDown):
        engine.open(SequenceId("late"))
    with pytest.raises(ShuttingDown):
        await engine.repository.load("live")
    assert workers() == set()


async def test_a_copy_that_cannot_be_loaded_changes_nothing() -> None:
    config = replace(CONFIG, models=(further("sum", "accumulator"),))
    engine = Engine(config, SystemClock(), settings_of(config))
    await engine.start()
    try:
        before = workers()
        broken = replace(CONFIG.live.source, options={"nonsense": 1})
        for overrides, error in (({"source": broken}, "unknown options"), ({"scheduler": "dynamic"}, "sequence")):
            with pytest.raises(ConfigError, match=error):
                await engine.repository.load("live", overrides)
        with pytest.raises(ConfigError, match="needs the resource"):
            await engine.repository.load("sum", {"resources": {"gpu": 1}})
        assert workers() == before
        assert engine.is_ready
        assert (await speak(engine, 3)).failures == []
        answer = await engine.repository.get("sum").infer(integers(4), turn=turn(1, start=True, end=True))
        assert output(answer) == [4]
    finally:
        await engine.stop()


async def test_the_final_model_is_replaced_unloaded_and_loaded_again() -> None:
    audio = exact_audio(1, 300)
    slow = exact_audio(2, 300)
    slow[50] = SLOW
    async with running(CONFIG) as engine:
        handle = engine.open(SequenceId("a"))
        await handle.send(slow)
        await handle.finalize()
        await until(lambda: engine.stats().finals_waiting == 1)
        await engine.repository.load("final")
        await handle.send(audio)
        await handle.finalize()
        await until(lambda: engine.stats().finals_waiting == 0)
        await engine.repository.unload("final")
        assert engine.repository.get("final").state is ModelState.UNAVAILABLE
        await handle.send(audio)
        await handle.finalize()
        await until(lambda: engine.stats().finals_replaced == {"unloaded": 1})
        with pytest.raises(UnknownModel, match="final is unloaded"):
            await engine.read_recording(audio)
        await engine.repository.load("final")
        await handle.send(audio)
        await handle.end()
        heard = await asyncio.wait_for(listen(handle), 20)
        assert [final.has_final_pass for final in heard.finals] == [True, True, False, True]
        assert heard.final_texts[0] == summary(slow)
        assert [heard.final_texts[index] for index in (1, 3)] == [summary(audio)] * 2
        assert [word.text for word in (await engine.read_recording(audio)).words] == [summary(audio)]


async def test_sequences_stay_with_the_copy_that_has_them() -> None:
    async with running(with_models(further("sum", "accumulator"))) as engine:
        adder = engine.repository.get("sum")
        for name in (1, 2):
            await adder.infer(integers(10), turn=turn(name, start=True))
        await engine.repository.load("sum")
        assert ending(engine)["sum"] == 1
        assert output(await adder.infer(integers(1), turn=turn(1))) == [11]
        assert output(await adder.infer(integers(5), turn=turn(3, start=True))) == [5]
        with pytest.raises(MissingStart):
            await adder.infer(integers(1), turn=turn(4))
        assert output(await adder.infer(integers(7), turn=turn(2, start=True))) == [7], "a START goes to the new copy"
        assert output(await adder.infer(integers(1), turn=turn(2, end=True))) == [8]
        assert output(await adder.infer(integers(1), turn=turn(1, end=True))) == [12]
        await until(lambda: ending(engine)["sum"] == 0)
        assert output(await adder.infer(integers(1), turn=turn(3, end=True))) == [6]


async def test_sequences_that_wait_for_a_slot_go_to_the_new_copy_before_newcomers() -> None:
    async with running(with_models(further("sum", "accumulator", slots=1, backlog=6, idle_timeout_s=0.0))) as engine:
        adder = engine.repository.get("sum")

        def ask(name: int, value: int, **place: bool) -> asyncio.Task[Tensors]:
            return asyncio.create_task(adder.infer(integers(value), turn=turn(name, **place)))

        assert output(await adder.infer(integers(10), turn=turn(1, start=True))) == [10]
        second = [ask(2, 20, start=True), ask(2, 1)]
        leaving, third = ask(3, 30, start=True), ask(4, 40, start=True, end=True)
        await until(lambda: engine.stats().sequence_batchers["sum"].backlog == 3)
        await engine.repository.load("sum")
        newcomer = ask(5, 50, start=True, end=True)
        assert [output(await asyncio.wait_for(each, 10)) for each in second] == [[20], [21]]
        assert engine.stats().sequence_batchers["sum"].backlog == 3
        leaving.cancel()
        await until(lambda: engine.stats().sequence_batchers["sum"].backlog == 2)
        assert not third.done()
        assert output(await adder.infer(integers(1), turn=turn(2, end=True))) == [22]
        assert [output(await asyncio.wait_for(each, 10)) for each in (third, newcomer)] == [[40], [50]]
        assert output(await adder.infer(integers(1), turn=turn(1, end=True))) == [11], "its state is on the old copy"
        await until(lambda: ending(engine)["sum"] == 0)


async def test_requests_that_wait_are_answered_by_the_copy_that_has_them() -> None:
    config = with_models(further("mean", "mean", max_batch=2, max_delay_ms=60_000.0))
    async with running(config) as engine:
        mean = engine.repository.get("mean")
        waiting = asyncio.create_task(mean.infer(floats(1.0)))
        await asyncio.sleep(0)
        await engine.repository.load("mean")
        assert ending(engine)["mean"] == 1
        answers = await asyncio.gather(mean.infer(floats(3.0)), mean.infer(floats(5.0)))
        assert [output(each, "MEAN") for each in answers] == [[3.0], [5.0]]
        assert not waiting.done(), "it waits for company that will never come, and whoever waits for it may leave"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: ending(engine)["mean"] == 0)


async def test_an_unloaded_model_refuses_and_ends_what_it_has_within_the_limit() -> None:
    config = replace(with_models(further("sum", "accumulator", idle_timeout_s=0.0)), unload_limit_s=0.2)
    async with running(config) as engine:
        adder = engine.repository.get("sum")
        await adder.infer(integers(1), turn=turn(1, start=True))
        unloading = asyncio.create_task(engine.repository.unload("sum"))
        await until(lambda: engine.repository.get("sum").state is ModelState.UNAVAILABLE)
        with pytest.raises(UnknownModel, match="sum is unloaded"):
            await adder.infer(integers(1), turn=turn(2, start=True))
        assert output(await adder.infer(integers(2), turn=turn(1))) == [3], "it may come to its end"
        await asyncio.wait_for(unloading, 10)
        assert workers() == {"live-0"}
        with pytest.raises(UnknownModel):
            await adder.infer(integers(1), turn=turn(1))
        assert engine.stats().models[-1].role == "live"
        await engine.repository.load("sum")
        with pytest.raises((MissingStart, SequenceAlreadyEnded)):
            await adder.infer(integers(1), turn=turn(1))
        assert output(await adder.infer(integers(6), turn=turn(1, start=True, end=True))) == [6]


async def test_a_load_while_the_model_is_unloaded_waits_for_nobody() -> None:
    config = with_models(further("sum", "accumulator", idle_timeout_s=0.0), unload_limit_s=60.0)
    async with running(config) as engine:
        adder = engine.repository.get("sum")
        assert output(await adder.infer(integers(1), turn=turn(1, start=True))) == [1]
        unloading = asyncio.create_task(engine.repository.unload("sum"))
        await until(lambda: adder.state is ModelState.UNAVAILABLE)
        assert list(adder.accepts.inputs) == ["INPUT"], "requests of what lives there are read"
        with pytest.raises(UnknownModel, match="sum is unloaded"):
            await adder.infer(integers(1), turn=turn(1, start=True))
        assert output(await adder.infer(integers(1), turn=turn(1))) == [2], "a START that is refused changes nothing"
        await asyncio.wait_for(engine.repository.load("sum"), 20)
        assert (adder.state, unloading.done()) == (ModelState.READY, False)
        assert output(await adder.infer(integers(5), turn=turn(2, start=True))) == [5]
        drained = asyncio.create_task(adder.drained())
        assert output(await adder.infer(integers(1), turn=turn(2, end=True))) == [6]
        await asyncio.sleep(0)
        assert not drained.done(), "the former copy has a sequence"
        assert output(await adder.infer(integers(2), turn=turn(1, end=True))) == [4]
        await asyncio.wait_for(asyncio.gather(unloading, drained), 10)
        assert (ending(engine)["sum"], adder.state) == (0, ModelState.READY)


async def test_what_does_not_end_in_time_is_told_so_and_nothing_of_it_is_left() -> None:
    config = with_models(further("sum", "accumulator", idle_timeout_s=0.0, max_delay_ms=60_000.0), unload_limit_s=0.2)
    async with running(config) as engine:
        adder = engine.repository.get("sum")
        assert output(await adder.infer(integers(1), turn=turn(1, start=True))) == [1]
        waiting = asyncio.create_task(adder.infer(integers(1), turn=turn(2, start=True)))
        await asyncio.sleep(0)
        unloading = asyncio.create_task(engine.repository.unload("sum"))
        await until(lambda: adder.state is ModelState.UNAVAILABLE)
        await asyncio.wait_for(engine.repository.load("sum"), 20)
        await asyncio.wait_for(unloading, 10)
        with pytest.raises(UnknownModel, match=r"sum was unloaded, and this did not end within 0\.2 s"):
            await waiting
        with pytest.raises(MissingStart):
            await adder.infer(integers(1), turn=turn(1))
        assert (ending(engine)["sum"], adder.state) == (0, ModelState.READY)
        assert workers() == {"live-0", "sum.2-0"}
        await asyncio.wait_for(engine.repository.unload("sum"), 10)
        assert workers() == {"live-0"}


async def test_what_cannot_be_done() -> None:
    async with running(with_models(further("sum", "accumulator"))) as engine:
        with pytest.raises(ConfigError, match="live cannot be unloaded"):
            await engine.repository.unload("live")
        for change in (engine.repository.load("x"), engine.repository.unload("final")):
            with pytest.raises(UnknownModel, match="there are live, sum"):
                await change
        with pytest.raises(ConfigError, match="takes no other settings"):
            await engine.repository.load("sum", {"slots": 2})


async def test_a_load_with_other_settings_has_them_until_the_next() -> None:
    config = with_models(further("sum", "accumulator"))
    engine = Engine(config, SystemClock(), settings_of(config))
    await engine.start()
    try:
        await engine.repository.load("sum", {"slots": 2, "instances": 2})
        assert engine.repository.get("sum").stats().model.instance_slots == (2, 2)
        await engine.repository.load(
            "sum", {"source": ModelSource(name="accumulator", options={"corrid": True}), "slots": 1}
        )
        adder = engine.repository.get("sum")
        assert output(await adder.infer(integers(1), turn=turn(40, start=True, end=True))) == [41]
        await engine.repository.load("sum")
        assert engine.repository.get("sum").stats().model.instance_slots == (4,)
    finally:
        await engine.stop()


async def test_recordings_wait_behind_utterances_and_are_bounded() -> None:
    assert CONFIG.final is not None
    final = replace(CONFIG.final, target_size=1, recordings_max_queued=1)
    slow = exact_audio(2, 300)
    slow[50] = SLOW
    audio = exact_audio(1, 300)
    async with running(replace(CONFIG, final=final)) as engine:
        first = asyncio.create_task(engine.read_recording(slow))
        await asyncio.sleep(0)
        second = asyncio.create_task(engine.read_recording(audio))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="requests wait in level 2"):
            await engine.read_recording(audio)
        handle = engine.open(SequenceId("a"))
        await handle.send(audio)
        await handle.end()
        heard = asyncio.create_task(listen(handle))
        done, _ = await asyncio.wait([second, heard], return_when=asyncio.FIRST_COMPLETED, timeout=20)
        assert heard in done
        assert [word.text for word in (await first).words] == [summary(slow)]
        assert [word.text for word in (await second).words] == [summary(audio)]
        blocked = asyncio.create_task(engine.read_recording(slow))
        await asyncio.sleep(0)
        with pytest.raises(RequestTimeout):
            await engine.read_recording(audio, within_s=0.001)
        blocked.cancel()
        await asyncio.gather(blocked, return_exceptions=True)
    async with running(replace(CONFIG, final=replace(final, recordings_max_queued=0))) as engine:
        with pytest.raises(QueueFull, match="recordings_max_queued is 0"):
            await engine.read_recording(np.zeros(100, np.float32))
    async with running(replace(CONFIG, final=None)) as engine:
        with pytest.raises(UnknownModel, match="no final model"):
            await engine.read_recording(audio)
