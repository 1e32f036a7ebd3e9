"""What a stateful model says on instances that nobody's sequences are pinned to."""

from collections.abc import Sequence

import numpy as np

from asr_model.contract import Samples
from asr_model.transcript import LiveOutput
from server.batching.unpinned_batcher import UnpinnedBatcher
from server.effects import RowCompleted, SequenceEnded
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, Chunk
from server.workers.orders import BatchOutcome
from server.workers.unpinned_instance import FRESH_ROWS, STALE_ROWS, UnpinnedInstance
from tests.support.accumulator_model import (
    BOMB,
    LOOKAHEAD_SAMPLES,
    POISON,
    TICK_SAMPLES,
    AccumulatorModel,
    exact_audio,
    summary,
)
from tests.support.factories import make_sequence_config

N = TICK_SAMPLES


def tick(
    name: str, first: int, samples: Samples, *, flush: bool = False, end: bool = False
) -> tuple[BatchRow, Samples]:
    """A row of a sequence; its first one starts it."""
    row = BatchRow(
        slot=SlotIndex(0),
        generation=0,
        sequence_id=SequenceId(name),
        start=first == 0,
        flush=flush,
        end=end,
        first_sample=first,
        n_samples=samples.size,
        ready_at_ns=0,
    )
    return row, samples


def plan(*rows: tuple[BatchRow, Samples]) -> BatchPlan:
    return BatchPlan(
        plan_id=1,
        instance=InstanceIndex(0),
        rows=tuple(row for row, _ in rows),
        audio=tuple(samples for _, samples in rows),
    )


def said(outcome: BatchOutcome) -> list[str]:
    """The last word of each row."""
    assert isinstance(outcome, BatchResult), outcome
    texts = []
    for row in outcome.rows:
        assert isinstance(row.output, LiveOutput), row
        words = row.output.ended.words if row.output.ended is not None else row.output.committed
        texts.append(words[-1].text)
    return texts


def counted(outcome: BatchOutcome) -> tuple[int, int]:
    assert isinstance(outcome, BatchResult)
    return outcome.counters.get(FRESH_ROWS, 0), outcome.counters.get(STALE_ROWS, 0)


def make_instance(slots: int = 4) -> UnpinnedInstance:
    return UnpinnedInstance(AccumulatorModel(), slots, "cpu")


def pieces(seed: int, n: int) -> list[Samples]:
    return [exact_audio(seed * 100 + index, N) for index in range(n)]


def test_a_sequence_that_stays_is_right_and_one_that_moves_is_not() -> None:
    here, there = make_instance(), make_instance()
    a, b, c = pieces(1, 3)
    outcome = here.run_step(plan(tick("s", 0, a)))
    assert said(outcome) == [summary(a)]
    outcome = there.run_step(plan(tick("s", N, b)))  # never heard of it: fresh, although it is no start
    assert (said(outcome), counted(outcome)) == ([summary(b)], (1, 0))
    outcome = here.run_step(plan(tick("s", 2 * N, c)))  # back: its state lacks what was said elsewhere
    assert (said(outcome), counted(outcome)) == ([summary(np.concatenate((a, c)))], (0, 1))
    outcome = there.run_step(plan(tick("s", N, b), tick("s", 2 * N, c)))  # a repeat is stale too
    assert counted(outcome) == (0, 1)


def test_a_start_begins_anew_whatever_was_there() -> None:
    instance = make_instance()
    a, b = pieces(2, 2)
    instance.run_step(plan(tick("s", 0, a)))
    outcome = instance.run_step(plan(tick("s", 0, b)))
    assert (said(outcome), counted(outcome)) == ([summary(b)], (0, 0))
    assert instance.remembered == ("s",)


def test_end_frees_the_state_on_this_instance_and_on_no_other() -> None:
    here, there = make_instance(), make_instance()
    a, b = pieces(3, 2)
    for instance in (here, there):
        instance.run_step(plan(tick("s", 0, a)))
    here.run_step(plan(tick("s", N, b[:9], flush=True, end=True)))
    assert (here.remembered, there.remembered) == ((), ("s",))


def test_a_flush_is_read_on_scratch() -> None:
    instance = make_instance()
    a, b = pieces(4, 2)
    instance.run_step(plan(tick("s", 0, a)))
    instance.run_step(plan(tick("s", N, b[:9], flush=True)))
    outcome = instance.run_step(plan(tick("s", N, b)))
    assert counted(outcome) == (0, 0)
    assert said(outcome) == [summary(np.concatenate((a, b)))]


def test_rows_of_one_sequence_run_one_after_the_other() -> None:
    instance = make_instance()
    a, b, c = pieces(5, 3)
    other = exact_audio(9, N)
    outcome = instance.run_step(plan(tick("s", 0, a), tick("o", 0, other), tick("s", N, b), tick("s", 2 * N, c)))
    heard = [a, np.concatenate((a, b)), np.concatenate((a, b, c))]
    assert said(outcome) == [summary(heard[0]), summary(other), summary(heard[1]), summary(heard[2])]
    assert counted(outcome) == (0, 0)
    assert isinstance(outcome, BatchResult)
    assert outcome.counters["encoder_frames"] == 40


def test_the_one_heard_of_longest_ago_goes_when_there_is_no_room() -> None:
    instance = make_instance(slots=2)
    a, b, c = pieces(6, 3)
    instance.run_step(plan(tick("a", 0, a)))
    instance.run_step(plan(tick("b", 0, b)))
    instance.run_step(plan(tick("a", N, a)))
    instance.run_step(plan(tick("c", 0, c)))
    assert instance.remembered == ("a", "c")
    outcome = instance.run_step(plan(tick("b", N, b)))
    assert (said(outcome), counted(outcome)) == ([summary(b)], (1, 0))


def test_no_row_of_a_step_takes_the_slot_of_another_one() -> None:
    instance = make_instance(slots=2)
    a, b, c = pieces(7, 3)
    instance.run_step(plan(tick("a", 0, a)))
    instance.run_step(plan(tick("b", 0, b)))
    outcome = instance.run_step(plan(tick("c", 0, c), tick("a", N, b)))  # c needs room, and a is the older one
    assert said(outcome) == [summary(c), summary(np.concatenate((a, b)))]
    outcome = instance.run_step(plan(*(tick(name, 0, a) for name in "defgh")))  # more rows than slots
    assert said(outcome) == [summary(a)] * 5


def test_a_row_in_doubt_is_forgotten() -> None:
    instance = make_instance()
    a, b = pieces(8, 2)
    bad = a.copy()
    bad[3] = POISON
    outcome = instance.run_step(plan(tick("s", 0, bad), tick("o", 0, b)))
    assert isinstance(outcome, BatchResult)
    assert (outcome.rows[0].error, outcome.rows[1].error) == ("poison", None)
    assert instance.remembered == ("o",)


def test_after_a_failed_step_nobody_in_it_is_remembered() -> None:
    instance = make_instance()
    a, b = pieces(9, 2)
    bad = a.copy()
    bad[3] = BOMB
    instance.run_step(plan(tick("o", 0, b), tick("p", 0, b)))
    outcome = instance.run_step(plan(tick("s", 0, bad), tick("o", N, b)))
    assert outcome == BatchFailure(plan_id=1, error="RuntimeError")
    assert instance.remembered == ("p",)
    outcome = instance.run_step(plan(*(tick(name, 0, a) for name in "wxyz")))  # every slot is there again
    assert said(outcome) == [summary(a)] * 4


def drive(n_instances: int, names: Sequence[str], n_ticks: int) -> dict[str, str]:
    """Closed-loop clients over the batcher and real instances; instances run at different speeds."""
    config = make_sequence_config(
        instances=n_instances,
        slots=8,
        tick_samples=TICK_SAMPLES,
        lookahead_samples=LOOKAHEAD_SAMPLES,
        max_batch=2,
        max_queued_samples=1_000,
    )
    batcher, instances = UnpinnedBatcher(config), [make_instance(8) for _ in range(n_instances)]
    audio = {name: exact_audio(index, LOOKAHEAD_SAMPLES + n_ticks * N) for index, name in enumerate(names)}
    at = dict.fromkeys(names, LOOKAHEAD_SAMPLES + N)
    last: dict[str, str] = {}
    for name in names:
        batcher.offer(Chunk(sequence_id=SequenceId(name), samples=audio[name][: at[name]], start=True), 0)
    flying: list[BatchPlan] = []
    ended = 0
    for now_ns in range(10_000):
        while (step := batcher.plan(now_ns)) is not None:
            flying.append(step)
        if not flying:
            break
        step = flying.pop(now_ns % len(flying))
        for effect in batcher.commit(step, instances[step.instance].run_step(step), now_ns):
            ended += isinstance(effect, SequenceEnded)
            if not isinstance(effect, RowCompleted) or effect.row.end:
                continue
            name, output = effect.row.sequence_id, effect.output
            assert isinstance(output, LiveOutput)
            last[name] = output.committed[-1].text
            more = audio[name][at[name] : at[name] + N]
            at[name] += N
            batcher.offer(Chunk(sequence_id=name, samples=more, end=not more.size), now_ns)
    assert ended == len(names)
    assert batcher.stats().live == 0
    return {name: "right" if last[name] == summary(audio[name]) else "wrong" for name in names}


def test_one_client_on_one_instance_or_on_two_is_right() -> None:
    assert drive(1, ["a"], 6) == drive(2, ["a"], 6) == {"a": "right"}


def test_company_on_one_instance_is_right() -> None:
    assert set(drive(1, "abcde", 6).values()) == {"right"}


def test_company_on_two_instances_is_wrong_and_nothing_says_so() -> None:
    assert "wrong" in drive(2, "abcde", 6).values()
