"""A stateful model on an instance that nobody's sequences are pinned to: what the dynamic batcher makes of it.

The instance does what any stateful model can do alone: it keeps a state for every sequence that it has heard of, by the
sequence's id, and lets the one that it has not heard of for longest go when its memory is full. It does not know that
there are other instances. So a row whose sequence was last heard here goes on as it should; a row of a sequence that
this instance never heard starts from nothing, in the middle of what is being said; and a row of a sequence that was
elsewhere in between meets the state from before that. None of the three is an error to the model, and none is told.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from asr_model.contract import StreamingModel
from server.ids import SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, RowResult
from server.workers.instance import StreamingInstance
from server.workers.orders import BatchOutcome
from server.workers.state_store import StateStore

FRESH_ROWS: Final = "fresh_rows"
"""Counter: rows, not the first of their sequence, for which the instance had no state."""
STALE_ROWS: Final = "stale_rows"
"""Counter: rows for which it had a state that had not heard what came just before them."""


@dataclass(slots=True, kw_only=True)
class _Kept:
    """What the instance has of one sequence."""

    slot: SlotIndex
    next_sample: int
    """Where the audio that its state has heard ends."""


class UnpinnedInstance:
    """A stateful model with state by sequence id, for plans whose rows name no slot of it.

    Args:
        model: The loaded model.
        slots: Sequences that it remembers at once.
        device: Torch device name of the model and of the state.
    """

    def __init__(self, model: StreamingModel, slots: int, device: str) -> None:
        self._inner = StreamingInstance(model, slots, device)
        self._kept: OrderedDict[SequenceId, _Kept] = OrderedDict()
        """The sequence heard of longest ago first."""
        self._free = [SlotIndex(slot) for slot in reversed(range(slots))]

    @property
    def store(self) -> StateStore:
        """The state of all slots."""
        return self._inner.store

    @property
    def remembered(self) -> tuple[SequenceId, ...]:
        """Sequences of which there is a state, the one heard of longest ago first."""
        return tuple(self._kept)

    def run_step(self, plan: BatchPlan) -> BatchOutcome:
        """One batch. Rows of one sequence run one after the other, in their order. Never raises for what a model does.

        After a failure of the step the instance remembers none of its sequences.
        """
        started_ns = time.perf_counter_ns()
        results: dict[int, RowResult] = {}
        counters: Counter[str] = Counter()
        for wave in _waves(plan.rows, self._inner.store.slots):
            outcome = self._run(plan, wave, counters)
            if isinstance(outcome, BatchFailure):
                for row in plan.rows:
                    self._forget(row.sequence_id)
                return outcome
            results |= zip(wave, outcome.rows, strict=True)
            counters.update(outcome.counters)
        return BatchResult(
            plan_id=plan.plan_id,
            rows=tuple(results[index] for index in range(len(plan.rows))),
            step_ns=time.perf_counter_ns() - started_ns,
            counters=dict(counters),
        )

    def _run(self, plan: BatchPlan, wave: Sequence[int], counters: Counter[str]) -> BatchOutcome:
        """The rows of these indices, of different sequences, as one step on the slots that they have here."""
        for index in wave:  # first those it knows, so that none of them makes room for another row of the step
            if plan.rows[index].sequence_id in self._kept:
                self._kept.move_to_end(plan.rows[index].sequence_id)
        rows = tuple(self._placed(plan.rows[index], counters) for index in wave)
        audio = tuple(plan.audio[index] for index in wave)
        outcome = self._inner.run_step(replace(plan, rows=rows, audio=audio, span=None, scrub=(), vacated=()))
        if isinstance(outcome, BatchResult):
            for row, result in zip(rows, outcome.rows, strict=True):
                self._note(row, result)
        return outcome

    def _placed(self, row: BatchRow, counters: Counter[str]) -> BatchRow:
        """The row on the slot of its sequence; without one it starts on a free slot, whatever was said before."""
        if row.start:
            self._forget(row.sequence_id)
        kept = self._kept.get(row.sequence_id)
        if kept is not None:
            counters[STALE_ROWS] += kept.next_sample != row.first_sample
            return replace(row, slot=kept.slot, start=False)
        counters[FRESH_ROWS] += not row.start
        if not self._free:
            self._forget(next(iter(self._kept)))
        slot = self._free.pop()
        self._kept[row.sequence_id] = _Kept(slot=slot, next_sample=row.first_sample)
        return replace(row, slot=slot, start=True)

    def _note(self, row: BatchRow, result: RowResult) -> None:
        if row.end or result.error is not None:
            self._forget(row.sequence_id)
        elif not row.flush:
            self._kept[row.sequence_id].next_sample = row.first_sample + row.n_samples

    def _forget(self, sequence_id: SequenceId) -> None:
        kept = self._kept.pop(sequence_id, None)
        if kept is not None:
            self._free.append(kept.slot)


def _waves(rows: Sequence[BatchRow], most: int) -> list[list[int]]:
    """Indices of rows, of at most so many different sequences at a time; those of one sequence in one wave each."""
    waves: list[list[int]] = []
    next_wave: Counter[SequenceId] = Counter()
    for index, row in enumerate(rows):
        at = next_wave[row.sequence_id]
        while at < len(waves) and len(waves[at]) >= most:
            at += 1
        if at == len(waves):
            waves.append([])
        waves[at].append(index)
        next_wave[row.sequence_id] = at + 1
    return waves
