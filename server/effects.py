"""What the batchers decide, told to their driver in order: the only record of a transition.

Every sequence and every request gets exactly one terminal effect, whatever fails (I4).
"""

from dataclasses import dataclass

from server.errors import MoorageError
from server.events import CloseCause
from server.ids import InstanceIndex, RequestId, SequenceId
from server.plan import BatchRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCompleted:
    """A row's output, and what it waited for."""

    row: BatchRow
    instance: InstanceIndex
    output: object | None
    batch_size: int
    """Rows of the step."""
    queue_ns: int
    """From the row being ready to its step being planned."""
    step_ns: int
    plan_id: int = 0
    """The step, for whoever looks for what went wrong in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceQueued:
    """A sequence that waits for a slot has moved up; the first place is told by ``place_in_line``."""

    sequence_id: SequenceId
    position: int
    """1 is next."""
    expected_wait_ns: int | None
    """None: nothing is known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlaced:
    """A sequence that waited has a slot now."""

    sequence_id: SequenceId
    instance: InstanceIndex
    waited_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceEnded:
    """Terminal: after the END row, or at once when cancelled."""

    sequence_id: SequenceId
    cause: CloseCause
    received_samples: int
    """Samples that were accepted over the sequence's life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceLost:
    """Terminal: StepFailed, InstanceFailed, IdleTimeout, or BacklogTimeout."""

    sequence_id: SequenceId
    error: MoorageError
    received_samples: int


SequenceEffect = RowCompleted | SequenceQueued | SequencePlaced | SequenceEnded | SequenceLost


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCompleted:
    """Terminal: the request's own output out of its batch."""

    request_id: RequestId
    instance: InstanceIndex
    output: object | None
    batch_size: int
    queue_ns: int
    """From the request's arrival to its batch being planned."""
    step_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """Terminal: StepFailed, InstanceFailed, or RequestTimeout."""

    request_id: RequestId
    error: MoorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelled:
    """Terminal: the caller left. A result that still comes is dropped."""

    request_id: RequestId


RequestEffect = RequestCompleted | RequestFailed | RequestCancelled
