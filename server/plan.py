"""What crosses between a batcher and an instance: plans there, results back. All frozen, all flat.

The audio of a row, or the tensors of a turn, travel beside it and are opaque to the batcher, apart from their size and
shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from server.errors import MoorageError
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex

Samples = NDArray[np.float32]
"""float32 [N], 16 kHz, in [-1, 1]."""

CorrelationId = int | str
"""Of a sequence, as its client gave it: a uint64 above 0, or a text that is not empty. 42 and "42" are two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """The named inputs, or outputs, of one request to a model that does not listen."""

    arrays: Mapping[str, NDArray[Any]]
    """By name, each [n_rows, …]. Texts are object arrays of ``bytes``."""
    n_rows: int = 1
    """Rows that the request takes of a batch; 1 for a turn of a sequence."""

    @property
    def shape_key(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """What two requests must share to be one batch without padding: names, types, shapes behind the rows."""
        return tuple(
            (name, array.dtype.str, array.shape[1:]) for name, array in sorted(self.arrays.items(), key=lambda a: a[0])
        )


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
    priority: int = 0
    """Only with ``start``: its level in the backlog, 1 is the highest; 0: the lowest there is."""
    solo: bool = False
    """Only with ``start``: its rows run in steps of their own, as if nobody else were there; audits want that."""
    gives_way: bool = False
    """Only with ``start``: it has its slot for as long as nobody else wants it. Once it was cancelled with a row in
    flight, the next START that finds no slot free waits for that row and then has the slot, ahead of all and beyond the
    backlog's bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a sequence to a stateful model that takes tensors: it is one row, answered by one output."""

    sequence_id: SequenceId
    request_id: RequestId
    correlation_id: CorrelationId
    tensors: Tensors
    start: bool = False
    """Opens the sequence, or starts it again where the batcher allows that."""
    end: bool = False
    """The sequence ends with this turn."""
    priority: int = 0
    """As of ``Chunk``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One sequence's part in a step: whole ticks (one, or several of a late sequence), a flush of the samples since the
    last tick, or one turn.
    """

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
    n_ticks: int = 1
    """Whole ticks in ``n_samples``; 1 for a flush and for a turn."""
    request_id: RequestId | None = None
    """The turn's; None: the row is audio."""
    correlation_id: CorrelationId | None = None
    """The turn's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpan:
    """Neighbouring slots of an instance."""

    first: SlotIndex
    n_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """One step of one instance."""

    plan_id: int
    instance: InstanceIndex
    rows: tuple[BatchRow, ...]
    audio: tuple[Samples, ...]
    """float32 [n_samples] of each row; () where rows are turns."""
    tensors: tuple[Tensors, ...] = ()
    """Of each row; () where rows are audio."""
    span: SlotSpan | None = None
    """Strategy ``direct``: the slots that the step runs over as they lie, rows ascending by slot; a slot of the span
    without a row is masked. None: the rows are gathered."""
    scrub: tuple[SlotIndex, ...] = ()
    """Quarantined slots to re-initialise and prove clean before they are used again."""
    vacated: tuple[SlotIndex, ...] = ()
    """Slots that have had no tenant since the plan before: what their tenants shared with others is free. A row of the
    plan may start on one of them."""
    planned_at_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What a step says of one row: an output, or the error that ended it."""

    output: object | None = None
    """``Tensors`` of a turn."""
    error: str | None = None
    earlier: tuple[object, ...] = ()
    """Outputs of the row's ticks before the last, in order; as if each had been a row of its own."""


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
    payload: Samples | Tensors
    is_early: bool = False
    """Perhaps nobody will want it: it runs where there is nothing else to do, and gives way."""
    priority: int = 0
    """Level in the queue, 1 is the highest; 0: the batcher's default level."""
    timeout_ns: int | None = None
    """Time it may wait for its batch; None: as the queue's policy says. May only shorten that."""
    deadline_ns: int | None = None
    """When its answer should be there; the batch that would miss its deadline goes first. None: as its level says."""

    @property
    def samples(self) -> Samples:
        """The audio of a request to a model that listens."""
        assert not isinstance(self.payload, Tensors), "the request has tensors"
        return self.payload

    @property
    def tensors(self) -> Tensors:
        """The inputs of a request to a model that takes tensors."""
        assert isinstance(self.payload, Tensors), "the request has audio"
        return self.payload


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBatch:
    """Requests that run together on one instance of a stateless model."""

    plan_id: int
    instance: InstanceIndex
    requests: tuple[Request, ...]
    queued_at_ns: tuple[int, ...]
    planned_at_ns: int = 0
