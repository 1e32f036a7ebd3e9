"""Many sequences on a fake clock: 2,000 live at once, coming, pausing and leaving, each as it would be alone."""

from random import Random
from typing import Any

import pytest

from server.batching.sample_queue import PortionKind
from server.batching.sequence_batcher import DuplicateStart, SequenceBatcher, Strategy
from server.effects import RowCompleted, SequenceEnded
from server.events import CloseCause
from server.ids import SequenceId
from server.plan import Chunk
from tests.support.accumulator import AccumulatorModel, Reading, solo_rows
from tests.support.bench import Bench
from tests.support.factories import LOOKAHEAD, TICK, make_samples, make_sequence_config

N_INSTANCES, N_SLOTS, MAX_BATCH = 4, 500, 200
TICK_NS, STEP_NS = 240, 80


class Crowd:
    """Real-time talkers: a third of a tick of audio every 80 ns, for a random length, with random pauses."""

    def __init__(self) -> None:
        config = make_sequence_config(
            instances=N_INSTANCES, slots=N_SLOTS, max_batch=MAX_BATCH, idle_timeout_ns=20 * TICK_NS
        )
        self.random = Random(7)
        self.batcher = SequenceBatcher(config)
        self.models = [AccumulatorModel(N_SLOTS) for _ in range(N_INSTANCES)]
        self.sent: dict[SequenceId, int] = {}
        self.lengths: dict[SequenceId, int] = {}
        self.heard: dict[SequenceId, list[Reading]] = {}
        self.open: set[SequenceId] = set()
        self.ended: set[SequenceId] = set()
        self.longest_wait_ns = 0

    def join(self, now_ns: int) -> None:
        sequence_id = SequenceId(f"{len(self.sent)}")
        self.batcher.offer(Chunk(sequence_id=sequence_id, samples=make_samples(0), start=True), now_ns)
        self.sent[sequence_id] = 0
        self.lengths[sequence_id] = self.random.randrange(80)
        self.heard[sequence_id] = []
        self.open.add(sequence_id)

    def talk(self, now_ns: int) -> None:
        for sequence_id in sorted(self.open):
            if self.random.random() < 0.1:
                continue
            first = self.sent[sequence_id]
            n_samples = min(TICK // 3 + self.random.randrange(2), self.lengths[sequence_id] - first)
            is_last = first + n_samples == self.lengths[sequence_id]
            samples = make_samples(n_samples, first=first + 1 + int(sequence_id))
            self.batcher.offer(Chunk(sequence_id=sequence_id, samples=samples, end=is_last), now_ns)
            self.sent[sequence_id] += n_samples
            if is_last:
                self.open.remove(sequence_id)

    def run_steps(self, now_ns: int) -> None:
        """Every instance runs one step."""
        plans = []
        while (plan := self.batcher.plan(now_ns)) is not None:
            plans.append(plan)
        assert len({plan.instance for plan in plans}) == len(plans)
        for plan in plans:
            for effect in self.batcher.commit(plan, self.models[plan.instance].run(plan), now_ns + STEP_NS):
                if isinstance(effect, RowCompleted):
                    assert isinstance(effect.output, Reading)
                    self.heard[effect.row.sequence_id].append(effect.output)
                    self.longest_wait_ns = max(self.longest_wait_ns, effect.queue_ns)
                else:
                    assert isinstance(effect, SequenceEnded)
                    assert effect.cause is CloseCause.END
                    self.ended.add(effect.sequence_id)

    def expected(self, sequence_id: SequenceId) -> list[Reading]:
        n_samples = self.lengths[sequence_id]
        samples = make_samples(n_samples, first=1 + int(sequence_id)).tolist()
        rows = solo_rows(samples, [(n_samples, PortionKind.END)], tick_samples=TICK, lookahead_samples=LOOKAHEAD)
        return [row.reading for row in rows]


def test_two_thousand_at_once() -> None:
    crowd = Crowd()
    now_ns = 0
    most_live = 0
    for _ in range(45):
        while len(crowd.sent) < 3_000 and crowd.batcher.free_slots():
            crowd.join(now_ns)
        most_live = max(most_live, crowd.batcher.stats().live)
        crowd.talk(now_ns)
        crowd.run_steps(now_ns)
        assert crowd.batcher.expire(now_ns) == []
        now_ns += STEP_NS
    assert most_live == N_INSTANCES * N_SLOTS
    assert len(crowd.ended) == len(crowd.sent) == 3_000
    assert [name for name in crowd.sent if crowd.heard[name] != crowd.expected(name)] == []
    # 500 slots make at most 500 rows a step of 200: nobody waits for more than two steps of others and the current one
    assert crowd.longest_wait_ns <= 3 * STEP_NS
    assert crowd.batcher.free_slots() == N_INSTANCES * N_SLOTS
    assert crowd.batcher.next_deadline_ns() is None


class Turmoil:
    """A thousand live sequences to which anything happens, checked by the bench: START, more, a second START, END,
    cancel, silence, more than there are slots for, failing rows and steps, instances that die and come back.
    """

    def __init__(self, seed: int, **overrides: Any) -> None:
        options = {
            "instances": 4,
            "slots": (300, 300, 200, 200),
            "max_batch": 32,
            "backlog": 40,
            "backlog_levels": 2,
            "backlog_wait_ns": STEP_NS,
            "idle_timeout_ns": 8 * TICK_NS,
        }
        self.bench = Bench(make_sequence_config(**{**options, **overrides}))
        self.random = Random(seed)
        self.n_opened = 0

    def open(self) -> None:
        self.n_opened += 1
        self.say(f"{self.n_opened}", start=True, end=self.random.random() < 0.02)

    def say(self, name: str, *, start: bool = False, end: bool = False) -> None:
        level = self.random.randrange(3) if start else 0
        if self.bench.config.takes_turns:
            self.bench.turn(name, self.random.randrange(100), start=start, end=end, priority=level)
        else:
            n_samples, finalize = self.random.randrange(3 * TICK), self.random.random() < 0.1
            self.bench.offer(name, n_samples, start=start, finalize=finalize, end=end, priority=level)

    def talk(self) -> None:
        for name in self.random.sample(sorted(self.bench.live), k=len(self.bench.live) // 3):
            fate = self.random.random()
            if fate < 0.02:
                self.bench.cancel(name)
            elif fate < 0.04:
                self.say(name, start=True)
            else:
                self.say(name, end=fate > 0.97)

    def run_steps(self) -> None:
        bench = self.bench
        while bench.plan() is not None:
            pass
        bench.now_ns += STEP_NS
        for name in self.random.sample(sorted(bench.live), k=4):
            bench.cancel(name)
        for instance in sorted(bench.in_flight):
            fate = self.random.random()
            if fate < 0.02:
                bench.lose(instance)
            elif fate < 0.04:
                bench.commit(instance, failure="fail")
            else:
                names = self.random.sample(sorted(bench.live), k=2)
                bench.commit(instance, errors=tuple(names), newest=fate < 0.3, scrub=fate < 0.9)
        bench.expire()

    def round(self) -> None:
        for instance in sorted(self.bench.lost):
            self.bench.restore(instance)
        self.talk()
        for _ in range(40):
            self.open()
        self.run_steps()
        self.bench.check()

    def end(self) -> None:
        """Nothing new; whoever stays silent is ended by the batcher."""
        bench = self.bench
        for _ in range(400):
            for instance in sorted(bench.lost):
                bench.restore(instance)
            while bench.plan() is not None:
                pass
            bench.now_ns += STEP_NS
            for instance in sorted(bench.in_flight):
                bench.commit(instance)
            bench.expire()
            if not bench.live and not bench.in_flight and not bench.quarantined:
                break
        bench.check()


@pytest.mark.parametrize(
    "overrides",
    [
        {"max_ticks": 3, "lead_ns": STEP_NS, "deadline_ns": TICK_NS, "flush_deadline_ns": STEP_NS},
        {"takes_turns": True, "strategy": Strategy.DIRECT, "duplicate_start": DuplicateStart.RESTART},
    ],
    ids=["talking", "turns"],
)
def test_a_thousand_to_whom_anything_happens(overrides: dict[str, Any]) -> None:
    turmoil = Turmoil(11, **overrides)
    bench = turmoil.bench
    for _ in range(1_040):
        turmoil.open()
    assert len(bench.live) > 1_000
    for _ in range(12):
        turmoil.round()
    turmoil.end()
    stats = bench.batcher.stats()
    assert bench.n_terminal == bench.n_runs == stats.started > 1_400
    assert not bench.live
    assert bench.batcher.free_slots() == bench.config.n_slots
    causes = {"end", "cancelled", "step_failed", "instance_failed", "idle_timeout", "backlog_timeout"}
    assert set(stats.ended) == causes
    assert min(stats.placed, stats.stale_results, stats.refused["capacity_exceeded"]) > 0
