"""One loaded copy of a model: runs plans on it, one at a time, and turns whatever goes wrong into a result (I2, I4).

Knows no processes, threads or clocks beyond the stopwatch of a step: ``worker`` decides where it runs.
"""

import logging
import time
from collections.abc import Callable
from importlib import import_module
from typing import cast

import torch

from asr_model.contract import Model, OneShotModel, StepOutput, StepRow, StreamingModel
from asr_model.registry import Factory, build_model
from server.plan import BatchFailure, BatchPlan, BatchResult, BatchRow, RequestBatch, RowResult, Samples
from server.workers.orders import BatchOutcome, ModelSource
from server.workers.state_store import StateStore

logger = logging.getLogger(__name__)


class StreamingInstance:
    """A stateful model with the state of its slots.

    Args:
        model: The loaded model.
        slots: Sequences that it holds at once.
        device: Torch device name of the model and of the state.
    """

    def __init__(self, model: StreamingModel, slots: int, device: str) -> None:
        self._model = model
        self._store = StateStore(model.spec, slots, device)

    @property
    def store(self) -> StateStore:
        """The state of all slots."""
        return self._store

    def run_step(self, plan: BatchPlan) -> BatchOutcome:
        """One step: scrubs, initialises the slots of START rows, runs the model. Never raises for what a model does.

        Slots that the plan does not name stay as they are, bit for bit.
        """
        started_ns = time.perf_counter_ns()
        try:
            with torch.inference_mode():
                scrubbed = tuple(slot for slot in plan.scrub if self._scrub(slot))
                output = self._step(plan) if plan.rows else StepOutput(outputs=())
        except Exception as error:
            logger.exception("step %d of instance %d failed", plan.plan_id, plan.instance)
            return failure(plan.plan_id, error)
        if len(output.outputs) != len(plan.rows):
            logger.error("step %d: %d outputs for %d rows", plan.plan_id, len(output.outputs), len(plan.rows))
            return BatchFailure(plan_id=plan.plan_id, error="the model answered another number of rows")
        return BatchResult(
            plan_id=plan.plan_id,
            rows=tuple(_row_result(output, index) for index in range(len(plan.rows))),
            scrubbed=scrubbed,
            step_ns=time.perf_counter_ns() - started_ns,
            counters=dict(output.counters),
        )

    def _scrub(self, slot: int) -> bool:
        self._store.initialise((slot,))
        clean = self._store.is_clean(slot)
        if not clean:
            logger.error("slot %d is not clean after initialisation and stays in quarantine", slot)
        return clean

    def _step(self, plan: BatchPlan) -> StepOutput:
        self._store.initialise([row.slot for row in plan.rows if row.start])
        rows = [_step_row(row, audio) for row, audio in zip(plan.rows, plan.audio, strict=True)]
        return self._model.step(rows, self._store.tensors)


class _Abandoned(Exception):
    """Unwinds a one-shot model that should stop."""


class OneShotInstance:
    """A stateless model.

    Args:
        model: The loaded model.
        pause: Called between slices of a batch; returns when live steps of the same device let it go on.
        is_abandoned: Asked between slices whether the batch of that id should be given up.
    """

    def __init__(
        self,
        model: OneShotModel,
        pause: Callable[[], None],
        is_abandoned: Callable[[int], bool] = lambda plan_id: False,
    ) -> None:
        self._model = model
        self._pause = pause
        self._is_abandoned = is_abandoned

    def warm_up(self, samples: Samples) -> None:
        """One batch of one request, so that the first client does not wait for allocations and kernels."""
        with torch.inference_mode():
            self._model.run([samples], self._pause)

    def run_batch(self, batch: RequestBatch) -> BatchOutcome:
        """One batch, results in the order of its requests. Never raises for what a model does."""
        started_ns = time.perf_counter_ns()

        def pause() -> None:
            if self._is_abandoned(batch.plan_id):
                raise _Abandoned
            self._pause()

        try:
            with torch.inference_mode():
                outputs = self._model.run([request.samples for request in batch.requests], pause)
        except _Abandoned:
            return BatchFailure(plan_id=batch.plan_id, error="abandoned", is_abandoned=True)
        except Exception as error:
            logger.exception("batch %d of instance %d failed", batch.plan_id, batch.instance)
            return failure(batch.plan_id, error)
        if len(outputs) != len(batch.requests):
            logger.error("batch %d: %d outputs for %d requests", batch.plan_id, len(outputs), len(batch.requests))
            return BatchFailure(plan_id=batch.plan_id, error="the model answered another number of requests")
        return BatchResult(
            plan_id=batch.plan_id,
            rows=tuple(RowResult(output=output) for output in outputs),
            step_ns=time.perf_counter_ns() - started_ns,
            counters={"requests": len(outputs), "samples": sum(len(request.samples) for request in batch.requests)},
        )


def failure(plan_id: int, error: Exception) -> BatchFailure:
    """The flat form of an exception: its kind, no internals. After an error of the device nothing on it can be used."""
    return BatchFailure(plan_id=plan_id, error=type(error).__name__, instance_lost="CUDA error" in str(error))


def _step_row(row: BatchRow, audio: Samples) -> StepRow:
    return StepRow(
        slot=row.slot,
        start=row.start,
        flush=row.flush,
        end=row.end,
        first_sample=row.first_sample,
        audio=audio,
        endpoint_silence_ms=row.options.endpoint_silence_ms if row.options is not None else None,
    )


def _row_result(output: StepOutput, index: int) -> RowResult:
    error = output.errors.get(index)
    return RowResult(error=error) if error is not None else RowResult(output=output.outputs[index])


def build(source: ModelSource, device: str) -> Model:
    """Loads a copy of the model.

    Raises:
        ValueError: There is no such model, or it refuses its options.
    """
    if source.factory is None:
        return build_model(source.name, source.options, torch.device(device))
    module, _, function = source.factory.partition(":")
    return cast(Factory, getattr(import_module(module), function))(source.options, torch.device(device))


def resolve_device(name: str, instance: int) -> str:
    """The device ``auto`` stands for: instances spread over the CUDA devices there are, else the CPU.

    Raises:
        ValueError: CUDA is asked for and there is none, or not that many.
    """
    devices = torch.cuda.device_count() if name != "cpu" else 0
    if name == "auto":
        return f"cuda:{instance % devices}" if devices else "cpu"
    if name == "cpu":
        return name
    index = int(name.partition(":")[2] or 0)
    if index >= devices:
        raise ValueError(f"device {name}: this machine has {devices} usable CUDA devices")
    return f"cuda:{index}"


def use_threads(threads: int) -> None:
    """CPU threads that torch uses for work begun in this thread; 0 leaves the number as it is."""
    if threads > 0:
        torch.set_num_threads(threads)
