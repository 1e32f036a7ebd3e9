"""The queue of one sequence: portions by position, bounds, memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.batching.sample_queue import PortionKind, QueueLimits, SampleQueue, _SampleRing
from server.errors import QueueFull
from tests.support.accumulator import solo_rows
from tests.support.factories import make_samples

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=2)


def taken(queue: SampleQueue) -> tuple[PortionKind, int, int, list[float]]:
    portion = queue.take()
    return portion.portion.kind, portion.first_sample, portion.portion.end_sample, portion.samples.tolist()


def test_a_tick_is_complete_with_its_lookahead() -> None:
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(12), 1)
    assert queue.head is None
    queue.push(make_samples(11, first=13), 2)
    assert queue.head is not None
    assert (queue.head.kind, queue.head.end_sample, queue.head.ready_at_ns) == (PortionKind.TICK, 13, 2)
    assert taken(queue) == (PortionKind.TICK, 0, 13, list(range(1, 14)))
    assert taken(queue) == (PortionKind.TICK, 13, 23, list(range(14, 24)))
    assert queue.head is None
    assert (queue.received_samples, queue.queued_samples, queue.room_samples) == (23, 0, 60)


def test_a_portion_is_ready_when_its_last_sample_came() -> None:
    queue = SampleQueue(LIMITS)
    for at_ns in range(33):
        queue.push(make_samples(1), at_ns)
    queue.push(make_samples(0), 50, finalize=True)
    ready = [queue.take().portion.ready_at_ns for _ in range(4)]
    assert ready == [12, 22, 32, 50]


def test_finalize_leaves_its_samples_and_end_takes_them() -> None:
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(4), 0, finalize=True)
    queue.push(make_samples(1, first=5), 0, end=True)
    assert taken(queue) == (PortionKind.FINALIZE, 0, 4, [1, 2, 3, 4])
    assert queue.queued_samples == 5
    assert taken(queue) == (PortionKind.END, 0, 5, [1, 2, 3, 4, 5])
    assert queue.queued_samples == 0
    assert queue.is_closed


def test_overflow_takes_nothing() -> None:
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(55), 0)
    with pytest.raises(QueueFull, match="6 samples do not fit: there is room for 5"):
        queue.push(make_samples(6), 0, finalize=True, end=True)
    assert (queue.received_samples, queue.queued_samples, queue.is_closed) == (55, 55, False)
    queue.push(make_samples(5), 0)
    assert queue.room_samples == 0


def test_marks_are_bounded_and_answering_one_makes_room() -> None:
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(1), 0, finalize=True)
    queue.push(make_samples(0), 0, finalize=True)
    with pytest.raises(QueueFull, match="2 Finalize marks wait: no more than that"):
        queue.push(make_samples(3), 0, finalize=True)
    assert queue.received_samples == 1
    queue.take()
    queue.push(make_samples(0), 0, finalize=True)
    queue.push(make_samples(0), 0, end=True)
    assert [queue.take().portion.kind for _ in range(3)] == [PortionKind.FINALIZE] * 2 + [PortionKind.END]


def test_taken_samples_are_a_copy() -> None:
    queue = SampleQueue(LIMITS)
    samples = make_samples(13)
    queue.push(samples, 0, finalize=True)
    samples[:] = 0
    tick, flush = queue.take(), queue.take()
    queue.push(np.zeros(60, np.float32), 0)
    assert tick.samples.tolist() == list(range(1, 14))
    assert flush.samples.size == 0


@given(
    pieces=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=8),
    tick=st.integers(1, 12),
    lookahead=st.integers(0, 25),
    eager=st.booleans(),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_portions_are_those_of_the_definition(
    pieces: list[tuple[int, bool]], tick: int, lookahead: int, eager: bool
) -> None:
    """Whatever the cuts and whether it is read at once or at the end: ticks and marks by position, each sample once."""
    queue = SampleQueue(QueueLimits(tick_samples=tick, lookahead_samples=lookahead, max_samples=200, max_marks=8))
    sent: list[float] = []
    marks: list[tuple[int, PortionKind]] = []
    got: list[tuple[PortionKind, int, int, list[float]]] = []
    for n_samples, finalize in [*pieces, (0, False)]:
        samples = make_samples(n_samples, first=len(sent) + 1)
        queue.push(samples, 0, finalize=finalize, end=n_samples == 0 and len(sent) > 60)
        sent += samples.tolist()
        marks += [(len(sent), PortionKind.FINALIZE)] * finalize
        if queue.is_closed:
            marks.append((len(sent), PortionKind.END))
            break
        while eager and queue.head is not None:
            got.append(taken(queue))
    while queue.head is not None:
        got.append(taken(queue))
    solo = solo_rows(sent, marks, tick_samples=tick, lookahead_samples=lookahead)
    assert got == [
        (row.kind, row.first_sample, row.end_sample, sent[row.first_sample : row.end_sample]) for row in solo
    ]


def test_the_ring_wraps_grows_and_shrinks_without_losing_a_sample() -> None:
    ring = _SampleRing()
    small = ring._buffer.size
    pushed = dropped = 0
    for n_push, n_drop in [(5_000, 4_000), (7_000, 0), (40_000, 0), (1, 47_000), (3_000, 0), (9_000, 12_000)]:
        ring.push(make_samples(n_push, first=pushed))
        pushed += n_push
        assert np.array_equal(ring.peek(ring.n_samples), make_samples(pushed - dropped, first=dropped))
        ring.drop(n_drop)
        dropped += n_drop
        assert np.array_equal(ring.peek(ring.n_samples), make_samples(pushed - dropped, first=dropped))
        assert ring.n_samples <= ring._buffer.size
    for _ in range(10):
        ring.push(make_samples(100, first=pushed))
        pushed += 100
        ring.drop(100)
        dropped += 100
    assert ring._buffer.size == small, "a burst keeps its memory"
    assert np.array_equal(ring.peek(ring.n_samples), make_samples(pushed - dropped, first=dropped))
