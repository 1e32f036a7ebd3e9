"""Instances of several models that share resources: never more in use than there is, and nobody is forgotten."""

import pytest

from server.batching.resources import ResourceLedger
from server.engine.resource_share import ResourceShare
from server.errors import ConfigError
from server.ids import InstanceIndex

ZERO, ONE = InstanceIndex(0), InstanceIndex(1)


def share(ledger: ResourceLedger, owner: str, **needs: int) -> ResourceShare:
    return ResourceShare(ledger, owner, needs, priority=1)


def test_one_runs_at_a_time_and_the_other_when_it_is_through() -> None:
    ledger = ResourceLedger({"gpu": 1})
    one, other = share(ledger, "a", gpu=1), share(ledger, "b", gpu=1)
    assert one.asks_to_run(ZERO)
    one.take(ZERO)
    assert not other.asks_to_run(ZERO)
    other.settle(is_due=True)
    assert ledger.stats().waiting == 1
    one.give_back(ZERO)
    assert not one.may_run(ZERO), "the other has waited"
    assert other.asks_to_run(ZERO)
    other.take(ZERO)
    other.settle(is_due=False)
    assert (ledger.stats().waiting, dict(ledger.stats().in_use)) == (0, {"gpu": 1})


def test_a_second_batch_of_an_instance_takes_nothing_more() -> None:
    ledger = ResourceLedger({"gpu": 1})
    one = share(ledger, "a", gpu=1)
    one.take(ZERO)
    assert one.may_run(ZERO)
    assert not one.may_run(ONE)
    one.take(ZERO)
    one.give_back(ZERO)
    assert dict(ledger.stats().in_use) == {"gpu": 1}
    one.give_back(ZERO)
    assert dict(ledger.stats().in_use) == {"gpu": 0}


def test_who_has_nothing_due_does_not_wait() -> None:
    ledger = ResourceLedger({"gpu": 1})
    one, other = share(ledger, "a", gpu=1), share(ledger, "b", gpu=1)
    one.take(ZERO)
    other.asks_to_run(ZERO)
    other.settle(is_due=True)
    other.settle(is_due=True)  # nothing was asked for since
    assert ledger.stats().waiting == 0


def test_what_is_lost_or_closed_holds_nothing() -> None:
    ledger = ResourceLedger({"gpu": 2})
    one, other = share(ledger, "a", gpu=1), share(ledger, "b", gpu=1)
    one.take(ZERO)
    one.take(ZERO)
    one.take(ONE)
    one.give_back(ZERO, is_lost=True)
    assert dict(ledger.stats().in_use) == {"gpu": 1}
    other.take(ZERO)
    assert not other.asks_to_run(ONE)
    other.settle(is_due=True)
    one.close()
    other.close()
    assert (ledger.stats().waiting, dict(ledger.stats().in_use)) == (0, {"gpu": 0})


def test_without_needs_everything_may_run() -> None:
    ledger = ResourceLedger({})
    one = share(ledger, "a")
    one.take(ZERO)
    assert one.asks_to_run(ZERO)
    one.give_back(ZERO)
    one.close()


def test_more_than_there_is() -> None:
    with pytest.raises(ConfigError, match="a needs 3 of 'gpu', of which there are 2"):
        share(ResourceLedger({"gpu": 2}), "a", gpu=3)
