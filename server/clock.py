"""Time enters here and nowhere else: the core takes ``now_ns`` as an argument, the engine asks a Clock for it."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """An armed callback."""

    def cancel(self) -> None:
        """Disarms it; nothing happens if it has fired."""


class Clock(Protocol):
    """What the engine needs of time."""

    def now_ns(self) -> int:
        """Monotonic time in nanoseconds, from an arbitrary origin."""

    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Timer:
        """Calls back on the event loop at the deadline or a little before or after it, never within this call."""


class SystemClock:
    """The machine's monotonic clock and the running loop's timers."""

    __slots__ = ()

    def now_ns(self) -> int:
        """Monotonic time in nanoseconds."""
        return time.monotonic_ns()

    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Timer:
        """Arms a timer of the running loop."""
        delay_s = max(0, deadline_ns - time.monotonic_ns()) / 1e9
        return asyncio.get_running_loop().call_later(delay_s, callback)
