"""Who has which slot, and who waits for one: from START to the terminal effect.

A slot that becomes free goes to the first in the backlog: while somebody waits, none is free.
"""

from collections.abc import Sequence as Row
from typing import Final

from server.batching.backlog import Backlog, SlotTurnover
from server.batching.lane import Lane
from server.batching.live_sequences import LiveSequences
from server.batching.placement import choose_lane
from server.batching.sequence import Sequence, SequenceInput, SequenceState
from server.batching.sequence_config import SequenceBatcherConfig
from server.batching.sequence_stats import Counts
from server.batching.waiting_line import WaitingLine
from server.effects import SequenceEffect, SequenceEnded, SequenceLost, SequencePlaced, SequenceQueued
from server.errors import BacklogTimeout, CapacityExceeded, MoorageError
from server.events import CloseCause
from server.ids import SequenceId

HIGHEST: Final = 1
"""Level in the backlog."""
_SECOND_NS: Final = 1_000_000_000
_LONGEST_RETRY_S: Final = 600


class Tenancies:
    """The live sequences and their places; the batcher moves it."""

    def __init__(self, config: SequenceBatcherConfig, lanes: Row[Lane], counts: Counts) -> None:
        """Nobody is live. ``lanes`` and ``counts`` are the batcher's."""
        self.sequences = LiveSequences(config.max_remembered_ids)
        self._config = config
        self._lanes = lanes
        self._counts = counts
        self._backlog = Backlog(config.backlog_levels)
        self._turnover = SlotTurnover()

    def start(self, sequence: Sequence, now_ns: int) -> None:
        """A new sequence gets a slot, or waits for one.

        Raises:
            CapacityExceeded: there is no slot, and no room in the backlog; nothing has changed.
        """
        lane = choose_lane(self._lanes)
        if lane is None and len(self._backlog) >= self._config.backlog + self._n_giving_way():
            line = f", and the line of {self._config.backlog} is full" if self._config.backlog else ""
            raise CapacityExceeded(f"every slot is taken{line}", retry_after_s=self._retry_after_s())
        self.sequences.add(sequence)
        self._counts.started += 1
        if lane is None:
            self._queue(sequence, now_ns, is_told=True)
        else:
            lane.seat(sequence, now_ns)

    def settle(self, sequence: Sequence, now_ns: int) -> None:
        """After a sign of life or a row: line up if there is something to run, else the idle clock starts anew."""
        if sequence.state is not SequenceState.WAITING:
            return
        if sequence.queue.head is None:
            self.sequences.rest(sequence, now_ns)
        else:
            self.sequences.wake(sequence)
            self._lanes[sequence.seat.instance].line_up(sequence)

    def begin_next_life(self, sequence: Sequence, now_ns: int) -> None:
        """Its END has run, and another START stands behind it: it goes on in its slot, unless others wait for one. Then
        it goes to the end of their line, beyond the backlog's bound if need be: of those there is at most one a slot.
        """
        if not len(self._backlog):
            sequence.move(SequenceInput.ROW_DONE)
            self.settle(sequence, now_ns)
            return
        sequence.move(SequenceInput.LIFE_DONE)
        self.give_up_place(sequence, is_clean=True, now_ns=now_ns)
        self._queue(sequence, now_ns, is_told=False)

    def give_up_place(self, sequence: Sequence, *, is_clean: bool, now_ns: int) -> None:
        """Its slot is free, or in doubt; or it waits for one no more."""
        if sequence.place is None:
            self._backlog.remove(sequence.sequence_id)
            return
        self._turnover.note(now_ns - sequence.place.since_ns)
        self._lanes[sequence.place.instance].vacate(sequence, is_clean=is_clean, now_ns=now_ns)

    def forget(self, sequence: Sequence, cause: CloseCause | MoorageError) -> SequenceEnded | SequenceLost:
        """The terminal effect; the id is no longer live."""
        self.sequences.remove(sequence)
        received = sequence.queue.received_samples
        if isinstance(cause, CloseCause):
            self._counts.ended[cause.value] += 1
            return SequenceEnded(sequence_id=sequence.sequence_id, cause=cause, received_samples=received)
        self._counts.ended[cause.code] += 1
        return SequenceLost(sequence_id=sequence.sequence_id, error=cause, received_samples=received)

    # The backlog

    def place_waiting(self, now_ns: int) -> list[SequenceEffect]:
        """Give the free slots to those who wait, in their order; the others are told where they stand now."""
        effects: list[SequenceEffect] = []
        while len(self._backlog) and (lane := choose_lane(self._lanes)) is not None:
            sequence_id, since_ns = self._backlog.pop()
            sequence = self.sequences.find(sequence_id)
            lane.seat(sequence, now_ns)
            self.settle(sequence, now_ns)
            self._counts.placed += 1
            waited_ns = now_ns - since_ns
            effects.append(SequencePlaced(sequence_id=sequence_id, instance=lane.instance, waited_ns=waited_ns))
        return [*effects, *(self._queued(sequence_id, place) for sequence_id, place in self._backlog.moved())]

    def place_in_line(self, sequence_id: SequenceId) -> SequenceQueued | None:
        """Where the sequence stands in the backlog; None: it does not wait for a slot, or for one that is given way."""
        place = self._backlog.place(sequence_id)
        return None if place is None or place <= self._n_giving_way() else self._queued(sequence_id, place)

    def hand_over(self) -> WaitingLine:
        """Those who wait, out of this batcher."""
        places, passed_over = self._backlog.hand_over()
        sequences = tuple(self.sequences.hand_out(place.sequence_id) for place in places)
        return WaitingLine(places=places, passed_over=passed_over, sequences=sequences)

    def take_over(self, line: WaitingLine) -> None:
        """Those of another batcher wait here now, beyond the backlog's bound if need be; nobody else does."""
        for sequence in line.sequences:
            self.sequences.add(sequence)
        self._counts.started += len(line.sequences)
        self._counts.queued += len(line.sequences)
        self._backlog.take_over(line.places, line.passed_over)

    def expire_backlog(self, now_ns: int) -> list[SequenceEffect]:
        """End those that have waited too long for a slot, the longest first."""
        limit_ns = self._config.backlog_wait_ns
        effects: list[SequenceEffect] = []
        for sequence_id in self._backlog.late(now_ns - limit_ns) if limit_ns else ():
            sequence = self.sequences.find(sequence_id)
            sequence.move(SequenceInput.TIMED_OUT)
            self._backlog.remove(sequence_id)
            effects.append(self.forget(sequence, BacklogTimeout("no slot became free in time")))
        return effects

    def backlog_deadline_ns(self) -> int | None:
        """When ``expire_backlog`` ends the next one."""
        oldest_ns = self._backlog.oldest_since_ns
        return (
            oldest_ns + self._config.backlog_wait_ns if oldest_ns is not None and self._config.backlog_wait_ns else None
        )

    @property
    def n_waiting(self) -> int:
        """Sequences that wait for a slot."""
        return len(self._backlog)

    @property
    def oldest_since_ns(self) -> int | None:
        """Since when the one that has waited longest for a slot waits; None: nobody waits."""
        return self._backlog.oldest_since_ns

    def expected_wait_ns(self, place: int | None = None) -> int | None:
        """For a slot, at that place in line; None: at the end of the line. A result of None: nothing is known."""
        if place is None:
            if any(lane.slots.n_free for lane in self._lanes):
                return 0
            place = len(self._backlog) + 1
        n_slots = sum(lane.slots.n_slots for lane in self._lanes if not lane.is_lost)
        return self._turnover.expected_wait_ns(place, n_slots)

    def _queue(self, sequence: Sequence, now_ns: int, *, is_told: bool) -> None:
        has_slot_next = len(self._backlog) < self._n_giving_way()
        priority = HIGHEST if has_slot_next else sequence.priority
        self._counts.queued += 1
        self._backlog.add(sequence.sequence_id, priority, now_ns, is_told=is_told)

    def _n_giving_way(self) -> int:
        """Slots that are free once a row in flight is through, for their tenants have given way."""
        tenants = (tenant for lane in self._lanes for tenant in lane.tenants.values())
        return sum(tenant.gives_way and tenant.state is SequenceState.LEAVING for tenant in tenants)

    def _queued(self, sequence_id: SequenceId, place: int) -> SequenceQueued:
        wait_ns = self.expected_wait_ns(place)
        return SequenceQueued(sequence_id=sequence_id, position=place, expected_wait_ns=wait_ns)

    def _retry_after_s(self) -> int:
        wait_ns = self.expected_wait_ns() or 0
        return min(max(1, -(-wait_ns // _SECOND_NS)), _LONGEST_RETRY_S)
