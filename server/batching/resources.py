"""The rate limiter: instances share named resources, and run only while they hold what their model says it needs.

Pure. Owners that wait are served by weight: of two that always want to run, one of priority 2 gets half as many turns
as one of priority 1. Whoever waits keeps what it will need from those behind it, so that one that needs much is not
starved by many that need little.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from server.errors import ConfigError, ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStats:
    """A snapshot for metrics."""

    totals: Mapping[str, int]
    in_use: Mapping[str, int]
    waiting: int
    """Owners that would run if there were enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    needs: Mapping[str, int]
    turn: int
    """Virtual time at which it may run; lowest first."""
    order: int


class ResourceLedger:
    """Who holds how much of what. An owner, for example one instance of a model, holds its needs at most once.

    Args:
        totals: How much there is of each resource, at least 1 of each.

    Raises:
        ConfigError: a total is below 1.
    """

    def __init__(self, totals: Mapping[str, int]) -> None:
        for name, total in totals.items():
            if total < 1:
                raise ConfigError(f"resources.{name} must be at least 1, not {total}")
        self._totals = dict(totals)
        self._free = dict(totals)
        self._held: dict[str, Mapping[str, int]] = {}
        self._claims: dict[str, _Claim] = {}
        self._next_turns: dict[str, int] = {}
        """Of owners that have had more than their share lately."""
        self._now = 0
        """Virtual time: the turn of the owner that ran last."""
        self._n_claims = 0

    def check(self, owner: str, needs: Mapping[str, int]) -> None:
        """Whether the owner could ever run.

        Raises:
            ConfigError: it needs a resource that is not declared, none of one, or more than there is.
        """
        for name, amount in needs.items():
            if name not in self._totals:
                declared = ", ".join(sorted(self._totals)) or "none"
                raise ConfigError(f"{owner} needs the resource {name!r}, which [resources] does not have: {declared}")
            if not 1 <= amount <= self._totals[name]:
                raise ConfigError(f"{owner} needs {amount} of {name!r}, of which there are {self._totals[name]}")

    def admits(self, owner: str, needs: Mapping[str, int]) -> bool:
        """Whether the owner may run now: there is enough, besides what those keep that wait and come before it.

        Raises:
            ConfigError: as of ``check``.
        """
        self.check(owner, needs)
        if owner in self._held:
            return False
        own = self._claims.get(owner) or self._claim(owner, needs)
        ahead = [each for other, each in self._claims.items() if other != owner and _comes_before(each, own)]
        return all(
            self._free[name] - sum(each.needs.get(name, 0) for each in ahead) >= amount
            for name, amount in needs.items()
        )

    def wait(self, owner: str, needs: Mapping[str, int]) -> None:
        """The owner would run now if it were admitted. It keeps its place until ``take`` or ``stop_waiting``.

        Raises:
            ConfigError: as of ``check``.
        """
        self.check(owner, needs)
        if owner not in self._claims and owner not in self._held:
            self._claims[owner] = self._claim(owner, needs)
            self._n_claims += 1

    def stop_waiting(self, owner: str) -> None:
        """The owner has nothing to run any more. Not waiting: nothing."""
        self._claims.pop(owner, None)

    def take(self, owner: str, needs: Mapping[str, int], priority: int = 1) -> None:
        """The owner runs; ``priority`` is its weight, at least 1, and 2 gets half the turns of 1.

        Raises:
            ConfigError: as of ``check``.
            ServiceError: it was not admitted, or holds its needs already; nothing has changed.
        """
        if owner in self._held or not self.admits(owner, needs):
            raise ServiceError(f"{owner} was not admitted")
        claim = self._claims.pop(owner, None) or self._claim(owner, needs)
        self._now = max(self._now, claim.turn)
        self._next_turns[owner] = claim.turn + max(1, priority)
        self._next_turns = {each: turn for each, turn in self._next_turns.items() if turn > self._now}
        self._held[owner] = MappingProxyType(dict(needs))
        for name, amount in needs.items():
            self._free[name] -= amount

    def give_back(self, owner: str) -> None:
        """The owner has run, or is gone. It holds nothing: nothing."""
        for name, amount in self._held.pop(owner, {}).items():
            self._free[name] += amount

    def stats(self) -> ResourceStats:
        """A snapshot."""
        in_use = {name: total - self._free[name] for name, total in self._totals.items()}
        return ResourceStats(totals=dict(self._totals), in_use=in_use, waiting=len(self._claims))

    def _claim(self, owner: str, needs: Mapping[str, int]) -> _Claim:
        turn = max(self._now, self._next_turns.get(owner, 0))
        return _Claim(needs=dict(needs), turn=turn, order=self._n_claims)


def _comes_before(one: _Claim, other: _Claim) -> bool:
    return (one.turn, one.order) < (other.turn, other.order)
