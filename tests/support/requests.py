"""Small requests and dynamic batchers for tests: what a request should be answered is a number that no other has."""

from dataclasses import replace
from typing import Any

import numpy as np

from server.batching.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig
from server.effects import RequestEffect, RequestFailed
from server.errors import MoorageError
from server.ids import RequestId
from server.plan import BatchFailure, BatchResult, Request, RequestBatch, RowResult, Tensors
from tests.support.factories import make_samples

DYNAMIC_CONFIG = DynamicBatcherConfig(instances=2, target_size=3, max_queued=8, max_batch_samples=60)


def make_dynamic_batcher(**overrides: Any) -> DynamicBatcher:
    """Two instances, batches of three."""
    return DynamicBatcher(replace(DYNAMIC_CONFIG, **overrides))


def make_request(number: int, n_samples: int = 10, **fields: Any) -> Request:
    """A request of counting samples that no other request has."""
    return Request(request_id=RequestId(number), payload=make_samples(n_samples, first=100 * number), **fields)


def make_tensor_request(
    number: int, n_rows: int = 1, length: int = 4, *, inputs: tuple[str, ...] = ("INPUT",), **fields: Any
) -> Request:
    """A request whose inputs are float32 [n_rows, length], full of its number."""
    arrays = {name: np.full((n_rows, length), number, np.float32) for name in inputs}
    return Request(request_id=RequestId(number), payload=Tensors(arrays=arrays, n_rows=n_rows), **fields)


def right_answer(request: Request) -> float:
    """The sum of all that the request holds."""
    if isinstance(request.payload, Tensors):
        return float(sum(array.sum() for array in request.payload.arrays.values()))
    return float(request.payload.sum())


def answers(batch: RequestBatch, *, step_ns: int = 7, errors: tuple[int, ...] = ()) -> BatchResult:
    """Every request's own answer; an error for those whose place in the batch is one of ``errors``."""
    rows = (
        RowResult(error="bad row") if place in errors else RowResult(output=right_answer(request))
        for place, request in enumerate(batch.requests)
    )
    return BatchResult(plan_id=batch.plan_id, rows=tuple(rows), step_ns=step_ns)


def abandoned(batch: RequestBatch) -> BatchFailure:
    """The batch was told to stop, and has."""
    return BatchFailure(plan_id=batch.plan_id, error="abandoned", is_abandoned=True)


def planned(batcher: DynamicBatcher, now_ns: int = 0) -> RequestBatch:
    """The batch that is due."""
    batch = batcher.plan(now_ns)
    assert batch is not None
    return batch


def numbers(batch: RequestBatch) -> list[int]:
    """The ids in it."""
    return [request.request_id for request in batch.requests]


def assert_failed(effect: RequestEffect, number: int, error: type[MoorageError], message: str) -> None:
    """The request failed, of that error."""
    assert isinstance(effect, RequestFailed)
    assert effect.request_id == number
    assert type(effect.error) is error
    assert str(effect.error) == message
