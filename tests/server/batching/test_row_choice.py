"""Which ready rows run next: order, company, patience."""

from typing import Any

import pytest

from server.batching.row_choice import NextStep, Situation, deadline_ns, next_step
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Place, Sequence, SequenceState
from server.batching.sequence_config import Strategy
from server.batching.slots import Lease
from server.batching.step_times import StepTimes
from server.batching.turn_queue import TurnQueue
from server.ids import InstanceIndex, SequenceId, SlotIndex
from tests.support.factories import make_samples, make_sequence_config, make_turn

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=4)


def row(
    slot: int, at_ns: int = 0, *, flush: bool = False, solo: bool = False, size: int = 0, step: int = 0
) -> Sequence:
    """A ready row in a slot: a tick, a flush, or a turn of so many values."""
    queue: SampleQueue | TurnQueue
    if size:
        queue = TurnQueue(1, frozenset())
        queue.push(make_turn("a", shape=(size,)), at_ns)
    else:
        queue = SampleQueue(LIMITS)
        queue.push(make_samples(5 if flush else 13), at_ns, finalize=flush)
    place = Place(instance=InstanceIndex(0), lease=Lease(slot=SlotIndex(slot), generation=1))
    return Sequence(
        sequence_id=SequenceId(f"{slot}"),
        queue=queue,
        place=place,
        solo=solo,
        state=SequenceState.READY,
        ready_step=step,
    )


def choose(
    *rows: Sequence, n_silent: int = 1, n_slots: int = 8, n_steps: int = 0, step_ns: int = 0, **overrides: Any
) -> NextStep:
    situation = Situation(
        ready={each.seat.lease.slot: each for each in rows}, n_silent=n_silent, n_slots=n_slots, n_steps=n_steps
    )
    times = StepTimes()
    if step_ns:
        times.note(1, step_ns)
    takes_turns = isinstance(rows[0].queue, TurnQueue)
    return next_step(situation, make_sequence_config(takes_turns=takes_turns, **overrides), times)


def slots(step: NextStep, now_ns: int | None = None) -> list[int]:
    taken = step.sequences if now_ns is None else step.taken_at(now_ns)
    return [each.seat.lease.slot for each in taken]


class TestOrder:
    def test_who_was_ready_first_goes_first(self) -> None:
        assert slots(choose(row(3, 9), row(1, 2), row(2, 1), max_batch=2)) == [3, 1]

    def test_the_earliest_deadline_goes_first(self) -> None:
        late, later, latest = row(3, 9), row(1, 2, flush=True), row(2, 1)
        assert slots(choose(late, later, latest, deadline_ns=100, flush_deadline_ns=100)) == [2, 1, 3]
        assert slots(choose(late, later, latest, deadline_ns=100, flush_deadline_ns=10)) == [1, 2, 3]

    def test_rows_without_a_deadline_go_after_those_with_one(self) -> None:
        assert slots(choose(row(3, 9), row(1, 2, flush=True), row(2, 1), flush_deadline_ns=50)) == [1, 3, 2]

    def test_a_row_that_was_passed_over_for_a_round_goes_first(self) -> None:
        """Eight slots in steps of four: a round is two steps."""
        rows = row(3, 9, step=6), row(1, 2, step=5), row(2, 1, step=7)
        assert slots(choose(*rows, n_steps=7, deadline_ns=100)) == [1, 2, 3]
        assert slots(choose(*rows, n_steps=8, deadline_ns=100)) == [3, 1, 2]
        assert slots(choose(*rows, n_steps=6, deadline_ns=100)) == [2, 1, 3]

    def test_a_deadline(self) -> None:
        def due(each: Sequence, **overrides: Any) -> int | None:
            return deadline_ns(each, make_sequence_config(**overrides))

        assert (due(row(0, 9), deadline_ns=5), due(row(0, 9), flush_deadline_ns=5)) == (14, None)
        assert (due(row(0, 9, flush=True), deadline_ns=5), due(row(0, 9, flush=True), flush_deadline_ns=5)) == (
            None,
            14,
        )
        assert due(row(0, 9, size=1), deadline_ns=5, flush_deadline_ns=1) == 14


class TestCompany:
    def test_solo_rows_run_in_steps_of_their_own(self) -> None:
        assert slots(choose(row(0), row(1, solo=True), row(2))) == [0, 2]
        assert slots(choose(row(1, solo=True), row(0), row(2, solo=True))) == [1]

    def test_the_oldest_decides_about_the_shape(self) -> None:
        rows = [row(0, size=2), row(1, size=1), row(2, size=2), row(3, size=3)]
        assert slots(choose(*rows)) == [0, 2]
        assert slots(choose(*rows[1:])) == [1]
        assert slots(choose(*rows, max_batch=1)) == [0]


class TestDirect:
    def direct(self, *ready: int, max_batch: int = 4) -> list[int]:
        return slots(choose(*(row(slot) for slot in ready), strategy=Strategy.DIRECT, max_batch=max_batch))

    @pytest.mark.parametrize(
        ("ready", "expected"),
        [
            ((5,), [5]),
            ((5, 4, 7), [4, 5, 7]),
            ((5, 1), [5]),
            ((5, 2, 8), [2, 5]),
            ((5, 2, 8, 7), [5, 7, 8]),
            ((5, 3, 8, 7, 2), [2, 3, 5]),
            ((5, 2, 3, 4, 6, 7, 8), [2, 3, 4, 5]),
            ((5, 2, 6, 7), [5, 6, 7]),
            ((0, 3, 4), [0, 3]),
            ((7, 4, 3), [4, 7]),
        ],
        ids=str,
    )
    def test_the_fullest_range_with_the_most_urgent_slot(self, ready: tuple[int, ...], expected: list[int]) -> None:
        assert self.direct(*ready) == expected

    def test_a_range_of_one_slot(self) -> None:
        assert self.direct(5, 4, 6, max_batch=1) == [5]

    def test_rows_of_other_shapes_are_masked(self) -> None:
        rows = [row(1, size=2), row(0, size=2), row(2, size=1), row(3, size=2)]
        assert slots(choose(*rows, strategy=Strategy.DIRECT)) == [0, 1, 3]


class TestPatience:
    def test_without_a_delay_nothing_waits(self) -> None:
        step = choose(row(0, 5), row(1, 3))
        assert (step.due_at_ns, slots(step, 3)) == (3, [0, 1])

    def test_until_the_oldest_has_waited_its_delay(self) -> None:
        step = choose(row(0, 5), row(1, 3), max_delay_ns=100)
        assert (step.n_at_once, step.due_at_ns) == (0, 103)
        assert slots(step, 103) == [0, 1]

    @pytest.mark.parametrize(
        "overrides",
        [{"max_batch": 2}, {"n_silent": 0}],
        ids=["full", "nobody to wait for"],
    )
    def test_not_when_waiting_brings_nobody(self, overrides: dict[str, int]) -> None:
        step = choose(row(0, 5), row(1, 3), max_delay_ns=100, **overrides)
        assert (step.n_at_once, step.due_at_ns) == (2, 3)

    @pytest.mark.parametrize(
        "rows",
        [(row(0, 5), row(1, 3, solo=True)), (row(0, 5, solo=True), row(1, 3)), (row(0, 5, size=1), row(1, 3, size=2))],
        ids=["solo behind", "solo", "another shape behind"],
    )
    def test_not_when_others_would_wait_with_it(self, rows: tuple[Sequence, ...]) -> None:
        step = choose(*rows, max_delay_ns=100)
        assert (slots(step), step.n_at_once, step.due_at_ns) == ([0], 1, 5)

    def test_not_past_the_time_at_which_it_must_begin_for_a_deadline(self) -> None:
        rows = row(0, 5), row(1, 3)
        assert choose(*rows, max_delay_ns=100, deadline_ns=60).due_at_ns == 63
        assert choose(*rows, max_delay_ns=100, deadline_ns=60, step_ns=20).due_at_ns == 43
        assert choose(*rows, max_delay_ns=100, deadline_ns=600, step_ns=20).due_at_ns == 103
        assert choose(*rows, max_delay_ns=100, flush_deadline_ns=10).due_at_ns == 103

    @pytest.mark.parametrize(("n_rows", "n_at_once"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4)])
    def test_preferred_sizes_go_at_once(self, n_rows: int, n_at_once: int) -> None:
        rows = [row(slot, slot) for slot in range(n_rows)]
        step = choose(*rows, max_batch=6, max_delay_ns=100, preferred_sizes=(2, 4))
        assert step.n_at_once == n_at_once
        assert slots(step, 50) == list(range(n_at_once or n_rows))
        assert slots(step, 100) == list(range(n_rows))
        assert step.due_at_ns == (0 if n_at_once else 100)

    def test_preferred_sizes_without_a_delay(self) -> None:
        rows = [row(slot) for slot in range(3)]
        assert slots(choose(*rows, preferred_sizes=(2,)), 10**9) == [0, 1]
        assert slots(choose(*rows[:1], preferred_sizes=(2,)), 0) == [0]

    def test_a_solo_row_has_no_preferred_size(self) -> None:
        assert choose(row(0, solo=True), max_delay_ns=100, preferred_sizes=(2,)).n_at_once == 1

    @pytest.mark.parametrize(("share", "n_at_once"), [(0.0, 0), (0.25, 2), (0.2, 2), (0.26, 0), (1.0, 0)])
    def test_slot_utilisation(self, share: float, n_at_once: int) -> None:
        rows = row(0), row(1)
        step = choose(*rows, strategy=Strategy.DIRECT, min_slot_utilisation=share, max_delay_ns=100)
        assert step.n_at_once == n_at_once
