"""A model's instances: where they are told to run, with the batcher that the model needs, alone or beside others."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asr_model.transcript import FinalOutput, LiveOutput
from server.errors import ConfigError
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Request, RequestBatch, Samples
from server.workers.device_gate import DeviceGate
from server.workers.gate_places import PLACES, GatePlaces
from server.workers.orders import BatchOutcome, LoadLimits, ModelSource
from server.workers.pool import InstancePool
from server.workers.pool_settings import TURN_SLOTS, Placement, PoolSettings
from server.workers.worker import WorkerKind, gate_places
from tests.support.accumulator_model import SLOW, exact_audio, summary
from tests.support.engines import ACCUMULATOR, SUM
from tests.support.turns import TurnRow, answers, floats, ints, request_batch, turn_plan

UNDECLARED = replace(ACCUMULATOR, factory="tests.support.accumulator_model:make_undeclared")
SETTINGS = PoolSettings(
    role="live",
    scheduler="sequence",
    source=ACCUMULATOR,
    placements=(Placement(device="cpu", threads=1),) * 2,
    slots=3,
    limits=LoadLimits(max_slots=8),
    plan_limit_s=60.0,
    worker_kind=WorkerKind.THREAD,
)


def settings(source: ModelSource = ACCUMULATOR, *, instances: int = 2, **changes: Any) -> PoolSettings:
    return replace(SETTINGS, source=source, placements=SETTINGS.placements[:1] * instances, **changes)


class Told(list[tuple[str, InstanceIndex]]):
    """Instances that were lost and restored."""

    def lost(self, instance: InstanceIndex) -> None:
        self.append(("lost", instance))

    def restored(self, instance: InstanceIndex) -> None:
        self.append(("restored", instance))


@asynccontextmanager
async def pool_of(
    settings: PoolSettings, gate: GatePlaces | None = None, told: Told | None = None
) -> AsyncIterator[InstancePool]:
    told = told if told is not None else Told()
    pool = InstancePool(settings, gate or gate_places(WorkerKind.THREAD), told.lost, told.restored)
    try:
        await pool.load()
        await pool.prepare()
        yield pool
    finally:
        await pool.stop()


async def run(pool: InstancePool, order: BatchPlan | RequestBatch) -> BatchOutcome:
    outcome: asyncio.Future[BatchOutcome] = asyncio.get_running_loop().create_future()
    pool.submit(order, outcome.set_result)
    return await asyncio.wait_for(outcome, 60.0)


def plan(instance: int, samples: Samples, *, start: bool = False) -> BatchPlan:
    row = BatchRow(
        slot=SlotIndex(0),
        generation=1,
        sequence_id=SequenceId("s"),
        start=start,
        flush=False,
        end=False,
        first_sample=0,
        n_samples=samples.size,
        ready_at_ns=0,
    )
    return BatchPlan(plan_id=1, instance=InstanceIndex(instance), rows=(row,), audio=(samples,))


def batch(samples: Samples, plan_id: int = 1) -> RequestBatch:
    request = Request(request_id=RequestId(1), payload=samples)
    return RequestBatch(plan_id=plan_id, instance=InstanceIndex(0), requests=(request,), queued_at_ns=(0,))


def text(outcome: BatchOutcome) -> str:
    assert isinstance(outcome, BatchResult), outcome
    output = outcome.rows[0].output
    assert isinstance(output, LiveOutput | FinalOutput)
    return (output.committed if isinstance(output, LiveOutput) else output.words)[0].text


async def test_every_instance_runs_where_it_is_placed_with_state_of_its_own() -> None:
    a, b, c = (exact_audio(seed, 64) for seed in range(3))
    async with pool_of(settings()) as pool:
        assert (pool.n_ready, pool.scheduler, pool.instance_slots, pool.slots) == (2, "sequence", (3, 3), 3)
        assert not pool.has_wrong_scheduler
        told = [text(await run(pool, plan(0, a, start=True))), text(await run(pool, plan(1, b, start=True)))]
        told += [text(await run(pool, plan(instance, c))) for instance in (0, 1)]
        stats = pool.stats()
    assert told == [summary(each) for each in (a, b, np.concatenate((a, c)), np.concatenate((b, c)))]
    assert (stats.instances, stats.instances_ready, stats.devices, stats.instance_slots) == (2, 2, ("cpu",) * 2, (3, 3))
    assert stats.state_bytes >= 2 * 3 * stats.slot_bytes
    assert (stats.cache_bytes, stats.cache_bytes_used) == (0, 0)


async def test_each_instance_is_loaded_with_its_own_device() -> None:
    places = (Placement(device="cpu", threads=1), Placement(device="cuda:99", threads=1))
    with pytest.raises(ConfigError, match="live-1: device cuda:99: this machine has"):
        async with pool_of(replace(SETTINGS, placements=places)):
            pytest.fail("there is no such device")


async def test_a_model_of_whole_utterances_is_no_model_for_sequences_whatever_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"live\.scheduler: sum hears utterances whole"):
        async with pool_of(settings(SUM, instances=1, allow_wrong_scheduler=True)):
            pytest.fail("it has no ticks")


async def test_a_model_that_does_not_say_and_is_not_told_does_not_start() -> None:
    with pytest.raises(ConfigError, match="does not say which batcher it needs"):
        async with pool_of(settings(UNDECLARED, scheduler="")):
            pytest.fail("nobody said which batcher")
    async with pool_of(settings(UNDECLARED, instances=1)) as pool:
        assert (pool.scheduler, pool.declared.scheduler, pool.has_wrong_scheduler) == ("sequence", "", False)
    async with pool_of(settings(instances=1, scheduler="")) as pool:
        assert (pool.scheduler, pool.stats().scheduler) == ("sequence", "sequence")


async def test_a_wrong_batcher_is_taken_where_that_is_allowed_and_the_answers_are_wrong() -> None:
    source = ModelSource(name="accumulator")
    with pytest.raises(ConfigError, match="needs the sequence batcher"):
        async with pool_of(settings(source, scheduler="dynamic")):
            pytest.fail("nobody has allowed that")
    wrong = settings(source, instances=1, scheduler="dynamic", allow_wrong_scheduler=True, batches=(1, 2))
    async with pool_of(wrong) as pool:
        assert (pool.scheduler, pool.has_wrong_scheduler) == ("dynamic", True)
        told = [answers(await run(pool, request_batch({"INPUT": ints(value)}))) for value in (10, 5)]
    assert told == [[{"OUTPUT": [[10]]}], [{"OUTPUT": [[5]]}]]
    async with pool_of(settings(source, instances=1)) as pool:
        rows = [[TurnRow(slot=0, arrays={"INPUT": ints(value)}, start=value == 10)] for value in (10, 5)]
        told = [answers(await run(pool, turn_plan(turns))) for turns in rows]
    assert told == [[{"OUTPUT": [[10]]}], [{"OUTPUT": [[15]]}]]


async def test_a_pool_stops_alone_and_its_places_come_back() -> None:
    gate = gate_places(WorkerKind.THREAD)
    audio = exact_audio(1, 64)
    async with pool_of(settings(), gate) as staying:
        before = len(gate.take(PLACES - 2))
        gate.give_back(tuple(range(2, PLACES)))
        async with pool_of(settings(), gate) as leaving:
            assert not set(staying.places) & set(leaving.places)
            await run(leaving, plan(0, audio, start=True))
            await run(staying, plan(0, audio, start=True))
            DeviceGate(gate.cells).abandon(leaving.places[0], 1)
        assert text(await run(staying, plan(0, audio))) == summary(np.concatenate((audio, audio)))
        assert len(gate.take(PLACES - 2)) == before
        assert not DeviceGate(gate.cells).is_abandoned(2, 1), "what was told to the instance that left still stands"


async def test_more_instances_than_there_are_places_are_refused() -> None:
    with pytest.raises(ConfigError, match="room for 128"):
        async with pool_of(settings(instances=PLACES + 1)):
            pytest.fail("there are not that many places")


async def test_a_batch_is_abandoned_on_the_instance_that_has_it_and_no_other() -> None:
    slow = exact_audio(1, 64)
    slow[3] = SLOW
    final = settings(SUM, instances=1, scheduler="dynamic", role="final", slots=0)
    gate = gate_places(WorkerKind.THREAD)
    async with pool_of(final, gate) as first, pool_of(final, gate) as second:
        outcomes: list[asyncio.Task[BatchOutcome]] = [
            asyncio.create_task(run(pool, batch(slow, plan_id=7))) for pool in (first, second)
        ]
        await asyncio.sleep(0)
        second.abandon(batch(slow, plan_id=7))
        kept, dropped = await asyncio.gather(*outcomes)
    assert text(kept) == summary(slow)
    assert dropped == BatchFailure(plan_id=7, error="abandoned", is_abandoned=True)


async def test_a_replaced_instance_has_the_slots_that_it_had(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "server.workers.pool")
    told = Told()
    measured = settings(slots=0)
    audio = exact_audio(1, 64)
    async with pool_of(measured, told=told) as pool:
        slots, streams = pool.instance_slots, pool.stats().streams
        assert all(1 <= each <= 8 for each in slots)
        assert streams is not None
        pool.replace(InstanceIndex(1))
        assert pool.n_ready == 1
        async with asyncio.timeout(60.0):
            while not told:  # noqa: ASYNC110 - the pool has no event for what it tells
                await asyncio.sleep(0.01)
        assert told == [("restored", 1)]
        lines = [record.getMessage() for record in caplog.records]
        assert re.fullmatch(r"live instance 1 is restored as live-1 after \d+\.\d s, restart 1", lines[-1])
        assert (pool.instance_slots, pool.stats().streams, pool.stats().instances_restarted) == (slots, streams, 1)
        assert text(await run(pool, plan(1, audio, start=True))) == summary(audio)


@pytest.mark.parametrize(("name", "is_wrong"), [("accumulator", False), ("mean", True)])
async def test_models_that_take_turns_have_slots_where_none_are_given(name: str, is_wrong: bool) -> None:
    wanted = settings(ModelSource(name=name), instances=1, slots=0, allow_wrong_scheduler=is_wrong)
    async with pool_of(wanted) as pool:
        assert (pool.instance_slots, pool.has_wrong_scheduler) == ((TURN_SLOTS,), is_wrong)
    async with pool_of(settings(ModelSource(name="mean"), instances=1, slots=0, scheduler="")) as pool:
        assert (pool.instance_slots, pool.scheduler) == ((0,), "dynamic")


async def test_what_growing_caches_hold_is_reported_and_is_no_counter() -> None:
    source = ModelSource(name="history", options={"max_values": 8, "page_values": 4, "share": 0.5})
    async with pool_of(settings(source, slots=4)) as pool:
        rows = [TurnRow(slot=slot, arrays={"VALUES": floats(1, 2, 3, 4, 5)}, start=True) for slot in (0, 1)]
        first = await run(pool, turn_plan(rows))
        assert isinstance(first, BatchResult)
        assert "cache_bytes" not in first.counters
        assert (pool.stats().cache_bytes, pool.stats().cache_bytes_used) == (2 * 4 * 16, 4 * 16)
        await run(pool, turn_plan([replace(rows[0], start=False, end=True, arrays={"VALUES": floats()})]))
        assert pool.stats().cache_bytes_used == 2 * 16
