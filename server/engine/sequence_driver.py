"""A sequence batcher and the instances it plans for: the only caller of its plan and commit.

Runs on the event loop. What happens to sequences is told as effects, in order; who they are is its owner's business.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from server.batching.sequence_batcher import SequenceBatcher
from server.batching.sequence_stats import BatcherStats
from server.batching.unpinned_batcher import UnpinnedBatcher
from server.batching.waiting_line import WaitingLine
from server.clock import Clock
from server.effects import SequenceEffect, SequencePlaced, SequenceQueued
from server.engine.idle_notice import IdleNotice
from server.engine.pump import Pump
from server.engine.resource_share import ResourceShare
from server.figures.step_recorder import StepRecorder
from server.ids import InstanceIndex, SequenceId
from server.plan import BatchFailure, BatchPlan, Chunk, Turn
from server.workers.orders import BatchOutcome
from server.workers.pool import InstancePool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceListener:
    """What the owner of a driver's sequences hears."""

    on_effects: Callable[[list[SequenceEffect]], None]
    on_room: Callable[[SequenceId], None]
    """A row of the sequence was planned: its queue has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverParts:
    """What every driver works with."""

    pool: InstancePool
    """Its instances, ready."""
    clock: Clock
    pump: Pump
    """Runs it; ``add`` is the owner's to call."""
    share: ResourceShare
    recorder: StepRecorder


class SequenceDriver:
    """One copy of a stateful model at work.

    Args:
        batcher: Its scheduler; nobody else calls it.
        parts: What it works with.
        listener: Who its sequences belong to.
    """

    def __init__(
        self, batcher: SequenceBatcher | UnpinnedBatcher, parts: DriverParts, listener: SequenceListener
    ) -> None:
        self._batcher = batcher
        self._pool = parts.pool
        self._clock = parts.clock
        self._pump = parts.pump
        self._share = parts.share
        self._recorder = parts.recorder
        self._listener = listener
        self._idle = IdleNotice(lambda: self._is_stopped or not self._batcher.stats().live)
        self._is_stopped = False

    # For the owner of the sequences

    @property
    def n_ready(self) -> int:
        """Instances that take steps."""
        return self._pool.n_ready

    def offer(self, item: Chunk | Turn) -> None:
        """Gives the batcher a chunk or a turn; its errors come through, nothing is taken then."""
        self._batcher.offer(item, self._clock.now_ns())

    def run(self) -> None:
        """After ``cancel``: plans what has become due."""
        self._pump.run()

    def run_if_due(self) -> None:
        """After ``offer`` or ``touch``: plans what has become due."""
        self._pump.run_if_due(self)

    def room(self, sequence_id: SequenceId) -> int:
        """Samples of the sequence that fit now; raises as the batcher does."""
        return self._batcher.room(sequence_id)

    def place_in_line(self, sequence_id: SequenceId) -> SequenceQueued | None:
        """Where the sequence waits for a slot; None: it has one."""
        return self._batcher.place_in_line(sequence_id)

    def touch(self, sequence_id: SequenceId) -> None:
        """Keep-alive; raises as the batcher does."""
        self._batcher.touch(sequence_id, self._clock.now_ns())

    def cancel(self, sequence_id: SequenceId) -> None:
        """The caller leaves: what that brings about is told within this call. ``run`` must follow."""
        self._tell(self._batcher.cancel(sequence_id, self._clock.now_ns()))

    @property
    def has_line(self) -> bool:
        """Whether sequences may wait for a slot here."""
        return isinstance(self._batcher, SequenceBatcher)

    def hand_over(self) -> WaitingLine:
        """Those who wait for a slot, for another driver; here they are no more."""
        if not isinstance(self._batcher, SequenceBatcher):
            return WaitingLine()
        line = self._batcher.hand_over(self._clock.now_ns())
        self._idle.look()
        return line

    def take_over(self, line: WaitingLine) -> None:
        """Takes them before anybody else; what that brings about is told within this call. ``run`` must follow."""
        assert isinstance(self._batcher, SequenceBatcher), "it has a line"
        self._tell(self._batcher.take_over(line, self._clock.now_ns()))

    def stats(self) -> BatcherStats:
        """The batcher's."""
        return self._batcher.stats()

    async def drained(self) -> None:
        """Returns when it has no sequence any more, or is stopped; its owner opens none meanwhile."""
        await self._idle.wait()

    def stop(self) -> None:
        """Outcomes that still come are dropped."""
        self._is_stopped = True
        self._share.close()
        self._pump.remove(self)
        self._idle.look()

    # For the pump

    def next_deadline_ns(self) -> int | None:
        """When ``pump`` has something to do without other input."""
        return self._batcher.next_deadline_ns(self._share.may_run)

    def pump(self, now_ns: int) -> None:
        """Ends who has waited for too long, submits every step that is due."""
        self._tell(self._batcher.expire(now_ns))
        while (plan := self._batcher.plan(now_ns, self._share.asks_to_run)) is not None:
            self._share.take(plan.instance)
            self._recorder.planned([now_ns - row.ready_at_ns for row in plan.rows])
            self._pool.submit(plan, lambda outcome, plan=plan: self._commit(plan, outcome))  # type: ignore[misc]
            for row in plan.rows:
                self._listener.on_room(row.sequence_id)
        self._share.settle(is_due=True)  # only instances with a step that is due were asked for

    # For the pool

    def lose_instance(self, instance: InstanceIndex) -> None:
        """An instance died between steps."""
        if not self._is_stopped:
            self._share.give_back(instance, is_lost=True)
            self._tell(self._batcher.lose_instance(instance, "the instance died", self._clock.now_ns()))
            self._pump.run()

    def restore_instance(self, instance: InstanceIndex) -> None:
        """A lost instance takes steps again."""
        if not self._is_stopped:
            self._tell(self._batcher.instance_restored(instance, self._clock.now_ns()))
            self._pump.run()

    def _commit(self, plan: BatchPlan, outcome: BatchOutcome) -> None:
        if self._is_stopped:
            return
        loss = outcome if isinstance(outcome, BatchFailure) and outcome.instance_lost else None
        self._share.give_back(plan.instance, is_lost=loss is not None)
        self._recorder.finished(outcome, plan.instance)
        effects = self._batcher.commit(plan, outcome, self._clock.now_ns())
        if loss is not None:
            logger.error(
                "%s instance %d was lost in a step of %d rows, its sequences with it: %s",
                self._pool.role,
                plan.instance,
                len(plan.rows),
                loss.error,
            )
            self._pool.replace(plan.instance)
        self._tell(effects)
        self._pump.run()

    def _tell(self, effects: list[SequenceEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SequencePlaced):
                self._recorder.placed(effect.waited_ns)
        self._listener.on_effects(effects)
        self._idle.look()
