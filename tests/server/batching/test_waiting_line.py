"""Those who wait for a slot go to another batcher: nothing of them is lost, and nobody passes anybody."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.batching.sample_queue import PortionKind
from server.batching.sequence_batcher import SequenceBatcher
from server.effects import SequenceLost, SequencePlaced, SequenceQueued
from server.errors import BacklogTimeout, UnknownSequence
from server.ids import InstanceIndex, SequenceId
from server.plan import SequenceOptions
from tests.support.accumulator import solo_rows
from tests.support.factories import answer, make_chunk, make_sequence_batcher, make_turn

FIRST = InstanceIndex(0)
LEVELS = 3


def make_batcher(**overrides: object) -> SequenceBatcher:
    """One slot and a long line, unless told otherwise."""
    fields = {"instances": 1, "slots": 1, "backlog": 20, "backlog_levels": LEVELS, "max_batch": 1} | overrides
    return make_sequence_batcher(**fields)


def placements(batcher: SequenceBatcher, tenants: Iterable[str]) -> list[str]:
    """Who gets a slot, in order, where the tenants leave one by one, and those who follow them too."""
    order = list(tenants)
    n_before = len(order)
    for name in order:
        effects = batcher.cancel(SequenceId(name), 100)
        order += [effect.sequence_id for effect in effects if isinstance(effect, SequencePlaced)]
    return order[n_before:]


def test_they_have_slots_at_once_and_the_others_are_told() -> None:
    old, new = make_batcher(), make_batcher(slots=2)
    for at_ns, name in enumerate("abcde"):
        old.offer(make_chunk(name, 13, start=True), at_ns)
    line = old.hand_over(10)
    assert line.sequence_ids == tuple("bcde")
    assert (old.stats().live, old.stats().backlog, old.stats().backlog_oldest_ns) == (1, 0, 0)
    assert old.cancel(SequenceId("c"), 10) == []
    assert new.take_over(line, 10) == [
        SequencePlaced(sequence_id=SequenceId("b"), instance=FIRST, waited_ns=9),
        SequencePlaced(sequence_id=SequenceId("c"), instance=FIRST, waited_ns=8),
        SequenceQueued(sequence_id=SequenceId("d"), position=1, expected_wait_ns=None),
        SequenceQueued(sequence_id=SequenceId("e"), position=2, expected_wait_ns=None),
    ]
    new.offer(make_chunk("f", start=True), 11)
    assert new.place_in_line(SequenceId("f")) == SequenceQueued(
        sequence_id=SequenceId("f"), position=3, expected_wait_ns=None
    )
    stats = new.stats()
    assert (stats.live, stats.started, stats.queued, stats.placed, stats.backlog) == (5, 5, 5, 2, 3)


def test_the_bound_of_the_new_line_is_for_newcomers() -> None:
    old, new = make_batcher(), make_batcher(backlog=0)
    for name in "abc":
        old.offer(make_chunk(name, start=True), 0)
    new.take_over(old.hand_over(0), 0)
    assert new.place_in_line(SequenceId("c")) is not None


def test_the_wait_goes_on_from_where_it_began() -> None:
    old, new = make_batcher(), make_batcher(backlog_wait_ns=50)
    for at_ns, name in enumerate("abc"):
        old.offer(make_chunk(name, start=True), at_ns)
    new.take_over(old.hand_over(40), 40)
    assert new.next_deadline_ns() == 52
    (lost,) = new.expire(52)
    assert isinstance(lost, SequenceLost)
    assert isinstance(lost.error, BacklogTimeout)
    assert lost.sequence_id == "c"


def test_what_is_asked_for_goes_along() -> None:
    old, new = make_batcher(), make_batcher()
    old.offer(make_chunk("a", start=True), 0)
    options = SequenceOptions(endpoint_silence_ms=700)
    old.offer(replace(make_chunk("b", 13, start=True), options=options, solo=True), 0)
    new.take_over(old.hand_over(0), 0)
    plan = new.plan(0)
    assert plan is not None
    assert (plan.rows[0].start, plan.rows[0].options) == (True, options)


def test_turns_go_along_beyond_the_bound() -> None:
    old = make_batcher(takes_turns=True, max_queued_turns=3)
    new = make_batcher(takes_turns=True, max_queued_turns=2)
    old.offer(make_turn("a", 1, start=True), 0)
    for number in range(3):
        old.offer(make_turn("b", 10 + number, start=number == 0, end=number == 2), number)
    new.take_over(old.hand_over(5), 5)
    answered: list[int | None] = []
    while (plan := new.plan(5)) is not None:
        answered += [row.request_id for row in plan.rows]
        assert [row.ready_at_ns for row in plan.rows] == [len(answered) - 1]
        new.commit(plan, answer(plan), 5)
    assert answered == [10, 11, 12]
    assert new.stats().live == 0


def test_nobody_waits() -> None:
    old, new = make_batcher(), make_batcher()
    old.offer(make_chunk("a", start=True), 0)
    assert new.take_over(old.hand_over(0), 0) == []
    assert old.room(SequenceId("a")) > 0


@given(
    st.lists(st.integers(0, LEVELS), max_size=12),
    st.integers(0, 6),
    st.integers(1, 4),
)
def test_nobody_passes_anybody(priorities: list[int], n_before: int, n_slots: int) -> None:
    """The line is what it would have been, whatever was placed before: the batcher that keeps it shows that."""
    names = [f"s{index}" for index in range(len(priorities))]

    def filled() -> tuple[SequenceBatcher, list[str]]:
        batcher, tenant = make_batcher(), "tenant"
        batcher.offer(make_chunk(tenant, start=True), 0)
        for name, priority in zip(names, priorities, strict=True):
            batcher.offer(replace(make_chunk(name, start=True), priority=priority), 0)
        for _ in range(min(n_before, len(names))):
            effects = batcher.cancel(SequenceId(tenant), 1)
            tenant = next(effect.sequence_id for effect in effects if isinstance(effect, SequencePlaced))
        return batcher, [tenant]

    kept = placements(*filled())
    old, new = filled()[0], make_batcher(slots=n_slots)
    line = old.hand_over(2)
    assert list(line.sequence_ids) == kept
    effects = new.take_over(line, 2)
    placed = [effect.sequence_id for effect in effects if isinstance(effect, SequencePlaced)]
    assert placed == kept[:n_slots]
    assert [*placed, *placements(new, placed)] == kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Of a model."""

    tick_samples: int
    lookahead_samples: int


GRIDS = st.builds(Grid, tick_samples=st.integers(1, 12), lookahead_samples=st.integers(0, 5))
CHUNKS = st.lists(st.tuples(st.integers(0, 15), st.booleans()), max_size=6)


@given(CHUNKS, CHUNKS, GRIDS, GRIDS)
def test_what_was_sent_is_read_on_the_ticks_of_the_new_model(
    before: list[tuple[int, bool]], after: list[tuple[int, bool]], old_grid: Grid, new_grid: Grid
) -> None:
    def batcher_of(grid: Grid, max_samples: int) -> SequenceBatcher:
        return make_batcher(
            tick_samples=grid.tick_samples,
            lookahead_samples=grid.lookahead_samples,
            max_queued_samples=max_samples,
            max_queued_marks=20,
        )

    old, new = batcher_of(old_grid, 200), batcher_of(new_grid, 200)
    sent, marks = 0, []
    old.offer(make_chunk("a", start=True), 0)
    old.offer(make_chunk("b", start=True), 0)
    for at_ns, (batcher, chunks) in enumerate(((old, before), (new, after))):
        if batcher is new:
            new.take_over(old.hand_over(1), 1)
        for n_samples, finalize in chunks:
            batcher.offer(make_chunk("b", n_samples, first=sent + 1, finalize=finalize), at_ns)
            sent += n_samples
            if finalize:
                marks.append((sent, PortionKind.FINALIZE))
    new.offer(make_chunk("b", end=True), 2)
    marks.append((sent, PortionKind.END))
    expected = solo_rows(
        np.arange(1, sent + 1, dtype=np.float32).tolist(),
        marks,
        tick_samples=new_grid.tick_samples,
        lookahead_samples=new_grid.lookahead_samples,
    )
    heard = []
    while (plan := new.plan(3)) is not None:
        (row,), (samples,) = plan.rows, plan.audio
        assert samples.tolist() == list(range(row.first_sample + 1, row.first_sample + row.n_samples + 1))
        heard.append((row.first_sample, row.first_sample + row.n_samples, row.flush, row.end))
        new.commit(plan, answer(plan), 3)
    assert heard == [
        (row.first_sample, row.end_sample, row.kind is not PortionKind.TICK, row.kind is PortionKind.END)
        for row in expected
    ]
    assert new.stats().live == 0


def test_smaller_queues_take_nothing_more_until_there_is_room() -> None:
    old, new = make_batcher(max_queued_samples=60), make_batcher(max_queued_samples=20)
    for name in "abc":
        old.offer(make_chunk(name, 50, start=True), 0)
    new.take_over(old.hand_over(0), 0)
    assert new.room(SequenceId("c")) == 0
    assert new.stats().queued_samples == 100
    with pytest.raises(UnknownSequence):
        new.room(SequenceId("a"))
    assert old.room(SequenceId("a")) == 10
