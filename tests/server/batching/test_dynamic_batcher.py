"""The dynamic batcher."""

from dataclasses import replace

import numpy as np
import pytest

from server.effects import RequestCancelled, RequestCompleted
from server.errors import (
    BadAudio,
    InstanceFailed,
    MessageTooLarge,
    MoorageError,
    QueueFull,
    ServiceError,
    StepFailed,
)
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, BatchResult, RowResult
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

FIRST, SECOND = InstanceIndex(0), InstanceIndex(1)


class TestOffer:
    def test_refusals_take_nothing(self) -> None:
        batcher = make_dynamic_batcher(max_queued=2)
        batcher.offer(make_request(1), 0)
        with pytest.raises(ServiceError, match="request 1 is live"):
            batcher.offer(make_request(1), 0)
        with pytest.raises(MessageTooLarge, match="61 samples: at most 60 in one request"):
            batcher.offer(make_request(2, 61), 0)
        bad = make_request(2)
        bad.samples[3] = np.nan
        with pytest.raises(BadAudio):
            batcher.offer(bad, 0)
        batcher.offer(make_request(2), 0)
        with pytest.raises(QueueFull, match="2 requests wait: no more than that"):
            batcher.offer(make_request(3), 0)
        stats = batcher.stats()
        assert (stats.queued, stats.queued_samples, stats.accepted) == (2, 20, 2)
        assert stats.refused == {"error": 1, "message_too_large": 1, "bad_audio": 1, "queue_full": 1}

    def test_a_running_id_is_live(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1), 0)
        planned(batcher)
        with pytest.raises(ServiceError, match="request 1 is live"):
            batcher.offer(make_request(1), 0)


class TestPlan:
    def test_target_size(self) -> None:
        batcher = make_dynamic_batcher(window_ns=100)
        for number in range(1, 5):
            batcher.offer(make_request(number), number)
            assert batcher.next_deadline_ns() == (101 if number < 3 else 1)
        assert numbers(planned(batcher, 4)) == [1, 2, 3]
        assert batcher.plan(4) is None
        assert batcher.next_deadline_ns() == 104

    def test_window_of_the_oldest(self) -> None:
        batcher = make_dynamic_batcher(window_ns=100)
        batcher.offer(make_request(1), 5)
        batcher.offer(make_request(2), 90)
        assert batcher.plan(104) is None
        batch = planned(batcher, 105)
        assert numbers(batch) == [1, 2]
        assert (batch.queued_at_ns, batch.planned_at_ns) == ((5, 90), 105)

    def test_no_window_goes_at_once(self) -> None:
        batcher = make_dynamic_batcher()
        assert batcher.plan(0) is None
        batcher.offer(make_request(1), 0)
        assert numbers(planned(batcher)) == [1]

    def test_padded_samples_bound_the_batch_and_nobody_is_overtaken(self) -> None:
        batcher = make_dynamic_batcher(window_ns=100, max_batch_samples=60, instances=3)
        for number, n_samples in enumerate((20, 31, 5, 5), start=1):
            batcher.offer(make_request(number, n_samples), 0)
        # 20 and 31 would cost 62 padded: full, so it goes without waiting for the window
        assert numbers(planned(batcher)) == [1]
        assert numbers(planned(batcher)) == [2]
        assert batcher.plan(0) is None
        assert numbers(planned(batcher, 100)) == [3, 4]

    def test_the_bound_itself_fits(self) -> None:
        batcher = make_dynamic_batcher(max_batch_samples=60)
        batcher.offer(make_request(1, 30), 0)
        batcher.offer(make_request(2, 30), 0)
        assert numbers(planned(batcher)) == [1, 2]

    def test_the_instance_that_was_busy_last_is_next(self) -> None:
        batcher = make_dynamic_batcher(instances=3, target_size=1)
        for number in range(1, 6):
            batcher.offer(make_request(number), 0)
        batches = [planned(batcher) for _ in range(3)]
        assert [batch.instance for batch in batches] == [0, 1, 2]
        assert batcher.plan(0) is None
        assert batcher.next_deadline_ns() is None
        for batch in (batches[2], batches[0]):
            batcher.commit(batch, answers(batch), 0)
        assert planned(batcher).instance == 0
        assert planned(batcher).instance == 2

    def test_an_instance_that_was_restored_is_the_last_choice(self) -> None:
        batcher = make_dynamic_batcher(target_size=1)
        batcher.lose_instance(FIRST, "died", 0)
        batcher.instance_restored(FIRST, 0)
        batcher.offer(make_request(1), 0)
        assert planned(batcher).instance == SECOND

    def test_time_that_goes_back_stands_still(self) -> None:
        batcher = make_dynamic_batcher(window_ns=10)
        batcher.offer(make_request(1), 50)
        batcher.offer(make_request(2), 40)
        assert planned(batcher, 60).queued_at_ns == (50, 50)


class TestCommit:
    def test_every_caller_gets_its_own_result(self) -> None:
        batcher = make_dynamic_batcher()
        requests = [make_request(number, n_samples) for number, n_samples in ((3, 4), (1, 9), (2, 2))]
        for at_ns, request in enumerate(requests):
            batcher.offer(request, at_ns)
        batch = planned(batcher, 5)
        assert batcher.commit(batch, answers(batch), 9) == [
            RequestCompleted(
                request_id=request.request_id,
                instance=FIRST,
                output=float(request.samples.sum()),
                batch_size=3,
                queue_ns=5 - at_ns,
                step_ns=7,
            )
            for at_ns, request in enumerate(requests)
        ]
        assert batcher.stats().ended == {"completed": 3}
        assert batcher.stats().in_flight == 0

    def test_a_row_fails_alone(self) -> None:
        batcher = make_dynamic_batcher()
        for number in (1, 2):
            batcher.offer(make_request(number), 0)
        batch = planned(batcher)
        rows = (RowResult(error="NaN"), RowResult(output=5))
        effects = batcher.commit(batch, BatchResult(plan_id=batch.plan_id, rows=rows), 0)
        assert_failed(effects[0], 1, StepFailed, "NaN")
        assert isinstance(effects[1], RequestCompleted)
        assert batcher.stats().instances_idle == 2

    @pytest.mark.parametrize(("lost", "error", "n_idle"), [(False, StepFailed, 2), (True, InstanceFailed, 1)])
    def test_a_failed_batch(self, lost: bool, error: type[MoorageError], n_idle: int) -> None:
        batcher = make_dynamic_batcher()
        for number in (1, 2):
            batcher.offer(make_request(number), 0)
        batch = planned(batcher)
        batcher.cancel(RequestId(1), 0)
        effects = batcher.commit(batch, BatchFailure(plan_id=batch.plan_id, error="why", instance_lost=lost), 0)
        assert len(effects) == 1
        assert_failed(effects[0], 2, error, "why")
        stats = batcher.stats()
        assert (stats.instances_idle, stats.instances_lost, stats.stale_results) == (n_idle, int(lost), 1)

    def test_a_commit_is_of_a_batch_in_flight_and_once(self) -> None:
        batcher = make_dynamic_batcher(target_size=1)
        batcher.offer(make_request(1), 0)
        batch = planned(batcher)
        with pytest.raises(ServiceError, match="batch 9 is not in flight"):
            batcher.commit(replace(batch, plan_id=9), answers(batch), 0)
        with pytest.raises(ServiceError, match="batch 1 is not in flight"):
            batcher.commit(replace(batch, instance=SECOND), answers(batch), 0)
        with pytest.raises(ServiceError, match="plan 1 has 1 rows, its result 0"):
            batcher.commit(batch, BatchResult(plan_id=1, rows=()), 0)
        assert len(batcher.commit(batch, answers(batch), 0)) == 1
        with pytest.raises(ServiceError, match="batch 1 is not in flight"):
            batcher.commit(batch, answers(batch), 0)


class TestCancel:
    def test_queued(self) -> None:
        batcher = make_dynamic_batcher(window_ns=100)
        batcher.offer(make_request(1), 0)
        batcher.offer(make_request(2), 30)
        assert batcher.cancel(RequestId(1), 40) == [RequestCancelled(request_id=RequestId(1))]
        assert batcher.cancel(RequestId(1), 40) == []
        assert batcher.next_deadline_ns() == 130
        assert numbers(planned(batcher, 130)) == [2]
        assert batcher.stats().queued_samples == 0

    def test_in_flight_the_result_is_dropped(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1), 0)
        batcher.offer(make_request(2), 0)
        batch = planned(batcher)
        assert batcher.cancel(RequestId(1), 0) == [RequestCancelled(request_id=RequestId(1))]
        effects = batcher.commit(batch, answers(batch), 0)
        assert [effect.request_id for effect in effects] == [2]
        stats = batcher.stats()
        assert (stats.stale_results, stats.ended) == (1, {"cancelled": 1, "completed": 1})
        assert batcher.cancel(RequestId(2), 0) == []

    def test_a_second_life_of_the_id_gets_its_own_result(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1, 3), 0)
        old = planned(batcher)
        batcher.cancel(RequestId(1), 0)
        batcher.offer(make_request(1, 4), 0)
        new = planned(batcher)
        assert batcher.commit(old, answers(old), 0) == []
        effects = batcher.commit(new, answers(new), 0)
        assert [effect.output for effect in effects if isinstance(effect, RequestCompleted)] == [406.0]


class TestInstances:
    def test_a_death_in_a_batch(self) -> None:
        batcher = make_dynamic_batcher()
        for number in (1, 2):
            batcher.offer(make_request(number), 0)
        batch = planned(batcher)
        batcher.cancel(RequestId(2), 0)
        effects = batcher.lose_instance(FIRST, "died", 0)
        assert len(effects) == 1
        assert_failed(effects[0], 1, InstanceFailed, "died")
        assert batcher.lose_instance(FIRST, "died", 0) == []
        assert batcher.commit(batch, answers(batch), 0) == []
        assert batcher.stats().stale_results == 2
        with pytest.raises(ServiceError, match="batch 1 is not in flight"):
            batcher.commit(batch, answers(batch), 0)

    def test_a_death_between_batches(self) -> None:
        batcher = make_dynamic_batcher(target_size=1)
        assert batcher.lose_instance(FIRST, "died", 0) == []
        for number in (1, 2):
            batcher.offer(make_request(number), 0)
        assert planned(batcher).instance == SECOND
        assert batcher.plan(0) is None
        batcher.instance_restored(FIRST, 0)
        assert planned(batcher).instance == FIRST

    def test_only_a_lost_instance_is_restored(self) -> None:
        batcher = make_dynamic_batcher()
        with pytest.raises(ServiceError, match="instance 0 was not lost"):
            batcher.instance_restored(FIRST, 0)
        assert batcher.stats().instances_idle == 2


class TestEarly:
    def test_it_runs_at_once_where_there_is_nothing_else_to_do(self) -> None:
        batcher = make_dynamic_batcher(window_ns=50)
        batcher.offer(make_request(1, is_early=True), 7)
        assert batcher.next_deadline_ns() == 7
        batch = planned(batcher, 7)
        assert numbers(batch) == [1]
        (effect,) = batcher.commit(batch, answers(batch), 9)
        assert isinstance(effect, RequestCompleted)
        assert batcher.stats().ended == {"completed": 1}

    def test_it_is_refused_where_others_wait_or_no_instance_is_idle(self) -> None:
        batcher = make_dynamic_batcher(instances=1, window_ns=50)
        samples = make_request(1).samples
        assert batcher.takes_early(samples)
        assert not batcher.takes_early(make_request(1, 61).samples)
        batcher.offer(make_request(1), 0)
        assert not batcher.takes_early(samples)
        with pytest.raises(QueueFull, match="nothing else to do"):
            batcher.offer(make_request(2, is_early=True), 0)
        planned(batcher, 50)
        assert not batcher.takes_early(samples)
        assert batcher.stats().refused == {"queue_full": 1}

    def test_no_more_wait_than_fit_a_batch(self) -> None:
        batcher = make_dynamic_batcher(target_size=2)
        batcher.offer(make_request(1, is_early=True), 0)
        batcher.offer(make_request(2, is_early=True), 0)
        assert not batcher.takes_early(make_request(3).samples)
        assert (batcher.stats().queued, batcher.stats().queued_samples) == (2, 20)

    def test_others_go_first_and_never_share_its_batch(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1, is_early=True), 0)
        batcher.offer(make_request(2), 1)
        assert numbers(planned(batcher, 1)) == [2]
        assert numbers(planned(batcher, 1)) == [1]

    def test_one_that_waits_is_confirmed_and_takes_its_turn(self) -> None:
        batcher = make_dynamic_batcher(instances=1, window_ns=50)
        batcher.offer(make_request(1, is_early=True), 0)
        batcher.offer(make_request(2), 1)
        batcher.confirm(RequestId(1), 2)
        batch = planned(batcher, 51)
        assert numbers(batch) == [2, 1]
        assert not any(request.is_early for request in batch.requests)
        assert batcher.to_abandon() == []

    def test_one_that_runs_gives_way_to_one_that_waits_and_runs_again_after_it(self) -> None:
        batcher = make_dynamic_batcher(instances=1)
        batcher.offer(make_request(1, is_early=True), 3)
        batch = planned(batcher, 3)
        assert batcher.to_abandon() == []
        batcher.offer(make_request(2), 4)
        assert batcher.to_abandon() == [batch]
        assert batcher.to_abandon() == []
        assert batcher.commit(batch, abandoned(batch), 5) == []
        second = planned(batcher, 5)
        assert numbers(second) == [2]
        batcher.commit(second, answers(second), 6)
        third = planned(batcher, 6)
        assert (numbers(third), third.queued_at_ns) == ([1], (3,))
        (effect,) = batcher.commit(third, answers(third), 7)
        assert effect.request_id == 1

    def test_one_that_gave_way_is_before_the_early_ones_that_came_later(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1, is_early=True), 0)
        batch = planned(batcher)
        batcher.offer(make_request(2, is_early=True), 1)
        batcher.offer(make_request(3), 2)
        assert batcher.to_abandon(lambda _: False) == [batch]
        batcher.commit(batch, abandoned(batch), 3)
        assert numbers(planned(batcher, 3)) == [3]
        assert numbers(planned(batcher, 3)) == [1, 2]

    def test_it_does_not_give_way_where_an_instance_is_idle(self) -> None:
        batcher = make_dynamic_batcher(instances=2)
        batcher.offer(make_request(1, is_early=True), 0)
        planned(batcher, 0)
        batcher.offer(make_request(2), 1)
        assert batcher.to_abandon() == []

    def test_no_more_give_way_than_are_needed(self) -> None:
        batcher = make_dynamic_batcher(instances=2, target_size=1)
        for number in (1, 2):
            batcher.offer(make_request(number, is_early=True), 0)
            planned(batcher, 0)
        batcher.offer(make_request(3), 1)
        assert len(batcher.to_abandon()) == 1
        batcher.offer(make_request(4), 2)
        assert len(batcher.to_abandon()) == 1

    def test_as_many_give_way_as_the_rows_that_wait_need(self) -> None:
        batcher = make_dynamic_batcher(instances=3)
        for number in (1, 2, 3):
            batcher.offer(make_tensor_request(number, n_rows=3, is_early=True), 0)
            planned(batcher)
        batcher.offer(make_tensor_request(4, n_rows=3), 1)
        assert len(batcher.to_abandon()) == 1
        batcher.cancel(RequestId(4), 2)
        batcher.offer(make_tensor_request(5, n_rows=2), 2)
        assert batcher.to_abandon() == []
        batcher.offer(make_tensor_request(6, n_rows=2), 3)
        assert len(batcher.to_abandon()) == 1

    def test_tensors_come_early_as_audio_does(self) -> None:
        batcher = make_dynamic_batcher(window_ns=50)
        batcher.offer(make_tensor_request(1), 0)
        with pytest.raises(QueueFull, match="nothing else to do"):
            batcher.offer(make_tensor_request(2, is_early=True), 0)

    def test_one_that_is_confirmed_does_not_give_way_and_is_queued_again_first_if_it_just_did(self) -> None:
        for confirmed_first in (True, False):
            batcher = make_dynamic_batcher(instances=1)
            batcher.offer(make_request(1, is_early=True), 0)
            batch = planned(batcher, 0)
            if confirmed_first:
                batcher.confirm(RequestId(1), 1)
            batcher.offer(make_request(2), 2)
            assert batcher.to_abandon() == ([] if confirmed_first else [batch])
            batcher.confirm(RequestId(1), 3)
            if not confirmed_first:
                batcher.commit(batch, abandoned(batch), 4)
                assert numbers(planned(batcher, 4)) == [1, 2]

    def test_a_batch_that_nobody_wants_is_abandoned_whatever_it_is(self) -> None:
        batcher = make_dynamic_batcher()
        batcher.offer(make_request(1), 0)
        batcher.offer(make_request(2), 0)
        batch = planned(batcher)
        batcher.cancel(RequestId(1), 1)
        assert batcher.to_abandon() == []
        batcher.cancel(RequestId(2), 1)
        assert batcher.to_abandon() == [batch]
        assert batcher.commit(batch, abandoned(batch), 2) == []
        stats = batcher.stats()
        assert (stats.queued, stats.in_flight, stats.instances_idle, stats.ended) == (0, 0, 2, {"cancelled": 2})

    def test_one_that_leaves_is_gone_queued_or_running(self) -> None:
        batcher = make_dynamic_batcher(instances=1)
        batcher.offer(make_request(1, is_early=True), 0)
        assert batcher.cancel(RequestId(1), 0) == [RequestCancelled(request_id=RequestId(1))]
        assert (batcher.stats().queued_samples, batcher.next_deadline_ns()) == (0, None)
        batcher.offer(make_request(1, is_early=True), 1)
        batch = planned(batcher, 1)
        batcher.cancel(RequestId(1), 2)
        assert batcher.to_abandon() == [batch]
        batcher.offer(make_request(1), 3)  # the id again, for one that is not early
        assert batcher.commit(batch, abandoned(batch), 4) == []
        again = planned(batcher, 4)
        assert numbers(again) == [1]
        batcher.offer(make_request(2), 5)
        assert batcher.to_abandon() == []

    def test_a_batch_that_ended_before_it_heard_of_it_counts(self) -> None:
        batcher = make_dynamic_batcher(instances=1)
        batcher.offer(make_request(1, is_early=True), 0)
        batch = planned(batcher)
        batcher.offer(make_request(2), 1)
        assert batcher.to_abandon() == [batch]
        (effect,) = batcher.commit(batch, answers(batch), 2)
        assert isinstance(effect, RequestCompleted)
        second = planned(batcher, 2)
        batcher.commit(second, answers(second), 3)
        assert batcher.to_abandon() == []

    def test_an_instance_that_dies_over_an_abandoned_batch_fails_its_requests(self) -> None:
        batcher = make_dynamic_batcher(instances=1)
        batcher.offer(make_request(1, is_early=True), 0)
        batch = planned(batcher)
        batcher.offer(make_request(2), 1)
        assert batcher.to_abandon() == [batch]
        (effect,) = batcher.lose_instance(FIRST, "died", 2)
        assert_failed(effect, 1, InstanceFailed, "died")
        assert batcher.commit(batch, abandoned(batch), 3) == []
        batcher.instance_restored(FIRST, 4)
        assert numbers(planned(batcher, 4)) == [2]
