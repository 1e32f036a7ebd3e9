"""One instance's slots, ready rows and steps, without the batcher around it. Which rows: ``test_row_choice``."""

from typing import Any

import pytest

from server.batching.lane import Lane
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence, SequenceInput
from server.batching.sequence_config import Strategy
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchRow, SlotSpan
from tests.support.factories import make_samples, make_sequence_config

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=4)


def make_lane(n_slots: int = 3, **overrides: Any) -> Lane:
    return Lane(InstanceIndex(1), make_sequence_config(slots=n_slots, **overrides))


def move_in(lane: Lane, name: str, n_samples: int = 0, *, at_ns: int = 0, end: bool = False) -> Sequence:
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(n_samples), at_ns, end=end)
    sequence = Sequence(sequence_id=SequenceId(name), queue=queue)
    lane.seat(sequence, at_ns)
    if queue.head is not None:
        lane.line_up(sequence)
    return sequence


def test_nothing_is_due_without_rows() -> None:
    lane = make_lane(max_delay_ns=100)
    move_in(lane, "a", 5)
    assert lane.due_at_ns() is None


@pytest.mark.parametrize(
    ("max_batch", "n_silent", "due_at_ns"),
    [(4, 1, 107), (3, 1, 107), (2, 1, 7), (1, 1, 8), (4, 0, 7)],
    ids=["room for more", "one short", "full", "more than full", "nobody to wait for"],
)
def test_a_step_is_due_when_full_or_late(max_batch: int, n_silent: int, due_at_ns: int) -> None:
    lane = make_lane(max_batch=max_batch, max_delay_ns=100)
    move_in(lane, "a", 13, at_ns=8)
    move_in(lane, "b", 13, at_ns=7)
    for _ in range(n_silent):
        move_in(lane, "c")
    assert lane.due_at_ns() == due_at_ns


@pytest.mark.parametrize(("max_delay_ns", "due_at_ns"), [(30, 40), (100, 50)])
def test_a_scrub_is_due_in_its_own_time(max_delay_ns: int, due_at_ns: int) -> None:
    lane = make_lane(max_delay_ns=max_delay_ns)
    lane.vacate(move_in(lane, "a"), is_clean=False, now_ns=50)
    move_in(lane, "b")
    assert lane.due_at_ns() == 50
    move_in(lane, "c", 13, at_ns=10)
    assert lane.due_at_ns() == due_at_ns


@pytest.mark.parametrize("busy", ["in flight", "lost"])
def test_nothing_is_due_while_it_cannot_run(busy: str) -> None:
    lane = make_lane()
    move_in(lane, "a", 13)
    if busy == "lost":
        lane.is_lost = True
    else:
        lane.form(1, 0)
    move_in(lane, "b", 13)
    assert lane.due_at_ns() is None


def test_a_plan_takes_the_first_rows_and_the_due_scrubs() -> None:
    lane = make_lane(4, max_batch=2)
    lane.vacate(move_in(lane, "z"), is_clean=False, now_ns=3)
    move_in(lane, "a", 13, at_ns=1)
    move_in(lane, "b", 2, at_ns=2, end=True)
    move_in(lane, "c", 13, at_ns=2)
    plan = lane.form(9, 5)
    assert list(lane.in_flight.values()) == [plan]
    assert (plan.plan_id, plan.instance, plan.planned_at_ns, plan.scrub) == (9, 1, 5, (0,))
    assert (plan.tensors, plan.span) == ((), None)
    assert [samples.tolist() for samples in plan.audio] == [list(range(1, 14)), [1, 2]]
    assert plan.rows == (
        BatchRow(
            slot=SlotIndex(1),
            generation=1,
            sequence_id=SequenceId("a"),
            start=True,
            flush=False,
            end=False,
            first_sample=0,
            n_samples=13,
            ready_at_ns=1,
        ),
        BatchRow(
            slot=SlotIndex(2),
            generation=1,
            sequence_id=SequenceId("b"),
            start=True,
            flush=True,
            end=True,
            first_sample=0,
            n_samples=2,
            ready_at_ns=2,
        ),
    )
    assert [sequence.sequence_id for sequence in lane.ready.values()] == ["c"]


def test_direct_runs_over_the_slots_as_they_lie() -> None:
    lane = make_lane(6, max_batch=4, strategy=Strategy.DIRECT)
    tenants = [move_in(lane, name, 13 if name in "be" else 0) for name in "abcdef"]
    queue = tenants[2].queue
    assert isinstance(queue, SampleQueue)
    queue.push(make_samples(13), 0)
    lane.line_up(tenants[2])
    plan = lane.form(1, 0)
    assert [(row.sequence_id, row.slot) for row in plan.rows] == [("b", 1), ("c", 2), ("e", 4)]
    assert plan.span == SlotSpan(first=SlotIndex(1), n_slots=4)


def test_direct_has_no_span_without_rows() -> None:
    lane = make_lane(strategy=Strategy.DIRECT)
    lane.vacate(move_in(lane, "a"), is_clean=False, now_ns=0)
    plan = lane.form(1, 0)
    assert (plan.rows, plan.span, plan.scrub) == ((), None, (0,))


def test_start_is_set_once() -> None:
    lane = make_lane(max_batch=1)
    sequence = move_in(lane, "a", 23)
    assert lane.form(1, 0).rows[0].start
    sequence.move(SequenceInput.ROW_DONE)
    lane.line_up(sequence)
    assert not lane.form(2, 0).rows[0].start


@pytest.mark.parametrize("is_clean", [True, False])
def test_vacating_frees_or_quarantines(is_clean: bool) -> None:
    lane = make_lane(1)
    sequence = move_in(lane, "a", 13)
    plan_row = lane.form(1, 0).rows[0]
    assert lane.tenant(plan_row) is sequence
    lane.vacate(sequence, is_clean=is_clean, now_ns=4)
    assert (lane.slots.n_free, lane.slots.n_quarantined) == (int(is_clean), int(not is_clean))
    assert not lane.tenants
    assert sequence.place is None
    assert lane.tenant(plan_row) is None
    assert lane.slots.next_scrub_at_ns() == (None if is_clean else 4)


def test_a_row_of_an_earlier_tenancy_has_no_tenant() -> None:
    lane = make_lane(1)
    move_in(lane, "a", 13)
    row = lane.form(1, 0).rows[0]
    lane.vacate(lane.tenants[SlotIndex(0)], is_clean=True, now_ns=0)
    move_in(lane, "b", 13)
    assert lane.tenant(row) is None


def test_vacating_takes_it_out_of_the_line() -> None:
    lane = make_lane()
    sequence = move_in(lane, "a", 13)
    lane.vacate(sequence, is_clean=True, now_ns=0)
    assert not lane.ready


class TestTwoInFlight:
    """With a lead the next step of a busy instance is formed shortly before the present one ends."""

    def busy_lane(self, lead_ns: int) -> Lane:
        """Steps of one row have taken 40 ns; one was planned at 100, and another row is ready."""
        lane = make_lane(4, lead_ns=lead_ns, max_batch=2)
        sequence = move_in(lane, "a", 23)
        lane.finish(lane.form(1, 0), 40, has_run=True)
        sequence.move(SequenceInput.ROW_DONE)
        lane.line_up(sequence)
        lane.form(2, 100)
        move_in(lane, "b", 13, at_ns=101)
        return lane

    def test_from_the_expected_end_minus_the_lead_on(self) -> None:
        assert self.busy_lane(15).due_at_ns() == 125
        assert self.busy_lane(0).due_at_ns() is None

    def test_not_before_its_rows_are_due(self) -> None:
        assert self.busy_lane(1_000).due_at_ns() == 101

    def test_no_more_than_two(self) -> None:
        lane = self.busy_lane(15)
        assert [row.sequence_id for row in lane.form(3, 125).rows] == ["b"]
        move_in(lane, "c", 13)
        assert lane.due_at_ns() is None

    def test_the_second_begins_when_the_first_is_done(self) -> None:
        lane = self.busy_lane(15)
        lane.form(3, 125)
        move_in(lane, "c", 13, at_ns=126)
        lane.finish(lane.in_flight[2], 145, has_run=True)
        # 41 ns: the average of 40 and 45; from 145 on, not from its being planned
        assert lane.due_at_ns() == 145 + 41 - 15
        lane.finish(lane.in_flight[3], 186, has_run=True)
        assert lane.step_times.expected_ns(1) == 41

    def test_not_before_anything_was_measured(self) -> None:
        lane = make_lane(lead_ns=15)
        move_in(lane, "a", 13)
        lane.form(1, 0)
        move_in(lane, "b", 13)
        assert lane.due_at_ns() is None

    def test_a_failed_step_measures_nothing(self) -> None:
        lane = make_lane(lead_ns=15)
        move_in(lane, "a", 13)
        lane.finish(lane.form(1, 0), 40, has_run=False)
        assert lane.step_times.expected_ns(1) is None

    def test_tenants_in_flight_are_nobody_to_wait_for(self) -> None:
        lane = make_lane(4, lead_ns=1_000, max_delay_ns=500)
        sequence = move_in(lane, "a", 23)
        lane.finish(lane.form(1, 0), 40, has_run=True)
        sequence.move(SequenceInput.ROW_DONE)
        lane.line_up(sequence)
        lane.form(2, 100)
        move_in(lane, "b", 13, at_ns=101)
        assert lane.due_at_ns() == 101
        move_in(lane, "silent")
        assert lane.due_at_ns() == 601


def test_work_ahead() -> None:
    lane = make_lane(4, lead_ns=1)
    sequence = move_in(lane, "a", 33)
    assert lane.work_ahead_ns() == 0
    lane.finish(lane.form(1, 0), 40, has_run=True)
    assert lane.work_ahead_ns() == 0
    sequence.move(SequenceInput.ROW_DONE)
    lane.line_up(sequence)
    assert lane.work_ahead_ns() == 40
    lane.form(2, 100)
    assert lane.work_ahead_ns() == 40
    move_in(lane, "b", 13)
    assert lane.work_ahead_ns() == 80


def test_losing_gives_the_tenants_those_of_the_rows_first() -> None:
    lane = make_lane(3)
    a, b, c = (move_in(lane, name, 13 if name == "c" else 0) for name in "abc")
    plan = lane.form(1, 0)
    assert lane.lose(plan.rows, 9) == [c, a, b]
    assert [sequence.place for sequence in (a, b, c)] == [None, None, None]
    assert (lane.is_lost, dict(lane.in_flight), lane.tenants, dict(lane.ready)) == (True, {}, {}, {})
    assert lane.slots.n_quarantined == 3
    assert lane.tenant(plan.rows[0]) is None
