"""How long things take, from what they took before: averages in which the newest counts most. Pure arithmetic."""

from typing import Final

_NEWEST_SHARE: Final = 0.2
"""Of an average: some ten values are remembered."""


class Average:
    """A running average of durations."""

    def __init__(self) -> None:
        """Nothing was measured."""
        self._value_ns: float | None = None

    @property
    def value_ns(self) -> int | None:
        """None: nothing was measured."""
        return None if self._value_ns is None else round(self._value_ns)

    def note(self, duration_ns: int) -> None:
        """One more."""
        old_ns = duration_ns if self._value_ns is None else self._value_ns
        self._value_ns = old_ns + _NEWEST_SHARE * (duration_ns - old_ns)


class StepTimes:
    """What steps of an instance take, by the ticks, or turns, in them."""

    def __init__(self) -> None:
        """Nothing was measured."""
        self._averages: dict[int, Average] = {}

    def note(self, size: int, duration_ns: int) -> None:
        """A step of ``size`` ticks took so long."""
        self._averages.setdefault(size, Average()).note(duration_ns)

    def expected_ns(self, size: int) -> int | None:
        """What a step of ``size`` ticks should take: between the nearest sizes that were measured, or as the nearest.

        None: nothing was measured.
        """
        below = max((known for known in self._averages if known <= size), default=None)
        above = min((known for known in self._averages if known >= size), default=None)
        below_ns, above_ns = self._average_ns(below), self._average_ns(above)
        if below is None or above is None or below_ns is None or above_ns is None:
            return above_ns if below_ns is None else below_ns
        if below == above:
            return below_ns
        return below_ns + (above_ns - below_ns) * (size - below) // (above - below)

    def _average_ns(self, size: int | None) -> int | None:
        return None if size is None else self._averages[size].value_ns
