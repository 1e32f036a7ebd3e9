"""One instance as the sequence batcher sees it: slots and tenants, the rows that are ready, the steps in flight."""

from collections import OrderedDict

from server.batching.row_choice import NextStep, Situation, deadline_ns, next_step
from server.batching.sequence import Place, Sequence, SequenceInput
from server.batching.sequence_config import SequenceBatcherConfig, Strategy
from server.batching.slots import Lease, SlotTable
from server.batching.step_times import StepTimes
from server.ids import InstanceIndex, SlotIndex
from server.plan import BatchPlan, BatchRow, Samples, SlotSpan, Tensors


class Lane:
    """State of one instance; the batcher moves it."""

    def __init__(self, instance: InstanceIndex, config: SequenceBatcherConfig) -> None:
        """Every slot is free."""
        self._config = config
        self.instance = instance
        self.device = config.device_of(instance)
        self.slots = SlotTable(config.slots_of(instance))
        self.tenants: dict[SlotIndex, Sequence] = {}
        """Every held slot has one, and no other slot."""
        self.ready: OrderedDict[SlotIndex, Sequence] = OrderedDict()
        """Tenants that are READY, in the order in which they became so. By slot: an id may have a second sequence while
        the step of its cancelled first one runs."""
        self.in_flight: OrderedDict[int, BatchPlan] = OrderedDict()
        """By plan id, in the order in which the instance runs them."""
        self.step_times = StepTimes()
        self.is_lost = False
        """Then every slot is quarantined, so none is free."""
        self._n_steps = 0
        self._free_since_ns = 0
        """When the instance was last done with a step."""

    def tenant(self, row: BatchRow) -> Sequence | None:
        """The sequence the row was made for, unless its tenancy is over."""
        if not self.slots.holds(Lease(slot=row.slot, generation=row.generation)):
            return None
        return self.tenants[row.slot]

    def seat(self, sequence: Sequence, now_ns: int) -> None:
        """Give the sequence a free slot for its life."""
        lease = self.slots.acquire()
        sequence.place = Place(instance=self.instance, lease=lease, since_ns=now_ns)
        sequence.move(SequenceInput.PLACED)
        self.tenants[lease.slot] = sequence

    def line_up(self, sequence: Sequence) -> None:
        """The tenant has something to run."""
        sequence.move(SequenceInput.PORTION)
        sequence.ready_step = self._n_steps
        self.ready[sequence.seat.lease.slot] = sequence

    def due_at_ns(self) -> int | None:
        """From when on a step is worth planning; may lie in the past. None: not without other input.

        The next step of a busy instance is worth planning a little before the present one ends, where that is known.
        """
        if self.is_lost or len(self.in_flight) >= self._config.most_in_flight:
            return None
        step = self._next_step()
        times_ns = (self.slots.next_scrub_at_ns(), None if step is None else step.due_at_ns)
        due_at_ns = min((at_ns for at_ns in times_ns if at_ns is not None), default=None)
        if due_at_ns is None or not self.in_flight:
            return due_at_ns
        end_ns = self._expected_end_ns()
        return None if end_ns is None else max(due_at_ns, end_ns - self._config.lead_ns)

    def earliest_deadline_ns(self) -> int | None:
        """Of the rows that are ready; None: none is due at a certain time."""
        if not self._config.has_deadlines:
            return None
        deadlines_ns = (deadline_ns(sequence, self._config) for sequence in self.ready.values())
        return min((at_ns for at_ns in deadlines_ns if at_ns is not None), default=None)

    def work_ahead_ns(self) -> int:
        """What the steps in flight and one of all that is ready should take; 0 where nothing is known."""
        in_flight_ns = (self.step_times.expected_ns(_n_ticks(plan)) or 0 for plan in self.in_flight.values())
        return sum(in_flight_ns) + (self.expected_step_ns() or 0 if self.ready else 0)

    def expected_step_ns(self) -> int | None:
        """What a step of all that is ready would take; None: nothing was measured yet."""
        return self.step_times.expected_ns(min(max(1, len(self.ready)), self._config.max_batch))

    def form(self, plan_id: int, now_ns: int) -> BatchPlan:
        """Take the rows of the next step and the slots to scrub; the step is in flight."""
        step = self._next_step()
        rows: list[BatchRow] = []
        payloads: list[Samples | Tensors] = []
        for sequence in step.taken_at(now_ns) if step is not None else ():
            del self.ready[sequence.seat.lease.slot]
            row, payload = sequence.take_row(self._config.max_ticks)
            rows.append(row)
            payloads.append(payload)
        plan = BatchPlan(
            plan_id=plan_id,
            instance=self.instance,
            rows=tuple(rows),
            audio=tuple(each for each in payloads if not isinstance(each, Tensors)),
            tensors=tuple(each for each in payloads if isinstance(each, Tensors)),
            span=_span(rows) if self._config.strategy is Strategy.DIRECT and rows else None,
            scrub=self.slots.take_scrubs(now_ns),
            vacated=self.slots.take_vacated(),
            planned_at_ns=now_ns,
        )
        self.in_flight[plan_id] = plan
        self._n_steps += 1
        return plan

    def finish(self, plan: BatchPlan, now_ns: int, *, has_run: bool) -> None:
        """A step is out of flight; one that ran tells how long its like takes."""
        del self.in_flight[plan.plan_id]
        if has_run and plan.rows:
            self.step_times.note(_n_ticks(plan), now_ns - max(plan.planned_at_ns, self._free_since_ns))
        self._free_since_ns = now_ns

    def vacate(self, sequence: Sequence, *, is_clean: bool, now_ns: int) -> None:
        """The sequence's tenancy is over: its slot is free, or in doubt."""
        lease = sequence.seat.lease
        self.ready.pop(lease.slot, None)
        del self.tenants[lease.slot]
        sequence.place = None
        if is_clean:
            self.slots.release(lease)
        else:
            self.slots.quarantine(lease, now_ns)

    def lose(self, rows: tuple[BatchRow, ...], now_ns: int) -> list[Sequence]:
        """The instance is gone: no slot is its tenant's any more, nothing is in flight. Returns the tenants, those of
        ``rows`` first.
        """
        tenants = [sequence for row in rows if (sequence := self.tenant(row)) is not None]
        in_step = {sequence.seat.lease.slot for sequence in tenants}
        tenants += [self.tenants[slot] for slot in sorted(self.tenants) if slot not in in_step]
        for sequence in tenants:
            sequence.place = None
        self.is_lost = True
        self.tenants.clear()
        self.ready.clear()
        self.in_flight.clear()
        self.slots.quarantine_all(now_ns)
        return tenants

    def _next_step(self) -> NextStep | None:
        if not self.ready:
            return None
        n_running = sum(len(plan.rows) for plan in self.in_flight.values())
        situation = Situation(
            ready=self.ready,
            n_silent=len(self.tenants) - len(self.ready) - n_running,
            n_slots=self.slots.n_slots,
            n_steps=self._n_steps,
        )
        return next_step(situation, self._config, self.step_times)

    def _expected_end_ns(self) -> int | None:
        """Of the step that the instance is at; None: nothing was measured yet."""
        plan = next(iter(self.in_flight.values()))
        step_ns = self.step_times.expected_ns(_n_ticks(plan))
        return None if step_ns is None else max(plan.planned_at_ns, self._free_since_ns) + step_ns


def _n_ticks(plan: BatchPlan) -> int:
    return sum(row.n_ticks for row in plan.rows)


def _span(rows: list[BatchRow]) -> SlotSpan:
    return SlotSpan(first=rows[0].slot, n_slots=rows[-1].slot - rows[0].slot + 1)
