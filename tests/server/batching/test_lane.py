"""One instance's slots, ready rows and step, without the batcher around it."""

import pytest

from server.batching.lane import Lane
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence, SequenceInput
from server.batching.slots import SlotTable
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchRow
from tests.support.factories import make_samples

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=4)


def make_lane(n_slots: int = 3) -> Lane:
    return Lane(instance=InstanceIndex(1), slots=SlotTable(n_slots))


def move_in(lane: Lane, name: str, n_samples: int = 0, *, at_ns: int = 0, end: bool = False) -> Sequence:
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(n_samples), at_ns, end=end)
    lease = lane.slots.acquire()
    sequence = Sequence(sequence_id=SequenceId(name), instance=lane.instance, lease=lease, queue=queue)
    lane.tenants[lease.slot] = sequence
    if queue.head is not None:
        sequence.move(SequenceInput.PORTION)
        lane.ready[lease.slot] = sequence
    return sequence


def test_nothing_is_due_without_rows() -> None:
    lane = make_lane()
    move_in(lane, "a", 5)
    assert lane.due_at_ns(4, 100) is None


@pytest.mark.parametrize(
    ("max_batch", "n_silent", "due_at_ns"),
    [(4, 1, 107), (3, 1, 107), (2, 1, 7), (1, 1, 8), (4, 0, 7)],
    ids=["room for more", "one short", "full", "more than full", "nobody to wait for"],
)
def test_a_step_is_due_when_full_or_late(max_batch: int, n_silent: int, due_at_ns: int) -> None:
    lane = make_lane()
    move_in(lane, "a", 13, at_ns=8)
    move_in(lane, "b", 13, at_ns=7)
    for _ in range(n_silent):
        move_in(lane, "c")
    assert lane.due_at_ns(max_batch, 100) == due_at_ns


def test_a_scrub_is_due_in_its_own_time() -> None:
    lane = make_lane()
    lane.vacate(move_in(lane, "a"), is_clean=False, now_ns=50)
    move_in(lane, "b")
    assert lane.due_at_ns(4, 100) == 50
    move_in(lane, "c", 13, at_ns=10)
    assert lane.due_at_ns(4, 30) == 40
    assert lane.due_at_ns(4, 100) == 50


@pytest.mark.parametrize("busy", ["in flight", "lost"])
def test_nothing_is_due_while_it_cannot_run(busy: str) -> None:
    lane = make_lane()
    move_in(lane, "a", 13)
    if busy == "lost":
        lane.is_lost = True
    else:
        lane.form(1, 4, 0)
    move_in(lane, "b", 13)
    assert lane.due_at_ns(4, 0) is None


def test_a_plan_takes_the_first_rows_and_the_due_scrubs() -> None:
    lane = make_lane(4)
    lane.vacate(move_in(lane, "z"), is_clean=False, now_ns=3)
    move_in(lane, "a", 13, at_ns=1)
    move_in(lane, "b", 2, at_ns=2, end=True)
    move_in(lane, "c", 13, at_ns=2)
    plan = lane.form(9, 2, 5)
    assert lane.in_flight is plan
    assert (plan.plan_id, plan.instance, plan.planned_at_ns, plan.scrub) == (9, 1, 5, (0,))
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


def test_start_is_set_once() -> None:
    lane = make_lane()
    sequence = move_in(lane, "a", 23)
    assert lane.form(1, 1, 0).rows[0].start
    sequence.move(SequenceInput.ROW_DONE)
    sequence.move(SequenceInput.PORTION)
    lane.ready[sequence.lease.slot] = sequence
    assert not lane.form(2, 1, 0).rows[0].start


@pytest.mark.parametrize("is_clean", [True, False])
def test_vacating_frees_or_quarantines(is_clean: bool) -> None:
    lane = make_lane(1)
    sequence = move_in(lane, "a", 13)
    plan_row = lane.form(1, 1, 0).rows[0]
    assert lane.tenant(plan_row) is sequence
    lane.vacate(sequence, is_clean=is_clean, now_ns=4)
    assert (lane.slots.n_free, lane.slots.n_quarantined) == (int(is_clean), int(not is_clean))
    assert not lane.tenants
    assert lane.tenant(plan_row) is None
    assert lane.slots.next_scrub_at_ns() == (None if is_clean else 4)


def test_a_row_of_an_earlier_tenancy_has_no_tenant() -> None:
    lane = make_lane(1)
    move_in(lane, "a", 13)
    row = lane.form(1, 1, 0).rows[0]
    lane.vacate(lane.tenants[SlotIndex(0)], is_clean=True, now_ns=0)
    move_in(lane, "b", 13)
    assert lane.tenant(row) is None


def test_vacating_takes_it_out_of_the_line() -> None:
    lane = make_lane()
    sequence = move_in(lane, "a", 13)
    lane.vacate(sequence, is_clean=True, now_ns=0)
    assert not lane.ready
