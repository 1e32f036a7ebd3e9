"""What makes a batch."""

import pytest

from server.batching.batch_forming import BatchLimits, form_batch, rows_of, shape_of
from server.batching.request_queue import Waiting
from server.plan import Request
from tests.support.requests import make_request, make_tensor_request

LIMITS = BatchLimits(target_size=8, max_batch_samples=100)


def of(*requests: Request, level: int = 1) -> list[Waiting]:
    return [
        Waiting(
            request=request,
            order=request.request_id,
            queued_at_ns=0,
            level=request.priority or level,
            n_rows=rows_of(request),
            shape=shape_of(request, frozenset()),
        )
        for request in requests
    ]


def formed(
    waiting: list[Waiting],
    preferred: tuple[int, ...] = (),
    *,
    is_window_over: bool = False,
    target_size: int = 8,
) -> tuple[list[int], bool]:
    limits = BatchLimits(target_size=target_size, preferred_sizes=preferred, max_batch_samples=100)
    batch = form_batch(waiting, limits, is_window_over=is_window_over)
    return [each.request.request_id for each in batch.chosen], batch.is_ready


def ones(count: int) -> list[Waiting]:
    return of(*(make_tensor_request(number) for number in range(1, count + 1)))


@pytest.mark.parametrize(
    ("count", "preferred", "size", "is_ready"),
    [
        (0, (), 0, False),
        (7, (), 7, False),
        (8, (), 8, True),
        (9, (), 8, True),
        (1, (2, 6), 1, False),
        (2, (2, 6), 2, True),
        (5, (2, 6), 2, True),
        (6, (2, 6), 6, True),
        (8, (2, 6), 6, True),
        (8, (8,), 8, True),
    ],
)
def test_the_largest_preferred_size_that_can_be_formed(
    count: int, preferred: tuple[int, ...], size: int, is_ready: bool
) -> None:
    assert formed(ones(count), preferred) == (list(range(1, size + 1)), is_ready)


def test_once_the_window_is_over_nothing_is_held_back() -> None:
    assert formed(ones(7), (2, 6), is_window_over=True) == ([1, 2, 3, 4, 5, 6, 7], True)


def test_rows_that_jump_over_every_preferred_size_go_as_far_as_the_largest() -> None:
    jump = of(make_tensor_request(1, 3), make_tensor_request(2, 4))
    assert formed(jump, (2, 6)) == ([1], True)
    assert formed(jump, (2, 6), is_window_over=True) == ([1, 2], True)
    assert formed(of(make_tensor_request(1, 7)), (2, 6)) == ([1], True)


def test_who_has_no_room_ends_the_batch() -> None:
    waiting = of(make_tensor_request(1, 5), make_tensor_request(2, 4), make_tensor_request(3, 1))
    assert formed(waiting) == ([1], True)
    long = of(make_request(1, 40), make_request(2, 60), make_request(3, 5))
    assert formed(long) == ([1], True)
    assert formed(of(make_request(1, 50), make_request(2, 50))) == ([1, 2], False)


def test_another_shape_is_stepped_over() -> None:
    waiting = of(*(make_tensor_request(number, length=4 + number % 2) for number in range(1, 7)))
    assert formed(waiting) == ([1, 3, 5], True)
    assert formed(waiting[1:], (2,)) == ([2, 4], True)


def test_a_lower_level_joins_unless_it_makes_the_batch_longer() -> None:
    short, shorter, long = (
        make_request(1, 20, priority=1),
        make_request(2, 9, priority=2),
        make_request(3, 21, priority=2),
    )
    assert formed(of(short, long, shorter)) == ([1, 2], True)
    assert formed(of(long, short)) == ([3, 1], False)
    assert formed(of(make_request(1, 20, priority=1), make_request(2, 21, priority=1))) == ([1, 2], False)


def test_what_the_model_runs_over() -> None:
    batch = form_batch(of(make_request(1, 20), make_request(2, 30)), LIMITS, is_window_over=False)
    assert (batch.n_rows, batch.padded_samples) == (2, 60)
    batch = form_batch(of(make_tensor_request(1, 2), make_tensor_request(2, 3)), LIMITS, is_window_over=False)
    assert (batch.n_rows, batch.padded_samples) == (5, 0)


def test_shapes() -> None:
    one = make_tensor_request(1, 2, 4, inputs=("A", "B"))
    other = make_tensor_request(2, 1, 5, inputs=("B", "A"))
    assert shape_of(make_request(1), frozenset()) is None
    assert shape_of(one, frozenset()) != shape_of(other, frozenset())
    assert shape_of(one, frozenset({"A"})) != shape_of(other, frozenset({"A"}))
    assert shape_of(one, frozenset({"A", "B"})) == shape_of(other, frozenset({"A", "B"}))
