"""The dynamic batcher under a stateful model: the wrong scheduler, with the verbs of the right one.

It is for the demonstration of what then happens, and runs only where the configuration allows it by name. Every tick
and every flush is a request like any other: it may join any batch on any idle instance. The order of a sequence is kept
as a careful client of a dynamic batcher keeps it: the next request is made when the one before was answered. That is
not enough: nothing takes a tick to the instance that holds the state of the ticks before it, and nothing says so.

Pure. Upholds I3, I4, I5, I7, I9 and I11; I1, I2 and I6 are what it cannot uphold.

    offer / touch / cancel      from the caller
    plan  -> a step to run      call until None after any other verb and at ``next_deadline_ns``
    commit -> effects           exactly once for every plan
    expire -> effects           at ``next_deadline_ns``
    lose_instance / instance_restored

A sequence that is opened ``solo`` is the exception: its rows run on one instance, in steps of their own, so that an
audit has a right answer to compare with.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from server.batching.admission import check_audio, check_result
from server.batching.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig, MayRun
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence_config import SequenceBatcherConfig
from server.batching.sequence_stats import BatcherStats, Counts, InstanceStats
from server.batching.unpinned_sequence import AskedRow, UnpinnedSequence
from server.effects import (
    RequestCompleted,
    RequestEffect,
    RequestFailed,
    RowCompleted,
    SequenceEffect,
    SequenceEnded,
    SequenceLost,
    SequenceQueued,
)
from server.errors import (
    CapacityExceeded,
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
from server.ids import InstanceIndex, RequestId, SequenceId
from server.plan import BatchFailure, BatchPlan, BatchResult, Chunk, Request, RequestBatch, Turn

_NOTHING: Final = np.empty(0, dtype=np.float32)
_REMEMBERED_PLANS: Final = 64
"""Steps of lost instances whose late results are still told apart from a mistake of the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """A plan that runs."""

    requests: tuple[RequestId, ...]
    batch: RequestBatch | None
    """The dynamic batcher's; None: the step of a solo sequence."""


class UnpinnedBatcher:
    """Sequences of a stateful model as requests without ties.

    Args:
        config: As of the sequence batcher; its slots bound the sequences that are live at once. Strategies, backlog,
            deadlines, late ticks in one row and steps formed ahead are the sequence batcher's alone.
    """

    def __init__(self, config: SequenceBatcherConfig) -> None:
        self._config = config
        self._limits = QueueLimits(
            tick_samples=config.tick_samples,
            lookahead_samples=config.lookahead_samples,
            max_samples=config.max_queued_samples,
            max_marks=config.max_queued_marks,
        )
        self._requests = DynamicBatcher(
            DynamicBatcherConfig(
                instances=config.instances,
                target_size=config.max_batch,
                window_ns=config.max_delay_ns,
                max_queued=config.n_slots,
                max_batch_samples=config.max_batch * config.max_queued_samples,
            )
        )
        self._live: dict[SequenceId, UnpinnedSequence] = {}
        self._asking: dict[RequestId, UnpinnedSequence] = {}
        """Sequences with a row that waits or runs, by its request."""
        self._waiting: OrderedDict[SequenceId, UnpinnedSequence] = OrderedDict()
        """Sequences with nothing to run, the longest idle first."""
        self._solo_rows: OrderedDict[RequestId, UnpinnedSequence] = OrderedDict()
        """Rows of solo sequences that wait."""
        self._gone_ids: OrderedDict[SequenceId, None] = OrderedDict()
        self._flights: dict[int, _Flight] = {}
        self._busy: dict[InstanceIndex, int] = {}
        """Instances that run something, and the plan."""
        self._orphans: OrderedDict[int, None] = OrderedDict()
        """Plans of lost instances."""
        self._lost: set[InstanceIndex] = set()
        self._latest_ns = 0
        self._n_plans = 0
        self._n_requests = 0
        self._counts = Counts()

    # The caller's side

    def offer(self, item: Chunk | Turn, now_ns: int) -> None:
        """Take a chunk whole, or nothing of it.

        Raises:
            DuplicateSequence: START for a live id.
            UnknownSequence: no START, and the id is not live.
            SequenceAlreadyEnded: END was offered before, or the sequence is gone.
            BadAudio: not float32 [N], or not finite.
            CapacityExceeded: START, and as many sequences are live as may be.
            QueueFull: the sequence's queue has no room for all of it; see ``room``.
        """
        now_ns = self._advance(now_ns)
        assert isinstance(item, Chunk), "turns go to the dynamic batcher itself"
        try:
            check_audio(item.samples)
            sequence = self._start(item, now_ns) if item.start else self._open(item.sequence_id)
            if not item.start:
                sequence.push(item, now_ns)
        except MoorageError as error:
            self._counts.refused[error.code] += 1
            raise
        self._settle(sequence, now_ns)

    def room(self, sequence_id: SequenceId) -> int:
        """Samples of the sequence that fit now; grows as its rows are asked for.

        Raises:
            UnknownSequence, SequenceAlreadyEnded: it takes none at all.
        """
        return self._open(sequence_id).queue.room_samples

    def free_slots(self) -> int:
        """New sequences that would be taken now."""
        return max(0, self._config.n_slots - len(self._live))

    def place_in_line(self, sequence_id: SequenceId) -> SequenceQueued | None:
        """None: no sequence waits for a slot here, for none has one."""
        return None

    def touch(self, sequence_id: SequenceId, now_ns: int) -> None:
        """Keep-alive: the idle clock starts anew.

        Raises:
            UnknownSequence, SequenceAlreadyEnded: the id is not live.
        """
        now_ns = self._advance(now_ns)
        self._settle(self._find(sequence_id), now_ns)

    def cancel(self, sequence_id: SequenceId, now_ns: int) -> list[SequenceEffect]:
        """The caller leaves. The id is free at once; a row in flight is dropped and counted. Not live: nothing."""
        now_ns = self._advance(now_ns)
        sequence = self._live.get(sequence_id)
        if sequence is None:
            return []
        self._drop_row(sequence, now_ns)
        return [self._forget(sequence, CloseCause.CANCELLED)]

    # The driver's side

    def plan(self, now_ns: int, may_run: MayRun | None = None) -> BatchPlan | None:
        """The next step that is due, of an instance that is idle: which one is the dynamic batcher's choice."""
        now_ns = self._advance(now_ns)
        solo = self._next_solo(may_run)
        if solo is not None:
            instance, asked = solo
            del self._solo_rows[asked.request_id]
            return self._launch(_Flight(requests=(asked.request_id,), batch=None), instance, (asked,), now_ns)
        batch = self._requests.plan(now_ns, self._gate(may_run))
        if batch is None:
            return None
        requests = tuple(request.request_id for request in batch.requests)
        rows = tuple(_row_of(self._asking[request_id]) for request_id in requests)
        return self._launch(_Flight(requests=requests, batch=batch), batch.instance, rows, now_ns)

    def commit(self, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int) -> list[SequenceEffect]:
        """Take a step's result: effects in the order of its rows.

        A row's own error ends its sequence with StepFailed, a failure of the step all of them. A failure with
        ``instance_lost`` ends the sequences of the step with InstanceFailed, and no other but solo ones: the others
        were never the instance's. The result of a sequence that has left is dropped and counted.

        Raises:
            ServiceError: the plan is not in flight, or the result is not one of this plan; nothing has changed.
        """
        now_ns = self._advance(now_ns)
        is_orphan = plan.plan_id in self._orphans
        if not is_orphan and plan.plan_id not in self._flights:
            raise ServiceError(f"plan {plan.plan_id} is not in flight")
        check_result(result, plan.plan_id, len(plan.rows))
        if is_orphan:
            del self._orphans[plan.plan_id]
            self._counts.stale_results += len(plan.rows)
            return []
        flight = self._flights.pop(plan.plan_id)
        del self._busy[plan.instance]
        self._counts.stale_results += sum(request not in self._asking for request in flight.requests)
        if flight.batch is None:
            told = _solo_effects(flight.requests[0], plan, result)
        else:
            told = self._requests.commit(flight.batch, replace(result, plan_id=flight.batch.plan_id), now_ns)
        effects = [effect for each in told for effect in self._told(each, plan, now_ns)]
        if isinstance(result, BatchFailure) and result.instance_lost:
            effects += self._lose(plan.instance, result.error, now_ns)
        return effects

    def lose_instance(self, instance: InstanceIndex, error: str, now_ns: int) -> list[SequenceEffect]:
        """The instance died: sequences with a row on it, and solo ones that ran there, end with InstanceFailed. It
        takes nothing until ``instance_restored``. A result that its step still brings is stale. Lost: nothing.
        """
        now_ns = self._advance(now_ns)
        if instance in self._lost:
            return []
        plan_id = self._busy.pop(instance, None)
        if plan_id is not None:
            del self._flights[plan_id]
            self._orphans[plan_id] = None
            while len(self._orphans) > _REMEMBERED_PLANS:
                self._orphans.popitem(last=False)
        return self._lose(instance, error, now_ns)

    def instance_restored(self, instance: InstanceIndex, now_ns: int) -> list[SequenceEffect]:
        """A lost instance runs again, and remembers nobody.

        Raises:
            ServiceError: it was not lost.
        """
        now_ns = self._advance(now_ns)
        self._requests.instance_restored(instance, now_ns)
        self._lost.discard(instance)
        return []

    def expire(self, now_ns: int) -> list[SequenceEffect]:
        """End idle sequences as by END, the longest idle first; their terminal effect is SequenceLost with IdleTimeout,
        once what was said is read.
        """
        now_ns = self._advance(now_ns)
        while self._waiting and self._config.idle_timeout_ns:
            sequence = next(iter(self._waiting.values()))
            if sequence.idle_since_ns + self._config.idle_timeout_ns > now_ns:
                break
            self._counts.idle += 1
            sequence.parting = IdleTimeout("neither audio nor a keep-alive came in time")
            sequence.queue.push(_NOTHING, now_ns, end=True)
            self._settle(sequence, now_ns)
        return []

    def next_deadline_ns(self, may_run: MayRun | None = None) -> int | None:
        """Earliest time at which ``plan`` or ``expire`` does something without other input; past: it would now."""
        deadlines = [self._requests.next_deadline_ns(self._gate(may_run))]
        solo = self._next_solo(may_run)
        if solo is not None:
            deadlines.append(solo[1].row.ready_at_ns)
        if self._waiting and self._config.idle_timeout_ns:
            deadlines.append(next(iter(self._waiting.values())).idle_since_ns + self._config.idle_timeout_ns)
        return min((at_ns for at_ns in deadlines if at_ns is not None), default=None)

    def stats(self) -> BatcherStats:
        """A snapshot. Sequences are on no instance: they are counted as if they filled one after the other."""
        counts = self._counts
        running = sum(request in self._asking for flight in self._flights.values() for request in flight.requests)
        return BatcherStats(
            live=len(self._live),
            started=counts.started,
            ended=dict(counts.ended),
            refused=dict(counts.refused),
            stale_results=counts.stale_results,
            queued_samples=sum(sequence.queue.queued_samples for sequence in self._live.values()),
            queued_turns=0,
            ready_rows=len(self._asking) - running,
            backlog=0,
            backlog_oldest_ns=0,
            expected_wait_ns=None,
            queued=0,
            placed=0,
            idle=counts.idle,
            restarts=0,
            steps=counts.steps,
            rows=counts.rows,
            padded_slots=0,
            catch_up_ticks=0,
            late_rows=0,
            instances=self._instance_stats(),
        )

    # Sequences

    def _start(self, chunk: Chunk, now_ns: int) -> UnpinnedSequence:
        if chunk.sequence_id in self._live:
            raise DuplicateSequence(f"sequence {chunk.sequence_id} is live")
        solo_on = self._first_instance() if chunk.solo else None
        if not self.free_slots():
            raise CapacityExceeded("as many sequences are live as may be")
        sequence = UnpinnedSequence(
            sequence_id=chunk.sequence_id,
            queue=SampleQueue(self._limits),
            options=chunk.options,
            solo_on=solo_on,
        )
        sequence.push(chunk, now_ns)
        self._live[chunk.sequence_id] = sequence
        self._gone_ids.pop(chunk.sequence_id, None)
        self._counts.started += 1
        return sequence

    def _first_instance(self) -> InstanceIndex:
        for index in range(self._config.instances):
            if InstanceIndex(index) not in self._lost:
                return InstanceIndex(index)
        raise CapacityExceeded("no instance runs now")

    def _find(self, sequence_id: SequenceId) -> UnpinnedSequence:
        sequence = self._live.get(sequence_id)
        if sequence is not None:
            return sequence
        if sequence_id in self._gone_ids:
            raise SequenceAlreadyEnded(f"sequence {sequence_id} has ended")
        raise UnknownSequence(f"sequence {sequence_id} is not live: only START opens one")

    def _open(self, sequence_id: SequenceId) -> UnpinnedSequence:
        sequence = self._find(sequence_id)
        if sequence.queue.is_closed:
            raise SequenceAlreadyEnded(f"sequence {sequence_id} takes nothing after its END")
        return sequence

    def _settle(self, sequence: UnpinnedSequence, now_ns: int) -> None:
        """After a sign of life or an answer: ask for the next row if there is one, else the idle clock starts anew."""
        if sequence.asked is not None:
            return
        if sequence.queue.head is None:
            sequence.idle_since_ns = now_ns
            self._waiting[sequence.sequence_id] = sequence
            self._waiting.move_to_end(sequence.sequence_id)
            return
        self._waiting.pop(sequence.sequence_id, None)
        self._n_requests += 1
        asked = sequence.ask(RequestId(self._n_requests))
        self._asking[asked.request_id] = sequence
        if sequence.solo_on is None:
            self._requests.offer(Request(request_id=asked.request_id, payload=asked.audio), now_ns)
        else:
            self._solo_rows[asked.request_id] = sequence

    def _drop_row(self, sequence: UnpinnedSequence, now_ns: int) -> None:
        """Nobody wants the row that was asked for."""
        if sequence.asked is not None:
            del self._asking[sequence.asked.request_id]
            self._solo_rows.pop(sequence.asked.request_id, None)
            self._requests.cancel(sequence.asked.request_id, now_ns)

    def _forget(self, sequence: UnpinnedSequence, cause: CloseCause | MoorageError) -> SequenceEnded | SequenceLost:
        """The terminal effect; the id is no longer live."""
        del self._live[sequence.sequence_id]
        self._waiting.pop(sequence.sequence_id, None)
        self._gone_ids[sequence.sequence_id] = None
        while len(self._gone_ids) > self._config.max_remembered_ids:
            self._gone_ids.popitem(last=False)
        received = sequence.queue.received_samples
        if isinstance(cause, CloseCause):
            self._counts.ended[cause.value] += 1
            return SequenceEnded(sequence_id=sequence.sequence_id, cause=cause, received_samples=received)
        self._counts.ended[cause.code] += 1
        return SequenceLost(sequence_id=sequence.sequence_id, error=cause, received_samples=received)

    # Steps

    def _gate(self, may_run: MayRun | None) -> MayRun:
        """An instance that runs a solo step is not idle, although the dynamic batcher knows nothing of it."""
        return lambda instance: instance not in self._busy and (may_run is None or may_run(instance))

    def _next_solo(self, may_run: MayRun | None) -> tuple[InstanceIndex, AskedRow] | None:
        """The solo row that may run now and has waited longest, and where."""
        may = self._gate(may_run)
        for sequence in self._solo_rows.values():
            if sequence.solo_on is not None and may(sequence.solo_on):
                return sequence.solo_on, _row_of(sequence)
        return None

    def _launch(self, flight: _Flight, instance: InstanceIndex, asked: tuple[AskedRow, ...], now_ns: int) -> BatchPlan:
        self._n_plans += 1
        self._flights[self._n_plans] = flight
        self._busy[instance] = self._n_plans
        self._counts.steps += 1
        self._counts.rows += len(asked)
        return BatchPlan(
            plan_id=self._n_plans,
            instance=instance,
            rows=tuple(each.row for each in asked),
            audio=tuple(each.audio for each in asked),
            planned_at_ns=now_ns,
        )

    def _told(self, effect: RequestEffect, plan: BatchPlan, now_ns: int) -> list[SequenceEffect]:
        """What a request's end is to its sequence."""
        sequence = self._asking.pop(effect.request_id, None)
        if sequence is None or not isinstance(effect, RequestCompleted | RequestFailed):
            return []
        row, sequence.asked = _row_of(sequence).row, None
        if isinstance(effect, RequestFailed):
            return [self._forget(sequence, effect.error)]
        completed = RowCompleted(
            row=row,
            instance=effect.instance,
            output=effect.output,
            batch_size=effect.batch_size,
            queue_ns=plan.planned_at_ns - row.ready_at_ns,
            step_ns=effect.step_ns,
            plan_id=plan.plan_id,
        )
        if row.end:
            return [completed, self._forget(sequence, sequence.parting or CloseCause.END)]
        self._settle(sequence, now_ns)
        return [completed]

    def _lose(self, instance: InstanceIndex, error: str, now_ns: int) -> list[SequenceEffect]:
        """Rows on the instance die with it, and so do the solo sequences whose state it held."""
        self._lost.add(instance)
        effects: list[SequenceEffect] = []
        for told in self._requests.lose_instance(instance, error, now_ns):
            if isinstance(told, RequestFailed):
                effects.append(self._forget(self._asking.pop(told.request_id), told.error))
        for sequence in [each for each in self._live.values() if each.solo_on == instance]:
            self._drop_row(sequence, now_ns)
            effects.append(self._forget(sequence, InstanceFailed(error)))
        return effects

    def _instance_stats(self) -> tuple[InstanceStats, ...]:
        left, stats = len(self._live), []
        for index in range(self._config.instances):
            instance = InstanceIndex(index)
            slots = self._config.slots_of(instance)
            held = min(left, slots)
            left -= held
            stats.append(
                InstanceStats(
                    slots=slots,
                    slots_held=held,
                    slots_quarantined=0,
                    ready_rows=0,
                    is_lost=instance in self._lost,
                    steps_in_flight=int(instance in self._busy),
                )
            )
        return tuple(stats)

    def _advance(self, now_ns: int) -> int:
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns


def _row_of(sequence: UnpinnedSequence) -> AskedRow:
    assert sequence.asked is not None, "who asks has a row"
    return sequence.asked


def _solo_effects(request_id: RequestId, plan: BatchPlan, result: BatchResult | BatchFailure) -> list[RequestEffect]:
    """What the dynamic batcher would say of a batch of this one request."""
    if isinstance(result, BatchFailure):
        failed = (InstanceFailed if result.instance_lost else StepFailed)(result.error)
        return [RequestFailed(request_id=request_id, error=failed)]
    row = result.rows[0]
    if row.error is not None:
        return [RequestFailed(request_id=request_id, error=StepFailed(row.error))]
    return [
        RequestCompleted(
            request_id=request_id,
            instance=plan.instance,
            output=row.output,
            batch_size=1,
            queue_ns=plan.planned_at_ns - plan.rows[0].ready_at_ns,
            step_ns=result.step_ns,
        )
    ]
