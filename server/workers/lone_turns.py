"""A stateful model that takes tensors under the dynamic batcher: what becomes of it there."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from server.plan import BatchFailure, BatchPlan, RequestBatch, RowResult, Tensors
from server.workers.orders import BatchOutcome
from server.workers.tensor_instance import TensorStreamingInstance, turn_row


def run_lone_turns(instance: TensorStreamingInstance, batch: RequestBatch) -> BatchOutcome:
    """One batch: every row of a request is a sequence of one turn, since nobody says what came before it. The model is
    not to blame for the answers, and nothing reports an error.
    """
    turns = [turn for request in batch.requests for turn in _turns(request.tensors)]
    rows = tuple(turn_row(slot, start=True, end=True) for slot in range(len(turns)))
    plan = BatchPlan(plan_id=batch.plan_id, instance=batch.instance, rows=rows, audio=(), tensors=tuple(turns))
    outcome = instance.run_step(plan)
    if isinstance(outcome, BatchFailure):
        return outcome
    results, first = [], 0
    for request in batch.requests:
        n_rows = request.tensors.n_rows
        results.append(_joined(outcome.rows[first : first + n_rows]))
        first += n_rows
    return replace(outcome, rows=tuple(results))


def _turns(request: Tensors) -> list[Tensors]:
    return [
        Tensors(arrays={name: array[row : row + 1] for name, array in request.arrays.items()})
        for row in range(request.n_rows)
    ]


def _joined(rows: Sequence[RowResult]) -> RowResult:
    """A request's rows as one answer; a row that failed fails its request."""
    errors = [row.error for row in rows if row.error is not None]
    if errors:
        return RowResult(error=errors[0])
    answers = [row.output for row in rows if isinstance(row.output, Tensors)]
    arrays = {name: np.concatenate([answer.arrays[name] for answer in answers]) for name in answers[0].arrays}
    return RowResult(output=Tensors(arrays=arrays, n_rows=len(rows)))
