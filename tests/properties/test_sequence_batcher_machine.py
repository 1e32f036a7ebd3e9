"""Any order of everything that may happen to a sequence batcher, against the reference of ``tests.support.bench``."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.properties.profiles import machine_settings
from tests.support.bench import Bench
from tests.support.factories import make_sequence_config

NAMES = st.sampled_from(("a", "b", "c"))
MARKS = st.sampled_from(("", "", "finalize", "end", "finalize end"))
INSTANCES = st.integers(0, 1)
SIZES = st.one_of(st.sampled_from((10, 13, 23)), st.integers(0, 33), st.sampled_from((60, 61)))


class SequenceBatcherMachine(RuleBasedStateMachine):
    """The bench checks after every verb; the rules only choose."""

    @initialize(
        slots=st.integers(1, 3),
        max_batch=st.integers(1, 4),
        lookahead=st.sampled_from((0, 3, 15)),
        max_delay_ns=st.sampled_from((0, 20)),
        idle_timeout_ns=st.sampled_from((0, 50)),
    )
    def create(self, slots: int, max_batch: int, lookahead: int, max_delay_ns: int, idle_timeout_ns: int) -> None:
        self.bench = Bench(
            make_sequence_config(
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

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        self.bench.cancel(name)

    @rule(name=NAMES, n_samples=SIZES)
    def reconnect(self, name: str, n_samples: int) -> None:
        self.bench.cancel(name)
        self.bench.offer(name, n_samples, start=True)

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        self.bench.touch(name)

    @rule(elapsed_ns=st.sampled_from((1, 10, 20, 50, 100)))
    def advance(self, elapsed_ns: int) -> None:
        self.bench.now_ns += elapsed_ns

    @rule()
    def advance_to_the_deadline(self) -> None:
        deadline_ns = self.bench.batcher.next_deadline_ns()
        if deadline_ns is not None:
            self.bench.now_ns = max(self.bench.now_ns, deadline_ns)
            assert self.bench.plan() is not None or self.bench.expire(), "a deadline for nothing"

    @rule()
    def plan(self) -> None:
        self.bench.plan()

    @rule()
    def plan_all_and_expire(self) -> None:
        while self.bench.plan() is not None:
            pass
        self.bench.expire()
        assert self.bench.is_quiet(), "a deadline stands though nothing is left to do"

    @precondition(lambda self: self.bench.in_flight)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.bench.commit(data.draw(st.sampled_from(sorted(self.bench.in_flight))))

    @precondition(lambda self: self.bench.in_flight)
    @rule(data=st.data(), mishap=st.sampled_from(("rows", "rows", "unscrubbed", "fail", "lost")), names=st.sets(NAMES))
    def commit_a_mishap(self, data: st.DataObject, mishap: str, names: set[str]) -> None:
        instance = data.draw(st.sampled_from(sorted(self.bench.in_flight)))
        if mishap == "rows":
            self.bench.commit(instance, errors=tuple(sorted(names)))
        elif mishap == "unscrubbed":
            self.bench.commit(instance, scrub=False)
        else:
            self.bench.commit(instance, failure=mishap)

    @rule(instance=INSTANCES)
    def lose_or_restore(self, instance: int) -> None:
        if instance in self.bench.lost:
            self.bench.restore(instance)
        else:
            self.bench.lose(instance)

    @precondition(lambda self: any(self.bench.orphans.values()))
    @rule(data=st.data())
    def late_result(self, data: st.DataObject) -> None:
        self.bench.late(data.draw(st.sampled_from([index for index, plans in self.bench.orphans.items() if plans])))

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
