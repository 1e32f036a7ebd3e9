"""Any order of everything that may happen to a sequence batcher, against the reference of ``tests.support.bench``.

One machine talks, the other takes turns; both have every option of the batcher, in any company.
"""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.batching.sequence_batcher import DuplicateStart, Strategy
from tests.properties.profiles import machine_settings
from tests.support.bench import Bench
from tests.support.factories import make_sequence_config

ALL_NAMES = ("a", "b", "c", "d", "e", "f", "g")
NAMES = st.sampled_from(ALL_NAMES)
MISHAPS = st.sampled_from(("rows", "rows", "unscrubbed", "fail", "lost", "death"))
MARKS = st.sampled_from(("", "", "finalize", "end", "finalize end"))
SIZES = st.one_of(st.sampled_from((10, 13, 23)), st.integers(0, 33), st.sampled_from((60, 61)))
LEVELS = st.sampled_from((0, 1, 2, 7))


def plain(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Mostly the plain value, so that not every option is on at once."""
    return st.one_of(st.just(value), st.sampled_from((value, *others)))


STEPS = st.fixed_dictionaries(
    {
        "max_batch": st.sampled_from((1, 2, 4, 4)),
        "max_delay_ns": st.sampled_from((0, 20)),
        "deadline_ns": plain(0, 15, 40),
        "lead_ns": plain(0, 10, 1_000),
    }
)
PLACES = st.fixed_dictionaries(
    {
        "slots": st.sampled_from((1, 2, 3, 5, 5)),
        "idle_timeout_ns": st.sampled_from((0, 50, 50)),
        "backlog": st.sampled_from((0, 2, 4)),
        "backlog_levels": st.integers(1, 3),
        "backlog_wait_ns": plain(0, 30),
    }
)
SHAPES = st.one_of(
    st.just({}),
    st.builds(lambda sizes: {"preferred_sizes": sizes}, st.sampled_from(((1,), (2,), (1, 3)))),
    st.builds(
        lambda share: {"strategy": Strategy.DIRECT, "min_slot_utilisation": share}, st.sampled_from((0.0, 0.4, 1.0))
    ),
)


class SequenceBatcherMachine(RuleBasedStateMachine):
    """The bench checks after every verb; the rules only choose."""

    def make(self, instances: int, *options: dict[str, Any]) -> None:
        merged = {name: value for each in options for name, value in each.items()}
        fitting = tuple(size for size in merged.pop("preferred_sizes", ()) if size <= merged["max_batch"])
        if instances == 2 and merged["slots"] == 3:
            merged["slots"] = (3, 2)
        self.bench = Bench(make_sequence_config(instances=instances, preferred_sizes=fitting, **merged))

    def start_again(self, name: str) -> None:
        """Open the sequence with something to run."""
        raise NotImplementedError

    def go_on(self, name: str) -> None:
        """Something more to run, and END."""
        raise NotImplementedError

    @rule(name=NAMES, again=st.booleans())
    def cancel(self, name: str, again: bool) -> None:
        self.bench.cancel(name)
        if again:
            self.start_again(name)

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        self.bench.touch(name)

    @rule()
    def all_start(self) -> None:
        for name in ALL_NAMES:
            if name not in self.bench.live:
                self.start_again(name)

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
            assert self.bench.plan() is not None or any(self.bench.expire()), "a deadline for nothing"

    @rule(elapsed_ns=st.sampled_from((0, 20, 50)))
    def expire(self, elapsed_ns: int) -> None:
        self.bench.now_ns += elapsed_ns
        self.bench.expire()

    @rule(how=st.sampled_from(("one", "all", "all", "whole steps", "whole steps")), barred=st.sets(st.integers(0, 1)))
    def plan(self, how: str, barred: set[int]) -> None:
        while self.bench.plan(frozenset(barred)) is not None and how != "one":
            pass
        if how == "whole steps":
            for instance in sorted(self.bench.in_flight):
                self.bench.commit(instance)

    @precondition(lambda self: self.bench.in_flight)
    @rule(data=st.data(), newest=st.booleans(), elapsed_ns=st.sampled_from((0, 5, 20)))
    def commit(self, data: st.DataObject, newest: bool, elapsed_ns: int) -> None:
        self.bench.now_ns += elapsed_ns
        self.bench.commit(data.draw(st.sampled_from(sorted(self.bench.in_flight))), newest=newest)

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
        if instance in self.bench.in_flight:
            self.bench.commit(instance)
        self.all_start()
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
            self.go_on(name)
        for _ in range(400):
            for instance in sorted(bench.in_flight):
                bench.commit(instance)
            while bench.plan() is not None:
                pass
            deadline_ns = bench.batcher.next_deadline_ns()
            if deadline_ns is None and not bench.in_flight:
                break
            bench.now_ns = max(bench.now_ns, deadline_ns or 0)
            bench.expire()
        bench.check()
        assert not bench.live
        assert not bench.quarantined
        assert sum(bench.free_by_instance()) == bench.config.n_slots
        assert bench.n_terminal == bench.n_runs


class TalkingMachine(SequenceBatcherMachine):
    """Sequences of audio."""

    @initialize(
        instances=st.integers(1, 2),
        steps=STEPS,
        places=PLACES,
        shape=SHAPES,
        lookahead=st.sampled_from((0, 3, 15)),
        max_ticks=st.sampled_from((1, 1, 2, 4)),
        flush_deadline_ns=plain(0, 5),
    )
    def create(
        self,
        instances: int,
        steps: dict[str, Any],
        places: dict[str, Any],
        shape: dict[str, Any],
        lookahead: int,
        max_ticks: int,
        flush_deadline_ns: int,
    ) -> None:
        audio = {"lookahead_samples": lookahead, "max_ticks": max_ticks, "flush_deadline_ns": flush_deadline_ns}
        self.make(instances, steps, places, shape, audio)

    @rule(
        name=NAMES,
        n_samples=SIZES,
        mark=MARKS,
        level=LEVELS,
        solo=st.sampled_from((False, False, False, True)),
        gives_way=st.sampled_from((False, False, True)),
    )
    def start(self, name: str, n_samples: int, mark: str, level: int, solo: bool, gives_way: bool) -> None:
        self.bench.offer(
            name,
            n_samples,
            start=True,
            finalize="finalize" in mark,
            end="end" in mark,
            priority=level,
            solo=solo,
            gives_way=gives_way,
        )

    @rule(n_samples=SIZES, level=LEVELS)
    def all_come_and_one_gives_way(self, n_samples: int, level: int) -> None:
        """Whoever gives way does so with its row in flight, as soon as no slot is free."""
        leaving = [run.name for run in self.bench.live.values() if run.gives_way and run.in_flight]
        for name in ALL_NAMES:
            if leaving and not any(self.bench.free_by_instance()):
                self.bench.cancel(leaving.pop())
            if name not in self.bench.live:
                self.bench.offer(name, n_samples, start=True, priority=level)

    @rule(name=NAMES, n_samples=SIZES, mark=MARKS)
    def offer(self, name: str, n_samples: int, mark: str) -> None:
        self.bench.offer(name, n_samples, finalize="finalize" in mark, end="end" in mark)

    @rule(sizes=st.lists(SIZES, min_size=len(ALL_NAMES), max_size=len(ALL_NAMES)))
    def all_talk(self, sizes: list[int]) -> None:
        for name, n_samples in zip(ALL_NAMES, sizes, strict=True):
            self.bench.offer(name, n_samples, start=name not in self.bench.live)

    def start_again(self, name: str) -> None:
        self.bench.offer(name, 13, start=True)

    def go_on(self, name: str) -> None:
        self.bench.offer(name, end=True)


class TurningMachine(SequenceBatcherMachine):
    """Sequences of turns."""

    @initialize(
        instances=st.integers(1, 2),
        steps=STEPS,
        places=PLACES,
        shape=SHAPES,
        duplicate_start=st.sampled_from((DuplicateStart.REFUSE, DuplicateStart.RESTART, DuplicateStart.RESTART)),
        ragged=plain(frozenset(), frozenset({"INPUT"})),
    )
    def create(
        self,
        instances: int,
        steps: dict[str, Any],
        places: dict[str, Any],
        shape: dict[str, Any],
        duplicate_start: DuplicateStart,
        ragged: frozenset[str],
    ) -> None:
        turns = {"takes_turns": True, "max_queued_turns": 5, "duplicate_start": duplicate_start, "ragged": ragged}
        self.make(instances, steps, places, shape, turns)

    @rule(name=NAMES, value=st.integers(0, 99), end=st.booleans(), level=LEVELS)
    def start(self, name: str, value: int, end: bool, level: int) -> None:
        self.bench.turn(name, value, start=True, end=end, priority=level)

    @rule(
        name=NAMES, value=st.integers(0, 99), end=st.sampled_from((False, False, True)), size=st.sampled_from((1, 1, 3))
    )
    def turn(self, name: str, value: int, end: bool, size: int) -> None:
        self.bench.turn(name, value, end=end, shape=(size,))

    @rule(sizes=st.lists(st.sampled_from((1, 3)), min_size=len(ALL_NAMES), max_size=len(ALL_NAMES)))
    def all_turn(self, sizes: list[int]) -> None:
        for value, (name, size) in enumerate(zip(ALL_NAMES, sizes, strict=True)):
            self.bench.turn(name, value, start=name not in self.bench.live, shape=(size,))

    @rule(name=NAMES)
    def two_rows_are_no_turn(self, name: str) -> None:
        assert self.bench.turn(name, n_rows=2) == "bad_tensor"

    def start_again(self, name: str) -> None:
        self.bench.turn(name, 7, start=True)

    def go_on(self, name: str) -> None:
        if self.bench.turn(name, 8, end=True) == "queue_full":
            self.bench.cancel(name)


# finding the shortest way to a fault takes minutes
TestTalkingMachine = pytest.mark.timeout(900)(TalkingMachine.TestCase)
TestTalkingMachine.settings = machine_settings()
TestTurningMachine = pytest.mark.timeout(900)(TurningMachine.TestCase)
TestTurningMachine.settings = machine_settings()
