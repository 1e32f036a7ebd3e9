"""One instance as the sequence batcher sees it: slots and tenants, the rows that are ready, the step in flight."""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice

from server.batching.sample_queue import PortionKind
from server.batching.sequence import Sequence, SequenceInput
from server.batching.slots import Lease, SlotTable
from server.ids import InstanceIndex, SlotIndex
from server.plan import BatchPlan, BatchRow, Samples


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """State of one instance; the batcher moves it."""

    instance: InstanceIndex
    slots: SlotTable
    tenants: dict[SlotIndex, Sequence] = field(default_factory=dict)
    """Every held slot has one, and no other slot."""
    ready: OrderedDict[SlotIndex, Sequence] = field(default_factory=OrderedDict)
    """Tenants that are READY, in the order in which they became so. By slot: an id may have a second sequence while
    the step of its cancelled first one runs."""
    in_flight: BatchPlan | None = None
    is_lost: bool = False
    """Then every slot is quarantined, so none is free."""

    def tenant(self, row: BatchRow) -> Sequence | None:
        """The sequence the row was made for, unless its tenancy is over."""
        if not self.slots.holds(Lease(slot=row.slot, generation=row.generation)):
            return None
        return self.tenants[row.slot]

    def due_at_ns(self, max_batch: int, max_delay_ns: int) -> int | None:
        """From when on a step is worth planning; may lie in the past. None: not without other input.

        A step waits for company until its oldest row has waited ``max_delay_ns``, but not when it is full, and not when
        every tenant is ready, for then nobody is left to wait for.
        """
        if self.is_lost or self.in_flight is not None:
            return None
        due_at_ns = self.slots.next_scrub_at_ns()
        if self.ready:
            oldest_ns = min(_ready_at_ns(sequence) for sequence in islice(self.ready.values(), max_batch))
            is_full = len(self.ready) >= min(max_batch, len(self.tenants))
            row_due_ns = oldest_ns if is_full else oldest_ns + max_delay_ns
            due_at_ns = row_due_ns if due_at_ns is None else min(due_at_ns, row_due_ns)
        return due_at_ns

    def form(self, plan_id: int, max_batch: int, now_ns: int) -> BatchPlan:
        """Take the rows that were ready first, at most ``max_batch``, and the slots to scrub; the step is in flight."""
        rows: list[BatchRow] = []
        audio: list[Samples] = []
        while self.ready and len(rows) < max_batch:
            _, sequence = self.ready.popitem(last=False)
            row, samples = _take_row(sequence)
            rows.append(row)
            audio.append(samples)
        self.in_flight = BatchPlan(
            plan_id=plan_id,
            instance=self.instance,
            rows=tuple(rows),
            audio=tuple(audio),
            scrub=self.slots.scrub_due(now_ns),
            planned_at_ns=now_ns,
        )
        return self.in_flight

    def vacate(self, sequence: Sequence, *, is_clean: bool, now_ns: int) -> None:
        """The sequence is gone: its slot is free, or in doubt."""
        self.ready.pop(sequence.lease.slot, None)
        del self.tenants[sequence.lease.slot]
        if is_clean:
            self.slots.release(sequence.lease)
        else:
            self.slots.quarantine(sequence.lease, now_ns)


def _ready_at_ns(sequence: Sequence) -> int:
    portion = sequence.queue.head
    assert portion is not None, "a ready sequence has a portion"
    return portion.ready_at_ns


def _take_row(sequence: Sequence) -> tuple[BatchRow, Samples]:
    sequence.move(SequenceInput.PLANNED)
    taken = sequence.queue.take()
    row = BatchRow(
        slot=sequence.lease.slot,
        generation=sequence.lease.generation,
        sequence_id=sequence.sequence_id,
        start=not sequence.is_started,
        flush=taken.portion.kind is not PortionKind.TICK,
        end=taken.portion.kind is PortionKind.END,
        first_sample=taken.first_sample,
        n_samples=taken.samples.size,
        ready_at_ns=taken.portion.ready_at_ns,
        options=None if sequence.is_started else sequence.options,
    )
    sequence.is_started = True
    return row, taken.samples
