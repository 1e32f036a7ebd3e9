"""Who has which slot, and who waits for one, without steps."""

from typing import Any

import pytest

from server.batching.lane import Lane
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence, SequenceInput, SequenceState
from server.batching.sequence_stats import Counts
from server.batching.tenancies import Tenancies
from server.batching.turn_queue import TurnQueue
from server.effects import SequenceEnded, SequenceLost, SequencePlaced, SequenceQueued
from server.errors import BacklogTimeout, CapacityExceeded
from server.events import CloseCause
from server.ids import InstanceIndex, SequenceId
from tests.support.factories import make_samples, make_sequence_config, make_turn

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=4)
FIRST = InstanceIndex(0)
SECOND_NS = 1_000_000_000


class Places:
    """Tenancies over one instance of one slot, unless told otherwise."""

    def __init__(self, **overrides: Any) -> None:
        config = make_sequence_config(**{"instances": 1, "slots": 1, "backlog": 4, **overrides})
        self.lanes = [Lane(InstanceIndex(index), config) for index in range(config.instances)]
        self.counts = Counts()
        self.tenancies = Tenancies(config, self.lanes, self.counts)

    def start(self, name: str, n_samples: int = 0, *, at_ns: int = 0, priority: int = 0) -> Sequence:
        queue = SampleQueue(LIMITS)
        queue.push(make_samples(n_samples), at_ns)
        sequence = Sequence(sequence_id=SequenceId(name), queue=queue, priority=priority)
        self.tenancies.start(sequence, at_ns)
        self.tenancies.settle(sequence, at_ns)
        return sequence

    def leave(self, sequence: Sequence, at_ns: int) -> SequenceEnded | SequenceLost:
        self.tenancies.give_up_place(sequence, is_clean=True, now_ns=at_ns)
        return self.tenancies.forget(sequence, CloseCause.CANCELLED)


def queued(name: str, position: int, wait_ns: int | None = None) -> SequenceQueued:
    return SequenceQueued(sequence_id=SequenceId(name), position=position, expected_wait_ns=wait_ns)


def placed(name: str, waited_ns: int) -> SequencePlaced:
    return SequencePlaced(sequence_id=SequenceId(name), instance=FIRST, waited_ns=waited_ns)


def test_the_first_has_a_slot_and_the_others_wait() -> None:
    places = Places()
    a, b, c = (places.start(name) for name in "abc")
    assert (a.state, b.state, c.state) == (SequenceState.WAITING, SequenceState.QUEUED, SequenceState.QUEUED)
    assert places.tenancies.place_in_line(a.sequence_id) is None
    assert places.tenancies.place_in_line(b.sequence_id) == queued("b", 1)
    assert places.tenancies.place_in_line(c.sequence_id) == queued("c", 2)
    assert (places.tenancies.n_waiting, places.counts.queued, places.counts.started) == (2, 2, 3)
    assert places.tenancies.place_waiting(5) == []


def test_a_free_slot_goes_to_the_first_and_the_others_are_told() -> None:
    places = Places()
    a, b, _ = (places.start(name, 13) for name in "abc")
    places.leave(a, 40)
    assert places.tenancies.place_waiting(40) == [placed("b", 40), queued("c", 1, 40)]
    assert (b.state, list(places.lanes[0].ready.values())) == (SequenceState.READY, [b])
    assert places.counts.placed == 1
    # slots were held for 40 ns on average
    assert places.tenancies.expected_wait_ns() == 80


def test_the_idle_clock_starts_with_the_slot() -> None:
    places = Places()
    a, b = places.start("a"), places.start("b")
    assert places.tenancies.sequences.longest_idle is a
    places.leave(a, 40)
    places.tenancies.place_waiting(40)
    assert places.tenancies.sequences.longest_idle is b
    assert b.idle_since_ns == 40


def test_who_leaves_the_line_frees_no_slot() -> None:
    places = Places()
    _, b, _ = (places.start(name) for name in "abc")
    b.move(SequenceInput.CANCEL)
    assert places.leave(b, 7) == SequenceEnded(
        sequence_id=b.sequence_id, cause=CloseCause.CANCELLED, received_samples=0
    )
    assert places.tenancies.place_waiting(7) == [queued("c", 1)]
    assert places.tenancies.expected_wait_ns() is None


@pytest.mark.parametrize(
    ("held_ns", "retry_after_s"),
    [(0, 1), (SECOND_NS // 4, 1), (3 * SECOND_NS, 9), (SECOND_NS + 1, 4), (10_000 * SECOND_NS, 600)],
)
def test_a_full_backlog_refuses_and_says_when_to_come_again(held_ns: int, retry_after_s: int) -> None:
    places = Places(backlog=2)
    if held_ns:
        places.leave(places.start("z"), held_ns)
    for name in "abc":
        places.start(name)
    with pytest.raises(CapacityExceeded, match="every slot is taken, and the line of 2 is full") as caught:
        places.start("d")
    assert caught.value.retry_after_s == retry_after_s
    assert places.tenancies.sequences.get(SequenceId("d")) is None


def test_a_free_slot_is_no_wait() -> None:
    assert Places().tenancies.expected_wait_ns() == 0


def test_lost_instances_bring_no_slots() -> None:
    places = Places(instances=2)
    a, _ = places.start("a"), places.start("b")
    places.leave(a, 100)
    places.start("c")
    assert places.tenancies.expected_wait_ns(1) == 50
    places.lanes[1].lose((), 0)
    assert places.tenancies.expected_wait_ns(1) == 100
    places.lanes[0].lose((), 0)
    assert places.tenancies.expected_wait_ns(1) is None


def test_those_that_wait_too_long_are_lost() -> None:
    places = Places(backlog_wait_ns=100, backlog_levels=2)
    places.start("a")
    for at_ns, (name, priority) in enumerate((("b", 2), ("c", 1), ("d", 2)), start=10):
        places.start(name, at_ns=at_ns, priority=priority)
    assert places.tenancies.backlog_deadline_ns() == 110
    assert places.tenancies.oldest_since_ns == 10
    assert places.tenancies.expire_backlog(109) == []
    lost = places.tenancies.expire_backlog(111)
    assert [(effect.sequence_id, type(effect.error)) for effect in lost if isinstance(effect, SequenceLost)] == [
        ("b", BacklogTimeout),
        ("c", BacklogTimeout),
    ]
    assert places.counts.ended == {"backlog_timeout": 2}
    assert places.tenancies.place_waiting(111) == [queued("d", 1)]


def test_without_a_limit_nobody_waits_too_long() -> None:
    places = Places()
    places.start("a")
    places.start("b")
    assert places.tenancies.backlog_deadline_ns() is None
    assert places.tenancies.expire_backlog(10**18) == []


def running_turns(places: Places) -> Sequence:
    """Its END is in flight, and another START is queued."""
    queue = TurnQueue(4, frozenset())
    queue.push(make_turn("a", 1, start=True, end=True), 0)
    queue.push(make_turn("a", 2, start=True), 0)
    sequence = Sequence(sequence_id=SequenceId("a"), queue=queue)
    places.tenancies.start(sequence, 0)
    places.tenancies.settle(sequence, 0)
    places.lanes[0].form(1, 0)
    return sequence


def test_the_next_life_is_in_the_same_slot() -> None:
    places = Places(takes_turns=True)
    sequence = running_turns(places)
    seat = sequence.seat
    places.tenancies.begin_next_life(sequence, 5)
    assert (sequence.seat, sequence.state) == (seat, SequenceState.READY)


def test_the_next_life_waits_behind_those_who_wait() -> None:
    places = Places(takes_turns=True, backlog=1)
    sequence = running_turns(places)
    places.start("b")
    places.tenancies.begin_next_life(sequence, 5)
    assert (sequence.place, sequence.state) == (None, SequenceState.QUEUED)
    assert places.tenancies.place_waiting(5) == [placed("b", 5), queued("a", 1, 5)]
