"""One loaded copy of a model that takes tensors: turns of sequences with their state, or requests without any.

As ``instance``: one plan at a time, whatever goes wrong is a result (I2, I4).
"""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch

from asr_model.contract import ModelSpec, TensorModel, TensorStreamingModel
from asr_model.tensor_check import NUMPY_TYPES, inputs_fault
from server.ids import InstanceIndex, RequestId, SequenceId, SlotIndex
from server.plan import (
    BatchFailure,
    BatchPlan,
    BatchResult,
    BatchRow,
    Request,
    RequestBatch,
    RowResult,
    SlotSpan,
    Tensors,
)
from server.workers.orders import BatchOutcome
from server.workers.slot_step import Stepped, WrongAnswer, failure, run_on_slots
from server.workers.state_store import StateStore
from server.workers.tensor_batch import (
    NO_CORRELATION,
    RowControls,
    SlotLanes,
    slot_batch,
    split_outputs,
    stateless_batch,
)

WARM_UP_LENGTH: Final = 16
"""Of axes of any length."""

logger = logging.getLogger(__name__)


class TensorStreamingInstance:
    """A stateful model that takes tensors, with the state of its slots.

    Args:
        model: The loaded model.
        slots: Sequences that it holds at once.
        device: Torch device name of the model and of the state.
        shares_pages: As of ``StateStore``.

    Raises:
        ValueError: Its outputs could not be cut to its inputs' lengths.
    """

    def __init__(self, model: TensorStreamingModel, slots: int, device: str, *, shares_pages: bool = True) -> None:
        check_ragged(model.spec)
        self._model = model
        self._device = torch.device(device)
        self._store = StateStore(model.spec, slots, device, shares_pages=shares_pages)

    @property
    def store(self) -> StateStore:
        """The state of all slots."""
        return self._store

    def run_step(self, plan: BatchPlan) -> BatchOutcome:
        """One step; see ``run_on_slots``. A turn that the model does not take fails alone."""
        return run_on_slots(self._store, plan, self._step)

    def warm_up(self, batches: Iterable[int]) -> None:
        """A sequence of two turns of nothing in steps of each of these sizes; then every slot is as new.

        Raises:
            RuntimeError: The model failed.
        """
        for size in batches:
            turns = (nothing_for(self._model.spec, 1),) * size
            for is_last in (False, True):
                rows = tuple(turn_row(slot, start=not is_last, end=is_last) for slot in range(size))
                outcome = self.run_step(
                    BatchPlan(plan_id=0, instance=InstanceIndex(0), rows=rows, audio=(), tensors=turns)
                )
                if isinstance(outcome, BatchFailure):
                    raise RuntimeError(f"warm-up step failed: {outcome.error}")
        self._store.initialise(range(self._store.slots))

    def _step(self, plan: BatchPlan) -> Stepped:
        specs = self._model.spec.inputs
        faults = [inputs_fault(turn.arrays, specs, 1) for turn in plan.tensors]
        good = [i for i, fault in enumerate(faults) if fault is None]
        answers = self._run([plan.rows[i] for i in good], [plan.tensors[i] for i in good], plan.span) if good else []
        rows = [RowResult(error=fault) for fault in faults]
        for i, answer in zip(good, answers, strict=True):
            rows[i] = RowResult(output=answer)
        return Stepped(rows=tuple(rows), counters={"turns": len(good)})

    def _run(self, rows: Sequence[BatchRow], turns: Sequence[Tensors], span: SlotSpan | None) -> list[Tensors]:
        slots = [row.slot for row in rows]
        lanes = SlotLanes.gathered(slots) if span is None else SlotLanes.in_range(slots)
        controls = [
            RowControls(start=row.start, end=row.end, correlation_id=row.correlation_id or NO_CORRELATION)
            for row in rows
        ]
        batch = slot_batch(turns, controls, lanes, self._model.spec.inputs, self._device)
        outputs = self._model.step_tensors(batch, self._store.tensors)
        return split_outputs(outputs, self._model.spec.outputs, batch, [(place,) for place in lanes.places])


class TensorInstance:
    """A stateless model that takes tensors.

    Args:
        model: The loaded model.
        device: Torch device name of the model.

    Raises:
        ValueError: Its outputs could not be cut to its inputs' lengths.
    """

    def __init__(self, model: TensorModel, device: str) -> None:
        check_ragged(model.spec)
        self._model = model
        self._device = torch.device(device)

    def warm_up(self, batches: Iterable[int]) -> None:
        """A batch of nothing of each of these sizes, so that no client waits for allocations and kernels."""
        with torch.inference_mode():
            for size in batches:
                self._run([nothing_for(self._model.spec, size)])

    def run_batch(self, batch: RequestBatch) -> BatchOutcome:
        """One batch, results in the order of its requests; one that the model does not take fails alone. Never raises
        for what a model does.
        """
        started_ns = time.perf_counter_ns()
        specs = self._model.spec.inputs
        faults = [inputs_fault(request.tensors.arrays, specs, request.tensors.n_rows) for request in batch.requests]
        good = [i for i, fault in enumerate(faults) if fault is None]
        rows = [RowResult(error=fault) for fault in faults]
        try:
            with torch.inference_mode():
                answers = self._run([batch.requests[i].tensors for i in good]) if good else []
        except WrongAnswer as error:
            logger.error("batch %d of instance %d: %s", batch.plan_id, batch.instance, error)
            return BatchFailure(plan_id=batch.plan_id, error=str(error))
        except Exception as error:
            logger.exception("batch %d of instance %d failed", batch.plan_id, batch.instance)
            return failure(batch.plan_id, error)
        for i, answer in zip(good, answers, strict=True):
            rows[i] = RowResult(output=answer)
        n_rows = sum(answer.n_rows for answer in answers)
        return BatchResult(
            plan_id=batch.plan_id,
            rows=tuple(rows),
            step_ns=time.perf_counter_ns() - started_ns,
            counters={"requests": len(good), "rows": n_rows},
        )

    def run_step(self, plan: BatchPlan) -> BatchOutcome:
        """What becomes of a stateless model that the sequence batcher has: its turns are requests like any others."""
        requests = tuple(Request(request_id=RequestId(index), payload=turn) for index, turn in enumerate(plan.tensors))
        queued_at_ns = (plan.planned_at_ns,) * len(requests)
        outcome = self.run_batch(
            RequestBatch(plan_id=plan.plan_id, instance=plan.instance, requests=requests, queued_at_ns=queued_at_ns)
        )
        return outcome if isinstance(outcome, BatchFailure) else replace(outcome, scrubbed=plan.scrub)

    def _run(self, requests: Sequence[Tensors]) -> list[Tensors]:
        batch = stateless_batch(requests, self._model.spec.inputs, self._device)
        places, first = [], 0
        for request in requests:
            places.append(range(first, first + request.n_rows))
            first += request.n_rows
        return split_outputs(self._model.run_tensors(batch), self._model.spec.outputs, batch, places)


def turn_row(slot: int, *, start: bool, end: bool) -> BatchRow:
    """A turn of a sequence that no client has opened."""
    return BatchRow(
        slot=SlotIndex(slot),
        generation=0,
        sequence_id=SequenceId(f"turns-{slot}"),
        start=start,
        flush=False,
        end=end,
        first_sample=0,
        n_samples=0,
        ready_at_ns=0,
        correlation_id=slot + 1,
    )


def nothing_for(spec: ModelSpec, n_rows: int) -> Tensors:
    """Zeros and empty texts for every input that a model must have."""
    arrays = {}
    for name, declared in spec.inputs.items():
        if not declared.optional:
            shape = (n_rows, *(WARM_UP_LENGTH if size == -1 else size for size in declared.shape))
            is_text = declared.datatype == "BYTES"
            arrays[name] = np.full(shape, b"" if is_text else 0, NUMPY_TYPES[declared.datatype])
    return Tensors(arrays=arrays, n_rows=n_rows)


def check_ragged(spec: ModelSpec) -> None:
    """Whether the model's ragged inputs and outputs can be padded and cut.

    Raises:
        ValueError: One has no axis of any length, or there is not one ragged input to cut the outputs by.
    """
    for name, declared in (*spec.inputs.items(), *spec.outputs.items()):
        if declared.ragged and declared.shape[:1] != (-1,):
            raise ValueError(
                f"{spec.name}: {name} is ragged, so its first axis must be of any length, not {declared.shape}"
            )
    n_inputs = sum(declared.ragged for declared in spec.inputs.values())
    if n_inputs != 1 and any(declared.ragged for declared in spec.outputs.values()):
        raise ValueError(f"{spec.name}: ragged outputs are cut to the one ragged input, and it has {n_inputs}")
