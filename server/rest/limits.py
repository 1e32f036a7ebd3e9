"""Requests that are worked on at once, bounded."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from server.errors import CapacityExceeded


class RequestLimit:
    """Counts requests while they are worked on.

    Args:
        limit: Most of them at once, 1 or more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def active(self) -> int:
        """How many there are."""
        return self._active

    async def all_done(self) -> None:
        """Waits until there are none."""
        await self._is_idle.wait()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """One, while the context lasts.

        Raises:
            CapacityExceeded: There are as many as there may be.
        """
        if self._active >= self._limit:
            raise CapacityExceeded(f"all {self._limit} requests that are worked on at once are taken")
        self._active += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._active -= 1
            if not self._active:
                self._is_idle.set()
