"""What a tenant shared with others is free once its sequence is over, however it ended: the next plan says so."""

from server.batching.slots import SlotTable
from server.effects import SequenceEnded
from server.ids import SequenceId
from tests.support.factories import FIRST_TICK, TICK, answer, make_chunk, make_sequence_batcher


def test_a_slot_is_told_once_after_each_tenancy() -> None:
    table = SlotTable(3)
    first, second = table.acquire(), table.acquire()
    assert table.take_vacated() == ()
    table.release(second)
    table.release(first)
    assert table.acquire().slot == 0
    assert table.take_vacated() == (0, 1)
    assert table.take_vacated() == ()


def test_a_slot_in_doubt_is_scrubbed_instead() -> None:
    table = SlotTable(2)
    leases = [table.acquire(), table.acquire()]
    table.release(leases[0])
    table.quarantine(leases[1], 0)
    table.quarantine_all(0)
    assert table.take_vacated() == ()


def test_a_cancelled_sequences_slot_is_in_the_next_plan_and_in_no_other() -> None:
    batcher = make_sequence_batcher(instances=1, slots=3)
    for name in ("a", "b", "c"):
        batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
    plan = batcher.plan(0)
    assert plan is not None
    assert plan.vacated == ()
    batcher.commit(plan, answer(plan), 1)
    slots = {row.sequence_id: row.slot for row in plan.rows}
    (ended,) = batcher.cancel(SequenceId("b"), 2)
    assert isinstance(ended, SequenceEnded)
    batcher.offer(make_chunk("d", FIRST_TICK, start=True), 3)
    plan = batcher.plan(3)
    assert plan is not None
    assert plan.vacated == (slots[SequenceId("b")],)
    assert [(row.sequence_id, row.start, row.slot) for row in plan.rows] == [("d", True, slots[SequenceId("b")])]
    batcher.commit(plan, answer(plan), 4)
    batcher.offer(make_chunk("a", TICK), 5)
    plan = batcher.plan(5)
    assert plan is not None
    assert plan.vacated == ()


def test_a_slot_whose_row_is_in_flight_is_vacated_when_that_is_answered() -> None:
    batcher = make_sequence_batcher(instances=1, slots=2)
    for name in ("a", "b"):
        batcher.offer(make_chunk(name, FIRST_TICK, start=True), 0)
    plan = batcher.plan(0)
    assert plan is not None
    batcher.cancel(SequenceId("a"), 1)
    batcher.commit(plan, answer(plan), 2)
    batcher.offer(make_chunk("b", TICK), 3)
    following = batcher.plan(3)
    assert following is not None
    assert following.vacated == tuple(row.slot for row in plan.rows if row.sequence_id == "a")
