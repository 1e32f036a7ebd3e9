"""The dynamic batcher under sequences: requests without ties, and nothing that says so."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from server.batching.unpinned_batcher import UnpinnedBatcher
from server.effects import RowCompleted, SequenceEffect, SequenceEnded, SequenceLost
from server.errors import (
    BadAudio,
    CapacityExceeded,
    DuplicateSequence,
    IdleTimeout,
    InstanceFailed,
    MoorageError,
    QueueFull,
    SequenceAlreadyEnded,
    ServiceError,
    StepFailed,
    UnknownSequence,
)
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId
from server.plan import BatchFailure, BatchPlan, BatchRow, Chunk, SequenceOptions
from tests.support.factories import FIRST_TICK, TICK, answer, make_chunk, make_sequence_config

FIRST, SECOND = InstanceIndex(0), InstanceIndex(1)


def make_batcher(**overrides: int) -> UnpinnedBatcher:
    """Two instances of two slots."""
    return UnpinnedBatcher(make_sequence_config(**overrides))


def planned(batcher: UnpinnedBatcher, now_ns: int = 0) -> BatchPlan:
    plan = batcher.plan(now_ns)
    assert plan is not None
    return plan


def ids(plan: BatchPlan) -> list[str]:
    return [row.sequence_id for row in plan.rows]


def solo(name: str, n_samples: int) -> Chunk:
    return replace(make_chunk(name, n_samples, start=True), solo=True)


def ended(effects: Sequence[SequenceEffect]) -> list[str]:
    return [effect.sequence_id for effect in effects if isinstance(effect, SequenceEnded)]


def lost(effects: Sequence[SequenceEffect]) -> dict[str, type[MoorageError]]:
    return {effect.sequence_id: type(effect.error) for effect in effects if isinstance(effect, SequenceLost)}


class TestRouting:
    def test_a_sequence_goes_wherever_an_instance_is_idle(self) -> None:
        batcher = make_batcher(max_batch=1)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        first = planned(batcher)
        batcher.offer(make_chunk("b", FIRST_TICK, start=True), 1)
        second = planned(batcher, 1)
        assert (first.instance, second.instance) == (FIRST, SECOND)
        batcher.commit(first, answer(first), 2)
        batcher.commit(second, answer(second), 3)
        batcher.offer(make_chunk("a", TICK), 4)  # the second instance was busy last
        third = planned(batcher, 4)
        assert (ids(third), third.instance) == (["a"], SECOND)
        assert not third.rows[0].start
        assert third.rows[0].first_sample == FIRST_TICK
        assert batcher.commit(third, answer(third), 5)  # nothing says that this was wrong

    def test_one_sequence_alone_always_meets_the_instance_that_was_busy_last(self) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        for step in range(5):
            plan = planned(batcher, step)
            assert plan.instance == FIRST
            batcher.commit(plan, answer(plan), step)
            batcher.offer(make_chunk("a", TICK), step)

    def test_rows_of_all_sequences_share_a_batch(self) -> None:
        batcher = make_batcher(max_delay_ns=10)
        for at_ns, name in enumerate(("a", "b", "c")):
            batcher.offer(make_chunk(name, FIRST_TICK, start=True), at_ns)
        assert batcher.plan(9) is None
        assert batcher.next_deadline_ns() == 10
        plan = planned(batcher, 10)
        assert ids(plan) == ["a", "b", "c"]
        assert [samples.size for samples in plan.audio] == [FIRST_TICK] * 3

    def test_an_instance_without_what_it_needs_is_passed_over(self) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        only_second: Callable[[InstanceIndex], bool] = lambda instance: instance == SECOND  # noqa: E731
        assert batcher.next_deadline_ns(lambda instance: False) is None
        assert batcher.plan(0, lambda instance: False) is None
        plan = batcher.plan(0, only_second)
        assert plan is not None
        assert plan.instance == SECOND


class TestOrder:
    def test_the_next_row_is_asked_for_when_the_one_before_was_answered(self) -> None:
        batcher = make_batcher(max_batch=4)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        rows: list[BatchRow] = []
        for _ in range(3):
            plan = planned(batcher)
            batcher.offer(make_chunk("a", TICK), 0)
            batcher.touch(SequenceId("a"), 0)
            assert batcher.plan(0) is None  # the other instance is idle, and gets nothing of the sequence
            rows += plan.rows
            batcher.commit(plan, answer(plan), 0)
        assert [(row.first_sample, row.n_samples) for row in rows] == [(0, 13), (13, 10), (23, 10)]
        assert [row.start for row in rows] == [True, False, False]

    def test_finalize_reads_on_scratch_and_end_ends(self) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", 5, start=True, finalize=True), 0)
        plan = planned(batcher)
        assert (plan.rows[0].flush, plan.rows[0].end, plan.rows[0].n_samples) == (True, False, 5)
        batcher.commit(plan, answer(plan), 0)
        batcher.offer(make_chunk("a", 2, end=True), 1)
        plan = planned(batcher, 1)
        assert (plan.rows[0].flush, plan.rows[0].end, plan.rows[0].n_samples) == (True, True, 7)
        completed, terminal = batcher.commit(plan, answer(plan), 2)
        assert isinstance(completed, RowCompleted)
        assert (completed.plan_id, completed.instance, completed.step_ns) == (plan.plan_id, plan.instance, 7)
        assert terminal == SequenceEnded(sequence_id=SequenceId("a"), cause=CloseCause.END, received_samples=7)
        assert batcher.stats().live == 0

    def test_options_go_with_the_first_row_alone(self) -> None:
        batcher = make_batcher()
        options = SequenceOptions(endpoint_silence_ms=300)
        batcher.offer(replace(make_chunk("a", FIRST_TICK + TICK, start=True), options=options), 0)
        first = planned(batcher)
        batcher.commit(first, answer(first), 0)
        assert (first.rows[0].options, planned(batcher).rows[0].options) == (options, None)


class TestRefusals:
    def test_offers_out_of_place_take_nothing(self) -> None:
        batcher = make_batcher()
        with pytest.raises(UnknownSequence):
            batcher.offer(make_chunk("a", 1), 0)
        batcher.offer(make_chunk("a", 1, start=True), 0)
        with pytest.raises(DuplicateSequence):
            batcher.offer(make_chunk("a", 1, start=True), 0)
        with pytest.raises(BadAudio):
            batcher.offer(replace(make_chunk("a", 1), samples=np.array([np.nan], dtype=np.float32)), 0)
        with pytest.raises(QueueFull):
            batcher.offer(make_chunk("a", 60), 0)
        batcher.offer(make_chunk("a", end=True), 0)
        with pytest.raises(SequenceAlreadyEnded):
            batcher.offer(make_chunk("a", 1), 0)
        with pytest.raises(SequenceAlreadyEnded):
            batcher.room(SequenceId("a"))
        plan = planned(batcher)
        batcher.commit(plan, answer(plan), 0)
        with pytest.raises(SequenceAlreadyEnded):
            batcher.touch(SequenceId("a"), 0)
        refused = {"unknown_sequence": 1, "duplicate_sequence": 1, "bad_audio": 1, "queue_full": 1, "sequence_ended": 1}
        assert batcher.stats().refused == refused

    def test_as_many_sequences_as_there_are_slots(self) -> None:
        batcher = make_batcher()
        for name in ("a", "b", "c", "d"):
            batcher.offer(make_chunk(name, start=True), 0)
        assert batcher.free_slots() == 0
        with pytest.raises(CapacityExceeded):
            batcher.offer(make_chunk("e", start=True), 0)
        assert ended(batcher.cancel(SequenceId("b"), 0)) == ["b"]
        batcher.offer(make_chunk("e", start=True), 0)
        assert [each.slots_held for each in batcher.stats().instances] == [2, 2]

    def test_a_plan_is_committed_once(self) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        plan = planned(batcher)
        with pytest.raises(ServiceError, match="has 1 rows, its result 0"):
            batcher.commit(plan, replace(answer(plan), rows=()), 0)
        batcher.commit(plan, answer(plan), 0)
        with pytest.raises(ServiceError, match=f"plan {plan.plan_id} is not in flight"):
            batcher.commit(plan, answer(plan), 0)


class TestLeaving:
    @pytest.mark.parametrize("when", ["queued", "in flight", "waiting"])
    def test_cancel(self, when: str) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", 1 if when == "waiting" else FIRST_TICK, start=True), 0)
        plan = planned(batcher) if when == "in flight" else None
        assert ended(batcher.cancel(SequenceId("a"), 0)) == ["a"]
        assert batcher.cancel(SequenceId("a"), 0) == []
        assert batcher.free_slots() == 4
        batcher.offer(make_chunk("a", 1, start=True), 0)  # the id is free at once
        if plan is not None:
            assert batcher.commit(plan, answer(plan), 0) == []
            assert batcher.stats().stale_results == 1
        assert batcher.plan(0) is None
        assert batcher.stats().live == 1

    def test_an_idle_sequence_is_read_to_its_end(self) -> None:
        batcher = make_batcher(idle_timeout_ns=100)
        batcher.offer(make_chunk("a", 5, start=True), 0)
        batcher.touch(SequenceId("a"), 50)
        assert batcher.next_deadline_ns() == 150
        assert batcher.expire(149) == []
        assert batcher.plan(149) is None
        assert batcher.expire(150) == []
        plan = planned(batcher, 150)
        assert plan.rows[0].n_samples == 5
        assert lost(batcher.commit(plan, answer(plan), 151)) == {"a": IdleTimeout}
        assert batcher.stats().idle == 1


class TestFailures:
    def test_an_error_of_a_row_ends_its_sequence_alone(self) -> None:
        batcher = make_batcher(max_delay_ns=1)
        for name in ("a", "b"):
            batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
        plan = planned(batcher, 1)
        result = answer(plan)
        effects = batcher.commit(plan, replace(result, rows=(answer(plan, error="bad").rows[0], result.rows[1])), 2)
        assert lost(effects) == {"a": StepFailed}
        assert batcher.stats().live == 1

    @pytest.mark.parametrize(("instance_lost", "error"), [(False, StepFailed), (True, InstanceFailed)])
    def test_a_failed_step_ends_those_in_it(self, instance_lost: bool, error: type[MoorageError]) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        plan = planned(batcher)
        batcher.offer(make_chunk("b", 1, start=True), 0)
        failure = BatchFailure(plan_id=plan.plan_id, error="gone", instance_lost=instance_lost)
        assert lost(batcher.commit(plan, failure, 0)) == {"a": error}
        batcher.offer(make_chunk("b", FIRST_TICK), 1)
        assert planned(batcher, 1).instance == (SECOND if instance_lost else FIRST)

    def test_a_lost_instance_takes_nothing_until_it_is_back(self) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        plan = planned(batcher)
        batcher.offer(make_chunk("b", FIRST_TICK, start=True), 0)
        assert lost(batcher.lose_instance(FIRST, "gone", 0)) == {"a": InstanceFailed}
        assert batcher.lose_instance(FIRST, "gone", 0) == []
        assert batcher.commit(plan, answer(plan), 0) == []
        assert batcher.stats().stale_results == 1
        assert [each.is_lost for each in batcher.stats().instances] == [True, False]
        other = planned(batcher)
        assert (other.instance, ids(other)) == (SECOND, ["b"])
        batcher.offer(make_chunk("c", FIRST_TICK, start=True), 0)
        assert batcher.plan(0) is None
        batcher.instance_restored(FIRST, 1)
        assert planned(batcher, 1).instance == FIRST
        with pytest.raises(ServiceError, match="was not lost"):
            batcher.instance_restored(FIRST, 1)


class TestSolo:
    def test_it_stays_where_it_is_in_steps_of_its_own(self) -> None:
        batcher = make_batcher()
        batcher.offer(solo("s", FIRST_TICK + TICK), 0)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        alone, other = planned(batcher), planned(batcher)
        assert [(ids(each), each.instance) for each in (alone, other)] == [(["s"], FIRST), (["a"], SECOND)]
        batcher.commit(alone, answer(alone), 1)
        batcher.commit(other, answer(other), 2)  # busy last, and still not where the solo sequence goes
        again = planned(batcher, 3)
        assert (ids(again), again.instance) == (["s"], FIRST)

    def test_it_waits_for_its_instance(self) -> None:
        batcher = make_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        busy = planned(batcher)
        batcher.offer(solo("s", FIRST_TICK), 1)
        assert busy.instance == FIRST
        assert batcher.plan(1) is None
        assert batcher.next_deadline_ns() is None
        batcher.commit(busy, answer(busy), 2)
        assert batcher.next_deadline_ns() == 1
        assert ids(planned(batcher, 2)) == ["s"]

    @pytest.mark.parametrize("in_flight", [False, True])
    def test_it_dies_with_its_instance(self, in_flight: bool) -> None:
        batcher = make_batcher()
        batcher.offer(solo("s", FIRST_TICK), 0)
        if in_flight:
            plan = planned(batcher)
            failure = BatchFailure(plan_id=plan.plan_id, error="gone", instance_lost=True)
            assert lost(batcher.commit(plan, failure, 0)) == {"s": InstanceFailed}
        else:
            assert lost(batcher.lose_instance(FIRST, "gone", 0)) == {"s": InstanceFailed}
        assert batcher.plan(0) is None
        batcher.offer(solo("t", FIRST_TICK), 1)
        assert planned(batcher, 1).instance == SECOND

    def test_its_end_and_its_errors_are_told(self) -> None:
        batcher = make_batcher()
        batcher.offer(replace(solo("s", 3), end=True), 0)
        plan = planned(batcher)
        assert ended(batcher.commit(plan, answer(plan), 0)) == ["s"]
        batcher.offer(solo("t", FIRST_TICK), 0)
        plan = planned(batcher)
        assert lost(batcher.commit(plan, answer(plan, error="bad"), 0)) == {"t": StepFailed}
        batcher.offer(solo("u", FIRST_TICK), 0)
        plan = planned(batcher)
        batcher.cancel(SequenceId("u"), 0)
        assert batcher.commit(plan, answer(plan), 0) == []
        assert batcher.stats().stale_results == 1
