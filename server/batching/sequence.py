"""One sequence: its place, its queue, and its states with their transitions as data.

What it may still be told (END closes its queue) and where its rows stand are separate: the states here are of its rows.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np

from server.batching.sample_queue import PortionKind, SampleQueue, TakenPortion
from server.batching.slots import Lease
from server.batching.turn_queue import TurnQueue
from server.errors import MoorageError, ServiceError
from server.ids import InstanceIndex, SequenceId
from server.plan import BatchRow, Samples, SequenceOptions, Tensors


class SequenceState(Enum):
    """Where a sequence stands."""

    QUEUED = "queued"
    """It waits for a slot."""
    WAITING = "waiting"
    """Nothing to run: no turn, or less than a tick of audio and no mark."""
    READY = "ready"
    """A row can be made."""
    RUNNING = "running"
    """A row is in flight; at most one is (I1)."""
    LEAVING = "leaving"
    """Cancelled with a row in flight: told to the caller already, the slot is freed by the commit."""
    GONE = "gone"
    """Its slot is no longer its own."""


class SequenceInput(Enum):
    """What moves a sequence."""

    PLACED = "placed"
    """It has a slot."""
    PORTION = "portion"
    """A tick, a mark, or a turn is complete."""
    PLANNED = "planned"
    ROW_DONE = "row done"
    END_DONE = "END row done"
    LIFE_DONE = "life done"
    """Its END row is done, but another START stands behind it: the slot is given up, and it goes on in another."""
    ROW_FAILED = "row failed"
    CANCEL = "cancel"
    TIMED_OUT = "timed out"
    """Waited too long for a slot, or was idle and has no END to run."""
    INSTANCE_LOST = "instance lost"


_S = SequenceState
_I = SequenceInput

TRANSITIONS: Final[dict[tuple[SequenceState, SequenceInput], SequenceState]] = {
    (_S.QUEUED, _I.PLACED): _S.WAITING,
    (_S.QUEUED, _I.CANCEL): _S.GONE,
    (_S.QUEUED, _I.TIMED_OUT): _S.GONE,
    (_S.WAITING, _I.PORTION): _S.READY,
    (_S.WAITING, _I.CANCEL): _S.GONE,
    (_S.WAITING, _I.TIMED_OUT): _S.GONE,
    (_S.WAITING, _I.INSTANCE_LOST): _S.GONE,
    (_S.READY, _I.PLANNED): _S.RUNNING,
    (_S.READY, _I.CANCEL): _S.GONE,
    (_S.READY, _I.INSTANCE_LOST): _S.GONE,
    (_S.RUNNING, _I.ROW_DONE): _S.WAITING,
    (_S.RUNNING, _I.END_DONE): _S.GONE,
    (_S.RUNNING, _I.LIFE_DONE): _S.QUEUED,
    (_S.RUNNING, _I.ROW_FAILED): _S.GONE,
    (_S.RUNNING, _I.CANCEL): _S.LEAVING,
    (_S.RUNNING, _I.INSTANCE_LOST): _S.GONE,
    (_S.LEAVING, _I.ROW_DONE): _S.GONE,
    (_S.LEAVING, _I.ROW_FAILED): _S.GONE,
    (_S.LEAVING, _I.INSTANCE_LOST): _S.GONE,
}
"""Everything that may happen; all else is our own mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sequence's state is."""

    instance: InstanceIndex
    lease: Lease
    since_ns: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A sequence from its START to its terminal effect (and, when leaving, to the end of its step)."""

    sequence_id: SequenceId
    queue: SampleQueue | TurnQueue
    options: SequenceOptions | None = None
    """For its first row."""
    priority: int = 0
    """In the backlog."""
    solo: bool = False
    """Its rows run in steps of their own."""
    gives_way: bool = False
    """Somebody who waits for its slot, while its last row runs, counts as having one."""
    state: SequenceState = SequenceState.QUEUED
    place: Place | None = None
    """None: it has no slot, or no longer."""
    is_started: bool = False
    """Whether its first row was planned: that row, and no other, initialises the slot."""
    ready_step: int = 0
    """Steps that its instance had begun when it became ready."""
    ticks: tuple[BatchRow, ...] = ()
    """The row in flight, as rows of one tick each."""
    idle_since_ns: int = 0
    """Last sign of life; counts only while WAITING."""
    parting: MoorageError | None = None
    """Why it was ended, if not by its caller; told after its END row."""

    @property
    def seat(self) -> Place:
        """Its place, of a sequence that has one."""
        assert self.place is not None, "the sequence has no slot"
        return self.place

    @property
    def ready_at_ns(self) -> int:
        """When its next row became ready, of a sequence that has one."""
        head = self.queue.head
        assert head is not None, "a ready sequence has a portion"
        return head.ready_at_ns

    def move(self, happening: SequenceInput) -> None:
        """Take one transition.

        Raises:
            ServiceError: the table has no such transition.
        """
        following = TRANSITIONS.get((self.state, happening))
        if following is None:
            raise ServiceError(f"sequence {self.sequence_id}: {happening.value} while {self.state.value}")
        self.state = following

    def take_row(self, max_ticks: int) -> tuple[BatchRow, Samples | Tensors]:
        """Its next row, now in flight: a turn, a flush, or up to ``max_ticks`` whole ticks that are there."""
        self.move(SequenceInput.PLANNED)
        if isinstance(self.queue, TurnQueue):
            row, payload = self._take_turn(self.queue)
            self.ticks = (row,)
            return row, payload
        taken = [self.queue.take()]
        while not taken[0].portion.is_flush and len(taken) < max_ticks:
            head = self.queue.head
            if head is None or head.is_flush:
                break
            taken.append(self.queue.take())
        self.ticks = tuple(self._audio_row(portion, is_first=not index) for index, portion in enumerate(taken))
        self.is_started = True
        if len(taken) == 1:
            return self.ticks[0], taken[0].samples
        audio = np.concatenate([each.samples for each in taken])
        last = taken[-1].portion
        row = replace(self.ticks[0], n_samples=audio.size, n_ticks=len(taken), ready_at_ns=last.ready_at_ns)
        return row, audio

    def _take_turn(self, queue: TurnQueue) -> tuple[BatchRow, Tensors]:
        queued = queue.take()
        turn = queued.turn
        lease = self.seat.lease
        row = BatchRow(
            slot=lease.slot,
            generation=lease.generation,
            sequence_id=self.sequence_id,
            start=turn.start,
            flush=False,
            end=turn.end,
            first_sample=0,
            n_samples=0,
            ready_at_ns=queued.ready_at_ns,
            request_id=turn.request_id,
            correlation_id=turn.correlation_id,
        )
        return row, turn.tensors

    def _audio_row(self, taken: TakenPortion, *, is_first: bool) -> BatchRow:
        lease = self.seat.lease
        start = is_first and not self.is_started
        return BatchRow(
            slot=lease.slot,
            generation=lease.generation,
            sequence_id=self.sequence_id,
            start=start,
            flush=taken.portion.is_flush,
            end=taken.portion.kind is PortionKind.END,
            first_sample=taken.first_sample,
            n_samples=taken.samples.size,
            ready_at_ns=taken.portion.ready_at_ns,
            options=self.options if start else None,
        )
