"""Small batchers and chunks for tests: ticks of 10 samples, complete with 3 more."""

from dataclasses import replace

import numpy as np

from server.batching.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig
from server.batching.sequence_batcher import SequenceBatcher, SequenceBatcherConfig
from server.ids import RequestId, SequenceId
from server.plan import BatchPlan, BatchResult, Chunk, Request, RowResult, Samples

TICK = 10
LOOKAHEAD = 3
FIRST_TICK = TICK + LOOKAHEAD

SEQUENCE_CONFIG = SequenceBatcherConfig(
    instances=2,
    slots=2,
    tick_samples=TICK,
    lookahead_samples=LOOKAHEAD,
    max_batch=4,
    max_queued_samples=60,
    max_queued_marks=4,
    scrub_retry_ns=100,
)
DYNAMIC_CONFIG = DynamicBatcherConfig(instances=2, target_size=3, max_queued=8, max_batch_samples=60)


def make_sequence_config(**overrides: int) -> SequenceBatcherConfig:
    """Two instances of two slots, unless told otherwise."""
    return replace(SEQUENCE_CONFIG, **overrides)


def make_sequence_batcher(**overrides: int) -> SequenceBatcher:
    """A batcher of ``make_sequence_config``."""
    return SequenceBatcher(make_sequence_config(**overrides))


def make_dynamic_batcher(**overrides: int) -> DynamicBatcher:
    """Two instances, batches of three."""
    return DynamicBatcher(replace(DYNAMIC_CONFIG, **overrides))


def make_samples(n_samples: int, first: int = 1) -> Samples:
    """float32 [N]: first, first + 1, …"""
    return np.arange(first, first + n_samples, dtype=np.float32)


def make_chunk(
    name: str, n_samples: int = 0, *, first: int = 1, start: bool = False, finalize: bool = False, end: bool = False
) -> Chunk:
    """A chunk of counting samples."""
    samples = make_samples(n_samples, first)
    return Chunk(sequence_id=SequenceId(name), samples=samples, start=start, finalize=finalize, end=end)


def make_request(number: int, n_samples: int = 10) -> Request:
    """A request of counting samples that no other request has."""
    return Request(request_id=RequestId(number), samples=make_samples(n_samples, first=100 * number))


def answer(plan: BatchPlan, *, error: str | None = None, scrubbed: bool = True) -> BatchResult:
    """A result for every row of a plan: its sequence's id, or the error."""
    rows = tuple(RowResult(output=None if error else row.sequence_id, error=error) for row in plan.rows)
    return BatchResult(plan_id=plan.plan_id, rows=rows, scrubbed=plan.scrub if scrubbed else (), step_ns=7)
