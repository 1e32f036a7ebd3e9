"""The sequence batcher: pins every sequence to one slot of one instance and packs ready rows into steps.

Pure: no asyncio, torch, sockets, threads, clocks, logging or randomness. Time is the argument ``now_ns``; time that
goes back counts as standing still. What happens comes out of the verbs as effects, in order. Upholds I1–I5, I7, I9 and
I11.

    offer / touch / cancel      from the caller
    plan  -> a step to run      call until None after any other verb and at ``next_deadline_ns``
    commit -> effects           exactly once for every plan
    expire -> effects           at ``next_deadline_ns``
    lose_instance / instance_restored
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from server.batching.admission import check_audio, check_result
from server.batching.lane import Lane
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence, SequenceInput, SequenceState
from server.batching.slots import SlotTable
from server.effects import RowCompleted, SequenceEffect, SequenceEnded, SequenceLost
from server.errors import (
    CapacityExceeded,
    ConfigError,
    DuplicateSequence,
    IdleTimeout,
    InstanceFailed,
    MoorageError,
    SequenceAlreadyEnded,
    ServiceError,
    StepFailed,
    UnknownSequence,
)
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Chunk

_NOTHING: Final = np.empty(0, dtype=np.float32)
_REMEMBERED_PLANS: Final = 64
"""Steps of lost instances whose late results are still told apart from a mistake of the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBatcherConfig:
    """What the batcher needs to know of a model and of the service's limits."""

    instances: int
    """Loaded copies of the model, at least 1."""
    slots: int
    """Slots of each instance, at least 1."""
    tick_samples: int
    """Samples from one tick to the next, at least 1."""
    lookahead_samples: int
    """Tick k = 1, 2, … is complete with sample ``tick_samples * k + lookahead_samples``; at least 0."""
    max_batch: int
    """Rows of a step, at least 1."""
    max_delay_ns: int = 0
    """How long a ready row waits for company; 0: a step runs with what is ready."""
    max_queued_samples: int = 480_000
    """Samples of one sequence that no row has consumed (30 s); at least the first tick's."""
    max_queued_marks: int = 64
    """Finalize marks of one sequence that no row has answered, at least 1."""
    idle_timeout_ns: int = 0
    """A sequence without audio, keep-alive or work for so long is lost; 0: never."""
    scrub_retry_ns: int = 1_000_000_000
    """After a scrub that did not prove a slot clean, it is tried again so much later; at least 1."""
    max_remembered_ids: int = 4_096
    """Ids of ended sequences that are told apart from unknown ones, at least 0."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigError: a value is out of its bounds.
        """
        for name in ("instances", "slots", "tick_samples", "max_batch", "max_queued_marks", "scrub_retry_ns"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("lookahead_samples", "max_delay_ns", "idle_timeout_ns", "max_remembered_ids"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.max_queued_samples < self.tick_samples + self.lookahead_samples:
            raise ConfigError(f"max_queued_samples = {self.max_queued_samples} cannot hold the first tick")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStats:
    """Slots of one instance."""

    slots: int
    slots_held: int
    slots_quarantined: int
    ready_rows: int
    is_lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherStats:
    """A snapshot for metrics."""

    live: int
    """Sequences between START and their terminal effect."""
    started: int
    ended: Mapping[str, int]
    """By cause: ``end``, ``cancelled`` and the codes of the errors that ended sequences."""
    refused: Mapping[str, int]
    """Offers that were not taken, by the code of the error."""
    stale_results: int
    """Results of rows whose sequence had left."""
    queued_samples: int
    ready_rows: int
    instances: tuple[InstanceStats, ...]


class SequenceBatcher:
    """The pure scheduler of a stateful model."""

    def __init__(self, config: SequenceBatcherConfig) -> None:
        """Every slot is free."""
        self._config = config
        self._limits = QueueLimits(
            tick_samples=config.tick_samples,
            lookahead_samples=config.lookahead_samples,
            max_samples=config.max_queued_samples,
            max_marks=config.max_queued_marks,
        )
        self._lanes = [
            Lane(instance=InstanceIndex(index), slots=SlotTable(config.slots)) for index in range(config.instances)
        ]
        self._live: dict[SequenceId, Sequence] = {}
        self._waiting: OrderedDict[SequenceId, Sequence] = OrderedDict()
        self._gone_ids: OrderedDict[SequenceId, None] = OrderedDict()
        self._orphaned_plans: deque[int] = deque(maxlen=_REMEMBERED_PLANS)
        self._latest_ns = 0
        self._n_plans = 0
        self._n_started = 0
        self._n_stale = 0
        self._ended: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    # The caller's side

    def offer(self, chunk: Chunk, now_ns: int) -> None:
        """Take a chunk whole, or nothing of it.

        Raises:
            DuplicateSequence: START for a live id.
            UnknownSequence: no START, and the id is not live.
            SequenceAlreadyEnded: END was offered before, or the sequence is gone.
            BadAudio: not float32 [N], or not finite.
            CapacityExceeded: START, and no slot is free.
            QueueFull: the sequence's queue has no room for all of it; see ``room``.
        """
        now_ns = self._advance(now_ns)
        try:
            check_audio(chunk.samples)
            if chunk.start:
                sequence = self._start(chunk, now_ns)
            else:
                sequence = self._open(chunk.sequence_id)
                sequence.queue.push(chunk.samples, now_ns, finalize=chunk.finalize, end=chunk.end)
                sequence.parting = chunk.parting
        except MoorageError as error:
            self._refused[error.code] += 1
            raise
        self._settle(sequence, now_ns)

    def room(self, sequence_id: SequenceId) -> int:
        """Samples of the sequence that fit now; grows with plans.

        Raises:
            UnknownSequence, SequenceAlreadyEnded: it takes none at all.
        """
        return self._open(sequence_id).queue.room_samples

    def free_slots(self) -> int:
        """New sequences that would be taken now."""
        return sum(lane.slots.n_free for lane in self._lanes)

    def touch(self, sequence_id: SequenceId, now_ns: int) -> None:
        """Keep-alive: the idle clock starts anew.

        Raises:
            UnknownSequence, SequenceAlreadyEnded: the id is not live.
        """
        now_ns = self._advance(now_ns)
        self._settle(self._find(sequence_id), now_ns)

    def cancel(self, sequence_id: SequenceId, now_ns: int) -> list[SequenceEffect]:
        """The caller leaves. The id is free at once, the slot too unless a row is in flight. Not live: nothing."""
        now_ns = self._advance(now_ns)
        sequence = self._live.get(sequence_id)
        if sequence is None:
            return []
        sequence.move(SequenceInput.CANCEL)
        if sequence.state is SequenceState.GONE:
            self._lanes[sequence.instance].vacate(sequence, is_clean=True, now_ns=now_ns)
        return [self._forget(sequence, CloseCause.CANCELLED)]

    # The driver's side

    def plan(self, now_ns: int) -> BatchPlan | None:
        """The next step that is due, of some instance that has none in flight. Sequences that became able to run first
        go first, so none waits for more than one round of the others.
        """
        now_ns = self._advance(now_ns)
        for lane in self._lanes:
            due_at_ns = lane.due_at_ns(self._config.max_batch, self._config.max_delay_ns)
            if due_at_ns is not None and due_at_ns <= now_ns:
                self._n_plans += 1
                return lane.form(self._n_plans, self._config.max_batch, now_ns)
        return None

    def commit(self, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int) -> list[SequenceEffect]:
        """Take a step's result: effects in the order of its rows.

        A row's own error ends its sequence with StepFailed, a failure of the step all of them; their slots are in
        doubt. A failure with ``instance_lost`` ends every sequence of the instance with InstanceFailed. The result of a
        sequence that has left is dropped and counted.

        Raises:
            ServiceError: the plan is not in flight, or the result is not one of this plan; nothing has changed.
        """
        now_ns = self._advance(now_ns)
        lane = self._lanes[plan.instance]
        is_orphan = plan.plan_id in self._orphaned_plans
        if not is_orphan and (lane.in_flight is None or lane.in_flight.plan_id != plan.plan_id):
            raise ServiceError(f"plan {plan.plan_id} is not in flight")
        check_result(result, plan.plan_id, len(plan.rows))
        _check_scrubbed(plan, result)
        if is_orphan:
            self._orphaned_plans.remove(plan.plan_id)
            return self._commit_rows(lane, plan, result, now_ns)
        lane.in_flight = None
        if isinstance(result, BatchFailure) and result.instance_lost:
            return self._lose_lane(lane, plan.rows, result.error, now_ns)
        self._take_scrubs(lane, plan, result, now_ns)
        return self._commit_rows(lane, plan, result, now_ns)

    def lose_instance(self, instance: InstanceIndex, error: str, now_ns: int) -> list[SequenceEffect]:
        """The instance died, in a step or between steps: its sequences end with InstanceFailed, its slots are in doubt
        and it takes nothing until ``instance_restored``. A result that its step still brings is stale. Lost: nothing.
        """
        now_ns = self._advance(now_ns)
        lane = self._lanes[instance]
        if lane.is_lost:
            return []
        rows: tuple[BatchRow, ...] = ()
        if lane.in_flight is not None:
            self._orphaned_plans.append(lane.in_flight.plan_id)
            rows = lane.in_flight.rows
            lane.in_flight = None
        return self._lose_lane(lane, rows, error, now_ns)

    def instance_restored(self, instance: InstanceIndex, now_ns: int) -> None:
        """A lost instance runs again. Its slots are scrubbed before they are used.

        Raises:
            ServiceError: it was not lost.
        """
        self._advance(now_ns)
        lane = self._lanes[instance]
        if not lane.is_lost:
            raise ServiceError(f"instance {instance} was not lost")
        lane.is_lost = False

    def expire(self, now_ns: int) -> list[SequenceId]:
        """End idle sequences, the longest idle first: neither audio nor keep-alive for the idle timeout, counted from
        the last row at the earliest, and nothing to run. Less than a tick of audio is nothing to run.

        They end as by END, so that what they have said is read to its end; their terminal effect is SequenceLost with
        IdleTimeout.
        """
        now_ns = self._advance(now_ns)
        expired: list[SequenceId] = []
        while self._waiting and self._config.idle_timeout_ns:
            sequence = next(iter(self._waiting.values()))
            if sequence.idle_since_ns + self._config.idle_timeout_ns > now_ns:
                break
            sequence.parting = IdleTimeout("neither audio nor a keep-alive came in time")
            sequence.queue.push(_NOTHING, now_ns, end=True)
            self._settle(sequence, now_ns)
            expired.append(sequence.sequence_id)
        return expired

    def next_deadline_ns(self) -> int | None:
        """Earliest time at which ``plan`` or ``expire`` does something without other input; past: it would now."""
        config = self._config
        deadlines = [lane.due_at_ns(config.max_batch, config.max_delay_ns) for lane in self._lanes]
        if self._waiting and config.idle_timeout_ns:
            deadlines.append(next(iter(self._waiting.values())).idle_since_ns + config.idle_timeout_ns)
        return min((at_ns for at_ns in deadlines if at_ns is not None), default=None)

    def stats(self) -> BatcherStats:
        """A snapshot; looks at every live sequence."""
        return BatcherStats(
            live=len(self._live),
            started=self._n_started,
            ended=dict(self._ended),
            refused=dict(self._refused),
            stale_results=self._n_stale,
            queued_samples=sum(sequence.queue.queued_samples for sequence in self._live.values()),
            ready_rows=sum(len(lane.ready) for lane in self._lanes),
            instances=tuple(_instance_stats(lane) for lane in self._lanes),
        )

    # Sequences

    def _start(self, chunk: Chunk, now_ns: int) -> Sequence:
        sequence_id = chunk.sequence_id
        if sequence_id in self._live:
            raise DuplicateSequence(f"sequence {sequence_id} is live")
        lane = max(self._lanes, key=lambda lane: lane.slots.n_free)
        if not lane.slots.n_free:
            raise CapacityExceeded("every slot is taken")
        queue = SampleQueue(self._limits)
        queue.push(chunk.samples, now_ns, finalize=chunk.finalize, end=chunk.end)
        lease = lane.slots.acquire()
        sequence = Sequence(
            sequence_id=sequence_id, instance=lane.instance, lease=lease, queue=queue, options=chunk.options
        )
        lane.tenants[lease.slot] = sequence
        self._live[sequence_id] = sequence
        self._gone_ids.pop(sequence_id, None)
        self._n_started += 1
        return sequence

    def _find(self, sequence_id: SequenceId) -> Sequence:
        sequence = self._live.get(sequence_id)
        if sequence is not None:
            return sequence
        if sequence_id in self._gone_ids:
            raise SequenceAlreadyEnded(f"sequence {sequence_id} has ended")
        raise UnknownSequence(f"sequence {sequence_id} is not live: only START opens one")

    def _open(self, sequence_id: SequenceId) -> Sequence:
        sequence = self._find(sequence_id)
        if sequence.queue.is_closed:
            raise SequenceAlreadyEnded(f"sequence {sequence_id} takes nothing after its END")
        return sequence

    def _settle(self, sequence: Sequence, now_ns: int) -> None:
        """After a sign of life or a row: line up if there is something to run, else the idle clock starts anew."""
        if sequence.state is not SequenceState.WAITING:
            return
        if sequence.queue.head is None:
            sequence.idle_since_ns = now_ns
            self._waiting[sequence.sequence_id] = sequence
            self._waiting.move_to_end(sequence.sequence_id)
        else:
            sequence.move(SequenceInput.PORTION)
            self._waiting.pop(sequence.sequence_id, None)
            self._lanes[sequence.instance].ready[sequence.lease.slot] = sequence

    def _forget(self, sequence: Sequence, cause: CloseCause | MoorageError) -> SequenceEnded | SequenceLost:
        """The terminal effect; the id is no longer live."""
        del self._live[sequence.sequence_id]
        self._waiting.pop(sequence.sequence_id, None)
        self._gone_ids[sequence.sequence_id] = None
        while len(self._gone_ids) > self._config.max_remembered_ids:
            self._gone_ids.popitem(last=False)
        received = sequence.queue.received_samples
        if isinstance(cause, CloseCause):
            self._ended[cause.value] += 1
            return SequenceEnded(sequence_id=sequence.sequence_id, cause=cause, received_samples=received)
        self._ended[cause.code] += 1
        return SequenceLost(sequence_id=sequence.sequence_id, error=cause, received_samples=received)

    # Steps

    def _take_scrubs(self, lane: Lane, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int) -> None:
        scrubbed = result.scrubbed if isinstance(result, BatchResult) else ()
        for slot in plan.scrub:
            if slot in scrubbed:
                lane.slots.clear(slot)
            else:
                lane.slots.defer_scrub(slot, now_ns + self._config.scrub_retry_ns)

    def _commit_rows(
        self, lane: Lane, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int
    ) -> list[SequenceEffect]:
        effects: list[SequenceEffect] = []
        for index, row in enumerate(plan.rows):
            sequence = lane.tenant(row)
            error = result.error if isinstance(result, BatchFailure) else result.rows[index].error
            if sequence is None:
                self._n_stale += 1
            elif sequence.state is SequenceState.LEAVING:
                self._leave(lane, sequence, error, now_ns)
            elif isinstance(result, BatchFailure) or error is not None:
                sequence.move(SequenceInput.ROW_FAILED)
                lane.vacate(sequence, is_clean=False, now_ns=now_ns)
                effects.append(self._forget(sequence, StepFailed(error)))
            else:
                effects.append(_completed(plan, row, result, result.rows[index].output))
                effects += self._finish_row(lane, sequence, row, now_ns)
        return effects

    def _leave(self, lane: Lane, sequence: Sequence, error: str | None, now_ns: int) -> None:
        """The sequence was cancelled in the step: the result is dropped, the slot is given up."""
        self._n_stale += 1
        sequence.move(SequenceInput.ROW_DONE if error is None else SequenceInput.ROW_FAILED)
        lane.vacate(sequence, is_clean=error is None, now_ns=now_ns)

    def _finish_row(self, lane: Lane, sequence: Sequence, row: BatchRow, now_ns: int) -> list[SequenceEffect]:
        if not row.end:
            sequence.move(SequenceInput.ROW_DONE)
            self._settle(sequence, now_ns)
            return []
        sequence.move(SequenceInput.END_DONE)
        lane.vacate(sequence, is_clean=True, now_ns=now_ns)
        return [self._forget(sequence, sequence.parting or CloseCause.END)]

    def _lose_lane(self, lane: Lane, rows: tuple[BatchRow, ...], error: str, now_ns: int) -> list[SequenceEffect]:
        """Everything on the instance is lost: the rows' sequences first, then the others by slot."""
        tenants = [sequence for row in rows if (sequence := lane.tenant(row)) is not None]
        in_step = {sequence.lease.slot for sequence in tenants}
        tenants += [lane.tenants[slot] for slot in sorted(lane.tenants) if slot not in in_step]
        lane.is_lost = True
        lane.tenants.clear()
        lane.ready.clear()
        lane.slots.quarantine_all(now_ns)
        effects: list[SequenceEffect] = []
        for sequence in tenants:
            has_left = sequence.state is SequenceState.LEAVING
            sequence.move(SequenceInput.INSTANCE_LOST)
            if has_left:
                self._n_stale += 1
            else:
                effects.append(self._forget(sequence, InstanceFailed(error)))
        return effects

    def _advance(self, now_ns: int) -> int:
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns


def _check_scrubbed(plan: BatchPlan, result: BatchResult | BatchFailure) -> None:
    if isinstance(result, BatchResult) and not set(result.scrubbed) <= set(plan.scrub):
        raise ServiceError(f"plan {plan.plan_id} did not ask to scrub {sorted(set(result.scrubbed) - set(plan.scrub))}")


def _completed(plan: BatchPlan, row: BatchRow, result: BatchResult, output: object | None) -> RowCompleted:
    return RowCompleted(
        row=row,
        instance=plan.instance,
        output=output,
        batch_size=len(plan.rows),
        queue_ns=plan.planned_at_ns - row.ready_at_ns,
        step_ns=result.step_ns,
    )


def _instance_stats(lane: Lane) -> InstanceStats:
    return InstanceStats(
        slots=lane.slots.n_slots,
        slots_held=lane.slots.n_held,
        slots_quarantined=lane.slots.n_quarantined,
        ready_rows=len(lane.ready),
        is_lost=lane.is_lost,
    )
