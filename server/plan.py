"""What crosses between a batcher and an instance: plans there, results back. All frozen, all flat.

The audio of a row travels beside it and is opaque to the batcher, apart from its length.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from server.errors import MoorageError
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex

Samples = NDArray[np.float32]
"""float32 [N], 16 kHz, in [-1, 1]."""


LEAST_ENDPOINT_SILENCE_MS: Final = 10
MOST_ENDPOINT_SILENCE_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceOptions:
    """What a client asked of its sequence; fixed at START."""

    endpoint_silence_ms: int | None = None
    """Silence that ends an utterance, 10 to 10000. None: the model's own settings. 0: silence ends none; Finalize, END
    and the maximum length do. The model decides at ticks, so that less than a tick acts as one tick."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ValueError: a value is out of its bounds.
        """
        silence_ms = self.endpoint_silence_ms
        if silence_ms and not LEAST_ENDPOINT_SILENCE_MS <= silence_ms <= MOST_ENDPOINT_SILENCE_MS:
            allowed = f"0 or {LEAST_ENDPOINT_SILENCE_MS} to {MOST_ENDPOINT_SILENCE_MS}"
            raise ValueError(f"endpoint_silence_ms must be {allowed}, not {silence_ms}")


NOTHING_ASKED: Final = SequenceOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Audio offered to a sequence, with what stands before it (START) and after it (Finalize, END)."""

    sequence_id: SequenceId
    samples: Samples
    start: bool = False
    """Opens the sequence; takes a slot or is refused."""
    finalize: bool = False
    """After these samples, flush: end the utterance, go on with the sequence."""
    end: bool = False
    """After these samples, flush and end the sequence."""
    parting: MoorageError | None = None
    """Why it is ended, if not because its caller is done (with END): its terminal effect then is that error."""
    options: SequenceOptions | None = None
    """Only with ``start``; None: nothing was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One sequence's part in a step: either one whole tick, or a flush of the samples since the last tick."""

    slot: SlotIndex
    generation: int
    """Tenancy of the slot; a result that names another one is stale and dropped."""
    sequence_id: SequenceId
    start: bool
    """Initialise the slot inside this step, before anything else."""
    flush: bool
    """The samples are the unfinished tick, read on scratch: they are not consumed and come again with the tick."""
    end: bool
    """The sequence ends with this row (only with ``flush``)."""
    first_sample: int
    """Position of the row's first sample in the sequence."""
    n_samples: int
    """Samples of this row; 0 for a flush on a tick boundary."""
    ready_at_ns: int
    """When the last of its samples had arrived: what queue time counts from."""
    options: SequenceOptions | None = None
    """With ``start`` and with no other row; None: nothing was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """One step of one instance."""

    plan_id: int
    instance: InstanceIndex
    rows: tuple[BatchRow, ...]
    audio: tuple[Samples, ...]
    """float32 [n_samples] of each row."""
    scrub: tuple[SlotIndex, ...] = ()
    """Quarantined slots to re-initialise and prove clean before they are used again."""
    planned_at_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What a step says of one row: an output, or the error that ended it."""

    output: object | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """A step that ran. ``rows`` is parallel to the plan's rows."""

    plan_id: int
    rows: tuple[RowResult, ...]
    scrubbed: tuple[SlotIndex, ...] = ()
    """Slots of the plan's ``scrub`` that are proved clean."""
    step_ns: int = 0
    """Time on the instance, from plan to result."""
    counters: dict[str, int] = field(default_factory=dict)
    """Work done: encoder_frames, cross_frames, decoder_passes, decoder_positions, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFailure:
    """A step that did not run to its end: every row fails, every slot of it is in doubt."""

    plan_id: int
    error: str
    instance_lost: bool = False
    """The instance itself is gone, with all of its slots."""
    is_abandoned: bool = False
    """It was told to stop, and has said nothing of any row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to a stateless model."""

    request_id: RequestId
    samples: Samples
    is_early: bool = False
    """Perhaps nobody will want it: it runs where there is nothing else to do, and gives way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBatch:
    """Requests that run together on one instance of a stateless model."""

    plan_id: int
    instance: InstanceIndex
    requests: tuple[Request, ...]
    queued_at_ns: tuple[int, ...]
    planned_at_ns: int = 0
