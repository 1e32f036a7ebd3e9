"""What a step's result says of its rows."""

import pytest

from server.batching.step_result import check_step_result, completed_rows
from server.effects import RowCompleted
from server.errors import ServiceError
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, RowResult
from tests.support.factories import make_samples


def make_row(first_sample: int, n_samples: int, *, n_ticks: int = 1, ready_at_ns: int = 0) -> BatchRow:
    return BatchRow(
        slot=SlotIndex(0),
        generation=1,
        sequence_id=SequenceId("a"),
        start=False,
        flush=False,
        end=False,
        first_sample=first_sample,
        n_samples=n_samples,
        ready_at_ns=ready_at_ns,
        n_ticks=n_ticks,
    )


PLAN = BatchPlan(
    plan_id=3,
    instance=InstanceIndex(1),
    rows=(make_row(0, 23, n_ticks=2, ready_at_ns=8),),
    audio=(make_samples(23),),
    scrub=(SlotIndex(5),),
    planned_at_ns=10,
)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (BatchResult(plan_id=4, rows=()), "a result of plan 4 was given for plan 3"),
        (BatchResult(plan_id=3, rows=()), "plan 3 has 1 rows, its result 0"),
        (BatchResult(plan_id=3, rows=(RowResult(output=1),)), "plan 3: 1 outputs for 2 ticks of a"),
        (BatchResult(plan_id=3, rows=(RowResult(output=1, earlier=(2, 3)),)), "plan 3: 3 outputs for 2 ticks of a"),
        (
            BatchResult(plan_id=3, rows=(RowResult(output=1, earlier=(2,)),), scrubbed=(SlotIndex(6),)),
            r"plan 3 did not ask to scrub \[6\]",
        ),
        (BatchFailure(plan_id=4, error=""), "a result of plan 4 was given for plan 3"),
    ],
)
def test_a_result_of_something_else(result: BatchResult | BatchFailure, message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        check_step_result(PLAN, result)


@pytest.mark.parametrize(
    "result",
    [
        BatchResult(plan_id=3, rows=(RowResult(output=1, earlier=(2,)),), scrubbed=(SlotIndex(5),)),
        BatchResult(plan_id=3, rows=(RowResult(error="NaN"),)),
        BatchFailure(plan_id=3, error=""),
    ],
)
def test_a_result_of_the_plan(result: BatchResult | BatchFailure) -> None:
    check_step_result(PLAN, result)


def test_each_tick_is_told_as_a_row_of_its_own() -> None:
    ticks = (make_row(0, 13, ready_at_ns=2), make_row(13, 10, ready_at_ns=8))
    answer = RowResult(output="second", earlier=("first",))
    told = completed_rows(PLAN, ticks, BatchResult(plan_id=3, rows=(answer,), step_ns=7), answer)
    assert told == [
        RowCompleted(
            row=row, instance=InstanceIndex(1), output=output, batch_size=1, queue_ns=queue_ns, step_ns=7, plan_id=3
        )
        for row, output, queue_ns in zip(ticks, ("first", "second"), (8, 2), strict=True)
    ]
