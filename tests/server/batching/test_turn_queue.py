"""The turns of one sequence: order, bound, END and START, shapes."""

import pytest

from server.batching.turn_queue import TurnQueue
from server.errors import QueueFull
from tests.support.factories import make_turn

NONE: frozenset[str] = frozenset()


def test_first_in_first_out() -> None:
    queue = TurnQueue(3, NONE)
    assert (queue.head, len(queue), queue.room) == (None, 0, 3)
    for number in range(3):
        queue.push(make_turn("a", number), 10 * number)
    assert (len(queue), queue.room) == (3, 0)
    assert queue.head is not None
    assert queue.head.turn.request_id == 0
    assert not queue.head.is_flush
    assert [(queued.turn.request_id, queued.ready_at_ns) for queued in (queue.take(), queue.take(), queue.take())] == [
        (0, 0),
        (1, 10),
        (2, 20),
    ]
    assert queue.head is None


def test_a_full_queue_takes_nothing() -> None:
    queue = TurnQueue(1, NONE)
    queue.push(make_turn("a"), 0)
    with pytest.raises(QueueFull, match="1 turns wait: no more than that"):
        queue.push(make_turn("a", end=True), 0)
    assert (len(queue), queue.is_closed) == (1, False)


def test_end_closes_and_start_opens_again() -> None:
    queue = TurnQueue(3, NONE)
    queue.push(make_turn("a", start=True, end=True), 0)
    assert queue.is_closed
    queue.push(make_turn("a", start=True), 0)
    assert not queue.is_closed
    queue.take()
    assert not queue.is_closed


def test_turns_have_no_samples() -> None:
    queue = TurnQueue(1, NONE)
    queue.push(make_turn("a"), 0)
    assert (queue.received_samples, queue.queued_samples) == (0, 0)


def test_lengths_of_ragged_inputs_do_not_matter() -> None:
    def n_keys(ragged: frozenset[str], *shapes: tuple[int, ...]) -> int:
        queue = TurnQueue(2, ragged)
        for shape in shapes:
            queue.push(make_turn("a", shape=shape), 0)
        return len({queue.take().shape_key for _ in shapes})

    assert n_keys(NONE, (1,), (4,)) == 2
    assert n_keys(NONE, (4,), (4,)) == 1
    assert n_keys(frozenset({"OTHER"}), (1,), (4,)) == 2
    assert n_keys(frozenset({"INPUT"}), (1,), (4,)) == 1
    assert n_keys(frozenset({"INPUT"}), (4,), (4, 1)) == 2
