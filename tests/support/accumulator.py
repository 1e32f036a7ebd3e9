"""A model whose answers betray every scheduling mistake: it adds up what its slot heard since START.

A sample lost, doubled, swapped, of a neighbour or of the slot's previous tenant makes a wrong number. It runs plans, so
it needs neither torch nor a worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from server.batching.sample_queue import PortionKind
from server.plan import BatchPlan, BatchResult, BatchRow, RowResult, Samples

_GARBAGE = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the slot has heard since START, the row included."""

    total: int
    """Sum of the samples."""
    weighted: int
    """Sum of sample times position, positions from 1: tells the order."""
    n_samples: int

    def plus(self, samples: Samples) -> "Reading":
        """The reading after more samples."""
        values = [int(value) for value in samples]
        positions = range(self.n_samples + 1, self.n_samples + 1 + len(values))
        return Reading(
            total=self.total + sum(values),
            weighted=self.weighted + sum(value * position for value, position in zip(values, positions, strict=True)),
            n_samples=self.n_samples + len(values),
        )


SILENCE = Reading(total=0, weighted=0, n_samples=0)


class AccumulatorModel:
    """One instance. Slots hold garbage until a row with ``start`` initialises them inside its step."""

    def __init__(self, n_slots: int, *, tick_samples: int = 10) -> None:
        self._tick_samples = tick_samples
        self.slots = [Reading(total=_GARBAGE + slot, weighted=_GARBAGE, n_samples=_GARBAGE) for slot in range(n_slots)]

    def run(
        self, plan: BatchPlan, *, errors: Mapping[int, str] | None = None, scrub: bool = True, step_ns: int = 0
    ) -> BatchResult:
        """Run a plan; rows of ``errors`` fail and leave their slot in doubt."""
        errors = errors or {}
        rows: list[RowResult] = []
        heard = plan.audio or [tensors.arrays["INPUT"].ravel() for tensors in plan.tensors]
        for index, (row, samples) in enumerate(zip(plan.rows, heard, strict=True)):
            if index in errors:
                self.slots[row.slot] = Reading(total=-_GARBAGE, weighted=-_GARBAGE, n_samples=-_GARBAGE)
                rows.append(RowResult(error=errors[index]))
            else:
                readings = self._step(row, samples)
                rows.append(RowResult(output=readings[-1], earlier=tuple(readings[:-1])))
        for slot in plan.scrub if scrub else ():
            self.slots[slot] = SILENCE
        return BatchResult(
            plan_id=plan.plan_id, rows=tuple(rows), scrubbed=plan.scrub if scrub else (), step_ns=step_ns
        )

    def _step(self, row: BatchRow, samples: Samples) -> list[Reading]:
        if row.start:
            self.slots[row.slot] = SILENCE
        first_tick_samples = samples.size - (row.n_ticks - 1) * self._tick_samples
        readings: list[Reading] = []
        for tick in np.split(samples, range(first_tick_samples, samples.size, self._tick_samples)):
            reading = self.slots[row.slot].plus(tick)
            if not row.flush:
                self.slots[row.slot] = reading
            readings.append(reading)
        return readings


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRow:
    """One row of a sequence served alone."""

    kind: PortionKind
    first_sample: int
    end_sample: int
    reading: Reading


def solo_rows(
    samples: Sequence[float], marks: Sequence[tuple[int, PortionKind]], *, tick_samples: int, lookahead_samples: int
) -> list[SoloRow]:
    """The rows that a sequence must get, straight from the definition: ticks and marks by position, a tick first.

    ``marks`` are (samples before the mark, kind), in order.
    """
    ends = [
        (end, 0, PortionKind.TICK) for end in range(tick_samples + lookahead_samples, len(samples) + 1, tick_samples)
    ]
    ends += [(end, order + 1, kind) for order, (end, kind) in enumerate(marks)]
    heard = SILENCE
    rows: list[SoloRow] = []
    for end, _, kind in sorted(ends, key=lambda item: item[:2]):
        first = heard.n_samples
        reading = heard.plus(np.asarray(samples[first:end], dtype=np.float32))
        rows.append(SoloRow(kind=kind, first_sample=first, end_sample=end, reading=reading))
        if kind is PortionKind.TICK:
            heard = reading
    return rows
