"""The sequence batcher, verb by verb. Timelines are in ``tests.scenarios``, any order in ``tests.properties``."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from server.batching.sequence_batcher import DuplicateStart, SequenceBatcher, Strategy
from server.effects import (
    RowCompleted,
    SequenceEffect,
    SequenceEnded,
    SequenceLost,
    SequencePlaced,
    SequenceQueued,
)
from server.errors import (
    BacklogTimeout,
    BadAudio,
    BadTensor,
    CapacityExceeded,
    DuplicateSequence,
    IdleTimeout,
    InstanceFailed,
    MissingStart,
    MoorageError,
    QueueFull,
    SequenceAlreadyEnded,
    SequenceTooLong,
    ServiceError,
    StepFailed,
    UnknownSequence,
)
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Chunk, RowResult, Tensors, Turn
from tests.support.factories import (
    FIRST_TICK,
    TICK,
    answer,
    make_chunk,
    make_sequence_batcher,
    make_turn,
)

A, B, C = SequenceId("a"), SequenceId("b"), SequenceId("c")
FIRST, SECOND = InstanceIndex(0), InstanceIndex(1)


def planned(batcher: SequenceBatcher, now_ns: int = 0) -> BatchPlan:
    plan = batcher.plan(now_ns)
    assert plan is not None
    return plan


def names(plan: BatchPlan) -> list[str]:
    return [row.sequence_id for row in plan.rows]


def assert_lost(effect: SequenceEffect, sequence_id: str, error: type[MoorageError], message: str) -> None:
    assert isinstance(effect, SequenceLost)
    assert effect.sequence_id == sequence_id
    assert type(effect.error) is error
    assert str(effect.error) == message


class TestOffer:
    def test_start_takes_a_slot_on_the_emptiest_instance(self) -> None:
        batcher = make_sequence_batcher(instances=2, slots=2)
        for name in "abc":
            batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
        assert names(planned(batcher)) == ["a", "c"]
        assert names(planned(batcher)) == ["b"]
        assert batcher.free_slots() == 1

    def test_refusals(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=2)
        batcher.offer(make_chunk("a", 5, start=True), 0)
        batcher.offer(make_chunk("b", 5, start=True, end=True), 0)
        refusals: list[tuple[Chunk, type[MoorageError], str]] = [
            (make_chunk("a", 5, start=True), DuplicateSequence, "sequence a is live"),
            (make_chunk("c", 5), UnknownSequence, "sequence c is not live: only START opens one"),
            (make_chunk("b", 5), SequenceAlreadyEnded, "sequence b takes nothing after its END"),
            (make_chunk("b", 5, start=True), DuplicateSequence, "sequence b is live"),
            (make_chunk("c", 5, start=True), CapacityExceeded, "every slot is taken$"),
            (make_chunk("a", 56), QueueFull, "56 samples do not fit: there is room for 55"),
        ]
        before = batcher.stats()
        for chunk, error, message in refusals:
            with pytest.raises(error, match=message):
                batcher.offer(chunk, 0)
        refused = {
            "duplicate_sequence": 2,
            "unknown_sequence": 1,
            "sequence_ended": 1,
            "capacity_exceeded": 1,
            "queue_full": 1,
        }
        assert batcher.stats() == replace(before, refused=refused)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("start", [True, False])
    def test_bad_audio_takes_nothing(self, bad: float, start: bool) -> None:
        batcher = make_sequence_batcher()
        batcher.offer(make_chunk("a", 12, start=True), 0)
        before = batcher.stats()
        chunk = make_chunk("b" if start else "a", 3, start=start, end=True)
        chunk.samples[1] = bad
        with pytest.raises(BadAudio):
            batcher.offer(chunk, 0)
        assert batcher.stats() == replace(before, refused={"bad_audio": 1})
        batcher.offer(make_chunk("a", 1, first=13), 0)
        assert planned(batcher).audio[0].tolist() == list(range(1, 14))

    def test_an_offer_that_does_not_fit_opens_nothing(self) -> None:
        batcher = make_sequence_batcher()
        with pytest.raises(QueueFull):
            batcher.offer(make_chunk("a", 61, start=True), 0)
        assert batcher.free_slots() == 4
        with pytest.raises(UnknownSequence):
            batcher.offer(make_chunk("a", 1), 0)

    def test_a_long_offer_can_be_split_by_room(self) -> None:
        batcher = make_sequence_batcher()
        samples = make_chunk("a", 200).samples
        batcher.offer(make_chunk("a", start=True), 0)
        heard: list[float] = []
        while samples.size or batcher.stats().ready_rows:
            room = batcher.room(A)
            batcher.offer(Chunk(sequence_id=A, samples=samples[:room]), 0)
            samples = samples[room:]
            plan = planned(batcher)
            heard += plan.audio[0].tolist()
            batcher.commit(plan, answer(plan), 0)
        assert heard == list(range(1, 194))

    def test_ended_ids_are_remembered_up_to_a_bound(self) -> None:
        batcher = make_sequence_batcher(max_remembered_ids=2)
        for name in "abc":
            batcher.offer(make_chunk(name, start=True), 0)
            batcher.cancel(SequenceId(name), 0)
        with pytest.raises(UnknownSequence):
            batcher.offer(make_chunk("a"), 0)
        for name in "bc":
            with pytest.raises(SequenceAlreadyEnded, match=f"sequence {name} has ended"):
                batcher.offer(make_chunk(name), 0)

    def test_an_ended_id_may_start_anew(self) -> None:
        batcher = make_sequence_batcher()
        for _ in range(3):
            batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
            plan = planned(batcher)
            assert plan.rows[0].start
            batcher.commit(plan, answer(plan), 0)
            batcher.cancel(A, 0)
        assert [row.generation for row in plan.rows] == [3]


class TestRoomAndTouch:
    def test_only_live_sequences_have_room(self) -> None:
        batcher = make_sequence_batcher()
        with pytest.raises(UnknownSequence):
            batcher.room(A)
        batcher.offer(make_chunk("a", 20, start=True), 0)
        assert batcher.room(A) == 40
        planned(batcher)
        assert batcher.room(A) == 53
        batcher.offer(make_chunk("a", end=True), 0)
        with pytest.raises(SequenceAlreadyEnded):
            batcher.room(A)

    def test_touch_of_a_live_sequence(self) -> None:
        batcher = make_sequence_batcher(idle_timeout_ns=100)
        with pytest.raises(UnknownSequence):
            batcher.touch(A, 0)
        batcher.offer(make_chunk("a", start=True), 0)
        batcher.touch(A, 60)
        assert batcher.next_deadline_ns() == 160
        batcher.offer(make_chunk("a", end=True), 60)
        batcher.touch(A, 70)
        batcher.cancel(A, 70)
        with pytest.raises(SequenceAlreadyEnded):
            batcher.touch(A, 80)


class TestCancel:
    def test_not_live_is_nothing(self) -> None:
        assert make_sequence_batcher().cancel(A, 0) == []

    @pytest.mark.parametrize("n_samples", [5, FIRST_TICK], ids=["waiting", "ready"])
    def test_without_a_step_the_slot_is_free_at_once(self, n_samples: int) -> None:
        batcher = make_sequence_batcher()
        batcher.offer(make_chunk("a", n_samples, start=True), 0)
        ended = SequenceEnded(sequence_id=A, cause=CloseCause.CANCELLED, received_samples=n_samples)
        assert batcher.cancel(A, 0) == [ended]
        assert batcher.cancel(A, 0) == []
        assert batcher.free_slots() == 4
        assert batcher.plan(0) is None

    @pytest.mark.parametrize(("error", "n_quarantined"), [(None, 0), ("NaN in its state", 1)])
    def test_in_a_step_the_commit_frees_the_slot(self, error: str | None, n_quarantined: int) -> None:
        batcher = make_sequence_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True, end=True), 0)
        plan = planned(batcher)
        assert len(batcher.cancel(A, 0)) == 1
        assert batcher.free_slots() == 3
        assert batcher.cancel(A, 0) == []
        assert batcher.commit(plan, answer(plan, error=error), 0) == []
        stats = batcher.stats()
        assert (stats.stale_results, stats.ended) == (1, {"cancelled": 1})
        assert stats.instances[0].slots_held == 0
        assert stats.instances[0].slots_quarantined == n_quarantined

    def test_a_second_life_of_the_id_is_apart_from_the_step_of_the_first(self) -> None:
        """Found by the state machine: freeing the first life's slot took the second life out of the line."""
        batcher = make_sequence_batcher(instances=1)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        plan = planned(batcher)
        batcher.cancel(A, 0)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        assert batcher.commit(plan, answer(plan), 0) == []
        second = planned(batcher)
        assert [(row.slot, row.start) for row in second.rows] == [(1, True)]


class TestPlanAndCommit:
    def test_one_step_in_flight_per_instance(self) -> None:
        batcher = make_sequence_batcher(instances=1)
        batcher.offer(make_chunk("a", FIRST_TICK + TICK, start=True), 0)
        plan = planned(batcher)
        batcher.offer(make_chunk("b", FIRST_TICK, start=True), 0)
        assert batcher.plan(0) is None
        assert batcher.next_deadline_ns() is None
        batcher.commit(plan, answer(plan), 0)
        assert names(planned(batcher)) == ["b", "a"]

    def test_a_completed_row(self) -> None:
        batcher = make_sequence_batcher()
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 10)
        plan = planned(batcher, 14)
        assert batcher.commit(plan, answer(plan), 30) == [
            RowCompleted(row=plan.rows[0], instance=FIRST, output="a", batch_size=1, queue_ns=4, step_ns=7, plan_id=1)
        ]

    def test_effects_come_in_the_order_of_the_rows(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=3)
        for name in "abc":
            batcher.offer(make_chunk(name, 4, start=True, end=name != "b"), 0)
        batcher.offer(make_chunk("b", FIRST_TICK, first=5), 0)
        plan = planned(batcher)
        assert names(plan) == ["a", "c", "b"]
        rows = (RowResult(output=1), RowResult(error="NaN"), RowResult(output=2))
        effects = batcher.commit(plan, BatchResult(plan_id=plan.plan_id, rows=rows), 0)
        assert [type(effect) for effect in effects] == [RowCompleted, SequenceEnded, SequenceLost, RowCompleted]
        assert effects[1] == SequenceEnded(sequence_id=A, cause=CloseCause.END, received_samples=4)
        assert_lost(effects[2], "c", StepFailed, "NaN")

    def test_a_failed_step(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=3)
        for name in "ab":
            batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
        batcher.offer(make_chunk("c", start=True), 0)
        plan = planned(batcher)
        batcher.cancel(B, 0)
        effects = batcher.commit(plan, BatchFailure(plan_id=plan.plan_id, error="out of memory"), 0)
        assert len(effects) == 1
        assert_lost(effects[0], "a", StepFailed, "out of memory")
        stats = batcher.stats()
        assert (stats.live, stats.ended) == (1, {"cancelled": 1, "step_failed": 1})
        assert stats.instances[0].slots_quarantined == 2
        assert planned(batcher).scrub == (0, 1)

    def test_a_lost_instance(self) -> None:
        batcher = make_sequence_batcher(instances=2, slots=3)
        for name in "axbycz":
            batcher.offer(make_chunk(name, FIRST_TICK if name in "bc" else 0, start=True), 0)
        plan = planned(batcher)
        assert names(plan) == ["b", "c"]
        batcher.cancel(C, 0)
        effects = batcher.commit(plan, BatchFailure(plan_id=plan.plan_id, error="gone", instance_lost=True), 0)
        assert len(effects) == 2
        assert_lost(effects[0], "b", InstanceFailed, "gone")
        assert_lost(effects[1], "a", InstanceFailed, "gone")
        stats = batcher.stats()
        assert (stats.live, stats.stale_results) == (3, 1)
        assert [lane.is_lost for lane in stats.instances] == [True, False]
        assert stats.instances[0].slots_quarantined == 3
        assert batcher.plan(0) is None
        with pytest.raises(CapacityExceeded):
            batcher.offer(make_chunk("d", start=True), 0)

    def test_a_commit_is_of_a_plan_in_flight_and_once(self) -> None:
        batcher = make_sequence_batcher(instances=2)
        for name in "ab":
            batcher.offer(make_chunk(name, FIRST_TICK + TICK, start=True), 0)
        first, second = planned(batcher), planned(batcher)
        batcher.commit(first, answer(first), 0)
        with pytest.raises(ServiceError, match="plan 1 is not in flight"):
            batcher.commit(first, answer(first), 0)
        third = planned(batcher)
        with pytest.raises(ServiceError, match="plan 1 is not in flight"):
            batcher.commit(first, answer(first), 0)
        with pytest.raises(ServiceError, match="plan 9 is not in flight"):
            batcher.commit(replace(second, plan_id=9), answer(second), 0)
        assert len(batcher.commit(third, answer(third), 0)) == 1

    def test_a_result_of_something_else_changes_nothing(self) -> None:
        batcher = make_sequence_batcher(instances=1)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        plan = planned(batcher)
        with pytest.raises(ServiceError, match="a result of plan 2 was given for plan 1"):
            batcher.commit(plan, BatchFailure(plan_id=2, error=""), 0)
        with pytest.raises(ServiceError, match="plan 1 has 1 rows, its result 0"):
            batcher.commit(plan, BatchResult(plan_id=1, rows=()), 0)
        with pytest.raises(ServiceError, match=r"plan 1 did not ask to scrub \[1\]"):
            batcher.commit(plan, replace(answer(plan), scrubbed=(SlotIndex(1),)), 0)
        assert len(batcher.commit(plan, answer(plan), 0)) == 1

    def test_scrubs(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=2, scrub_retry_ns=100)
        for name in "ab":
            batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
        plan = planned(batcher)
        batcher.commit(plan, answer(plan, error="NaN"), 5)
        scrub = planned(batcher, 5)
        assert (scrub.rows, scrub.audio, scrub.scrub) == ((), (), (0, 1))
        result = BatchResult(plan_id=scrub.plan_id, rows=(), scrubbed=(SlotIndex(1),))
        assert batcher.commit(scrub, result, 10) == []
        assert batcher.stats().instances[0].slots_quarantined == 1
        assert batcher.next_deadline_ns() == 110
        assert batcher.plan(109) is None
        scrub = planned(batcher, 110)
        batcher.commit(scrub, BatchFailure(plan_id=scrub.plan_id, error="no step"), 111)
        assert batcher.next_deadline_ns() == 211

    def test_max_delay(self) -> None:
        batcher = make_sequence_batcher(instances=1, max_delay_ns=50)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 5)
        batcher.offer(make_chunk("b", start=True), 5)
        assert batcher.plan(54) is None
        assert batcher.next_deadline_ns() == 55
        assert names(planned(batcher, 55)) == ["a"]

    def test_time_that_goes_back_stands_still(self) -> None:
        batcher = make_sequence_batcher(idle_timeout_ns=100)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 50)
        plan = planned(batcher, 40)
        assert (plan.planned_at_ns, plan.rows[0].ready_at_ns) == (50, 50)
        batcher.commit(plan, answer(plan), 30)
        assert batcher.next_deadline_ns() == 150


class TestInstances:
    def test_a_death_between_steps(self) -> None:
        batcher = make_sequence_batcher(instances=2)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        batcher.offer(make_chunk("b", FIRST_TICK, start=True), 0)
        effects = batcher.lose_instance(FIRST, "died", 0)
        assert len(effects) == 1
        assert_lost(effects[0], "a", InstanceFailed, "died")
        assert batcher.lose_instance(FIRST, "died", 0) == []
        assert names(planned(batcher)) == ["b"]
        assert batcher.plan(0) is None

    def test_a_late_result_is_stale(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=1)
        batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
        old = planned(batcher)
        assert len(batcher.lose_instance(FIRST, "died", 0)) == 1
        batcher.instance_restored(FIRST, 0)
        scrub = planned(batcher)
        batcher.commit(scrub, answer(scrub), 0)
        batcher.offer(make_chunk("b", FIRST_TICK, start=True), 0)
        new = planned(batcher)
        with pytest.raises(ServiceError, match="plan 1 has 1 rows"):
            batcher.commit(old, BatchResult(plan_id=old.plan_id, rows=()), 0)
        failure = BatchFailure(plan_id=old.plan_id, error="gone", instance_lost=True)
        assert batcher.commit(old, failure, 0) == []
        assert batcher.stats().stale_results == 1
        with pytest.raises(ServiceError, match="plan 1 is not in flight"):
            batcher.commit(old, answer(old), 0)
        effects = batcher.commit(new, answer(new), 0)
        assert [effect.row.sequence_id for effect in effects if isinstance(effect, RowCompleted)] == ["b"]

    def test_only_a_lost_instance_is_restored(self) -> None:
        batcher = make_sequence_batcher(instances=2)
        with pytest.raises(ServiceError, match="instance 1 was not lost"):
            batcher.instance_restored(SECOND, 0)
        batcher.lose_instance(SECOND, "died", 0)
        batcher.instance_restored(SECOND, 0)
        assert batcher.free_slots() == 2
        scrub = planned(batcher)
        assert (scrub.instance, scrub.scrub) == (SECOND, (0, 1))
        batcher.commit(scrub, answer(scrub), 0)
        assert batcher.free_slots() == 4


class TestExpire:
    def test_idle_sequences_are_told(self) -> None:
        batcher = make_sequence_batcher(idle_timeout_ns=100)
        batcher.offer(make_chunk("a", 5, start=True), 0)
        batcher.offer(make_chunk("b", 5, start=True), 10)
        batcher.offer(make_chunk("c", FIRST_TICK, start=True), 10)
        assert batcher.next_deadline_ns() == 10
        assert batcher.expire(99) == []
        assert batcher.stats().idle == 0
        assert batcher.expire(200) == []
        assert (batcher.stats().live, batcher.stats().idle) == (3, 2)
        assert names(planned(batcher, 200)) == ["c", "a"]
        assert names(planned(batcher, 200)) == ["b"]

    def test_what_they_have_said_is_read_to_its_end(self) -> None:
        batcher = make_sequence_batcher(instances=1, idle_timeout_ns=100)
        batcher.offer(make_chunk("a", 5, start=True), 0)
        batcher.expire(100)
        with pytest.raises(SequenceAlreadyEnded):
            batcher.offer(make_chunk("a", 5), 101)
        plan = planned(batcher, 101)
        [row] = plan.rows
        assert (row.start, row.flush, row.end, row.n_samples) == (True, True, True, 5)
        completed, lost = batcher.commit(plan, answer(plan), 102)
        assert isinstance(completed, RowCompleted)
        assert_lost(lost, "a", IdleTimeout, "neither audio nor a keep-alive came in time")
        stats = batcher.stats()
        assert (stats.live, stats.ended) == (0, {"idle_timeout": 1})
        assert batcher.free_slots() == stats.instances[0].slots

    def test_the_longest_idle_goes_first_and_work_is_no_idleness(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=3, idle_timeout_ns=100)
        for at_ns, name in enumerate("abc"):
            batcher.offer(make_chunk(name, start=True), at_ns)
        batcher.touch(A, 10)
        batcher.offer(make_chunk("b", FIRST_TICK), 20)
        plan = planned(batcher, 20)
        assert batcher.expire(109) == []
        assert batcher.stats().idle == 1
        assert batcher.expire(110) == []
        assert batcher.stats().idle == 2
        assert batcher.expire(1_000) == []
        assert batcher.stats().idle == 2
        batcher.commit(plan, answer(plan), 1_000)
        farewell = planned(batcher, 1_000)
        assert names(farewell) == ["c", "a"]
        batcher.commit(farewell, answer(farewell), 1_000)
        assert batcher.next_deadline_ns() == 1_100
        assert batcher.expire(1_099) == []
        assert batcher.stats().idle == 2
        assert batcher.expire(1_100) == []
        assert batcher.stats().idle == 3
        assert names(planned(batcher, 1_100)) == ["b"]

    def test_no_timeout(self) -> None:
        batcher = make_sequence_batcher(idle_timeout_ns=0)
        batcher.offer(make_chunk("a", 5, start=True), 0)
        assert batcher.next_deadline_ns() is None
        assert batcher.expire(10**18) == []


class TestTurns:
    def test_a_plan_of_turns(self) -> None:
        batcher = make_sequence_batcher(instances=1, takes_turns=True)
        a, b = make_turn("a", 1, start=True), replace(make_turn("b", 2, start=True, end=True), correlation_id=2**64 - 1)
        for at_ns, turn in enumerate((a, b)):
            batcher.offer(turn, at_ns)
        plan = planned(batcher, 5)
        assert (plan.audio, plan.tensors) == ((), (a.tensors, b.tensors))
        assert [(row.request_id, row.correlation_id, row.ready_at_ns) for row in plan.rows] == [
            (1, "a", 0),
            (2, 2**64 - 1, 1),
        ]
        effects = batcher.commit(plan, answer(plan), 9)
        assert [type(effect) for effect in effects] == [RowCompleted, RowCompleted, SequenceEnded]
        assert effects[2] == SequenceEnded(sequence_id=B, cause=CloseCause.END, received_samples=0)

    def test_refusals(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=2, takes_turns=True, max_queued_turns=2)
        batcher.offer(make_turn("a", start=True), 0)
        batcher.offer(make_turn("b", start=True, end=True), 0)
        two_rows = Tensors(arrays={"INPUT": np.zeros((2, 1))}, n_rows=2)
        refusals: list[tuple[Turn, type[MoorageError], str]] = [
            (make_turn("c"), MissingStart, "sequence c is not live: its first turn must say START"),
            (make_turn("a", start=True), DuplicateSequence, "sequence a is live"),
            (make_turn("b"), SequenceAlreadyEnded, "sequence b takes nothing after its END"),
            (make_turn("c", start=True), CapacityExceeded, "every slot is taken$"),
            (replace(make_turn("a"), tensors=two_rows), BadTensor, "a turn of a sequence is one row, not 2"),
        ]
        before = batcher.stats()
        for turn, error, message in refusals:
            with pytest.raises(error, match=message):
                batcher.offer(turn, 0)
        batcher.offer(make_turn("a"), 0)
        assert batcher.room(A) == 0
        with pytest.raises(QueueFull, match="2 turns wait: no more than that"):
            batcher.offer(make_turn("a"), 0)
        assert sum(batcher.stats().refused.values()) == 6
        assert (batcher.stats().queued_turns, before.queued_turns, batcher.stats().queued_samples) == (3, 2, 0)

    def test_a_restart_is_counted_and_initialises_the_same_slot(self) -> None:
        batcher = make_sequence_batcher(instances=1, takes_turns=True, duplicate_start=DuplicateStart.RESTART)
        for number in range(2):
            batcher.offer(make_turn("a", number, start=True), 0)
        rows: list[BatchRow] = []
        for _ in range(2):
            plan = planned(batcher)
            rows += plan.rows
            batcher.commit(plan, answer(plan), 0)
        assert [(row.slot, row.generation, row.start) for row in rows] == [(0, 1, True), (0, 1, True)]
        assert (batcher.stats().restarts, batcher.stats().started) == (1, 1)

    def test_idle_sequences_are_lost_at_once(self) -> None:
        batcher = make_sequence_batcher(takes_turns=True, idle_timeout_ns=100)
        batcher.offer(make_turn("a", start=True), 0)
        plan = planned(batcher)
        batcher.commit(plan, answer(plan), 10)
        assert batcher.expire(109) == []
        [lost] = batcher.expire(110)
        assert_lost(lost, "a", IdleTimeout, "no turn came in time")
        assert (batcher.stats().ended, batcher.stats().idle) == ({"idle_timeout": 1}, 1)
        assert batcher.free_slots() == 4

    def test_chunks_are_for_other_models(self) -> None:
        with pytest.raises(AssertionError):
            make_sequence_batcher(takes_turns=True).offer(make_chunk("a", start=True), 0)
        with pytest.raises(AssertionError):
            make_sequence_batcher().offer(make_turn("a", start=True), 0)


class TestBacklog:
    def test_who_waits_gets_the_slot_in_the_verb_that_frees_it(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=1, backlog=2)
        batcher.offer(make_chunk("a", 3, start=True, end=True), 0)
        for name in "bc":
            batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
        assert batcher.place_in_line(A) is None
        assert batcher.place_in_line(C) == SequenceQueued(sequence_id=C, position=2, expected_wait_ns=None)
        plan = planned(batcher)
        effects = batcher.commit(plan, answer(plan), 5)
        assert [type(effect) for effect in effects[:2]] == [RowCompleted, SequenceEnded]
        assert effects[2:] == [
            SequencePlaced(sequence_id=B, instance=FIRST, waited_ns=5),
            SequenceQueued(sequence_id=C, position=1, expected_wait_ns=5),
        ]
        assert batcher.place_in_line(B) is None
        assert names(planned(batcher, 5)) == ["b"]

    def test_too_long_a_wait(self) -> None:
        batcher = make_sequence_batcher(instances=1, slots=1, backlog=2, backlog_wait_ns=100)
        batcher.offer(make_chunk("a", start=True), 0)
        batcher.offer(make_chunk("b", start=True), 0)
        assert batcher.next_deadline_ns() == 100
        [lost] = batcher.expire(100)
        assert_lost(lost, "b", BacklogTimeout, "no slot became free in time")
        assert batcher.next_deadline_ns() is None

    def test_the_next_life_of_an_id_waits_behind_those_who_wait(self) -> None:
        batcher = make_sequence_batcher(
            instances=1, slots=1, backlog=1, takes_turns=True, duplicate_start=DuplicateStart.RESTART
        )
        for turn in (
            make_turn("a", 1, start=True, end=True),
            make_turn("b", 2, start=True),
            make_turn("a", 3, start=True),
        ):
            batcher.offer(turn, 0)
        plan = planned(batcher)
        assert batcher.commit(plan, answer(plan), 5)[1:] == [
            SequencePlaced(sequence_id=B, instance=FIRST, waited_ns=5),
            SequenceQueued(sequence_id=A, position=1, expected_wait_ns=5),
        ]
        assert names(planned(batcher, 5)) == ["b"]


class TestParting:
    @pytest.mark.parametrize("start", [True, False])
    def test_the_reason_is_told_after_the_end(self, start: bool) -> None:
        batcher = make_sequence_batcher(instances=1)
        if not start:
            batcher.offer(make_chunk("a", 3, start=True), 0)
        too_long = SequenceTooLong("too long")
        batcher.offer(replace(make_chunk("a", 2, start=start, end=True), parting=too_long), 0)
        plan = planned(batcher)
        completed, lost = batcher.commit(plan, answer(plan), 0)
        assert isinstance(completed, RowCompleted)
        assert_lost(lost, "a", SequenceTooLong, "too long")


class TestResources:
    def test_only_instances_that_would_run_are_asked(self) -> None:
        batcher = make_sequence_batcher(instances=3, slots=1)
        asked: list[int] = []

        def may_run(instance: InstanceIndex) -> bool:
            asked.append(instance)
            return instance == 2

        for name, n_samples in (("a", FIRST_TICK), ("b", 0), ("c", FIRST_TICK)):
            batcher.offer(make_chunk(name, n_samples, start=True), 3)
        assert batcher.next_deadline_ns(may_run) == 3
        plan = batcher.plan(3, may_run)
        assert plan is not None
        assert names(plan) == ["c"]
        assert asked == [0, 2, 0, 2]
        assert batcher.plan(3, may_run) is None
        assert batcher.next_deadline_ns(may_run) is None
        assert batcher.next_deadline_ns() == 3


def test_stats() -> None:
    batcher = make_sequence_batcher(instances=2, slots=2)
    assert batcher.next_deadline_ns() is None
    for name in "abc":
        batcher.offer(make_chunk(name, FIRST_TICK + 2, start=True), 0)
    planned(batcher)
    stats = batcher.stats()
    assert (stats.live, stats.started, stats.queued_samples, stats.ready_rows) == (3, 3, 2 + 2 + 15, 1)
    assert [(lane.slots, lane.slots_held, lane.ready_rows) for lane in stats.instances] == [(2, 2, 0), (2, 1, 1)]
    assert [lane.steps_in_flight for lane in stats.instances] == [1, 0]
    assert (stats.steps, stats.rows, stats.padded_slots, stats.catch_up_ticks, stats.late_rows) == (1, 2, 0, 0, 0)


def test_stats_of_steps() -> None:
    batcher = make_sequence_batcher(
        instances=1, slots=3, strategy=Strategy.DIRECT, max_ticks=2, deadline_ns=50, flush_deadline_ns=10
    )
    for name, n_samples in (("a", FIRST_TICK + TICK), ("b", 0), ("c", 5)):
        batcher.offer(make_chunk(name, n_samples, start=True, finalize=name == "c"), 0)
    plan = planned(batcher)
    assert batcher.stats().instances[0].expected_step_ns is None
    batcher.commit(plan, answer(plan), 50)
    stats = batcher.stats()
    assert (stats.steps, stats.rows, stats.padded_slots, stats.catch_up_ticks) == (1, 2, 1, 1)
    # the flush: a tick is in time when it is told at its deadline
    assert (stats.late_rows, stats.instances[0].expected_step_ns) == (1, 50)
    batcher.offer(make_chunk("a", TICK + TICK), 50)
    plan = planned(batcher, 60)
    batcher.commit(plan, answer(plan), 101)
    assert batcher.stats().late_rows == 3


def test_stats_of_the_backlog() -> None:
    batcher = make_sequence_batcher(instances=1, slots=1, backlog=2)
    assert (batcher.stats().expected_wait_ns, batcher.stats().backlog_oldest_ns) == (0, 0)
    for at_ns, name in enumerate("abc"):
        batcher.offer(make_chunk(name, start=True), 10 * at_ns)
    stats = batcher.stats()
    assert (stats.live, stats.started, stats.backlog, stats.queued, stats.placed) == (3, 3, 2, 2, 0)
    assert (stats.expected_wait_ns, stats.backlog_oldest_ns) == (None, 10)
    batcher.cancel(A, 60)
    stats = batcher.stats()
    assert (stats.backlog, stats.queued, stats.placed) == (1, 2, 1)
    assert (stats.expected_wait_ns, stats.backlog_oldest_ns) == (120, 40)


# A tenant that gives way


def giving_way(**overrides: Any) -> tuple[SequenceBatcher, BatchPlan]:
    """The only slot has a tenant that gives way, and has just left it with its row in flight."""
    batcher = make_sequence_batcher(**{"instances": 1, "slots": 1, **overrides})
    batcher.offer(replace(make_chunk("audit", FIRST_TICK + TICK, start=True), gives_way=True), 0)
    plan = planned(batcher)
    assert [type(effect) for effect in batcher.cancel(SequenceId("audit"), 1)] == [SequenceEnded]
    return batcher, plan


def test_who_finds_it_leaving_has_its_slot_after_the_row() -> None:
    batcher, plan = giving_way()
    batcher.offer(make_chunk("a", FIRST_TICK, start=True), 2)
    assert batcher.place_in_line(A) is None, "it stands in no line"
    assert batcher.plan(2) is None
    with pytest.raises(CapacityExceeded):
        batcher.offer(make_chunk("b", start=True), 3)
    assert batcher.commit(plan, answer(plan), 4) == [SequencePlaced(sequence_id=A, instance=FIRST, waited_ns=2)]
    (row,) = planned(batcher, 4).rows
    assert (row.sequence_id, row.start, row.first_sample) == (A, True, 0)
    with pytest.raises(CapacityExceeded):
        batcher.offer(make_chunk("b", start=True), 5)


def test_it_goes_before_whoever_comes_later_of_whatever_level() -> None:
    batcher, plan = giving_way(backlog=1, backlog_levels=3)
    batcher.offer(replace(make_chunk("a", start=True), priority=3), 2)
    batcher.offer(replace(make_chunk("b", start=True), priority=1), 3)
    assert batcher.place_in_line(A) is None
    assert batcher.place_in_line(B) == SequenceQueued(sequence_id=B, position=2, expected_wait_ns=None)
    with pytest.raises(CapacityExceeded):
        batcher.offer(replace(make_chunk("c", start=True), priority=1), 3)
    first, second = batcher.commit(plan, answer(plan), 4)
    assert first == SequencePlaced(sequence_id=A, instance=FIRST, waited_ns=2)
    assert isinstance(second, SequenceQueued)
    assert (second.sequence_id, second.position) == (B, 1)


def test_a_slot_that_is_in_doubt_after_that_row_is_scrubbed_first() -> None:
    batcher, plan = giving_way()
    batcher.offer(make_chunk("a", FIRST_TICK, start=True), 2)
    assert batcher.commit(plan, answer(plan, error="broken"), 4) == []
    scrub = planned(batcher, 4)
    assert (names(scrub), scrub.scrub) == ([], (SlotIndex(0),))
    assert batcher.commit(scrub, answer(scrub), 5) == [SequencePlaced(sequence_id=A, instance=FIRST, waited_ns=3)]


def test_an_instance_that_is_lost_in_that_row_comes_back_first() -> None:
    batcher, plan = giving_way()
    batcher.offer(make_chunk("a", FIRST_TICK, start=True), 2)
    failure = BatchFailure(plan_id=plan.plan_id, error="died", instance_lost=True)
    assert batcher.commit(plan, failure, 3) == []
    with pytest.raises(CapacityExceeded):
        batcher.offer(make_chunk("b", start=True), 4)
    batcher.instance_restored(FIRST, 5)
    scrub = planned(batcher, 5)
    assert batcher.commit(scrub, answer(scrub), 6) == [SequencePlaced(sequence_id=A, instance=FIRST, waited_ns=4)]


def test_who_waits_for_its_slot_may_leave_too() -> None:
    batcher, plan = giving_way()
    batcher.offer(make_chunk("a", start=True), 2)
    batcher.cancel(A, 3)
    batcher.offer(make_chunk("b", start=True), 4)
    assert batcher.commit(plan, answer(plan), 5) == [SequencePlaced(sequence_id=B, instance=FIRST, waited_ns=1)]
    assert batcher.stats().stale_results == 1


def test_with_no_row_in_flight_the_slot_is_free_at_once() -> None:
    batcher = make_sequence_batcher(instances=1, slots=1)
    batcher.offer(replace(make_chunk("audit", start=True), gives_way=True), 0)
    batcher.cancel(SequenceId("audit"), 1)
    batcher.offer(make_chunk("a", FIRST_TICK, start=True), 2)
    assert names(planned(batcher, 2)) == ["a"]


def test_a_tenant_that_does_not_give_way_is_no_promise() -> None:
    batcher = make_sequence_batcher(instances=1, slots=1)
    batcher.offer(make_chunk("a", FIRST_TICK, start=True), 0)
    planned(batcher)
    batcher.cancel(A, 1)
    with pytest.raises(CapacityExceeded):
        batcher.offer(make_chunk("b", start=True), 2)
