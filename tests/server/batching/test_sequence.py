"""The transition table of a sequence."""

from itertools import product

import pytest

from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import TRANSITIONS, Place, Sequence, SequenceInput, SequenceState
from server.batching.slots import Lease
from server.batching.turn_queue import TurnQueue
from server.errors import ServiceError
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import SequenceOptions, Tensors
from tests.support.factories import make_samples, make_turn

LEGAL = """
    queued: placed -> waiting, cancel -> gone, timed out -> gone
    waiting: portion -> ready, cancel -> gone, timed out -> gone, instance lost -> gone
    ready: planned -> running, cancel -> gone, instance lost -> gone
    running: row done -> waiting, END row done -> gone, row failed -> gone, cancel -> leaving, instance lost -> gone
    running: life done -> queued
    leaving: row done -> gone, row failed -> gone, instance lost -> gone
"""


def legal() -> dict[tuple[str, str], str]:
    table: dict[tuple[str, str], str] = {}
    for line in LEGAL.strip().splitlines():
        state, _, moves = line.strip().partition(": ")
        for move in moves.split(", "):
            happening, _, following = move.partition(" -> ")
            table[state, happening] = following
    return table


def make_sequence(state: SequenceState) -> Sequence:
    limits = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=2)
    return Sequence(sequence_id=SequenceId("a"), queue=SampleQueue(limits), state=state)


@pytest.mark.parametrize(("state", "happening"), list(product(SequenceState, SequenceInput)))
def test_every_pair_of_state_and_input(state: SequenceState, happening: SequenceInput) -> None:
    sequence = make_sequence(state)
    following = legal().get((state.value, happening.value))
    if following is None:
        with pytest.raises(ServiceError, match=f"sequence a: {happening.value} while {state.value}"):
            sequence.move(happening)
        assert sequence.state is state
    else:
        sequence.move(happening)
        assert sequence.state.value == following


def test_nothing_leaves_gone_and_everything_reaches_it() -> None:
    assert not [state for state, _ in TRANSITIONS if state is SequenceState.GONE]
    reaches = {SequenceState.GONE}
    for _ in SequenceState:
        reaches |= {state for (state, _), following in TRANSITIONS.items() if following in reaches}
    assert reaches == set(SequenceState)


PLACE = Place(instance=InstanceIndex(1), lease=Lease(slot=SlotIndex(4), generation=2))
OPTIONS = SequenceOptions(endpoint_silence_ms=300)


def ready(queue: SampleQueue | TurnQueue) -> Sequence:
    sequence = Sequence(
        sequence_id=SequenceId("a"), queue=queue, options=OPTIONS, place=PLACE, state=SequenceState.READY
    )
    assert sequence.ready_at_ns == 5
    return sequence


def rest(sequence: Sequence) -> None:
    sequence.move(SequenceInput.ROW_DONE)
    sequence.move(SequenceInput.PORTION)


class TestTakeRow:
    def audio(self, n_samples: int, *, finalize: bool = False, end: bool = False) -> Sequence:
        limits = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=2)
        queue = SampleQueue(limits)
        queue.push(make_samples(n_samples), 5, finalize=finalize, end=end)
        return ready(queue)

    def test_one_tick(self) -> None:
        sequence = self.audio(33)
        row, samples = sequence.take_row(1)
        assert not isinstance(samples, Tensors)
        assert samples.tolist() == list(range(1, 14))
        assert (row.slot, row.generation, row.sequence_id, row.start, row.options) == (4, 2, "a", True, OPTIONS)
        assert (row.first_sample, row.n_samples, row.n_ticks, row.ready_at_ns) == (0, 13, 1, 5)
        assert sequence.ticks == (row,)
        rest(sequence)
        row, samples = sequence.take_row(1)
        assert (row.first_sample, row.n_samples, row.start, row.options) == (13, 10, False, None)

    def test_several_ticks_are_told_one_by_one(self) -> None:
        sequence = self.audio(23)
        assert isinstance(sequence.queue, SampleQueue)
        sequence.queue.push(make_samples(10, first=24), 9)
        row, samples = sequence.take_row(4)
        assert not isinstance(samples, Tensors)
        assert samples.tolist() == list(range(1, 34))
        assert (row.first_sample, row.n_samples, row.n_ticks, row.ready_at_ns) == (0, 33, 3, 9)
        assert (row.start, row.flush, row.end, row.options) == (True, False, False, OPTIONS)
        told = [(tick.first_sample, tick.n_samples, tick.n_ticks, tick.ready_at_ns) for tick in sequence.ticks]
        assert told == [(0, 13, 1, 5), (13, 10, 1, 5), (23, 10, 1, 9)]
        assert [tick.start for tick in sequence.ticks] == [True, False, False]
        assert [tick.options for tick in sequence.ticks] == [OPTIONS, None, None]

    def test_no_more_ticks_than_allowed(self) -> None:
        sequence = self.audio(53)
        assert sequence.take_row(2)[0].n_ticks == 2
        rest(sequence)
        assert sequence.take_row(2)[0].n_ticks == 2

    def test_a_mark_ends_a_row_and_is_one(self) -> None:
        sequence = self.audio(25, finalize=True)
        assert isinstance(sequence.queue, SampleQueue)
        sequence.queue.push(make_samples(8, first=26), 6, end=True)
        rows = []
        for _ in range(4):
            rows.append(sequence.take_row(4)[0])
            rest(sequence)
        assert [(row.first_sample, row.n_samples, row.n_ticks, row.flush, row.end) for row in rows] == [
            (0, 23, 2, False, False),
            (23, 2, 1, True, False),
            (23, 10, 1, False, False),
            (33, 0, 1, True, True),
        ]

    def test_a_turn(self) -> None:
        queue = TurnQueue(4, frozenset())
        for number, (start, end) in enumerate(((True, False), (False, False), (True, True))):
            queue.push(make_turn("a", number, start=start, end=end), 5)
        sequence = ready(queue)
        rows = []
        for number in range(3):
            row, tensors = sequence.take_row(4)
            assert isinstance(tensors, Tensors)
            assert tensors.arrays["INPUT"].tolist() == [[number]]
            assert sequence.ticks == (row,)
            rows.append(row)
            rest(sequence)
        assert [(row.request_id, row.correlation_id, row.start, row.end) for row in rows] == [
            (0, "a", True, False),
            (1, "a", False, False),
            (2, "a", True, True),
        ]
        assert {(row.slot, row.generation, row.flush, row.n_ticks, row.n_samples) for row in rows} == {
            (4, 2, False, 1, 0)
        }
