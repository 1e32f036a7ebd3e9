"""Which sequences are live, which of them are idle, and which ids have ended."""

from collections import OrderedDict
from collections.abc import Iterator

from server.batching.sequence import Sequence
from server.errors import SequenceAlreadyEnded, UnknownSequence
from server.ids import SequenceId


class LiveSequences:
    """By id. An ended id is told apart from an unknown one for as long as it is remembered (I3)."""

    def __init__(self, max_remembered_ids: int) -> None:
        """None is live."""
        self._live: dict[SequenceId, Sequence] = {}
        self._idle: OrderedDict[SequenceId, Sequence] = OrderedDict()
        self._gone_ids: OrderedDict[SequenceId, None] = OrderedDict()
        self._max_remembered_ids = max_remembered_ids

    def __len__(self) -> int:
        """Live sequences."""
        return len(self._live)

    def __iter__(self) -> Iterator[Sequence]:
        """All live sequences."""
        return iter(self._live.values())

    def get(self, sequence_id: SequenceId) -> Sequence | None:
        """The live sequence of that id."""
        return self._live.get(sequence_id)

    def find(self, sequence_id: SequenceId) -> Sequence:
        """The live sequence of that id.

        Raises:
            SequenceAlreadyEnded, UnknownSequence: there is none.
        """
        sequence = self._live.get(sequence_id)
        if sequence is not None:
            return sequence
        if sequence_id in self._gone_ids:
            raise SequenceAlreadyEnded(f"sequence {sequence_id} has ended")
        raise UnknownSequence(f"sequence {sequence_id} is not live: only START opens one")

    def open(self, sequence_id: SequenceId) -> Sequence:
        """The live sequence of that id, if it takes more.

        Raises:
            SequenceAlreadyEnded, UnknownSequence: it does not.
        """
        sequence = self.find(sequence_id)
        if sequence.queue.is_closed:
            raise SequenceAlreadyEnded(f"sequence {sequence_id} takes nothing after its END")
        return sequence

    def add(self, sequence: Sequence) -> None:
        """It is live from now on."""
        self._live[sequence.sequence_id] = sequence
        self._gone_ids.pop(sequence.sequence_id, None)

    def remove(self, sequence: Sequence) -> None:
        """It has ended; its id is remembered for a while."""
        del self._live[sequence.sequence_id]
        self._idle.pop(sequence.sequence_id, None)
        self._gone_ids[sequence.sequence_id] = None
        while len(self._gone_ids) > self._max_remembered_ids:
            self._gone_ids.popitem(last=False)

    def hand_out(self, sequence_id: SequenceId) -> Sequence:
        """It goes on elsewhere: here it was never."""
        self._idle.pop(sequence_id, None)
        return self._live.pop(sequence_id)

    def rest(self, sequence: Sequence, now_ns: int) -> None:
        """It has nothing to run, and gave a sign of life just now."""
        sequence.idle_since_ns = now_ns
        self._idle[sequence.sequence_id] = sequence
        self._idle.move_to_end(sequence.sequence_id)

    def wake(self, sequence: Sequence) -> None:
        """It has something to run."""
        self._idle.pop(sequence.sequence_id, None)

    @property
    def longest_idle(self) -> Sequence | None:
        """The one that has given no sign of life for longest, of those that have nothing to run."""
        return next(iter(self._idle.values()), None)
