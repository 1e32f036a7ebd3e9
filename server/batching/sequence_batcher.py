"""The sequence batcher: pins every sequence to one slot of one instance and packs ready rows into steps.

Pure: no asyncio, torch, sockets, threads, clocks, logging or randomness. Time is the argument ``now_ns``; time that
goes back counts as standing still. What happens comes out of the verbs as effects, in order. Upholds I1–I5, I7, I9 and
I11.

    offer / touch / cancel      from the caller
    plan  -> a step to run      call until None after any other verb and at ``next_deadline_ns``
    commit -> effects           exactly once for every plan
    expire -> effects           at ``next_deadline_ns``
    lose_instance / instance_restored
    hand_over, take_over        of those who wait for a slot, where another batcher follows this one

A slot that becomes free goes to the first in the backlog at once, in the same verb: while somebody waits, none is free.
"""

from typing import Final

import numpy as np

from server.batching.admission import check_audio
from server.batching.lane import Lane
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence, SequenceInput, SequenceState
from server.batching.sequence_config import DuplicateStart, SequenceBatcherConfig, Strategy
from server.batching.sequence_stats import BatcherStats, Counts, InstanceStats
from server.batching.steps import MayRun, Steps
from server.batching.tenancies import Tenancies
from server.batching.turn_queue import TurnQueue
from server.batching.waiting_line import WaitingLine
from server.effects import SequenceEffect, SequenceQueued
from server.errors import (
    BadTensor,
    DuplicateSequence,
    IdleTimeout,
    MissingStart,
    MoorageError,
    ServiceError,
    UnknownSequence,
)
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId
from server.plan import BatchFailure, BatchPlan, BatchResult, Chunk, Turn

__all__ = [
    "BatcherStats",
    "DuplicateStart",
    "InstanceStats",
    "SequenceBatcher",
    "SequenceBatcherConfig",
    "Strategy",
]

_NOTHING: Final = np.empty(0, dtype=np.float32)


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
        self._lanes = [Lane(InstanceIndex(index), config) for index in range(config.instances)]
        self._latest_ns = 0
        self._counts = Counts()
        self._tenancies = Tenancies(config, self._lanes, self._counts)
        self._sequences = self._tenancies.sequences
        self._steps = Steps(config, self._lanes, self._tenancies, self._counts)

    # The caller's side

    def offer(self, item: Chunk | Turn, now_ns: int) -> None:
        """Take a chunk, or a turn, whole or nothing of it. A START that finds no slot free waits in the backlog, if
        there is room: ``place_in_line`` tells at which place. What it sends meanwhile is queued as ever.

        Raises:
            DuplicateSequence: START for a live id, which may not start again.
            MissingStart, UnknownSequence: no START, and the id is not live (a turn, a chunk).
            SequenceAlreadyEnded: END was offered before, or the sequence is gone.
            BadAudio: not float32 [N], or not finite.
            BadTensor: a turn that is not one row.
            CapacityExceeded: START, no slot is free, and no room in the backlog.
            QueueFull: the sequence's queue has no room for all of it; see ``room``.
        """
        assert isinstance(item, Turn) == self._config.takes_turns, "chunks and turns are for different models"
        now_ns = self._advance(now_ns)
        try:
            sequence = self._take_turn(item, now_ns) if isinstance(item, Turn) else self._take_chunk(item, now_ns)
        except MoorageError as error:
            self._counts.refused[error.code] += 1
            raise
        self._tenancies.settle(sequence, now_ns)

    def room(self, sequence_id: SequenceId) -> int:
        """Samples, or turns, of the sequence that fit now; grows with plans.

        Raises:
            UnknownSequence, SequenceAlreadyEnded: it takes none at all.
        """
        queue = self._sequences.open(sequence_id).queue
        return queue.room_samples if isinstance(queue, SampleQueue) else queue.room

    def free_slots(self) -> int:
        """New sequences that would get a slot now."""
        return sum(lane.slots.n_free for lane in self._lanes)

    def place_in_line(self, sequence_id: SequenceId) -> SequenceQueued | None:
        """Where the sequence stands in the backlog; None: it does not wait for a slot, or for one that is given way."""
        return self._tenancies.place_in_line(sequence_id)

    def touch(self, sequence_id: SequenceId, now_ns: int) -> None:
        """Keep-alive: the idle clock starts anew.

        Raises:
            UnknownSequence, SequenceAlreadyEnded: the id is not live.
        """
        now_ns = self._advance(now_ns)
        self._tenancies.settle(self._sequences.find(sequence_id), now_ns)

    def cancel(self, sequence_id: SequenceId, now_ns: int) -> list[SequenceEffect]:
        """The caller leaves. The id is free at once, the slot too unless a row is in flight. Not live: nothing."""
        now_ns = self._advance(now_ns)
        sequence = self._sequences.get(sequence_id)
        if sequence is None:
            return []
        sequence.move(SequenceInput.CANCEL)
        if sequence.state is SequenceState.GONE:
            self._tenancies.give_up_place(sequence, is_clean=True, now_ns=now_ns)
        return [self._tenancies.forget(sequence, CloseCause.CANCELLED), *self._tenancies.place_waiting(now_ns)]

    # The driver's side

    def plan(self, now_ns: int, may_run: MayRun | None = None) -> BatchPlan | None:
        """The next step that is due, of an instance that may run one: that with the earliest deadline first.

        On an instance the rows that became able to run first go first, or those with the earliest deadline. None waits
        without bound: in its order for a round of the others' rows (a round is slots over rows of a step), with
        deadlines for two; a row that no other can go with (``solo``, a shape of its own) until it is the first in line.
        """
        return self._steps.begin(self._advance(now_ns), may_run)

    def commit(self, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int) -> list[SequenceEffect]:
        """Take a step's result: effects in the order of its rows, then those of the slots it has freed.

        A row's own error ends its sequence with StepFailed, a failure of the step all of them; their slots are in
        doubt. A failure with ``instance_lost`` ends every sequence of the instance with InstanceFailed. The result of a
        sequence that has left is dropped and counted.

        Raises:
            ServiceError: the plan is not in flight, or the result is not one of this plan; nothing has changed.
        """
        return self._steps.end(plan, result, self._advance(now_ns))

    def lose_instance(self, instance: InstanceIndex, error: str, now_ns: int) -> list[SequenceEffect]:
        """The instance died, in a step or between steps: its sequences end with InstanceFailed, its slots are in doubt
        and it takes nothing until ``instance_restored``. Results that its steps still bring are stale. Lost: nothing.
        """
        now_ns = self._advance(now_ns)
        lane = self._lanes[instance]
        return [] if lane.is_lost else self._steps.lose(lane, (), error, now_ns)

    def instance_restored(self, instance: InstanceIndex, now_ns: int) -> list[SequenceEffect]:
        """A lost instance runs again. Its slots are scrubbed before they are used.

        Raises:
            ServiceError: it was not lost.
        """
        now_ns = self._advance(now_ns)
        lane = self._lanes[instance]
        if not lane.is_lost:
            raise ServiceError(f"instance {instance} was not lost")
        lane.is_lost = False
        return self._tenancies.place_waiting(now_ns)

    def hand_over(self, now_ns: int) -> WaitingLine:
        """Those who wait for a slot leave for another batcher, which takes them with ``take_over``. Here they are
        unknown then, and nobody is told anything.
        """
        self._advance(now_ns)
        return self._tenancies.hand_over()

    def take_over(self, line: WaitingLine, now_ns: int) -> list[SequenceEffect]:
        """Those who waited in another batcher of the model wait here now, or have a slot: with all that they have sent,
        in their order, since when they have. Before the first of one's own: nobody waits here.
        """
        now_ns = self._advance(now_ns)
        for sequence in line.sequences:
            assert isinstance(sequence.queue, TurnQueue) == self._config.takes_turns, "copies of the same model"
            if isinstance(sequence.queue, SampleQueue):
                sequence.queue = sequence.queue.cut_anew(self._limits, now_ns)
            else:
                sequence.queue = sequence.queue.moved(self._config.max_queued_turns, self._config.ragged)
        self._tenancies.take_over(line)
        return self._tenancies.place_waiting(now_ns)

    def expire(self, now_ns: int) -> list[SequenceEffect]:
        """End what has waited for too long, the longest first: for a slot (SequenceLost with BacklogTimeout), or for a
        sign of life: neither audio nor keep-alive for the idle timeout, counted from the last row and from getting a
        slot at the earliest, and nothing to run. Less than a tick of audio is nothing to run.

        Idle ones end as by END, so that what they have said is read to its end; their terminal effect is SequenceLost
        with IdleTimeout, after that row. Sequences of turns have nothing more to be read, and end here.
        """
        now_ns = self._advance(now_ns)
        effects = self._tenancies.expire_backlog(now_ns)
        while (sequence := self._sequences.longest_idle) is not None and self._config.idle_timeout_ns:
            if sequence.idle_since_ns + self._config.idle_timeout_ns > now_ns:
                break
            self._counts.idle += 1
            if isinstance(sequence.queue, SampleQueue):
                sequence.parting = IdleTimeout("neither audio nor a keep-alive came in time")
                sequence.queue.push(_NOTHING, now_ns, end=True)
                self._tenancies.settle(sequence, now_ns)
            else:
                sequence.move(SequenceInput.TIMED_OUT)
                self._tenancies.give_up_place(sequence, is_clean=True, now_ns=now_ns)
                effects.append(self._tenancies.forget(sequence, IdleTimeout("no turn came in time")))
        return [*effects, *self._tenancies.place_waiting(now_ns)]

    def next_deadline_ns(self, may_run: MayRun | None = None) -> int | None:
        """Earliest time at which ``plan`` or ``expire`` does something without other input; past: it would now."""
        deadlines = [
            at_ns
            for lane in self._lanes
            if (at_ns := lane.due_at_ns()) is not None and (may_run is None or may_run(lane.instance))
        ]
        idle, backlog_ns = self._sequences.longest_idle, self._tenancies.backlog_deadline_ns()
        if idle is not None and self._config.idle_timeout_ns:
            deadlines.append(idle.idle_since_ns + self._config.idle_timeout_ns)
        if backlog_ns is not None:
            deadlines.append(backlog_ns)
        return min(deadlines, default=None)

    def stats(self) -> BatcherStats:
        """A snapshot; looks at every live sequence."""
        counts, oldest_ns = self._counts, self._tenancies.oldest_since_ns
        queues = [sequence.queue for sequence in self._sequences]
        return BatcherStats(
            live=len(self._sequences),
            started=counts.started,
            ended=dict(counts.ended),
            refused=dict(counts.refused),
            stale_results=counts.stale_results,
            queued_samples=sum(queue.queued_samples for queue in queues),
            queued_turns=sum(len(queue) for queue in queues if isinstance(queue, TurnQueue)),
            ready_rows=sum(len(lane.ready) for lane in self._lanes),
            backlog=self._tenancies.n_waiting,
            backlog_oldest_ns=0 if oldest_ns is None else self._latest_ns - oldest_ns,
            expected_wait_ns=self._tenancies.expected_wait_ns(),
            queued=counts.queued,
            placed=counts.placed,
            idle=counts.idle,
            restarts=counts.restarts,
            steps=counts.steps,
            rows=counts.rows,
            padded_slots=counts.padded_slots,
            catch_up_ticks=counts.catch_up_ticks,
            late_rows=counts.late_rows,
            instances=tuple(_instance_stats(lane) for lane in self._lanes),
        )

    # What is taken in

    def _take_chunk(self, chunk: Chunk, now_ns: int) -> Sequence:
        check_audio(chunk.samples)
        if chunk.start:
            if self._sequences.get(chunk.sequence_id) is not None:
                raise DuplicateSequence(f"sequence {chunk.sequence_id} is live")
            queue = SampleQueue(self._limits)
        else:
            sequence = self._sequences.open(chunk.sequence_id)
            assert isinstance(sequence.queue, SampleQueue), "a sequence of chunks"
            queue = sequence.queue
        queue.push(chunk.samples, now_ns, finalize=chunk.finalize, end=chunk.end)
        if chunk.start:
            sequence = Sequence(
                sequence_id=chunk.sequence_id,
                queue=queue,
                options=chunk.options,
                priority=chunk.priority,
                solo=chunk.solo,
                gives_way=chunk.gives_way,
            )
            self._tenancies.start(sequence, now_ns)
        sequence.parting = chunk.parting
        return sequence

    def _take_turn(self, turn: Turn, now_ns: int) -> Sequence:
        if turn.tensors.n_rows != 1:
            raise BadTensor(f"a turn of a sequence is one row, not {turn.tensors.n_rows}")
        sequence = self._sequences.get(turn.sequence_id) if turn.start else self._continued(turn.sequence_id)
        if sequence is None:
            queue = TurnQueue(self._config.max_queued_turns, self._config.ragged)
            queue.push(turn, now_ns)
            sequence = Sequence(sequence_id=turn.sequence_id, queue=queue, priority=turn.priority)
            self._tenancies.start(sequence, now_ns)
            return sequence
        if turn.start and self._config.duplicate_start is DuplicateStart.REFUSE:
            raise DuplicateSequence(f"sequence {turn.sequence_id} is live")
        assert isinstance(sequence.queue, TurnQueue), "a sequence of turns"
        sequence.queue.push(turn, now_ns)
        self._counts.restarts += turn.start
        return sequence

    def _continued(self, sequence_id: SequenceId) -> Sequence:
        try:
            return self._sequences.open(sequence_id)
        except UnknownSequence as error:
            raise MissingStart(f"sequence {sequence_id} is not live: its first turn must say START") from error

    def _advance(self, now_ns: int) -> int:
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns


def _instance_stats(lane: Lane) -> InstanceStats:
    return InstanceStats(
        slots=lane.slots.n_slots,
        slots_held=lane.slots.n_held,
        slots_quarantined=lane.slots.n_quarantined,
        ready_rows=len(lane.ready),
        is_lost=lane.is_lost,
        steps_in_flight=len(lane.in_flight),
        expected_step_ns=lane.expected_step_ns(),
    )
