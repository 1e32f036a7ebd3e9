"""Waiting until a driver has nothing left to do. Runs on the event loop."""

import asyncio
from collections.abc import Callable


class IdleNotice:
    """Wakes all who wait, however many there are and however often work comes again.

    Args:
        is_idle: Whether there is nothing left; asked only while somebody waits.
    """

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._changed: asyncio.Event | None = None

    async def wait(self) -> None:
        """Returns when there is nothing left."""
        while not self._is_idle():
            if self._changed is None or self._changed.is_set():
                self._changed = asyncio.Event()
            await self._changed.wait()

    def look(self) -> None:
        """Something has ended: perhaps it was the last."""
        if self._changed is not None and self._is_idle():
            self._changed.set()
