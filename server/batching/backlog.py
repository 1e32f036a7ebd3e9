"""The sequences that wait for a slot: in order of their level and, within a level, of their arrival.

A level goes before all below it, but a level that was passed over a few times in a row is next: nobody waits without
bound while others are placed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from server.batching.step_times import Average
from server.batching.waiting_line import WaitingPlace
from server.ids import SequenceId

MOST_PASSED_OVER: Final = 4
"""Placements from higher levels that a level with somebody in it lets go before."""


class Backlog:
    """Who waits for a slot, since when, and at which place."""

    def __init__(self, n_levels: int) -> None:
        """Nobody waits. Levels are 1 (first) to ``n_levels``."""
        self._levels: list[OrderedDict[SequenceId, int]] = [OrderedDict() for _ in range(n_levels)]
        self._passed_over = [0] * n_levels
        self._told: dict[SequenceId, int] = {}

    def __len__(self) -> int:
        """Sequences that wait."""
        return sum(len(level) for level in self._levels)

    def add(self, sequence_id: SequenceId, priority: int, now_ns: int, *, is_told: bool) -> None:
        """It waits from now on; 0, and numbers beyond the last level, mean the last. ``is_told``: it asks for its place
        itself, and is in ``moved`` only when that changes.
        """
        n_levels = len(self._levels)
        level = min(priority or n_levels, n_levels) - 1
        self._levels[level][sequence_id] = now_ns
        self._told[sequence_id] = self.order().index(sequence_id) + 1 if is_told else 0

    def remove(self, sequence_id: SequenceId) -> int | None:
        """It waits no more. Returns since when it has; None: it did not."""
        self._told.pop(sequence_id, None)
        for index, level in enumerate(self._levels):
            if sequence_id in level:
                since_ns = level.pop(sequence_id)
                if not level:
                    self._passed_over[index] = 0
                return since_ns
        return None

    def pop(self) -> tuple[SequenceId, int]:
        """Take the first, with the time since which it has waited; there must be one."""
        level = _next_level([len(each) for each in self._levels], self._passed_over)
        sequence_id, since_ns = self._levels[level].popitem(last=False)
        del self._told[sequence_id]
        return sequence_id, since_ns

    def hand_over(self) -> tuple[tuple[WaitingPlace, ...], tuple[int, ...]]:
        """All of them in order, and how often each level was passed over; nobody waits then."""
        places_by_id = {
            each: WaitingPlace(sequence_id=each, level=index, since_ns=since_ns, told=self._told[each])
            for index, level in enumerate(self._levels, 1)
            for each, since_ns in level.items()
        }
        places = tuple(places_by_id[each] for each in self.order())
        passed_over = tuple(self._passed_over)
        for place in places:
            self.remove(place.sequence_id)
        return places, passed_over

    def take_over(self, places: Iterable[WaitingPlace], passed_over: tuple[int, ...]) -> None:
        """Those of another line of as many levels wait in this one, in which nobody does yet."""
        assert not len(self), "they come before all others"
        assert len(passed_over) == len(self._passed_over), "a service has the same levels everywhere"
        for place in places:
            self.add(place.sequence_id, place.level, place.since_ns, is_told=False)
            self._told[place.sequence_id] = place.told
        self._passed_over = list(passed_over)

    def order(self) -> list[SequenceId]:
        """All of them, as they would be placed if nobody came or left."""
        sizes = [len(level) for level in self._levels]
        passed_over = list(self._passed_over)
        lines = [iter(level) for level in self._levels]
        order: list[SequenceId] = []
        while any(sizes):
            level = _next_level(sizes, passed_over)
            sizes[level] -= 1
            order.append(next(lines[level]))
        return order

    def place(self, sequence_id: SequenceId) -> int | None:
        """Its place, 1 is next; None: it does not wait."""
        return self.order().index(sequence_id) + 1 if sequence_id in self._told else None

    def moved(self) -> list[tuple[SequenceId, int]]:
        """Those whose place is another than the one they were told, in order, with the place; they are told now."""
        moved: list[tuple[SequenceId, int]] = []
        for index, sequence_id in enumerate(self.order()):
            if self._told[sequence_id] != index + 1:
                self._told[sequence_id] = index + 1
                moved.append((sequence_id, index + 1))
        return moved

    def late(self, latest_start_ns: int) -> list[SequenceId]:
        """Those that have waited since then or before, the longest first."""
        late: list[tuple[int, SequenceId]] = []
        for level in self._levels:
            for sequence_id, since_ns in level.items():
                if since_ns > latest_start_ns:
                    break
                late.append((since_ns, sequence_id))
        return [sequence_id for _, sequence_id in sorted(late, key=lambda entry: entry[0])]

    @property
    def oldest_since_ns(self) -> int | None:
        """Since when the one that has waited longest waits; None: nobody waits."""
        return min((next(iter(level.values())) for level in self._levels if level), default=None)


class SlotTurnover:
    """How long slots are held, hence when the next one should be free."""

    def __init__(self) -> None:
        """No slot was given up yet."""
        self._held = Average()

    def note(self, held_ns: int) -> None:
        """A slot was given up after so long."""
        self._held.note(held_ns)

    def expected_wait_ns(self, place: int, n_slots: int) -> int | None:
        """Until the ``place``-th slot from now is free, of ``n_slots`` that are in use. None: nothing is known."""
        held_ns = self._held.value_ns
        return None if held_ns is None or not n_slots else place * held_ns // n_slots


def _next_level(sizes: list[int], passed_over: list[int]) -> int:
    """The level to place from, of those that are not empty; moves ``passed_over``."""
    occupied = [level for level, size in enumerate(sizes) if size]
    starved = [level for level in occupied if passed_over[level] >= MOST_PASSED_OVER]
    chosen = max(starved, key=lambda level: passed_over[level]) if starved else occupied[0]
    for level in occupied:
        passed_over[level] = 0 if level == chosen else passed_over[level] + 1
    return chosen
