"""Sockets that have not finished their opening handshake, bounded. Pure.

Clients that open sockets and then say nothing, or a letter a second, hold no more than the lobby; in a full one the
longest waiting has to go. So they never keep out a client that comes with its request ready.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Guest = TypeVar("Guest", bound=Hashable)


class Lobby(Generic[Guest]):
    """Guests in the order in which they came.

    Args:
        limit: Most of them at once, 1 or more.
    """

    def __init__(self, limit: int) -> None:
        assert limit >= 1
        self._limit = limit
        self._guests: dict[Guest, None] = {}
        self._evicted = 0

    def __len__(self) -> int:
        return len(self._guests)

    def __contains__(self, guest: object) -> bool:
        return guest in self._guests

    @property
    def evicted(self) -> int:
        """How many have had to go so far."""
        return self._evicted

    def enter(self, guest: Guest) -> Guest | None:
        """A new one; returns the one that has to go for it, which has left then."""
        self._guests[guest] = None
        if len(self._guests) <= self._limit:
            return None
        longest = next(iter(self._guests))
        del self._guests[longest]
        self._evicted += 1
        return longest

    def leave(self, guest: Guest) -> None:
        """It is through, or gone. Again does nothing."""
        self._guests.pop(guest, None)
