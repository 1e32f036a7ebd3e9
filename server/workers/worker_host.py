"""The model's side of a worker: loads a model, prepares its slots, runs plans. Same code in a process and in a thread.

Only flat data comes in and goes out.
"""

import logging
import os
from collections.abc import Callable
from typing import Final, cast

from asr_model.contract import Model, OneShotModel, Scheduler, StreamingModel
from asr_model.moonshine.weights import WeightsError
from server.plan import BatchPlan, RequestBatch
from server.workers.capacity import measure_streams, speech, warm_up
from server.workers.device_gate import DeviceGate
from server.workers.heap import keep_flat
from server.workers.instance import OneShotInstance, StreamingInstance, build, resolve_device, use_threads
from server.workers.orders import BatchOutcome, Load, Loaded, Order, Prepare, Prepared, Refused, Reply

NICENESS: Final = 10
"""Of a one-shot model on the CPU. The operating system then takes cores from it in mid-slice for live steps and gives
it those that they leave idle, which the gate's pauses would not."""

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
            assert self._run_requests is not None, "a batch before a one-shot model is prepared"
            return self._run_requests(order)
        try:
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
        self._model = build(order.source, self._device)
        spec = self._model.spec
        if spec.scheduler is Scheduler.DYNAMIC and self._device == "cpu" and self._may_nice:
            os.nice(NICENESS)
            self._is_nice = True
        return Loaded(
            model=spec.name,
            scheduler=spec.scheduler.value,
            device=self._device,
            tick_samples=spec.tick_samples,
            lookahead_samples=spec.lookahead_samples,
            slot_bytes=spec.slot_bytes(),
            precision=spec.precision,
        )

    def _prepare(self, order: Prepare) -> Prepared:
        assert self._model is not None, "a model is prepared before it is loaded"
        if self._model.spec.scheduler is Scheduler.DYNAMIC:
            return self._prepare_one_shot(cast(OneShotModel, self._model))
        return self._prepare_streaming(cast(StreamingModel, self._model), order)

    def _prepare_one_shot(self, model: OneShotModel) -> Prepared:
        assert self._load is not None, "a model is prepared before it is loaded"
        index = self._load.instance
        instance = OneShotInstance(model, self._give_way, lambda plan_id: self._gate.is_abandoned(index, plan_id))
        instance.warm_up(speech(seconds=2.0))
        self._run_requests = instance.run_batch
        return Prepared(slots=0, streams=None)

    def _give_way(self) -> None:
        """Between two slices of a one-shot batch: live steps first."""
        if not self._is_nice:
            self._gate.pause(self._device)

    def _prepare_streaming(self, model: StreamingModel, order: Prepare) -> Prepared:
        assert self._load is not None, "a model is prepared before it is loaded"
        index, slots, streams = self._load.instance, order.slots, None
        if slots == 0:
            streams = measure_streams(model, self._device, order.limits)
            slots = order.limits.slots(streams, self._device)
        else:
            warm_up(model, self._device)
        instance = StreamingInstance(model, slots, self._device)
        self._gate.place(index, self._device)

        def run(plan: BatchPlan) -> BatchOutcome:
            self._gate.enter(index)
            try:
                return instance.run_step(plan)
            finally:
                self._gate.leave(index)

        self._run_plan = run
        return Prepared(slots=slots, streams=streams)
