"""One sequence: its place, its queue, and its states with their transitions as data.

What it may still be told (END closes its queue) and where its rows stand are separate: the states here are of its rows.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.batching.sample_queue import SampleQueue
from server.batching.slots import Lease
from server.errors import MoorageError, ServiceError
from server.ids import InstanceIndex, SequenceId
from server.plan import SequenceOptions


class SequenceState(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"
    """Nothing to run: less than a tick of audio and no mark."""
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

    PORTION = "portion"
    """A tick or a mark is complete."""
    PLANNED = "planned"
    ROW_DONE = "row done"
    END_DONE = "END row done"
    ROW_FAILED = "row failed"
    CANCEL = "cancel"
    INSTANCE_LOST = "instance lost"


_S = SequenceState
_I = SequenceInput

TRANSITIONS: Final[dict[tuple[SequenceState, SequenceInput], SequenceState]] = {
    (_S.WAITING, _I.PORTION): _S.READY,
    (_S.WAITING, _I.CANCEL): _S.GONE,
    (_S.WAITING, _I.INSTANCE_LOST): _S.GONE,
    (_S.READY, _I.PLANNED): _S.RUNNING,
    (_S.READY, _I.CANCEL): _S.GONE,
    (_S.READY, _I.INSTANCE_LOST): _S.GONE,
    (_S.RUNNING, _I.ROW_DONE): _S.WAITING,
    (_S.RUNNING, _I.END_DONE): _S.GONE,
    (_S.RUNNING, _I.ROW_FAILED): _S.GONE,
    (_S.RUNNING, _I.CANCEL): _S.LEAVING,
    (_S.RUNNING, _I.INSTANCE_LOST): _S.GONE,
    (_S.LEAVING, _I.ROW_DONE): _S.GONE,
    (_S.LEAVING, _I.ROW_FAILED): _S.GONE,
    (_S.LEAVING, _I.INSTANCE_LOST): _S.GONE,
}
"""Everything that may happen; all else is our own mistake."""


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A sequence from its START to its terminal effect (and, when leaving, to the end of its step)."""

    sequence_id: SequenceId
    instance: InstanceIndex
    lease: Lease
    queue: SampleQueue
    options: SequenceOptions | None = None
    """For its first row."""
    state: SequenceState = SequenceState.WAITING
    is_started: bool = False
    """Whether its first row was planned: that row, and no other, initialises the slot."""
    idle_since_ns: int = 0
    """Last sign of life; counts only while WAITING."""
    parting: MoorageError | None = None
    """Why it was ended, if not by its caller; told after its END row."""

    def move(self, happening: SequenceInput) -> None:
        """Take one transition.

        Raises:
            ServiceError: the table has no such transition.
        """
        following = TRANSITIONS.get((self.state, happening))
        if following is None:
            raise ServiceError(f"sequence {self.sequence_id}: {happening.value} while {self.state.value}")
        self.state = following
