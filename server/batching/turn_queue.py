"""The turns of one sequence that no step has taken yet: first in, first out, bounded (I5).

END closes the queue. Where a START may open a live sequence again, it opens a closed queue again too: the turns of a
sequence's next life stand behind those of its last.
"""

from collections import deque
from dataclasses import dataclass

from server.errors import QueueFull
from server.plan import Turn

ShapeKey = tuple[tuple[str, str, tuple[int, ...] | int], ...]
"""Of each input its name and type, and its shape, or only the number of its axes where lengths may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTurn:
    """A turn that waits."""

    turn: Turn
    ready_at_ns: int
    """When it arrived."""
    shape_key: ShapeKey
    """What the turns of one step share."""

    @property
    def is_flush(self) -> bool:
        """A turn is none."""
        return False


class TurnQueue:
    """Bounded first-in-first-out of turns."""

    def __init__(self, max_turns: int, ragged: frozenset[str]) -> None:
        """Empty and open. Lengths of the inputs ``ragged`` are no part of a turn's shape key."""
        self._max_turns = max_turns
        self._ragged = ragged
        self._turns: deque[QueuedTurn] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        """Turns that no step has taken."""
        return len(self._turns)

    @property
    def room(self) -> int:
        """Turns that fit now."""
        return max(0, self._max_turns - len(self._turns))

    @property
    def is_closed(self) -> bool:
        """Whether END is the last that was pushed: only a START may follow."""
        return self._is_closed

    @property
    def head(self) -> QueuedTurn | None:
        """The turn that is next."""
        return self._turns[0] if self._turns else None

    @property
    def received_samples(self) -> int:
        """Turns have none."""
        return 0

    @property
    def queued_samples(self) -> int:
        """Turns have none."""
        return 0

    def push(self, turn: Turn, now_ns: int) -> None:
        """Append a turn.

        Raises:
            QueueFull: there is no room; nothing was taken.
        """
        if not self.room:
            raise QueueFull(f"{len(self._turns)} turns wait: no more than that")
        self._append(turn, now_ns)

    def take(self) -> QueuedTurn:
        """Take the head, which must be there."""
        return self._turns.popleft()

    def moved(self, max_turns: int, ragged: frozenset[str]) -> "TurnQueue":
        """What is in it, in a queue of another copy of the model; all of it, whatever the bound."""
        queue = TurnQueue(max_turns, ragged)
        for queued in self._turns:
            queue._append(queued.turn, queued.ready_at_ns)
        return queue

    def _append(self, turn: Turn, now_ns: int) -> None:
        key = tuple(
            (name, dtype, len(shape) if name in self._ragged else shape)
            for name, dtype, shape in turn.tensors.shape_key
        )
        self._turns.append(QueuedTurn(turn=turn, ready_at_ns=now_ns, shape_key=key))
        self._is_closed = turn.end
