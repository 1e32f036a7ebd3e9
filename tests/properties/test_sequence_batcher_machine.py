"""Any order of everything that may happen to a sequence batcher, against the reference of ``tests.support.bench``."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.properties.profiles import machine_settings
from tests.support.bench import Bench
from tests.support.factories import make_sequence_config

ALL_NAMES = ("a", "b", "c", "d", "e")
NAMES = st.sampled_from(ALL_NAMES)
MISHAPS = st.sampled_from(("rows", "rows", "unscrubbed", "fail", "lost", "death"))
MARKS = st.sampled_from(("", "", "finalize", "end", "finalize end"))
SIZES = st.one_of(st.sampled_from((10, 13, 23)), st.integers(0, 33), st.sampled_from((60, 61)))


class SequenceBatcherMachine(RuleBasedStateMachine):
    """The bench checks after every verb; the rules only choose."""

    @initialize(
        instances=st.integers(1, 2),
        slots=st.sampled_from((1, 2, 3, 5, 5)),
        max_batch=st.sampled_from((1, 2, 4, 4)),
        lookahead=st.sampled_from((0, 3, 15)),
        max_delay_ns=st.sampled_from((0, 20)),
        idle_timeout_ns=st.sampled_from((0, 50, 50)),
    )
    def create(
        self, instances: int, slots: int, max_batch: int, lookahead: int, max_delay_ns: int, idle_timeout_ns: int
    ) -> None:
        self.bench = Bench(
            make_sequence_config(
                instances=instances,
                slots=slots,
                max_batch=max_batch,
                lookahead_samples=lookahead,
                max_delay_ns=max_delay_ns,
                idle_timeout_ns=idle_timeout_ns,
            )
        )

    @rule(name=NAMES, n_samples=SIZES, mark=MARKS)
    def start(self, name: str, n_samples: int, mark: str) -> None:
        self.bench.offer(name, n_samples, start=True, finalize="finalize" in mark, end="end" in mark)

    @rule(name=NAMES, n_samples=SIZES, mark=MARKS)
    def offer(self, name: str, n_samples: int, mark: str) -> None:
        self.bench.offer(name, n_samples, finalize="finalize" in mark, end="end" in mark)

    @rule(sizes=st.lists(SIZES, min_size=len(ALL_NAMES), max_size=len(ALL_NAMES)))
    def all_talk(self, sizes: list[int]) -> None:
        for name, n_samples in zip(ALL_NAMES, sizes, strict=True):
            if name in self.bench.live or self.bench.batcher.free_slots():
                self.bench.offer(name, n_samples, start=name not in self.bench.live)

    @rule(name=NAMES, n_samples=SIZES, again=st.booleans())
    def cancel(self, name: str, n_samples: int, again: bool) -> None:
        self.bench.cancel(name)
        if again:
            self.bench.offer(name, n_samples, start=True)

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        self.bench.touch(name)

    @rule(elapsed_ns=st.sampled_from((1, 10, 20, 50, 120)))
    def advance(self, elapsed_ns: int) -> None:
        """A lost instance is restarted before long."""
        self.bench.now_ns += elapsed_ns
        for instance in sorted(self.bench.lost):
            self.bench.restore(instance)

    @precondition(lambda self: self.bench.batcher.next_deadline_ns() is not None)
    @rule(late_ns=st.sampled_from((0, 1, 30)))
    def advance_to_the_deadline(self, late_ns: int) -> None:
        deadline_ns = self.bench.batcher.next_deadline_ns()
        if deadline_ns is not None:
            self.bench.now_ns = max(self.bench.now_ns, deadline_ns + late_ns)
            assert self.bench.plan() is not None or self.bench.expire(), "a deadline for nothing"

    @rule(elapsed_ns=st.sampled_from((0, 20, 50)))
    def expire(self, elapsed_ns: int) -> None:
        self.bench.now_ns += elapsed_ns
        self.bench.expire()

    @rule(how=st.sampled_from(("one", "all", "all", "whole steps", "whole steps")))
    def plan(self, how: str) -> None:
        while self.bench.plan() is not None and how != "one":
            pass
        if how == "whole steps":
            for instance in sorted(self.bench.in_flight):
                self.bench.commit(instance)

    @precondition(lambda self: self.bench.in_flight)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.bench.commit(data.draw(st.sampled_from(sorted(self.bench.in_flight))))

    @rule(elapsed_ns=st.sampled_from((0, 1, 20)))
    def do_all_that_is_due(self, elapsed_ns: int) -> None:
        self.bench.now_ns += elapsed_ns
        self.bench.expire()
        while self.bench.plan() is not None:
            pass
        assert self.bench.is_quiet(), "a deadline stands though nothing is left to do"

    @precondition(lambda self: self.bench.in_flight)
    @rule(data=st.data(), mishap=MISHAPS, names=st.sets(NAMES))
    def mishap_in_a_step(self, data: st.DataObject, mishap: str, names: set[str]) -> None:
        instance = data.draw(st.sampled_from(sorted(self.bench.in_flight)))
        if mishap == "rows":
            self.bench.commit(instance, errors=tuple(sorted(names)))
        elif mishap == "unscrubbed":
            self.bench.commit(instance, scrub=False)
        elif mishap == "death":
            self.die_and_come_back(instance)
        else:
            self.bench.commit(instance, failure=mishap)

    def die_and_come_back(self, instance: int) -> None:
        """The step's result is still out while new tenants move in."""
        self.bench.lose(instance)
        self.bench.restore(instance)
        while self.bench.plan() is not None:
            pass
        self.bench.commit(instance)
        self.all_talk([13] * len(ALL_NAMES))
        while self.bench.plan() is not None:
            pass

    @precondition(lambda self: len(self.bench.live) > 2 and not self.bench.lost)
    @rule(instance=st.integers(0, 1))
    def lose(self, instance: int) -> None:
        self.bench.lose(instance % self.bench.config.instances)

    @precondition(lambda self: self.bench.lost)
    @rule()
    def restore(self) -> None:
        self.bench.restore(min(self.bench.lost))

    @precondition(lambda self: any(self.bench.orphans.values()))
    @rule()
    def late_result(self) -> None:
        self.bench.late(min(index for index, plans in self.bench.orphans.items() if plans))

    @invariant()
    def consistent(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    def teardown(self) -> None:
        """Whatever happened before: what is left ends well, and everything accepted is answered."""
        if hasattr(self, "bench"):
            self.drain()

    def drain(self) -> None:
        bench = self.bench
        for instance in sorted(bench.lost):
            bench.restore(instance)
        for name in sorted(bench.live):
            bench.offer(name, end=True)
        for _ in range(400):
            for instance in sorted(bench.in_flight):
                bench.commit(instance)
            while bench.plan() is not None:
                pass
            deadline_ns = bench.batcher.next_deadline_ns()
            if deadline_ns is None and not bench.in_flight:
                break
            bench.now_ns = max(bench.now_ns, deadline_ns or 0)
        bench.check()
        assert not bench.live
        assert not bench.quarantined
        assert sum(bench.free_by_instance()) == bench.config.slots * bench.config.instances
        assert bench.n_terminal == bench.n_runs


# finding the shortest way to a fault takes minutes
TestSequenceBatcherMachine = pytest.mark.timeout(900)(SequenceBatcherMachine.TestCase)
TestSequenceBatcherMachine.settings = machine_settings()
