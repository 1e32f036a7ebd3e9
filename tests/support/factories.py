"""Small batchers and chunks for tests: ticks of 10 samples, complete with 3 more."""

from dataclasses import replace
from typing import Any

import numpy as np

from server.batching.sequence_batcher import SequenceBatcher, SequenceBatcherConfig
from server.ids import RequestId, SequenceId
from server.plan import BatchPlan, BatchResult, Chunk, RowResult, Samples, Tensors, Turn

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


def make_sequence_config(**overrides: Any) -> SequenceBatcherConfig:
    """Two instances of two slots, unless told otherwise."""
    return replace(SEQUENCE_CONFIG, **overrides)


def make_sequence_batcher(**overrides: Any) -> SequenceBatcher:
    """A batcher of ``make_sequence_config``."""
    return SequenceBatcher(make_sequence_config(**overrides))


def make_samples(n_samples: int, first: int = 1) -> Samples:
    """float32 [N]: first, first + 1, …"""
    return np.arange(first, first + n_samples, dtype=np.float32)


def make_chunk(
    name: str, n_samples: int = 0, *, first: int = 1, start: bool = False, finalize: bool = False, end: bool = False
) -> Chunk:
    """A chunk of counting samples."""
    samples = make_samples(n_samples, first)
    return Chunk(sequence_id=SequenceId(name), samples=samples, start=start, finalize=finalize, end=end)


def make_turn(
    name: str,
    number: int = 0,
    *,
    shape: tuple[int, ...] = (1,),
    start: bool = False,
    end: bool = False,
    priority: int = 0,
) -> Turn:
    """A turn with one input full of its number, which names the request too."""
    return Turn(
        sequence_id=SequenceId(name),
        request_id=RequestId(number),
        correlation_id=name,
        tensors=Tensors(arrays={"INPUT": np.full((1, *shape), number, dtype=np.int64)}),
        start=start,
        end=end,
        priority=priority,
    )


def answer(plan: BatchPlan, *, error: str | None = None, scrubbed: bool = True) -> BatchResult:
    """A result for every row of a plan: its sequence's id for every tick, or the error."""
    rows = tuple(
        RowResult(error=error)
        if error
        else RowResult(output=row.sequence_id, earlier=(row.sequence_id,) * (row.n_ticks - 1))
        for row in plan.rows
    )
    return BatchResult(plan_id=plan.plan_id, rows=rows, scrubbed=plan.scrub if scrubbed else (), step_ns=7)
