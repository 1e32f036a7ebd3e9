"""A Clock that moves only when a test says so; what is due fires in order of deadlines."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class ManualTimer:
    """A callback armed on a ManualClock."""

    deadline_ns: int
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualClock:
    """Starts at 0."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._timers: list[ManualTimer] = []

    def now_ns(self) -> int:
        return self._now_ns

    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(deadline_ns, callback)
        self._timers.append(timer)
        return timer

    def advance(self, duration_ns: int) -> None:
        """Time passes; timers fire at their own deadlines, also those that are armed meanwhile."""
        end_ns = self._now_ns + duration_ns
        while due := [timer for timer in self._timers if not timer.is_cancelled and timer.deadline_ns <= end_ns]:
            first = min(due, key=lambda timer: timer.deadline_ns)
            self._timers.remove(first)
            self._now_ns = max(self._now_ns, first.deadline_ns)
            first.callback()
        self._now_ns = end_ns
