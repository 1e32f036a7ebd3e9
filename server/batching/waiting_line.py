"""The sequences that wait for a slot on their way from one batcher to another: where a model is replaced, they have no
state yet, so they go to the new copy, each with what it has sent and with its place.
"""

from dataclasses import dataclass

from server.batching.sequence import Sequence
from server.ids import SequenceId


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPlace:
    """One sequence's place in the line."""

    sequence_id: SequenceId
    level: int
    """1 is the first."""
    since_ns: int
    told: int
    """The place that it was told last; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLine:
    """What ``SequenceBatcher.hand_over`` gives out and ``take_over`` takes, once."""

    places: tuple[WaitingPlace, ...] = ()
    """In order."""
    passed_over: tuple[int, ...] = ()
    """Of each level, how often it was."""
    sequences: tuple[Sequence, ...] = ()
    """Of those places."""

    @property
    def sequence_ids(self) -> tuple[SequenceId, ...]:
        """Who is in it, in order."""
        return tuple(place.sequence_id for place in self.places)
