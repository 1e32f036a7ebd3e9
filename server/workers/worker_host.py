"""The model's side of a worker: loads a model, prepares its slots, runs plans. Same code in a process and in a thread.

Only flat data comes in and goes out.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from asr_model.contract import (
    Model,
    ModelSpec,
    OneShotModel,
    Scheduler,
    StreamingModel,
    TensorModel,
    TensorStreamingModel,
)
from asr_model.declared import DECLARED, check_optimize
from asr_model.moonshine.weights import WeightsError
from server.plan import BatchPlan, RequestBatch
from server.proving.judgement import Probe
from server.proving.probe import probe
from server.workers.capacity import measure_streams, speech, warm_up
from server.workers.device_gate import DeviceGate
from server.workers.heap import keep_flat
from server.workers.instance import OneShotInstance, StreamingInstance, build, resolve_device, use_threads
from server.workers.lone_turns import run_lone_turns
from server.workers.orders import BatchOutcome, Load, Loaded, ModelSource, Order, Prepare, Prepared, Refused, Reply
from server.workers.slot_step import SlotInstance
from server.workers.state_store import initial_values
from server.workers.tensor_instance import TensorInstance, TensorStreamingInstance, check_ragged
from server.workers.unpinned_instance import UnpinnedInstance

NICENESS: Final = 10
"""Of a model without state on the CPU. The operating system then takes cores from it in mid-slice for live steps and
gives it those that they leave idle, which the gate's pauses would not."""

logger = logging.getLogger(__name__)


class Host:
    """Carries out orders, one at a time, in the thread that calls it."""

    def __init__(self, gate: DeviceGate, *, may_nice: bool) -> None:
        self._gate = gate
        self._may_nice = may_nice
        self._is_nice = False
        self._load: Load | None = None
        self._device = ""
        self._model: Model | None = None
        self._run_plan: Callable[[BatchPlan], BatchOutcome] | None = None
        self._run_requests: Callable[[RequestBatch], BatchOutcome] | None = None

    def carry_out(self, order: Order) -> Reply:
        """The reply to an order. Errors come back as ``Refused`` or ``BatchFailure``."""
        if isinstance(order, BatchPlan):
            assert self._run_plan is not None, "a plan before a sequence model is prepared"
            return self._run_plan(order)
        if isinstance(order, RequestBatch):
            assert self._run_requests is not None, "a batch before a model without state is prepared"
            return self._run_requests(order)
        try:
            if isinstance(order, Probe):
                assert self._model is not None, "a model is probed after it is loaded"
                return probe(self._model, self._device, order)
            return self._load_model(order) if isinstance(order, Load) else self._prepare(order)
        except Exception as error:
            if isinstance(order, Load) and isinstance(error, ValueError | WeightsError):
                # settings or files, and the words say how to correct them: a traceback would only hide them
                return Refused(error=str(error), is_configuration=True)
            logger.exception("%s failed", type(order).__name__)
            return Refused(error=f"{type(error).__name__}: {error}", is_configuration=False)

    def _load_model(self, order: Load) -> Loaded:
        keep_flat()
        use_threads(order.threads)
        self._load, self._device = order, resolve_device(order.device, order.instance)
        self._model = build(_optimized(order.source, order.optimize), self._device)
        spec = self._model.spec
        check_spec(spec, order)
        is_stateless = isinstance(self._model, OneShotModel | TensorModel)
        if is_stateless and self._device == "cpu" and self._may_nice:
            os.nice(NICENESS)
            self._is_nice = True
        return Loaded(
            model=spec.name,
            scheduler=spec.scheduler.value if spec.scheduler is not None else "",
            device=self._device,
            tick_samples=spec.tick_samples,
            lookahead_samples=spec.lookahead_samples,
            slot_bytes=spec.slot_bytes(),
            precision=spec.precision,
            inputs=dict(spec.inputs),
            outputs=dict(spec.outputs),
            optimizations=spec.optimizations,
            optimize=spec.optimize,
            max_ticks=spec.max_ticks,
        )

    def _prepare(self, order: Prepare) -> Prepared:
        batches = tuple(sorted({1, *order.batches}))
        match self._model:
            case StreamingModel() as model:
                return self._prepare_streaming(model, replace(order, batches=batches))
            case TensorStreamingModel() as model:
                return self._prepare_turns(model, order.slots, batches)
            case OneShotModel() as model:
                return self._prepare_one_shot(model, batches)
            case TensorModel() as model:
                return self._prepare_tensors(model, order.slots, batches)
        raise AssertionError("a model is prepared after it is loaded, and is of one of four kinds")

    def _prepare_streaming(self, model: StreamingModel, order: Prepare) -> Prepared:
        slots, streams, is_warm = order.slots, None, frozenset[int]()
        if slots == 0:
            measured = measure_streams(model, self._device, order.limits)
            streams, slots = measured.streams, order.limits.slots(measured.streams, self._device)
            is_warm = measured.batches if model.spec.optimize == "none" else is_warm
        kind = UnpinnedInstance if self._is_unpinned else StreamingInstance
        instance = kind(model, slots, self._device)
        warm_up(instance, model.spec, [size for size in order.batches if size <= slots and size not in is_warm])
        return self._serve_steps(instance, streams)

    def _prepare_turns(self, model: TensorStreamingModel, slots: int, batches: tuple[int, ...]) -> Prepared:
        slots = batches[-1] if self._is_unpinned else slots
        instance = TensorStreamingInstance(model, slots, self._device)
        instance.warm_up(size for size in batches if size <= slots)
        if self._is_unpinned:
            self._run_requests = partial(run_lone_turns, instance)
            return Prepared(slots=0, streams=None, state_bytes=instance.store.n_bytes)
        return self._serve_steps(instance, None)

    def _serve_steps(self, instance: SlotInstance, streams: int | None) -> Prepared:
        assert self._load is not None, "a model is prepared before it is loaded"
        place = self._load.gate
        self._gate.place(place, self._device)

        def run(plan: BatchPlan) -> BatchOutcome:
            self._gate.enter(place)
            try:
                return instance.run_step(plan)
            finally:
                self._gate.leave(place)

        self._run_plan = run
        store = instance.store
        return Prepared(slots=store.slots, streams=streams, state_bytes=store.n_bytes, cache_bytes=store.cache_bytes)

    def _prepare_one_shot(self, model: OneShotModel, batches: tuple[int, ...]) -> Prepared:
        assert self._load is not None, "a model is prepared before it is loaded"
        place = self._load.gate
        instance = OneShotInstance(model, self._give_way, lambda plan_id: self._gate.is_abandoned(place, plan_id))
        instance.warm_up(speech(seconds=2.0), batches[:1])
        instance.warm_up(speech(seconds=0.5), batches[1:])
        self._run_requests = instance.run_batch
        return Prepared(slots=0, streams=None)

    def _prepare_tensors(self, model: TensorModel, slots: int, batches: tuple[int, ...]) -> Prepared:
        instance = TensorInstance(model, self._device)
        instance.warm_up(batches)
        self._run_requests, self._run_plan = instance.run_batch, instance.run_step
        return Prepared(slots=slots, streams=None)

    @property
    def _is_unpinned(self) -> bool:
        """Whether the dynamic batcher has a model that keeps state."""
        assert self._load is not None, "a model is prepared before it is loaded"
        assert self._model is not None, "a model is prepared before it is loaded"
        return self._load.unpinned or self._model.spec.scheduler is Scheduler.DYNAMIC

    def _give_way(self) -> None:
        """Between two slices of a one-shot batch: live steps first."""
        if not self._is_nice:
            self._gate.pause(self._device)


def check_spec(spec: ModelSpec, order: Load) -> None:
    """Whether the service can keep what the model declares.

    Raises:
        ValueError: It cannot, or the model does not do with its kernels what it was asked to.
    """
    initial_values(spec)
    check_ragged(spec)
    if order.optimize not in ("", spec.optimize):
        allowed = ", ".join(spec.optimizations)
        raise ValueError(f"{spec.name} does not take optimize = {order.optimize!r}; here it takes {allowed}")


def _optimized(source: ModelSource, optimize: str) -> ModelSource:
    """The model's options with what is asked of its kernels; nothing is said to a model of which nothing is asked.

    Raises:
        ValueError: It is known to take no such kernels.
    """
    if optimize in ("", "none"):
        return source
    if source.name in DECLARED and source.factory is None:
        check_optimize(source.name, optimize)
    return replace(source, options={**source.options, "optimize": optimize})
