"""The rate limiter."""

from collections import Counter

import pytest

from server.batching.resources import ResourceLedger
from server.errors import ConfigError, ServiceError

ONE = {"gpu": 1}


class TestBounds:
    def test_a_resource_that_is_not_declared(self) -> None:
        with pytest.raises(ConfigError, match=r"final needs the resource 'disk', which .* does not have: cpu, gpu"):
            ResourceLedger({"gpu": 2, "cpu": 1}).admits("final", {"disk": 1})
        with pytest.raises(ConfigError, match="does not have: none"):
            ResourceLedger({}).check("final", ONE)

    @pytest.mark.parametrize("amount", [0, 3])
    def test_an_amount_that_there_never_is(self, amount: int) -> None:
        ledger = ResourceLedger({"gpu": 2})
        for verb in (ledger.check, ledger.admits, ledger.wait, ledger.take):
            with pytest.raises(ConfigError, match=f"final needs {amount} of 'gpu', of which there are 2"):
                verb("final", {"gpu": amount})

    def test_totals(self) -> None:
        with pytest.raises(ConfigError, match=r"resources\.gpu must be at least 1, not 0"):
            ResourceLedger({"gpu": 0})


class TestHolding:
    def test_no_more_than_there_is(self) -> None:
        ledger = ResourceLedger({"gpu": 3, "cpu": 1})
        ledger.take("a", {"gpu": 2, "cpu": 1})
        assert not ledger.admits("b", {"gpu": 2})
        assert not ledger.admits("b", {"gpu": 1, "cpu": 1})
        assert ledger.admits("b", {"gpu": 1})
        with pytest.raises(ServiceError, match="b was not admitted"):
            ledger.take("b", {"gpu": 2})
        assert ledger.stats().in_use == {"gpu": 2, "cpu": 1}
        ledger.give_back("a")
        ledger.give_back("a")
        assert ledger.stats().in_use == {"gpu": 0, "cpu": 0}
        ledger.take("b", {"gpu": 3})

    def test_an_owner_holds_its_needs_once(self) -> None:
        ledger = ResourceLedger({"gpu": 2})
        ledger.take("a", ONE)
        assert not ledger.admits("a", ONE)
        with pytest.raises(ServiceError, match="a was not admitted"):
            ledger.take("a", ONE)
        ledger.wait("a", ONE)
        assert ledger.stats().waiting == 0

    def test_who_needs_nothing_is_always_admitted(self) -> None:
        ledger = ResourceLedger({"gpu": 1})
        ledger.take("a", ONE)
        ledger.wait("b", ONE)
        ledger.take("c", {})
        ledger.give_back("c")


class TestWaiting:
    def test_who_waits_comes_before_who_asks_later(self) -> None:
        ledger = ResourceLedger({"gpu": 1})
        ledger.take("a", ONE)
        ledger.wait("b", ONE)
        ledger.wait("b", ONE)
        ledger.wait("c", ONE)
        ledger.give_back("a")
        assert not ledger.admits("a", ONE)
        assert not ledger.admits("c", ONE)
        assert ledger.admits("b", ONE)
        ledger.stop_waiting("b")
        ledger.stop_waiting("b")
        assert ledger.admits("c", ONE)
        assert ledger.stats().waiting == 1

    def test_many_that_need_little_do_not_starve_one_that_needs_much(self) -> None:
        ledger = ResourceLedger({"gpu": 2})
        ledger.take("a", ONE)
        ledger.take("b", ONE)
        ledger.wait("big", {"gpu": 2})
        ledger.give_back("a")
        assert not ledger.admits("c", ONE)
        assert not ledger.admits("a", ONE)
        ledger.give_back("b")
        ledger.take("big", {"gpu": 2})

    def test_one_that_waits_keeps_only_what_it_will_need(self) -> None:
        ledger = ResourceLedger({"gpu": 1, "cpu": 2})
        ledger.take("a", ONE)
        ledger.wait("b", {"gpu": 1, "cpu": 1})
        ledger.take("c", {"cpu": 1})
        assert not ledger.admits("d", {"cpu": 1})

    def test_weights_are_shares_of_the_turns(self) -> None:
        turns = play({"a": 1, "b": 2, "c": 4}, 700)
        assert turns == {"a": 400, "b": 200, "c": 100}

    def test_who_comes_late_does_not_make_up_for_it(self) -> None:
        ledger = ResourceLedger({"gpu": 1})
        for _ in range(50):
            ledger.take("a", ONE)
            ledger.give_back("a")
        turns = play({"a": 1, "b": 1}, 20, ledger)
        assert turns == {"a": 10, "b": 10}

    def test_a_low_weight_waits_a_bounded_time(self) -> None:
        ledger = ResourceLedger({"gpu": 1})
        waits = []
        waited = 0
        for owner in played({"a": 1, "b": 1, "idle": 9}, 200, ledger):
            waited = 0 if owner == "idle" else waited + 1
            waits.append(waited)
        assert max(waits) <= 2 * 9


def played(weights: dict[str, int], n_turns: int, ledger: ResourceLedger) -> list[str]:
    """Who runs when all always want to, one at a time."""
    turns = []
    for _ in range(n_turns):
        for owner in weights:
            ledger.wait(owner, ONE)
        (owner,) = [each for each in weights if ledger.admits(each, ONE)]
        ledger.take(owner, ONE, weights[owner])
        ledger.give_back(owner)
        turns.append(owner)
    return turns


def play(weights: dict[str, int], n_turns: int, ledger: ResourceLedger | None = None) -> Counter[str]:
    return Counter(played(weights, n_turns, ledger or ResourceLedger({"gpu": 1})))
