"""The dynamic batcher: tensors, timeouts, deadlines, the order of answers, instances that may not run."""

import numpy as np
import pytest

from server.batching.dynamic_batcher import DynamicBatcher
from server.batching.request_queue import QueueLevel
from server.effects import RequestCancelled, RequestCompleted, RequestFailed
from server.errors import BadTensor, InstanceFailed, QueueFull, RequestTimeout, ServiceError
from server.ids import InstanceIndex, RequestId
from server.plan import Request, RequestBatch, Tensors
from tests.support.requests import (
    abandoned,
    answers,
    assert_failed,
    make_dynamic_batcher,
    make_request,
    make_tensor_request,
    numbers,
    planned,
)

SECOND = InstanceIndex(1)


def tensors(batcher: DynamicBatcher, *lengths: int) -> None:
    """Offers requests 1, 2, … of one row."""
    for number, length in enumerate(lengths, start=1):
        batcher.offer(make_tensor_request(number, length=length), 0)


class TestTensors:
    def test_rows_are_what_a_batch_counts(self) -> None:
        batcher = make_dynamic_batcher(target_size=4, instances=3)
        for number, n_rows in enumerate((1, 3, 2), start=1):
            batcher.offer(make_tensor_request(number, n_rows=n_rows), 0)
        assert numbers(planned(batcher)) == [1, 2]
        assert numbers(planned(batcher)) == [3]
        assert batcher.stats().batch_rows == {4: 1, 2: 1}

    def test_more_rows_than_a_batch_has(self) -> None:
        batcher = make_dynamic_batcher()
        with pytest.raises(BadTensor, match="4 rows: 1 to 3 in one request"):
            batcher.offer(make_tensor_request(1, n_rows=4), 0)
        with pytest.raises(BadTensor, match="0 rows: 1 to 3 in one request"):
            batcher.offer(make_tensor_request(1, n_rows=0), 0)
        batcher.offer(make_tensor_request(1, n_rows=3), 0)
        assert batcher.stats().refused == {"bad_tensor": 2}

    def test_an_input_of_other_rows_than_the_request(self) -> None:
        batcher = make_dynamic_batcher()
        for array in (np.zeros((2, 4), np.float32), np.float32(1)):
            payload = Tensors(arrays={"INPUT": np.asarray(array)}, n_rows=1)
            with pytest.raises(BadTensor, match=r"INPUT has shape .*, but the request 1 rows"):
                batcher.offer(Request(request_id=RequestId(1), payload=payload), 0)
        assert batcher.stats().queued == 0

    def test_only_equal_shapes_share_a_batch_and_who_waits_for_another_shape_is_next(self) -> None:
        batcher = make_dynamic_batcher(window_ns=100, target_size=8)
        tensors(batcher, 4, 5, 4, 5)
        assert numbers(planned(batcher)) == [1, 3]
        assert batcher.plan(99) is None
        assert numbers(planned(batcher, 100)) == [2, 4]

    def test_ragged_inputs_share_a_batch_and_others_must_be_equal_all_the_same(self) -> None:
        batcher = make_dynamic_batcher(target_size=8, ragged=frozenset({"INPUT"}))
        tensors(batcher, 4, 5, 6)
        assert numbers(planned(batcher)) == [1, 2, 3]
        batcher.offer(make_tensor_request(4, inputs=("INPUT", "OTHER")), 0)
        batcher.offer(make_tensor_request(5, length=9, inputs=("INPUT", "OTHER")), 0)
        batcher.offer(make_tensor_request(6, inputs=("INPUT",)), 0)
        assert numbers(planned(batcher)) == [4]

    def test_other_types_do_not_share_a_batch(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_tensor_request(1), 0)
        payload = Tensors(arrays={"INPUT": np.zeros((1, 4), np.int32)})
        batcher.offer(Request(request_id=RequestId(2), payload=payload), 0)
        assert numbers(planned(batcher)) == [1]


class TestTimeouts:
    def test_it_is_told_once_with_what_it_waited(self) -> None:
        batcher = make_dynamic_batcher(levels=(QueueLevel(timeout_ns=2_000_000),), window_ns=10_000_000)
        batcher.offer(make_request(1), 1_000_000)
        assert batcher.expire(2_999_999) == []
        assert batcher.next_deadline_ns() == 3_000_000
        (effect,) = batcher.expire(3_000_000)
        assert_failed(effect, 1, RequestTimeout, "no batch took the request in 2 ms")
        assert batcher.expire(3_000_000) == []
        stats = batcher.stats()
        assert (stats.queued, stats.queued_samples, stats.ended) == (0, 0, {"request_timeout": 1})

    def test_its_place_is_free_and_no_batch_takes_it_before_it_is_told(self) -> None:
        batcher = make_dynamic_batcher(levels=(QueueLevel(timeout_ns=50, max_queued=1),), instances=1)
        batcher.offer(make_request(1), 0)
        planned(batcher)
        batcher.offer(make_request(2), 0)
        batcher.offer(make_request(3), 50)
        assert batcher.next_deadline_ns() == 50
        assert batcher.stats().held == 1
        with pytest.raises(ServiceError, match="request 2 is live"):
            batcher.offer(make_request(2), 50)
        (effect,) = batcher.expire(50)
        assert effect.request_id == 2

    def test_one_that_leaves_before_it_is_told_was_cancelled(self) -> None:
        batcher = make_dynamic_batcher(levels=(QueueLevel(timeout_ns=50),), window_ns=99)
        batcher.offer(make_request(1), 0)
        assert batcher.cancel(RequestId(1), 60) == [RequestCancelled(request_id=RequestId(1))]
        assert batcher.expire(60) == []
        assert batcher.stats().ended == {"cancelled": 1}

    def test_a_running_request_has_none(self) -> None:
        batcher = make_dynamic_batcher(levels=(QueueLevel(timeout_ns=50),))
        batcher.offer(make_request(1), 0)
        batch = planned(batcher, 49)
        assert batcher.next_deadline_ns() is None
        assert batcher.expire(100) == []
        assert len(batcher.commit(batch, answers(batch), 100)) == 1

    def test_an_early_request_has_none_until_it_is_confirmed(self) -> None:
        batcher = make_dynamic_batcher(levels=(QueueLevel(timeout_ns=50),), instances=1)
        batcher.offer(make_request(1, is_early=True), 0)
        batch = planned(batcher, 0)
        batcher.offer(make_request(2), 10)
        assert batcher.to_abandon() == [batch]
        batcher.commit(batch, abandoned(batch), 20)
        second = planned(batcher, 20)
        assert numbers(second) == [2]
        assert batcher.expire(70) == []
        batcher.confirm(RequestId(1), 80)
        assert batcher.next_deadline_ns() == 130
        (effect,) = batcher.expire(130)
        assert_failed(effect, 1, RequestTimeout, "no batch took the request in 5e-05 ms")


class TestDeadlines:
    def test_a_batch_that_would_miss_one_goes_before_its_window_is_over(self) -> None:
        batcher = make_dynamic_batcher(window_ns=1_000)
        batcher.offer(make_request(1), 0)
        batch = planned(batcher, 1_000)
        batcher.commit(batch, answers(batch, step_ns=300), 1_300)
        batcher.offer(make_request(2), 2_000)
        assert batcher.next_deadline_ns() == 3_000
        batcher.offer(make_request(3, deadline_ns=2_900), 2_000)
        # 2 takes what 1 took, as far as is known
        assert batcher.next_deadline_ns() == 2_600
        assert numbers(planned(batcher, 2_600)) == [3, 2]

    def test_as_long_as_nothing_has_run_the_deadline_itself_counts(self) -> None:
        batcher = make_dynamic_batcher(window_ns=1_000)
        batcher.offer(make_request(1, deadline_ns=700), 0)
        assert batcher.next_deadline_ns() == 700

    def test_of_the_level_where_the_request_says_nothing(self) -> None:
        batcher = make_dynamic_batcher(window_ns=1_000, levels=(QueueLevel(deadline_ns=400),))
        batcher.offer(make_request(1), 100)
        assert batcher.next_deadline_ns() == 500
        batcher.offer(make_request(2, deadline_ns=50), 200)
        assert batcher.next_deadline_ns() == 200
        assert numbers(planned(batcher, 200)) == [2, 1]

    def test_answers_after_it_are_counted(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1, deadline_ns=10), 0)
        batcher.offer(make_request(2, deadline_ns=11), 0)
        batch = planned(batcher)
        batcher.commit(batch, answers(batch), 11)
        assert batcher.stats().late == 1


class TestOrder:
    def ordered(self) -> tuple[DynamicBatcher, list[RequestBatch]]:
        """Three batches of one, in flight."""
        batcher = make_dynamic_batcher(target_size=1, instances=3, preserve_ordering=True, max_queued=3)
        for number in (1, 2, 3):
            batcher.offer(make_request(number), 0)
        return batcher, [planned(batcher) for _ in range(3)]

    def test_answers_wait_for_those_before_them(self) -> None:
        batcher, (first, second, third) = self.ordered()
        assert batcher.commit(third, answers(third, errors=(0,)), 1) == []
        assert batcher.stats().held == 1
        assert [effect.request_id for effect in batcher.commit(first, answers(first), 2)] == [1]
        effects = batcher.commit(second, answers(second), 3)
        assert [type(effect) for effect in effects] == [RequestCompleted, RequestFailed]
        assert batcher.stats().ended == {"completed": 2, "step_failed": 1}
        assert batcher.stats().held == 0

    def test_one_that_leaves_lets_those_behind_it_go(self) -> None:
        batcher, (_, second, third) = self.ordered()
        batcher.commit(third, answers(third), 1)
        batcher.commit(second, answers(second), 1)
        effects = batcher.cancel(RequestId(1), 2)
        assert [type(effect) for effect in effects] == [RequestCancelled, RequestCompleted, RequestCompleted]
        assert [effect.request_id for effect in effects] == [1, 2, 3]

    def test_one_that_leaves_while_its_answer_waits_is_cancelled(self) -> None:
        batcher, (first, second, third) = self.ordered()
        batcher.commit(second, answers(second), 1)
        with pytest.raises(ServiceError, match="request 2 is live"):
            batcher.offer(make_request(2), 1)
        assert batcher.cancel(RequestId(2), 2) == [RequestCancelled(request_id=RequestId(2))]
        assert [effect.request_id for effect in batcher.commit(first, answers(first), 3)] == [1]
        assert [effect.request_id for effect in batcher.commit(third, answers(third), 4)] == [3]
        assert batcher.stats().ended == {"cancelled": 1, "completed": 2}

    def test_a_lost_instance_answers_in_order_too(self) -> None:
        batcher, (first, second, _) = self.ordered()
        assert batcher.lose_instance(second.instance, "died", 1) == []
        effects = batcher.commit(first, answers(first), 2)
        assert_failed(effects[1], 2, InstanceFailed, "died")

    def test_a_timeout_is_told_at_once_and_lets_those_behind_it_go(self) -> None:
        batcher = make_dynamic_batcher(
            target_size=1, instances=2, preserve_ordering=True, levels=(QueueLevel(timeout_ns=50),)
        )
        batcher.lose_instance(SECOND, "died", 0)
        batcher.offer(make_request(1), 0)
        first = planned(batcher)
        batcher.offer(make_request(2), 0)
        batcher.offer(make_request(3), 30)
        batcher.instance_restored(SECOND, 60)
        third = planned(batcher, 60)
        assert numbers(third) == [3]
        assert batcher.commit(third, answers(third), 61) == []
        batcher.commit(first, answers(first), 62)
        effects = batcher.expire(63)
        assert_failed(effects[0], 2, RequestTimeout, "no batch took the request in 6e-05 ms")
        assert effects[1].request_id == 3

    def test_answers_that_wait_fill_the_queue(self) -> None:
        batcher, (_, second, third) = self.ordered()
        batcher.commit(third, answers(third), 1)
        batcher.commit(second, answers(second), 1)
        batcher.offer(make_request(4), 2)
        with pytest.raises(QueueFull):
            batcher.offer(make_request(5), 2)

    def test_early_requests_have_no_place_in_it(self) -> None:
        batcher = make_dynamic_batcher(preserve_ordering=True)
        assert not batcher.takes_early(make_request(1).samples)
        with pytest.raises(QueueFull):
            batcher.offer(make_request(1, is_early=True), 0)


class TestMayRun:
    def test_only_an_instance_that_may(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1), 0)
        assert batcher.plan(0, lambda _: False) is None
        assert batcher.next_deadline_ns(lambda _: False) is None
        assert batcher.next_deadline_ns(lambda instance: instance == SECOND) == 0
        batch = batcher.plan(0, lambda instance: instance == SECOND)
        assert batch is not None
        assert batch.instance == SECOND

    def test_an_early_batch_gives_way_where_the_idle_instance_may_not_run(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1, is_early=True), 0)
        batch = planned(batcher)
        batcher.offer(make_request(2), 1)
        assert batcher.to_abandon() == []
        assert batcher.to_abandon(lambda _: False) == [batch]
