"""One driver's part of the resources that all models share: its instances run only while they hold what they need."""

from collections import Counter
from collections.abc import Mapping

from server.batching.resources import ResourceLedger
from server.ids import InstanceIndex


class ResourceShare:
    """Who may run, of one copy of a model. An instance holds its needs once, however many batches it has in line.

    Args:
        ledger: Of the engine.
        owner: Name of the copy, unlike those of all others.
        needs: What a batch takes; {}: nothing, and nothing here matters.
        priority: Weight, 1 is the highest.

    Raises:
        ConfigError: There is not so much.
    """

    def __init__(self, ledger: ResourceLedger, owner: str, needs: Mapping[str, int], priority: int) -> None:
        ledger.check(owner, needs)
        self._ledger = ledger
        self._owner = owner
        self._needs = needs
        self._priority = priority
        self._batches: Counter[InstanceIndex] = Counter()
        self._denied: set[InstanceIndex] = set()
        self._waiting: set[InstanceIndex] = set()

    def may_run(self, instance: InstanceIndex) -> bool:
        """Whether the instance may begin a batch now."""
        return not self._needs or self._batches[instance] > 0 or self._ledger.admits(self._key(instance), self._needs)

    def asks_to_run(self, instance: InstanceIndex) -> bool:
        """The same, for the planning that ``settle`` ends."""
        is_admitted = self.may_run(instance)
        if not is_admitted:
            self._denied.add(instance)
        return is_admitted

    def take(self, instance: InstanceIndex) -> None:
        """A batch begins on an instance that may run."""
        if self._needs and not self._batches[instance]:
            self._ledger.take(self._key(instance), self._needs, self._priority)
            self._waiting.discard(instance)
        self._batches[instance] += 1

    def give_back(self, instance: InstanceIndex, *, is_lost: bool = False) -> None:
        """A batch has ended; ``is_lost``: all of the instance's have."""
        left = 0 if is_lost else max(0, self._batches[instance] - 1)
        self._batches[instance] = left
        if self._needs and not left:
            self._ledger.give_back(self._key(instance))

    def settle(self, *, is_due: bool) -> None:
        """After planning: those that were denied wait in line if something is due for them, and nobody else does."""
        wanting = self._denied if is_due else set()
        for instance in wanting - self._waiting:
            self._ledger.wait(self._key(instance), self._needs)
        for instance in self._waiting - wanting:
            self._ledger.stop_waiting(self._key(instance))
        self._waiting, self._denied = wanting, set()

    def close(self) -> None:
        """The copy is gone: nothing is held, nobody waits."""
        self.settle(is_due=False)
        for instance in list(self._batches):
            self.give_back(instance, is_lost=True)

    def _key(self, instance: InstanceIndex) -> str:
        return f"{self._owner}-{instance}"
