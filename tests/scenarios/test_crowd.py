"""Many sequences on a fake clock: 2,000 live at once, coming, pausing and leaving, each as it would be alone."""

from random import Random

from server.batching.sample_queue import PortionKind
from server.batching.sequence_batcher import SequenceBatcher
from server.effects import RowCompleted, SequenceEnded
from server.events import CloseCause
from server.ids import SequenceId
from server.plan import Chunk
from tests.support.accumulator import AccumulatorModel, Reading, solo_rows
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
