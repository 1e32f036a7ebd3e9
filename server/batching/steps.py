"""The steps in flight: which is begun next, and what its result does to its sequences and slots."""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Row
from typing import Final

from server.batching.lane import Lane
from server.batching.sequence import Sequence, SequenceInput, SequenceState
from server.batching.sequence_config import SequenceBatcherConfig
from server.batching.sequence_stats import Counts
from server.batching.step_result import check_step_result, completed_rows
from server.batching.tenancies import Tenancies
from server.effects import SequenceEffect
from server.errors import InstanceFailed, ServiceError, StepFailed
from server.events import CloseCause
from server.ids import InstanceIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow

_REMEMBERED_PLANS: Final = 64
"""Steps of lost instances whose late results are still told apart from a mistake of the driver."""

MayRun = Callable[[InstanceIndex], bool]
"""Whether an instance may begin a step now; asked only of instances that would."""


class Steps:
    """Begins steps and ends them; the batcher's hand on its lanes."""

    def __init__(self, config: SequenceBatcherConfig, lanes: Row[Lane], tenancies: Tenancies, counts: Counts) -> None:
        """Nothing is in flight. ``lanes``, ``tenancies`` and ``counts`` are the batcher's."""
        self._config = config
        self._lanes = lanes
        self._tenancies = tenancies
        self._counts = counts
        self._orphaned_plans: deque[int] = deque(maxlen=_REMEMBERED_PLANS)

    def begin(self, now_ns: int, may_run: MayRun | None) -> BatchPlan | None:
        """The next step that is due, of the instance with the earliest deadline of those that may run."""
        due = [lane for lane in self._lanes if (at_ns := lane.due_at_ns()) is not None and at_ns <= now_ns]
        for lane in sorted(due, key=_urgency):
            if may_run is None or may_run(lane.instance):
                self._counts.steps += 1
                plan = lane.form(self._counts.steps, now_ns)
                self._count(plan)
                return plan
        return None

    def end(self, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int) -> list[SequenceEffect]:
        """A step's result: effects in the order of its rows, then those of the slots it has freed.

        Raises:
            ServiceError: the plan is not in flight, or the result is not one of this plan; nothing has changed.
        """
        lane = self._lanes[plan.instance]
        is_orphan = plan.plan_id in self._orphaned_plans
        if not is_orphan and plan.plan_id not in lane.in_flight:
            raise ServiceError(f"plan {plan.plan_id} is not in flight")
        check_step_result(plan, result)
        if is_orphan:
            self._orphaned_plans.remove(plan.plan_id)
            return self._end_rows(lane, plan, result, now_ns)
        lane.finish(plan, now_ns, has_run=isinstance(result, BatchResult))
        if isinstance(result, BatchFailure) and result.instance_lost:
            return self.lose(lane, plan.rows, result.error, now_ns)
        self._take_scrubs(lane, plan, result, now_ns)
        return [*self._end_rows(lane, plan, result, now_ns), *self._tenancies.place_waiting(now_ns)]

    def lose(self, lane: Lane, rows: tuple[BatchRow, ...], error: str, now_ns: int) -> list[SequenceEffect]:
        """Everything on the instance is lost: the sequences with a row in flight first, then the others by slot.

        ``rows`` are of a step that is out of flight just now.
        """
        rows += tuple(row for plan in lane.in_flight.values() for row in plan.rows)
        self._orphaned_plans.extend(lane.in_flight)
        effects: list[SequenceEffect] = []
        for sequence in lane.lose(rows, now_ns):
            has_left = sequence.state is SequenceState.LEAVING
            sequence.move(SequenceInput.INSTANCE_LOST)
            if has_left:
                self._counts.stale_results += 1
            else:
                effects.append(self._tenancies.forget(sequence, InstanceFailed(error)))
        return effects

    def _count(self, plan: BatchPlan) -> None:
        self._counts.rows += len(plan.rows)
        self._counts.catch_up_ticks += sum(row.n_ticks - 1 for row in plan.rows)
        if plan.span is not None:
            self._counts.padded_slots += plan.span.n_slots - len(plan.rows)

    def _take_scrubs(self, lane: Lane, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int) -> None:
        scrubbed = result.scrubbed if isinstance(result, BatchResult) else ()
        for slot in plan.scrub:
            if slot in scrubbed:
                lane.slots.clear(slot)
            else:
                lane.slots.defer_scrub(slot, now_ns + self._config.scrub_retry_ns)

    def _end_rows(
        self, lane: Lane, plan: BatchPlan, result: BatchResult | BatchFailure, now_ns: int
    ) -> list[SequenceEffect]:
        effects: list[SequenceEffect] = []
        for index, row in enumerate(plan.rows):
            sequence = lane.tenant(row)
            error = result.error if isinstance(result, BatchFailure) else result.rows[index].error
            if sequence is None:
                self._counts.stale_results += 1
            elif sequence.state is SequenceState.LEAVING:
                self._leave(sequence, error, now_ns)
            elif isinstance(result, BatchFailure) or error is not None:
                sequence.move(SequenceInput.ROW_FAILED)
                self._tenancies.give_up_place(sequence, is_clean=False, now_ns=now_ns)
                effects.append(self._tenancies.forget(sequence, StepFailed(error)))
            else:
                effects += completed_rows(plan, sequence.ticks, result, result.rows[index])
                effects += self._finish_row(sequence, row, now_ns)
        return effects

    def _leave(self, sequence: Sequence, error: str | None, now_ns: int) -> None:
        """The sequence was cancelled in the step: the result is dropped, the slot is given up."""
        self._counts.stale_results += 1
        sequence.move(SequenceInput.ROW_DONE if error is None else SequenceInput.ROW_FAILED)
        self._tenancies.give_up_place(sequence, is_clean=error is None, now_ns=now_ns)

    def _finish_row(self, sequence: Sequence, row: BatchRow, now_ns: int) -> list[SequenceEffect]:
        self._counts.late_rows += sum(self._config.is_late(tick, now_ns) for tick in sequence.ticks)
        if not row.end:
            sequence.move(SequenceInput.ROW_DONE)
            self._tenancies.settle(sequence, now_ns)
            return []
        if sequence.queue.head is not None:
            self._tenancies.begin_next_life(sequence, now_ns)
            return []
        sequence.move(SequenceInput.END_DONE)
        self._tenancies.give_up_place(sequence, is_clean=True, now_ns=now_ns)
        return [self._tenancies.forget(sequence, sequence.parting or CloseCause.END)]


def _urgency(lane: Lane) -> tuple[bool, int]:
    at_ns = lane.earliest_deadline_ns()
    return (at_ns is None, at_ns or 0)
