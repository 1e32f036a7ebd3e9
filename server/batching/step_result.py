"""What a step's result says of its rows, and whether it can be the result of that step."""

from server.batching.admission import check_result
from server.effects import RowCompleted
from server.errors import ServiceError
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, RowResult


def check_step_result(plan: BatchPlan, result: BatchResult | BatchFailure) -> None:
    """A result is of its plan: rows, ticks and scrubs.

    Raises:
        ServiceError: it is not.
    """
    check_result(result, plan.plan_id, len(plan.rows))
    if isinstance(result, BatchFailure):
        return
    if not set(result.scrubbed) <= set(plan.scrub):
        raise ServiceError(f"plan {plan.plan_id} did not ask to scrub {sorted(set(result.scrubbed) - set(plan.scrub))}")
    for row, answer in zip(plan.rows, result.rows, strict=True):
        if answer.error is None and len(answer.earlier) != row.n_ticks - 1:
            raise ServiceError(
                f"plan {plan.plan_id}: {len(answer.earlier) + 1} outputs for {row.n_ticks} ticks of {row.sequence_id}"
            )


def completed_rows(
    plan: BatchPlan, ticks: tuple[BatchRow, ...], result: BatchResult, answer: RowResult
) -> list[RowCompleted]:
    """One effect a tick, as if each had been a row of its own."""
    outputs = (*answer.earlier, answer.output)
    return [
        RowCompleted(
            row=row,
            instance=plan.instance,
            output=output,
            batch_size=len(plan.rows),
            queue_ns=plan.planned_at_ns - row.ready_at_ns,
            step_ns=result.step_ns,
            plan_id=plan.plan_id,
        )
        for row, output in zip(ticks, outputs, strict=True)
    ]
