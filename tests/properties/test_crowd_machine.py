"""A thousand live sequences on real instances, to which everything happens at once, in an order that a seed decides.

The bench compares every verb with its reference: slots, order, one terminal effect, bounded wait. Here the steps run on
state stores whose memory held anything, and at the end every sequence has heard, bit for bit, what it hears alone.
"""

from collections import Counter
from random import Random
from typing import Any, Final

import pytest

from server.batching.sequence_batcher import BatcherStats, DuplicateStart, Strategy
from tests.support.crowd_bench import CrowdBench
from tests.support.factories import TICK, make_sequence_config

TICK_NS: Final = 240
STEP_NS: Final = 80
N_LIVE: Final = 1_040

COMMON: Final[dict[str, Any]] = {
    "max_batch": 64,
    "backlog": 60,
    "backlog_levels": 3,
    "backlog_wait_ns": STEP_NS // 2,
    "idle_timeout_ns": 2 * TICK_NS,
    "lead_ns": STEP_NS,
    "max_remembered_ids": 10_000,
}
AUDIO: Final[dict[str, Any]] = {**COMMON, "max_ticks": 5, "deadline_ns": TICK_NS, "flush_deadline_ns": STEP_NS}
TURNS: Final[dict[str, Any]] = {
    **COMMON,
    "max_batch": 32,
    "takes_turns": True,
    "max_queued_turns": 2,
    "duplicate_start": DuplicateStart.RESTART,
}
OLDEST: Final[dict[str, Any]] = {"strategy": Strategy.OLDEST, "preferred_sizes": (8, 32), "max_delay_ns": 20}
DIRECT: Final[dict[str, Any]] = {"strategy": Strategy.DIRECT, "min_slot_utilisation": 0.05, "max_delay_ns": 20}
RAGGED: Final[dict[str, Any]] = {**OLDEST, "ragged": frozenset({"INPUT"})}
KINDS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "audio": ({**AUDIO, **DIRECT}, {**AUDIO, **OLDEST}, {**AUDIO, "max_ticks": 1}),
    "turns": ({**TURNS, **RAGGED}, {**TURNS, **DIRECT}, {**TURNS, **OLDEST}),
}
"""Of one copy of the model after the other; then from the first again."""
SIZES: Final = ((300, 300, 200, 200), (400, 300), (250, 250, 250, 150, 100))
"""Slots of the instances of one copy of the model after the other."""
CAUSES: Final = {"end", "cancelled", "step_failed", "instance_failed", "idle_timeout", "backlog_timeout"}


class Crowd:
    """The copies of a model that have replaced each other, and the connections whose sequences they have."""

    def __init__(self, kind: str, seed: int, first_copy: int = 0) -> None:
        self.random = Random(seed)
        self.takes_turns = kind == "turns"
        self._options = KINDS[kind]
        self._first_copy = first_copy
        self.copies: list[CrowdBench] = []
        self.retired: list[CrowdBench] = []
        self._connections: list[list[str]] = []
        self._n_opened = 0
        self.most_live = self.n_late_rows = 0
        self.reload()

    @property
    def all_copies(self) -> list[CrowdBench]:
        return [*self.copies, *self.retired]

    @property
    def n_live(self) -> int:
        return sum(len(copy.live) for copy in self.copies)

    def reload(self) -> None:
        """Another copy, of another size, takes what is new; those before end what they have."""
        slots = SIZES[len(self.all_copies) % len(SIZES)]
        options = self._options[(len(self.all_copies) + self._first_copy) % len(self._options)]
        copy = CrowdBench(make_sequence_config(instances=len(slots), slots=slots, **options))
        copy.now_ns = self.copies[0].now_ns if self.copies else 0
        self.copies.insert(0, copy)

    def fill(self, at_least: int) -> None:
        """So many connections, then more until there is no room left or there are enough."""
        for number in range(N_LIVE):
            if number >= at_least and self.n_live >= N_LIVE:
                return
            if number >= at_least and not self._has_room():
                return
            self.connect()

    def connect(self) -> None:
        """A connection of one to three sequences, some of them with an id that was used before."""
        names: list[str] = []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self._n_opened += 1
            names.append(self._former_name() if self.random.random() < 0.03 else f"{self._n_opened}")
            self._say(names[-1], start=True, end=self.random.random() < 0.02)
        self._connections.append(names)

    def disconnect(self) -> None:
        """Whatever its sequences are at, all of them are cancelled."""
        for name in self._connections.pop(self.random.randrange(len(self._connections))):
            self._home(name).cancel(name)

    def round(self) -> None:
        """Everybody's turn to speak, then a step everywhere."""
        for copy in self.copies:
            for instance in sorted(copy.lost):
                if self.random.random() < 0.6:
                    copy.restore(instance)
        for name in self.random.sample(self._live_names(), k=self.n_live // 3):
            fate = self.random.random()
            if fate < 0.02:
                self._home(name).cancel(name)
            elif fate < 0.03:
                self._home(name).touch(name)
            else:
                self._say(name, start=fate < 0.05, end=fate > 0.9)
        for _ in range(4):
            self.disconnect()
        self.fill(at_least=30)
        self._step(is_calm=False)
        self.most_live = max(self.most_live, self.n_live)

    def drain(self) -> None:
        """Nothing new. Some say END; whoever stays silent is ended by its batcher."""
        for name in self.random.sample(self._live_names(), k=self.n_live // 3):
            self._say(name, end=True)
        for _ in range(300):
            for copy in self.copies:
                for instance in sorted(copy.lost):
                    copy.restore(instance)
            self._step(is_calm=True)
            if not any(copy.live or copy.in_flight or copy.quarantined for copy in self.copies):
                return
        raise AssertionError(f"{self.n_live} sequences have not ended")

    def stats(self) -> list[BatcherStats]:
        return [copy.batcher.stats() for copy in self.all_copies]

    def check_end(self) -> None:
        """No slot and no page is anybody's, every sequence has ended once, and has heard what it hears alone."""
        for copy in self.all_copies:
            copy.check()
            assert not copy.live
            assert copy.batcher.free_slots() == copy.config.n_slots
            assert copy.n_terminal == copy.n_runs
            assert copy.differ_from_solo() == []
            self._collect_pages(copy)
            assert copy.cache_bytes_used() == 0

    def _step(self, *, is_calm: bool) -> None:
        now_ns = self.copies[0].now_ns
        for copy in self.copies:
            self._run_steps(copy, now_ns, is_calm=is_calm)
            self._late_results(copy, is_calm=is_calm)
            copy.check()
        for copy in self.copies[1:]:
            if not copy.live and not copy.in_flight and not copy.lost and not copy.quarantined:
                self.copies.remove(copy)
                self.retired.append(copy)

    def _run_steps(self, copy: CrowdBench, now_ns: int, *, is_calm: bool) -> None:
        """All steps that are due, with time enough for a second one of each instance before the first is answered."""
        for elapsed_ns in (0, STEP_NS // 2, STEP_NS):
            copy.now_ns = now_ns + elapsed_ns
            while copy.plan() is not None:
                pass
            if not is_calm and self.random.random() < 0.2:
                copy.expire()
        if not is_calm:
            for name in self.random.sample(sorted(copy.live), k=min(4, len(copy.live))):
                copy.cancel(name)
        for instance in sorted(copy.in_flight):
            self._end_step(copy, instance, is_calm=is_calm)
        copy.expire()

    def _late_results(self, copy: CrowdBench, *, is_calm: bool) -> None:
        """What lost instances had in flight comes when others have their slots."""
        for instance, plans in copy.orphans.items():
            while plans and (is_calm or self.random.random() < 0.3):
                self.n_late_rows += len(plans[0].rows)
                copy.late(instance)

    def _end_step(self, copy: CrowdBench, instance: int, *, is_calm: bool) -> None:
        fate = 1.0 if is_calm else self.random.random()
        if fate < 0.03:
            copy.lose(instance)
        elif fate < 0.05:
            copy.commit(instance, failure="lost")
        elif fate < 0.08:
            copy.commit(instance, failure="fail")
        elif fate < 0.9:
            names = self.random.sample(sorted(copy.live), k=min(3, len(copy.live)))
            copy.commit(instance, errors=tuple(names), scrub=fate < 0.8)
        else:
            copy.commit(instance)

    def _say(self, name: str, *, start: bool = False, end: bool = False) -> None:
        copy = self._home(name)
        if start and copy is not self.copies[0] and self.takes_turns:
            copy.cancel(name)  # it starts anew, on the new copy
            copy = self.copies[0]
        level = self.random.randrange(4) if start else 0
        if self.takes_turns:
            size = self.random.choice((1, 1, 1, 3))
            copy.turn(name, self.random.randrange(100), start=start, end=end, shape=(size,), priority=level)
        else:
            n_samples, finalize = self.random.randrange(4 * TICK), self.random.random() < 0.1
            copy.offer(name, n_samples, start=start, finalize=finalize, end=end, priority=level)

    def _has_room(self) -> bool:
        newest = self.copies[0]
        return bool(newest.batcher.free_slots()) or len(newest.waiting()) < newest.config.backlog

    def _home(self, name: str) -> CrowdBench:
        """The copy that has the sequence; of one that is not live, the new one."""
        return next((copy for copy in self.copies if name in copy.live), self.copies[0])

    def _live_names(self) -> list[str]:
        return sorted(name for copy in self.copies for name in copy.live)

    def _former_name(self) -> str:
        return f"{self.random.randrange(self._n_opened) + 1}"

    @staticmethod
    def _collect_pages(copy: CrowdBench) -> None:
        """The slots that are vacated last are told with the next step of their instance."""
        for index in copy.indexes if copy.config.takes_turns else ():
            copy.turn(f"last on {index}", start=True, end=True)
        copy.now_ns += STEP_NS
        while copy.plan() is not None:
            pass
        for instance in sorted(copy.in_flight):
            copy.commit(instance)


def play(crowd: Crowd, n_rounds: int, reload_every: int) -> None:
    crowd.fill(at_least=N_LIVE // 2)
    for number in range(n_rounds):
        if number % reload_every == reload_every - 1:
            crowd.reload()
        crowd.round()
    assert crowd.most_live >= 1_000
    crowd.drain()
    crowd.check_end()


def check_variety(crowd: Crowd) -> None:
    """Everything has happened."""
    stats = crowd.stats()
    assert len(stats) >= 3
    ended = sum((Counter(each.ended) for each in stats), Counter())
    assert set(ended) == CAUSES
    assert ended.total() == sum(each.started for each in stats)
    refused = sum((Counter(each.refused) for each in stats), Counter())
    assert {"capacity_exceeded", "sequence_ended", "queue_full"} <= set(refused)
    assert sum(each.placed for each in stats) > 0
    assert sum(each.stale_results for each in stats) > crowd.n_late_rows > 0, (
        "some of cancelled ones, some of lost ones"
    )
    assert max(each.most_in_flight for each in crowd.all_copies) == 2
    assert sum(each.padded_slots for each in stats) > 0
    if crowd.takes_turns:
        assert sum(each.restarts for each in stats) > 0
    else:
        assert refused["duplicate_sequence"] > 0
        assert min(sum(each.catch_up_ticks for each in stats), sum(each.late_rows for each in stats)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_at_once(kind: str) -> None:
    crowd = Crowd(kind, seed=6)
    play(crowd, n_rounds=8, reload_every=3)
    check_variety(crowd)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_many_crowds(kind: str, seed: int) -> None:
    crowd = Crowd(kind, seed=seed + 100, first_copy=seed)
    play(crowd, n_rounds=24, reload_every=7)
    check_variety(crowd)
