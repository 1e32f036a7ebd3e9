"""One loaded copy of a model: runs plans on it, one at a time, and turns whatever goes wrong into a result (I2, I4).

Knows no processes, threads or clocks beyond the stopwatch of a step: ``worker`` decides where it runs.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import cast

import torch

from asr_model.contract import Model, OneShotModel, SlotRange, StepOutput, StepRow, StreamingModel
from asr_model.registry import Factory, build_model
from server.plan import BatchFailure, BatchPlan, BatchResult, RequestBatch, RowResult, Samples, SlotSpan
from server.workers.orders import BatchOutcome, ModelSource
from server.workers.row_parts import row_parts
from server.workers.slot_step import Stepped, WrongAnswer, failure, run_on_slots
from server.workers.state_store import StateStore

logger = logging.getLogger(__name__)


class StreamingInstance:
    """A stateful model that listens, with the state of its slots.

    Args:
        model: The loaded model.
        slots: Sequences that it holds at once.
        device: Torch device name of the model and of the state.
        shares_pages: As of ``StateStore``.
    """

    def __init__(self, model: StreamingModel, slots: int, device: str, *, shares_pages: bool = True) -> None:
        self._model = model
        self._store = StateStore(model.spec, slots, device, shares_pages=shares_pages)

    @property
    def store(self) -> StateStore:
        """The state of all slots."""
        return self._store

    def run_step(self, plan: BatchPlan) -> BatchOutcome:
        """One step; see ``run_on_slots``. A row of more ticks than go through the model at once is run in parts, one
        after the other, within this one step.
        """
        return run_on_slots(self._store, plan, self._step)

    def _step(self, plan: BatchPlan) -> Stepped:
        spec = self._model.spec
        parts = [
            row_parts(
                row,
                audio,
                tick_samples=spec.tick_samples,
                lookahead_samples=spec.lookahead_samples,
                max_ticks=spec.max_ticks,
            )
            for row, audio in zip(plan.rows, plan.audio, strict=True)
        ]
        said: list[list[object]] = [[] for _ in parts]
        errors: dict[int, str] = {}
        counters: Counter[str] = Counter()
        for part in range(max(map(len, parts))):
            indices = [i for i, each in enumerate(parts) if part < len(each) and i not in errors]
            if not indices:
                break
            output = self._run_part([parts[i][part] for i in indices], plan.span)
            counters.update(output.counters)
            for at, i in enumerate(indices):
                said[i].extend(output.earlier.get(at, ()))
                if at in output.errors:
                    errors[i] = output.errors[at]
                else:
                    said[i].append(output.outputs[at])
        return Stepped(rows=tuple(_row_result(each, errors.get(i)) for i, each in enumerate(said)), counters=counters)

    def _run_part(self, rows: list[StepRow], span: SlotSpan | None) -> StepOutput:
        output = self._model.step(rows, self._store.tensors, _slot_range(rows) if span is not None else None)
        if len(output.outputs) != len(rows):
            raise WrongAnswer("the model answered another number of rows")
        return output


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

    def warm_up(self, samples: Samples, batches: Iterable[int] = (1,)) -> None:
        """A batch of each of these sizes, so that no client is the first to wait for its allocations and kernels."""
        with torch.inference_mode():
            for size in batches:
                self._model.run([samples] * size, self._pause)

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


def _slot_range(rows: list[StepRow]) -> SlotRange:
    first = rows[0].slot
    return SlotRange(first=first, n_slots=rows[-1].slot + 1 - first)


def _row_result(said: list[object], error: str | None) -> RowResult:
    """Of a row that failed, what its ticks before had said stands."""
    if error is not None:
        return RowResult(error=error, earlier=tuple(said))
    return RowResult(output=said[-1], earlier=tuple(said[:-1]))


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
