"""Any order of what owners do with shared resources: never more than there is, and nobody waits for ever."""

from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from server.batching.resources import ResourceLedger
from server.errors import ServiceError
from tests.properties.profiles import machine_settings

TOTALS: Final = {"gpu": 3, "cpu": 2}
OWNERS: Final = {
    "small": ({"gpu": 1}, 1),
    "other": ({"gpu": 1}, 1),
    "seldom": ({"gpu": 1, "cpu": 1}, 5),
    "large": ({"gpu": 3}, 2),
    "apart": ({"cpu": 2}, 3),
    "free": ({}, 1),
}


def most_overtaken(owner: str) -> int:
    """Grants that take what the owner waits for before it has it: by weight, and one or two that were ahead of it."""
    needs, priority = OWNERS[owner]
    rivals = [weight for name, (others, weight) in OWNERS.items() if name != owner and set(others) & set(needs)]
    return sum(priority // weight + 2 for weight in rivals)


class ResourceLedgerMachine(RuleBasedStateMachine):
    """Owners whose needs stay the same, as those of a model's instances do."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = ResourceLedger(TOTALS)
        self.holding: list[str] = []
        self.waiting: list[str] = []
        self.overtaken: dict[str, int] = {}

    @rule(owner=st.sampled_from(sorted(OWNERS)))
    def take_or_wait(self, owner: str) -> None:
        needs, priority = OWNERS[owner]
        if not self.ledger.admits(owner, needs):
            with pytest.raises(ServiceError):
                self.ledger.take(owner, needs, priority)
            self.ledger.wait(owner, needs)
            if owner not in self.waiting and owner not in self.holding:
                self.waiting.append(owner)
                self.overtaken[owner] = 0
            return
        assert owner not in self.holding
        self.ledger.take(owner, needs, priority)
        self.holding.append(owner)
        if owner in self.waiting:
            self.waiting.remove(owner)
        for other in self.waiting:
            self.overtaken[other] += any(self.free(name) < OWNERS[other][0].get(name, 0) for name in needs)

    def free(self, name: str) -> int:
        return TOTALS[name] - self.ledger.stats().in_use[name]

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.holding))
        self.ledger.give_back(owner)
        self.ledger.give_back(owner)
        self.holding.remove(owner)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def stop_waiting(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.waiting))
        self.ledger.stop_waiting(owner)
        self.waiting.remove(owner)

    @invariant()
    def no_more_than_there_is(self) -> None:
        stats = self.ledger.stats()
        for name, total in TOTALS.items():
            held = sum(OWNERS[owner][0].get(name, 0) for owner in self.holding)
            assert stats.in_use[name] == held <= total
        assert stats.waiting == len(self.waiting)

    @invariant()
    def somebody_may_run(self) -> None:
        if self.waiting and not self.holding:
            assert any(self.ledger.admits(owner, OWNERS[owner][0]) for owner in self.waiting)

    @invariant()
    def nobody_starves(self) -> None:
        assert all(self.overtaken[owner] <= most_overtaken(owner) for owner in self.waiting)


TestResourceLedger = ResourceLedgerMachine.TestCase
TestResourceLedger.settings = settings(machine_settings(), max_examples=machine_settings().max_examples // 3)
