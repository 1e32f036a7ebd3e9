"""Which sequences are live and idle, and which ids have ended."""

import pytest

from server.batching.live_sequences import LiveSequences
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence
from server.errors import SequenceAlreadyEnded, UnknownSequence
from server.ids import SequenceId
from tests.support.factories import make_samples

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=4)
A = SequenceId("a")


def add(sequences: LiveSequences, name: str) -> Sequence:
    sequence = Sequence(sequence_id=SequenceId(name), queue=SampleQueue(LIMITS))
    sequences.add(sequence)
    return sequence


def test_unknown_live_and_ended() -> None:
    sequences = LiveSequences(4)
    assert sequences.get(A) is None
    with pytest.raises(UnknownSequence, match="sequence a is not live: only START opens one"):
        sequences.find(A)
    sequence = add(sequences, "a")
    assert sequences.get(A) is sequences.find(A) is sequences.open(A) is sequence
    assert (len(sequences), list(sequences)) == (1, [sequence])
    sequences.remove(sequence)
    assert (len(sequences), sequences.get(A)) == (0, None)
    with pytest.raises(SequenceAlreadyEnded, match="sequence a has ended"):
        sequences.find(A)


def test_one_that_was_told_to_end_takes_nothing() -> None:
    sequences = LiveSequences(4)
    sequence = add(sequences, "a")
    assert isinstance(sequence.queue, SampleQueue)
    sequence.queue.push(make_samples(1), 0, end=True)
    assert sequences.find(A) is sequence
    with pytest.raises(SequenceAlreadyEnded, match="sequence a takes nothing after its END"):
        sequences.open(A)


def test_ended_ids_are_remembered_up_to_a_bound_and_until_they_start_anew() -> None:
    sequences = LiveSequences(2)
    for name in "abc":
        sequences.remove(add(sequences, name))
    with pytest.raises(UnknownSequence):
        sequences.find(A)
    sequences.remove(add(sequences, "b"))
    for name in "cb":
        with pytest.raises(SequenceAlreadyEnded):
            sequences.find(SequenceId(name))


def test_the_longest_idle() -> None:
    sequences = LiveSequences(2)
    assert not sequences.longest_idle
    a, b, c = (add(sequences, name) for name in "abc")
    for at_ns, sequence in enumerate((a, b, c, a)):
        sequences.rest(sequence, at_ns)
    assert sequences.longest_idle is b
    assert a.idle_since_ns == 3
    sequences.wake(b)
    sequences.wake(b)
    assert sequences.longest_idle is c
    sequences.remove(c)
    assert sequences.longest_idle is a
