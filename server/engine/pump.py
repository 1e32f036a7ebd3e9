"""The one timer of an engine, over all that has deadlines: runs what is due, sleeps until the next thing is.

Whoever comes first in order plans first, so that a live step never waits behind a batch that is formed beside it.
"""

from typing import Protocol

from server.clock import Clock, Timer


class Pumped(Protocol):
    """What has things to do at times."""

    def pump(self, now_ns: int) -> None:
        """Does what is due: expires, plans, submits."""

    def next_deadline_ns(self) -> int | None:
        """When ``pump`` has something to do without other input; past: now."""


class Pump:
    """Runs on the event loop.

    Args:
        clock: Time and timers.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._drivers: list[tuple[int, Pumped]] = []
        self._timer: Timer | None = None
        self._armed_at_ns: int | None = None
        self._is_pumping = False
        self._is_asked_again = False

    def add(self, driver: Pumped, *, order: int) -> None:
        """From now on it is run; those of a lower ``order`` before it."""
        self._drivers.append((order, driver))
        self._drivers.sort(key=lambda each: each[0])
        self.run()

    def remove(self, driver: Pumped) -> None:
        """It is run no more. Not there: nothing."""
        self._drivers = [each for each in self._drivers if each[1] is not driver]

    def stop(self) -> None:
        """Nothing is run any more."""
        self._drivers.clear()
        self._arm(None)

    def run(self, now_ns: int | None = None) -> None:
        """Does everything that is due, then arms the timer. Within itself: once more when it is through."""
        if self._is_pumping:
            self._is_asked_again = True
            return
        self._is_pumping = True
        try:
            at_ns = self._clock.now_ns() if now_ns is None else now_ns
            while True:
                self._is_asked_again = False
                for _, driver in tuple(self._drivers):
                    driver.pump(at_ns)
                if not self._is_asked_again:
                    break
                at_ns = max(at_ns, self._clock.now_ns())
        finally:
            self._is_pumping = False
        deadlines = [driver.next_deadline_ns() for _, driver in self._drivers]
        self._arm(min((each for each in deadlines if each is not None), default=None))

    def run_if_due(self, driver: Pumped) -> None:
        """After input to one of them: most of it makes nothing due, and a deadline that moves away needs no other
        timer.
        """
        now_ns, due_ns = self._clock.now_ns(), driver.next_deadline_ns()
        if due_ns is not None and (self._armed_at_ns is None or due_ns <= now_ns or due_ns < self._armed_at_ns):
            self.run(now_ns)

    def _arm(self, deadline_ns: int | None) -> None:
        if deadline_ns == self._armed_at_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at_ns = deadline_ns
        self._timer = None if deadline_ns is None else self._clock.call_at(deadline_ns, self._on_timer)

    def _on_timer(self) -> None:
        deadline_ns, self._timer, self._armed_at_ns = self._armed_at_ns, None, None
        # A timer that fires early must still meet its deadline, or it would be armed again and again.
        self.run(max(deadline_ns or 0, self._clock.now_ns()))
