"""A worker: one thread that hands orders to one model and its replies back to the event loop.

The model runs either in that very thread (engine embedded) or in a process at the other end of a pipe (service). What
crosses is flat; the loop never waits for a model (I10). Every order gets exactly one reply, also when the model's
process dies over it (I4).
"""

import asyncio
import logging
import multiprocessing
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from server.errors import ConfigError, InstanceFailed
from server.log import configured_format
from server.plan import BatchFailure, BatchPlan, RequestBatch
from server.proving.judgement import Probe, Probed
from server.workers.device_gate import Cells, DeviceGate, cells_needed
from server.workers.gate_places import PLACES, GatePlaces
from server.workers.orders import BatchOutcome, Load, Loaded, Order, Prepare, Prepared, Refused, Reply
from server.workers.worker_process import WorkerLogging, process_main

MOST_OUT: Final = 2
"""Plans of one worker: the next waits at its side while one runs, so that it begins without a pause."""
GRACE_S: Final = 1.0
"""Time for a step to end by itself when a worker is stopped; then its process is killed."""

logger = logging.getLogger(__name__)


def _worker_logging() -> WorkerLogging:
    return WorkerLogging(level=logging.getLogger().getEffectiveLevel(), format=configured_format())


class WorkerKind(Enum):
    """Where a model runs."""

    PROCESS = "process"
    THREAD = "thread"


class Lost(Exception):
    """The other end of a channel is gone."""


class Channel(Protocol):
    """The way from a worker's thread to its model. All verbs are called in that thread but ``kill`` and ``join``."""

    def open(self) -> int | None:
        """Brings up the model's side. Returns a descriptor that becomes readable when it dies, if it can.

        Raises:
            Lost: It could not be brought up.
        """

    def call(self, order: Order) -> Reply:
        """Carries out one order; blocks.

        Raises:
            Lost: The model's side died.
        """

    def close(self) -> None:
        """Lets the model's side go."""

    def kill(self) -> None:
        """Ends the model's side in the middle of an order, where that is possible."""

    def join(self) -> None:
        """Waits for its end, after ``close`` or ``kill``."""


class ThreadChannel:
    """The model in the worker's own thread."""

    def __init__(self, cells: Cells) -> None:
        from server.workers.worker_host import Host  # loads torch, which a service with worker processes does without

        # Where niceness belongs to the process, lowering it would hit the embedding program.
        self._host = Host(DeviceGate(cells), may_nice=sys.platform == "linux")

    def open(self) -> None:
        """Nothing to bring up."""

    def call(self, order: Order) -> Reply:
        """Carries it out here and now."""
        return self._host.carry_out(order)

    def close(self) -> None:
        """Nothing to let go: the model goes with the channel."""

    def kill(self) -> None:
        """A thread cannot be ended from outside; its step ends by itself."""

    def join(self) -> None:
        """Nothing to wait for."""


class ProcessChannel:
    """The model in a process of its own: spawned, so that it inherits neither locks nor torch's threads."""

    def __init__(self, cells: Cells, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        self._child_pipe = child_pipe
        self._process = context.Process(
            target=process_main,
            args=(child_pipe, cells, _worker_logging()),
            name=name,
            daemon=True,
        )

    @property
    def pid(self) -> int | None:
        """Process id, None before it is started."""
        return self._process.pid

    def open(self) -> int:
        """Starts the process."""
        try:
            self._process.start()
        except OSError as error:
            raise Lost(f"could not start a process: {error}") from error
        finally:
            self._child_pipe.close()  # else its end would never be seen here
        return self._process.sentinel

    def call(self, order: Order) -> Reply:
        """Sends the order, waits for the reply."""
        try:
            self._pipe.send(order)
            reply: Reply = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise Lost(f"{self._process.name} ended") from error
        return reply

    def close(self) -> None:
        """Closes the pipe, which ends the process between two orders."""
        self._pipe.close()

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process.pid is not None:
            self._process.kill()

    def join(self) -> None:
        """Waits for the process's end, kills it if it does not come."""
        if self._process.pid is None:
            return
        self._process.join(GRACE_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    order: Order
    on_reply: Callable[[Reply | Lost], None]


class Worker:
    """One instance's worker, as the event loop sees it. Use from the loop's thread only.

    Args:
        name: For logs and thread names.
        channel: Where the model runs.
        on_lost: Called once, on the loop, when the model's side dies while no order is out; an order that is out gets
            its ``BatchFailure`` with ``instance_lost`` instead.
        plan_limit_s: A plan that takes longer hangs: its process is killed. A thread cannot be.
    """

    def __init__(self, name: str, channel: Channel, on_lost: Callable[[], None], *, plan_limit_s: float) -> None:
        self._name = name
        self._plan_limit_s = plan_limit_s
        self._channel = channel
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._n_out = 0
        self._is_stopped = False
        self._stopping: asyncio.Task[None] | None = None
        self._asking: asyncio.Future[Reply | Lost] | None = None
        self._sentinel: int | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def name(self) -> str:
        """For logs."""
        return self._name

    @property
    def channel(self) -> Channel:
        """Where the model runs."""
        return self._channel

    async def load(self, order: Load) -> Loaded:
        """Brings up the model's side and loads the model.

        Raises:
            ConfigError: The model refused its options or its device.
            InstanceFailed: It could not be loaded.
        """
        self._thread.start()
        reply = await self._ask(order)
        assert isinstance(reply, Loaded), f"{reply!r} in reply to Load"
        return reply

    async def probe(self, order: Probe) -> Probed:
        """Finds out what the loaded model is.

        Raises:
            InstanceFailed: It failed.
        """
        reply = await self._ask(order)
        assert isinstance(reply, Probed), f"{reply!r} in reply to Probe"
        return reply

    async def prepare(self, order: Prepare) -> Prepared:
        """Warms the model up, measures it if asked to, takes the memory of its slots.

        Raises:
            ConfigError: The model refused.
            InstanceFailed: It failed.
        """
        reply = await self._ask(order)
        assert isinstance(reply, Prepared), f"{reply!r} in reply to Prepare"
        return reply

    def submit(self, plan: BatchPlan | RequestBatch, on_outcome: Callable[[BatchOutcome], None]) -> None:
        """Runs a plan; its outcome comes back on the loop, never within this call. One may run and another wait for it,
        no more; they run in order, and so come their outcomes.
        """
        assert self._n_out < MOST_OUT, f"{self._name} has {self._n_out} plans out already"
        limit = self._loop.call_later(self._plan_limit_s, self._kill_hung)

        def on_reply(reply: Reply | Lost) -> None:
            limit.cancel()
            if isinstance(reply, Lost):
                reply = BatchFailure(plan_id=plan.plan_id, error=str(reply), instance_lost=True)
            assert not isinstance(reply, Loaded | Probed | Prepared | Refused), f"{reply!r} in reply to a plan"
            on_outcome(reply)

        self._put(plan, on_reply)

    async def stop(self) -> None:
        """Ends the model's side and the thread. The outcome of a plan that is still out is dropped, and whoever awaits
        ``load`` or ``prepare`` gets InstanceFailed. May be called again.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop())
        await asyncio.shield(self._stopping)  # a caller that is cancelled leaves it going, for the next one to await

    async def _stop(self) -> None:
        self._is_stopped = True
        self._unwatch()
        if self._asking is not None and not self._asking.done():
            self._asking.set_result(Lost("stopped"))
        if self._thread.ident is None:
            await asyncio.to_thread(self._release)
            return
        self._jobs.put(None)
        await asyncio.to_thread(self._end_thread)

    def _kill_hung(self) -> None:
        if not self._is_stopped:
            logger.error("%s has a plan out for more than %g s", self._name, self._plan_limit_s)
            self._channel.kill()

    async def _ask(self, order: Order) -> Reply:
        future: asyncio.Future[Reply | Lost] = self._loop.create_future()
        self._asking = future
        self._put(order, lambda reply: None if future.done() else future.set_result(reply))
        reply = await future
        if isinstance(reply, Lost):
            raise InstanceFailed(f"{self._name}: {reply}")
        if isinstance(reply, Refused):
            kind = ConfigError if reply.is_configuration else InstanceFailed
            raise kind(f"{self._name}: {reply.error}")
        return reply

    def _put(self, order: Order, on_reply: Callable[[Reply | Lost], None]) -> None:
        self._n_out += 1
        self._jobs.put(_Job(order=order, on_reply=on_reply))

    def _deliver(self, job: _Job, reply: Reply | Lost) -> None:
        self._n_out -= 1
        if isinstance(reply, Lost):
            self._unwatch()
        if not self._is_stopped:
            job.on_reply(reply)

    def _watch(self, sentinel: int) -> None:
        if not self._is_stopped:
            self._sentinel = sentinel
            self._loop.add_reader(sentinel, self._on_death)

    def _unwatch(self) -> None:
        if self._sentinel is not None:
            self._loop.remove_reader(self._sentinel)
            self._sentinel = None

    def _on_death(self) -> None:
        self._unwatch()
        if self._n_out == 0 and not self._is_stopped:  # else the thread meets the end of the pipe and replies
            self._on_lost()

    # Below: the worker's own thread.

    def _serve(self) -> None:
        lost: Lost | None = None
        try:
            sentinel = self._channel.open()
        except Lost as error:
            lost = error
        else:
            if sentinel is not None:
                self._post(lambda: self._watch(sentinel))
        while (job := self._jobs.get()) is not None:
            reply: Reply | Lost = self._call(job.order) if lost is None else lost
            if isinstance(reply, Lost):
                lost = reply
            self._post(lambda job=job, reply=reply: self._deliver(job, reply))  # type: ignore[misc]
        self._channel.close()

    def _call(self, order: Order) -> Reply | Lost:
        try:
            return self._channel.call(order)
        except Lost as error:
            return error

    def _post(self, callback: Callable[[], None]) -> None:
        # A loop that is closed already has nobody left to tell.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    # Below: a thread of the loop's pool.

    def _end_thread(self) -> None:
        self._thread.join(GRACE_S)
        if self._thread.is_alive():
            self._channel.kill()
            self._thread.join()
        self._channel.join()

    def _release(self) -> None:
        self._channel.close()
        self._channel.join()


def gate_places(kind: WorkerKind) -> GatePlaces:
    """Places in the device gate for all workers of an engine."""
    return GatePlaces(shared_cells(kind, PLACES, PLACES))


def shared_cells(kind: WorkerKind, live_instances: int, one_shot_instances: int = 1) -> Cells:
    """Cells for the device gate of an engine's workers."""
    n_cells = cells_needed(live_instances, one_shot_instances)
    if kind is WorkerKind.THREAD:
        return [0] * n_cells
    cells: Cells = multiprocessing.get_context("spawn").RawArray("Q", n_cells)
    return cells


def make_channel(kind: WorkerKind, cells: Cells, name: str) -> Channel:
    """Where a worker of that kind runs its model."""
    return ThreadChannel(cells) if kind is WorkerKind.THREAD else ProcessChannel(cells, name)
