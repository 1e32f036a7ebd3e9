"""Turns of sequences and requests for instances of models that take tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import (
    BatchFailure,
    BatchPlan,
    BatchResult,
    BatchRow,
    CorrelationId,
    Request,
    RequestBatch,
    SlotSpan,
    Tensors,
)

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """A turn and the slot that it goes to."""

    slot: int
    arrays: Arrays
    start: bool = False
    end: bool = False
    correlation_id: CorrelationId = 7


def ints(*values: int) -> NDArray[np.int32]:
    """int32 [1, N]."""
    return np.array([values], dtype=np.int32)


def floats(*values: float) -> NDArray[np.float32]:
    """float32 [1, N]."""
    return np.array([values], dtype=np.float32)


def texts(*values: str) -> NDArray[np.object_]:
    """Texts [1, N]."""
    array = np.empty((1, len(values)), dtype=np.object_)
    array[0, :] = [value.encode() for value in values]
    return array


def turn_plan(
    rows: Sequence[TurnRow], *, is_direct: bool = False, scrub: Sequence[int] = (), vacated: Sequence[int] = ()
) -> BatchPlan:
    """A step of these turns."""
    first = min((each.slot for each in rows), default=0)
    n_slots = max((each.slot for each in rows), default=0) + 1 - first
    return BatchPlan(
        plan_id=5,
        instance=InstanceIndex(0),
        rows=tuple(_row(each) for each in rows),
        audio=(),
        tensors=tuple(Tensors(arrays=each.arrays) for each in rows),
        span=SlotSpan(first=SlotIndex(first), n_slots=n_slots) if is_direct else None,
        scrub=tuple(SlotIndex(slot) for slot in scrub),
        vacated=tuple(SlotIndex(slot) for slot in vacated),
    )


def request_batch(*requests: Arrays) -> RequestBatch:
    """A batch of these requests, with as many rows as their arrays have."""
    made = tuple(
        Request(request_id=RequestId(i), payload=Tensors(arrays=arrays, n_rows=len(next(iter(arrays.values())))))
        for i, arrays in enumerate(requests)
    )
    return RequestBatch(plan_id=9, instance=InstanceIndex(0), requests=made, queued_at_ns=(0,) * len(made))


def answers(outcome: BatchResult | BatchFailure) -> list[dict[str, list[Any]]]:
    """What each row or request was answered, as lists."""
    assert isinstance(outcome, BatchResult), outcome
    told = []
    for row in outcome.rows:
        assert row.error is None, row
        assert isinstance(row.output, Tensors)
        told.append({name: array.tolist() for name, array in row.output.arrays.items()})
    return told


def errors(outcome: BatchResult | BatchFailure) -> list[str | None]:
    """What was wrong with each row or request."""
    assert isinstance(outcome, BatchResult), outcome
    return [row.error for row in outcome.rows]


def _row(turn: TurnRow) -> BatchRow:
    row = BatchRow(
        slot=SlotIndex(turn.slot),
        generation=1,
        sequence_id=SequenceId(f"s{turn.slot}"),
        start=turn.start,
        flush=False,
        end=turn.end,
        first_sample=0,
        n_samples=0,
        ready_at_ns=0,
    )
    return replace(row, request_id=RequestId(turn.slot), correlation_id=turn.correlation_id)
