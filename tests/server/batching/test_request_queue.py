"""Levels, policies and ageing of the queue of requests."""

from typing import Any

import pytest

from server.batching.request_queue import QueueLevel, RequestQueue, TimeoutAction, Waiting
from server.errors import QueueFull
from server.ids import RequestId
from tests.support.requests import make_request

DELAY = TimeoutAction.DELAY


def queue_of(*levels: QueueLevel, ageing_batches: int = 3) -> RequestQueue:
    return RequestQueue(levels or (QueueLevel(),), default_level=len(levels) or 1, ageing_batches=ageing_batches)


def waiting(number: int, level: int = 1, **fields: Any) -> Waiting:
    request = make_request(number, priority=level)
    return Waiting(request=request, order=number, queued_at_ns=number, level=level, n_rows=1, **fields)


def add(queue: RequestQueue, number: int, level: int = 1, **fields: Any) -> None:
    queue.add(waiting(number, level, **fields))


def in_order(queue: RequestQueue) -> list[int]:
    return [each.request.request_id for each in queue.in_order()]


def take_first(queue: RequestQueue) -> int:
    """A batch of one."""
    first = next(queue.in_order())
    queue.take([first])
    return first.request.request_id


class TestLevels:
    def test_a_level_is_before_the_ones_below_it(self) -> None:
        queue = queue_of(QueueLevel(), QueueLevel(), QueueLevel())
        for number, level in enumerate((3, 2, 1, 2, 1), start=1):
            add(queue, number, level)
        assert in_order(queue) == [3, 5, 2, 4, 1]
        assert [queue.n_queued(level) for level in (1, 2, 3)] == [2, 2, 1]

    def test_a_level_that_does_not_exist_is_the_default_one(self) -> None:
        queue = queue_of(QueueLevel(max_queued=7), QueueLevel(max_queued=9))
        levels = [queue.level_of(make_request(1, priority=priority)) for priority in (-1, 0, 1, 2, 3, 2**32 + 1)]
        assert levels == [2, 2, 1, 2, 2, 2]
        assert queue.policy_of(make_request(1, priority=1)).max_queued == 7

    def test_each_is_full_by_itself(self) -> None:
        queue = queue_of(QueueLevel(max_queued=1), QueueLevel(max_queued=2))
        add(queue, 1, 1)
        with pytest.raises(QueueFull, match="1 requests wait in level 1: no more than that"):
            queue.check_room(make_request(2, priority=1))
        queue.check_room(make_request(2, priority=2), n_besides=1)
        with pytest.raises(QueueFull, match="2 requests wait in level 2: no more than that"):
            queue.check_room(make_request(2, priority=2), n_besides=2)

    def test_the_nearest_deadline_is_first_then_who_came_first(self) -> None:
        queue = queue_of()
        for number, deadline_at_ns in enumerate((None, 90, None, 40, 90), start=1):
            add(queue, number, deadline_at_ns=deadline_at_ns)
        assert in_order(queue) == [4, 2, 5, 1, 3]

    def test_one_that_comes_back_is_where_it_was(self) -> None:
        queue = queue_of()
        for number in (1, 2, 3):
            add(queue, number)
        second = queue.remove(RequestId(2))
        assert second is not None
        assert in_order(queue) == [1, 3]
        queue.add(second)
        assert in_order(queue) == [1, 2, 3]
        assert queue.remove(RequestId(9)) is None


class TestTimeouts:
    def test_a_request_may_only_shorten_it(self) -> None:
        level = QueueLevel(timeout_ns=100)
        own = [level.timeout_of(make_request(1, timeout_ns=timeout_ns)) for timeout_ns in (None, 40, 400)]
        assert own == [100, 40, 100]

    def test_where_there_is_none_its_own_counts(self) -> None:
        assert QueueLevel().timeout_of(make_request(1)) is None
        assert QueueLevel().timeout_of(make_request(1, timeout_ns=400)) == 400

    def test_its_own_may_be_left_out(self) -> None:
        level = QueueLevel(allow_timeout_override=False)
        assert level.timeout_of(make_request(1, timeout_ns=400)) is None

    def test_rejected_ones_are_given_back_in_the_order_of_their_timeouts(self) -> None:
        queue = queue_of()
        for number, timeout_at_ns in enumerate((30, None, 10, 31), start=1):
            add(queue, number, timeout_at_ns=timeout_at_ns)
        assert queue.next_timeout_ns() == 10
        assert [each.request.request_id for each in queue.time_out(30)] == [3, 1]
        assert in_order(queue) == [2, 4]
        assert queue.next_timeout_ns() == 31

    def test_delayed_ones_let_the_others_of_their_level_go_first_but_not_those_below(self) -> None:
        queue = queue_of(QueueLevel(timeout_action=DELAY), QueueLevel(timeout_action=DELAY))
        add(queue, 1, 2)
        add(queue, 2, 1, timeout_at_ns=10)
        add(queue, 3, 1)
        assert queue.time_out(10) == []
        assert in_order(queue) == [3, 2, 1]
        assert (queue.n_delayed, queue.n_queued(1)) == (1, 2)
        assert queue.next_timeout_ns() is None
        add(queue, 4, 1)
        assert in_order(queue) == [3, 4, 2, 1]
        assert queue.remove(RequestId(2)) is not None
        assert queue.n_delayed == 0

    def test_a_timeout_of_one_that_left_is_not_of_its_id_s_second_life(self) -> None:
        queue = queue_of()
        add(queue, 1, timeout_at_ns=10)
        queue.remove(RequestId(1))
        again = Waiting(request=make_request(1), order=2, queued_at_ns=5, level=1, n_rows=1, timeout_at_ns=50)
        queue.add(again)
        assert queue.next_timeout_ns() == 50
        assert queue.time_out(49) == []
        assert queue.time_out(50) == [again]

    def test_timeouts_of_those_who_left_do_not_pile_up(self) -> None:
        queue = queue_of()
        add(queue, 1, timeout_at_ns=10**9)
        for number in range(2, 500):
            add(queue, number, timeout_at_ns=10**9 + number)
            queue.remove(RequestId(number))
        assert len(queue._timeouts) < 24
        assert queue.next_timeout_ns() == 10**9


class TestAgeing:
    def test_a_level_that_was_passed_over_leads_a_batch(self) -> None:
        queue = queue_of(QueueLevel(), QueueLevel())
        add(queue, 1, 2)
        add(queue, 2, 2)
        served = []
        for number in range(10, 20):
            add(queue, number, 1)
            served.append(take_first(queue))
        assert served == [10, 11, 12, 1, 13, 14, 15, 2, 16, 17]

    def test_who_joins_a_batch_has_not_been_passed_over(self) -> None:
        queue = queue_of(QueueLevel(), QueueLevel(), ageing_batches=2)
        for number, level in ((1, 2), (2, 2), (3, 1), (4, 1), (5, 1)):
            add(queue, number, level)
        everyone = {each.request.request_id: each for each in queue}
        queue.take([everyone[RequestId(3)]])
        queue.take([everyone[RequestId(4)], everyone[RequestId(1)]])
        assert in_order(queue) == [5, 2]
        add(queue, 6, 1)
        queue.take([everyone[RequestId(5)]])
        assert in_order(queue) == [6, 2]

    def test_those_without_a_deadline_do_not_starve_behind_those_with_one(self) -> None:
        queue = queue_of()
        add(queue, 1)
        served = []
        for number in range(10, 15):
            add(queue, number, deadline_at_ns=number)
            served.append(take_first(queue))
        assert served == [10, 11, 12, 1, 13]

    def test_delayed_ones_do_not_starve(self) -> None:
        queue = queue_of(QueueLevel(timeout_action=DELAY))
        add(queue, 1, timeout_at_ns=5)
        queue.time_out(5)
        served = []
        for number in range(10, 15):
            add(queue, number)
            served.append(take_first(queue))
        assert served == [10, 11, 12, 1, 13]

    def test_nor_does_one_whose_deadline_is_far_in_a_level_that_is_seldom_served(self) -> None:
        queue = queue_of(QueueLevel(), QueueLevel(), ageing_batches=1)
        add(queue, 1, 2, deadline_at_ns=10**9)
        served = []
        for number in range(10, 40, 2):
            add(queue, number, 1)
            add(queue, number + 1, 2)
            served.append(take_first(queue))
        assert served[:4] == [10, 1, 12, 11]

    def test_every_line_is_served_within_its_bound(self) -> None:
        queue = queue_of(QueueLevel(), QueueLevel(), QueueLevel())
        for level in (2, 3):
            add(queue, level, level)
        served = []
        for number in range(10, 20):
            add(queue, number, 1)
            served.append(take_first(queue))
        assert served[:6] == [10, 11, 12, 2, 3, 13]

    def test_an_empty_line_has_not_been_passed_over(self) -> None:
        queue = queue_of(QueueLevel(), QueueLevel(), ageing_batches=2)
        add(queue, 1, 2)
        for number in (10, 11):
            add(queue, number, 1)
            take_first(queue)
        queue.remove(RequestId(1))
        add(queue, 2, 2)
        add(queue, 12, 1)
        assert in_order(queue) == [12, 2]
