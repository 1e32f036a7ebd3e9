"""The transition table of a sequence."""

from itertools import product

import pytest

from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import TRANSITIONS, Sequence, SequenceInput, SequenceState
from server.batching.slots import Lease
from server.errors import ServiceError
from server.ids import InstanceIndex, SequenceId, SlotIndex

LEGAL = """
    waiting: portion -> ready, cancel -> gone, idle -> gone, instance lost -> gone
    ready: planned -> running, cancel -> gone, instance lost -> gone
    running: row done -> waiting, END row done -> gone, row failed -> gone, cancel -> leaving, instance lost -> gone
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
    return Sequence(
        sequence_id=SequenceId("a"),
        instance=InstanceIndex(0),
        lease=Lease(slot=SlotIndex(0), generation=1),
        queue=SampleQueue(limits),
        state=state,
    )


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
