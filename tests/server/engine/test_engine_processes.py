"""The engine with its models in processes: the same sums, and the death of a process costs its own sequences alone.

One engine serves all tests of the file, so that each also shows that the one before left it whole.
"""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest
import pytest_asyncio

from server.clock import SystemClock
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig
from server.engine.sequence_handle import SequenceHandle
from server.ids import SequenceId
from server.workers.worker import WorkerKind
from tests.support.accumulator_model import KILLER, SLOW, exact_audio, summary
from tests.support.engines import CONFIG, Heard, listen, speak, until

PROCESSES: EngineConfig = replace(CONFIG, worker_kind=WorkerKind.PROCESS)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def workers() -> dict[str, int]:
    """Worker processes of this process: name to pid."""
    return {child.name: child.pid or 0 for child in multiprocessing.active_children()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Engine]:
    before = psutil.Process().children()
    engine = Engine(PROCESSES, SystemClock())
    await engine.start()
    assert set(workers()) == {"live-0", "live-1", "final-0"}
    yield engine
    await engine.stop()
    assert workers() == {}
    left = [child for child in psutil.Process().children() if child not in before]
    assert [child for child in left if "resource_tracker" not in " ".join(child.cmdline())] == []


async def opened(engine: Engine, names: str) -> list[tuple[SequenceHandle, Heard]]:
    """Sequences with some audio through a first step, so that it is known where they are."""
    opened = []
    for name in names:
        handle = engine.open(SequenceId(name))
        await handle.send(exact_audio(ord(name), 100))
        heard = Heard()
        async for event in handle.events():
            heard.events.append(event)
            if heard.partials:
                break
        opened.append((handle, heard))
    return opened


async def rest(handle: SequenceHandle, heard: Heard) -> Heard:
    return Heard(events=heard.events + (await asyncio.wait_for(listen(handle), 30.0)).events)


async def assert_only_its_own_are_lost(engine: Engine, pairs: list[tuple[SequenceHandle, Heard]], dead: int) -> None:
    """The sequences on a dead instance hear so, the others go on to their right sums; then it serves again."""
    for handle, heard in pairs:
        name = handle.sequence_id
        if heard.partials[0].step.instance == dead:
            assert (await rest(handle, heard)).failure == "instance_failed"
        else:
            await handle.send(exact_audio(1, 500))
            await handle.end()
            (total,) = (await rest(handle, heard)).live_texts
            assert total.startswith(f"{100 + 500}:")
            assert int(total.split(":")[1]) == sum(
                int(summary(audio).split(":")[1]) for audio in (exact_audio(ord(name), 100), exact_audio(1, 500))
            )
    await until(lambda: engine.stats().models[0].instances_ready == 2)
    await until(lambda: engine.stats().slots_quarantined == 0)


async def test_fifty_interleaved_sequences_hear_their_own_sums(engine: Engine) -> None:
    heard = await asyncio.gather(*(speak(engine, seed) for seed in range(50)))
    assert [each.failures for each in heard] == [[]] * 50


async def test_a_process_killed_between_steps_costs_its_sequences_alone(engine: Engine) -> None:
    pairs = await opened(engine, "abcd")
    pid = workers()["live-1"]
    os.kill(pid, signal.SIGKILL)
    await assert_only_its_own_are_lost(engine, pairs, 1)
    assert workers()["live-1"] != pid
    assert engine.stats().models[0].instances_restarted == 1
    assert [each.failures for each in await asyncio.gather(*(speak(engine, seed) for seed in range(20)))] == [[]] * 20


async def test_a_process_that_dies_in_a_step_costs_its_sequences_alone(engine: Engine) -> None:
    pairs = await opened(engine, "efgh")
    killer = exact_audio(0, 64)
    killer[5] = KILLER
    dead = pairs[0][1].partials[0].step.instance
    await pairs[0][0].send(killer)
    await assert_only_its_own_are_lost(engine, pairs, dead)
    assert engine.stats().models[0].instances_restarted == 2
    assert [each.failures for each in await asyncio.gather(*(speak(engine, seed) for seed in range(20)))] == [[]] * 20


async def test_without_the_final_process_the_live_text_serves_until_it_is_back(engine: Engine) -> None:
    handle = engine.open(SequenceId("x"))
    audio = exact_audio(1, 500)
    await handle.send(audio)
    await handle.finalize()
    before = Heard()
    async for event in handle.events():
        before.events.append(event)
        if before.finals:
            break
    assert before.final_texts == [summary(audio)]
    slow = exact_audio(2, 100)
    slow[50] = SLOW
    await handle.send(slow)
    await handle.finalize()
    await until(lambda: engine.stats().finals_waiting == 1)
    await handle.send(audio)
    await handle.finalize()
    await until(lambda: engine.stats().finals_waiting == 2)
    os.kill(workers()["final-0"], signal.SIGKILL)  # with one utterance in its batch and one in the queue
    await until(lambda: engine.stats().models[1].instances_ready == 0)
    await handle.send(audio)
    await handle.end()
    heard = await rest(handle, before)
    assert [final.words for final in heard.finals[1:]] == [final.live_words for final in heard.finals[1:]]
    assert engine.stats().finals_replaced == {"failed": 3}
    await until(lambda: engine.stats().models[1].instances_ready == 1)
    assert [each.failures for each in await asyncio.gather(*(speak(engine, seed) for seed in range(10)))] == [[]] * 10


async def test_the_live_model_is_replaced_beside_its_streams_and_the_old_processes_are_gone(engine: Engine) -> None:
    pairs = await opened(engine, "mnop")
    before = {name: pid for name, pid in workers().items() if name.startswith("live")}
    await engine.repository.load("live")
    assert set(workers()) - set(before) == {"live.2-0", "live.2-1", "final-0"}
    assert [each.failures for each in await asyncio.gather(*(speak(engine, seed) for seed in range(8)))] == [[]] * 8
    for handle, heard in pairs:
        await handle.send(exact_audio(1, 500))
        await handle.end()
        assert (await rest(handle, heard)).live_texts[0].startswith("600:")
    await until(lambda: set(workers()) == {"live.2-0", "live.2-1", "final-0"})
    assert not [pid for pid in before.values() if psutil.pid_exists(pid)]
