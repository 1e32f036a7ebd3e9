"""A worker answers every order exactly once, in a thread or a process, and leaves nothing behind."""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import psutil
import pytest

from asr_model.transcript import FinalOutput, LiveOutput
from server.errors import ConfigError, InstanceFailed
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Request, RequestBatch, Samples
from server.workers.device_gate import Cells
from server.workers.orders import BatchOutcome, Load, LoadLimits, ModelSource, Prepare
from server.workers.worker import ProcessChannel, Worker, WorkerKind, make_channel, shared_cells
from server.workers.worker_host import NICENESS
from tests.support.accumulator_model import BOMB, exact_audio, summary
from tests.support.engines import ACCUMULATOR, SUM, until

LIMITS = LoadLimits(max_slots=64)
KINDS = pytest.mark.parametrize("kind", list(WorkerKind), ids=lambda kind: kind.value)


def load(source: ModelSource) -> Load:
    return Load(source=source, instance=0, device="cpu", threads=1)


def plan(samples: Samples, *, start: bool = False) -> BatchPlan:
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
    return BatchPlan(plan_id=1, instance=InstanceIndex(0), rows=(row,), audio=(samples,))


def batch(samples: Samples) -> RequestBatch:
    request = Request(request_id=RequestId(1), payload=samples)
    return RequestBatch(plan_id=1, instance=InstanceIndex(0), requests=(request,), queued_at_ns=(0,))


def with_sample(value: float) -> Samples:
    audio = exact_audio(0, 64)
    audio[10] = value
    return audio


def text(outcome: BatchOutcome) -> str:
    assert isinstance(outcome, BatchResult)
    output = outcome.rows[0].output
    assert isinstance(output, LiveOutput | FinalOutput)
    return (output.committed if isinstance(output, LiveOutput) else output.words)[0].text


async def run(worker: Worker, order: BatchPlan | RequestBatch) -> BatchOutcome:
    outcome: asyncio.Future[BatchOutcome] = asyncio.get_running_loop().create_future()
    worker.submit(order, outcome.set_result)
    assert not outcome.done(), "an outcome came within submit"
    return await asyncio.wait_for(outcome, 60.0)


def fail_if_lost() -> None:
    pytest.fail("the worker was lost")


@asynccontextmanager
async def worker_of(
    kind: WorkerKind,
    on_lost: Callable[[], None] = fail_if_lost,
    *,
    cells: Cells | None = None,
    plan_limit_s: float = 60.0,
) -> AsyncIterator[Worker]:
    channel = make_channel(kind, cells or shared_cells(kind, 1), "worker-under-test")
    worker = Worker("worker-under-test", channel, on_lost, plan_limit_s=plan_limit_s)
    try:
        yield worker
    finally:
        await worker.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker-under-test"]
    assert not [child for child in multiprocessing.active_children() if child.name == "worker-under-test"]


def pid(worker: Worker) -> int:
    assert isinstance(worker.channel, ProcessChannel)
    assert worker.channel.pid is not None
    return worker.channel.pid


@KINDS
async def test_it_loads_prepares_and_runs_plans(kind: WorkerKind) -> None:
    cells = shared_cells(kind, 1)
    async with worker_of(kind, cells=cells) as worker:
        loaded = await worker.load(load(ACCUMULATOR))
        assert (loaded.model, loaded.scheduler, loaded.device) == ("accumulator", "sequence", "cpu")
        assert (loaded.tick_samples, loaded.lookahead_samples, loaded.slot_bytes) == (64, 7, 100)
        prepared = await worker.prepare(Prepare(slots=3, limits=LIMITS))
        assert (prepared.slots, prepared.streams) == (3, None)
        a, b = exact_audio(1, 64), exact_audio(2, 64)
        assert text(await run(worker, plan(a, start=True))) == summary(a)
        assert text(await run(worker, plan(b))) == summary(np.concatenate((a, b)))
        assert await run(worker, plan(with_sample(BOMB))) == BatchFailure(plan_id=1, error="RuntimeError")
        assert text(await run(worker, plan(a, start=True))) == summary(a)
        assert (cells[0], cells[1]) == (1, 8), "the gate is not shared: on the CPU, four steps begun and ended"


async def test_a_one_shot_process_is_nice_and_deaf_to_ctrl_c_and_stuck_it_does_not_hold_up_stop() -> None:
    async with worker_of(WorkerKind.PROCESS) as worker:
        assert (await worker.load(load(SUM))).scheduler == "dynamic"
        assert (await worker.prepare(Prepare(slots=0, limits=LIMITS))).slots == 0
        audio = exact_audio(1, 100)
        assert text(await run(worker, batch(audio))) == summary(audio)
        assert psutil.Process(pid(worker)).nice() == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        os.kill(pid(worker), signal.SIGINT)  # Ctrl-C in a terminal goes to every process; the parent alone decides
        assert text(await run(worker, batch(audio))) == summary(audio)
        os.kill(pid(worker), signal.SIGSTOP)
        outcomes: list[BatchOutcome] = []
        worker.submit(batch(audio), outcomes.append)
        await worker.stop()
        assert outcomes == []


async def test_slots_are_measured_when_none_are_given() -> None:
    async with worker_of(WorkerKind.THREAD) as worker:
        await worker.load(load(ACCUMULATOR))
        prepared = await worker.prepare(Prepare(slots=0, limits=LIMITS))
        assert prepared.streams is not None
        assert prepared.slots == LIMITS.slots(prepared.streams, "cpu")


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (replace(ACCUMULATOR, options={"bogus": 1}), ConfigError, "bogus"),
        (ModelSource(name="no-such-model"), ConfigError, "no-such-model"),
        (ModelSource(name="x", factory="no.such.module:make"), InstanceFailed, "no"),
    ],
)
async def test_what_cannot_be_loaded_says_why(source: ModelSource, error: type[Exception], message: str) -> None:
    async with worker_of(WorkerKind.THREAD) as worker:
        with pytest.raises(error, match=f"worker-under-test: .*{message}"):
            await worker.load(load(source))


async def test_the_death_of_a_process_between_plans_is_noticed() -> None:
    lost = asyncio.Event()
    async with worker_of(WorkerKind.PROCESS, lost.set) as worker:
        await worker.load(load(ACCUMULATOR))
        os.kill(pid(worker), signal.SIGKILL)
        await asyncio.wait_for(lost.wait(), 60.0)


async def test_a_plan_that_hangs_loses_its_process() -> None:
    async with worker_of(WorkerKind.PROCESS, plan_limit_s=1.0) as worker:
        await worker.load(load(ACCUMULATOR))
        await worker.prepare(Prepare(slots=1, limits=LIMITS))
        os.kill(pid(worker), signal.SIGSTOP)
        for _ in range(2):
            outcome = await run(worker, plan(exact_audio(0, 64), start=True))
            assert isinstance(outcome, BatchFailure)
            assert outcome.instance_lost
        with pytest.raises(InstanceFailed):
            await worker.prepare(Prepare(slots=1, limits=LIMITS))


async def test_a_process_does_not_outlive_its_parent() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.worker_parent", stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await asyncio.wait_for(parent.stdout.readline(), 60.0)))
    parent.kill()
    await parent.wait()
    await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


async def test_stop_before_anything_and_during_load() -> None:
    async with worker_of(WorkerKind.PROCESS):
        pass
    async with worker_of(WorkerKind.THREAD) as worker:
        loading = asyncio.create_task(worker.load(load(ACCUMULATOR)))
        await asyncio.sleep(0)
        await worker.stop()
        with pytest.raises(InstanceFailed, match="stopped"):
            await loading
