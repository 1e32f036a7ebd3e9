"""The bare loop: a model in a process of its own, and nothing else. Steps as the service's workers run them.

Its imports wait until a process runs it, so that the benchmark itself does not load torch.
"""

import os
import signal
import time
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, cast

import numpy as np

from clients.bench.bare_orders import (
    BareOrder,
    BareReply,
    Failed,
    LoadModel,
    ModelLoaded,
    RunTicks,
    RunUtterances,
    TicksRun,
    UtterancesRun,
)
from clients.transcribe.audio_file import Samples

if TYPE_CHECKING:
    from asr_model.contract import Model
    from server.workers.instance import OneShotInstance, StreamingInstance


def bare_main(pipe: "Pipe[BareReply, BareOrder]") -> None:
    """Carries out orders until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as a worker of the service; before torch is loaded
    loop = BareLoop()
    with pipe:
        while True:
            try:
                pipe.send(loop.carry_out(pipe.recv()))
            except (EOFError, OSError):
                return


class BareLoop:
    """One model."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._device = ""
        self._track: Samples = np.empty(0, np.float32)

    def carry_out(self, order: BareOrder) -> BareReply:
        """The reply to an order; whatever goes wrong comes back as ``Failed``."""
        try:
            match order:
                case LoadModel():
                    return self._load(order)
                case RunTicks():
                    return self._run_ticks(order)
                case RunUtterances():
                    return self._run_utterances(order)
        except Exception as error:
            return Failed(error=f"{type(error).__name__}: {error}")

    def _load(self, order: LoadModel) -> ModelLoaded:
        from server.workers.heap import keep_flat
        from server.workers.instance import build, resolve_device, use_threads

        keep_flat()
        use_threads(order.threads)
        self._device = resolve_device(order.device, order.instance)
        self._model = build(order.source, self._device)
        self._track = order.track
        spec = self._model.spec
        return ModelLoaded(
            device=self._device,
            tick_samples=spec.tick_samples,
            lookahead_samples=spec.lookahead_samples,
            slot_bytes=spec.slot_bytes(),
        )

    def _run_ticks(self, order: RunTicks) -> TicksRun:
        from asr_model.contract import StreamingModel
        from server.workers.instance import StreamingInstance

        model = cast(StreamingModel, self._model)
        instance = StreamingInstance(model, len(order.offsets), self._device)
        step_ns: list[int] = []
        begin_ns = time.perf_counter_ns()
        first, last = 0, 0
        for tick in range(order.settle_ticks + order.timed_ticks):
            first, last = last, (tick + 1) * model.spec.tick_samples + model.spec.lookahead_samples
            audio = tuple(self._excerpt(offset + first, last - first) for offset in order.offsets)
            started_ns = time.perf_counter_ns()
            _step(instance, first, audio)
            took_ns = time.perf_counter_ns() - started_ns
            if tick < order.settle_ticks:
                continue
            step_ns.append(took_ns)
            if time.perf_counter_ns() - begin_ns > order.limit_ns:
                break
        return TicksRun(step_ns=tuple(step_ns))

    def _run_utterances(self, order: RunUtterances) -> UtterancesRun:
        from asr_model.contract import OneShotModel
        from server.workers.instance import OneShotInstance

        instance = OneShotInstance(cast(OneShotModel, self._model), lambda: None)
        audio = [self._track[first:last] for first, last in order.utterances]
        instance.warm_up(audio[0])
        size = order.target_size
        total_ns = sum(_batch(instance, audio[start : start + size]) for start in range(0, len(audio), size))
        return UtterancesRun(n_utterances=len(audio), total_ns=total_ns)

    def _excerpt(self, first_sample: int, n_samples: int) -> Samples:
        excerpt: Samples = self._track[(first_sample + np.arange(n_samples)) % len(self._track)]
        return excerpt


def _step(instance: "StreamingInstance", first_sample: int, audio: tuple[Samples, ...]) -> None:
    """One tick of every row.

    Raises:
        RuntimeError: The step or a row failed.
    """
    from server.ids import InstanceIndex, SequenceId, SlotIndex
    from server.plan import BatchFailure, BatchPlan, BatchRow

    rows = tuple(
        BatchRow(
            slot=SlotIndex(index),
            generation=0,
            sequence_id=SequenceId(f"bare-{index}"),
            start=first_sample == 0,
            flush=False,
            end=False,
            first_sample=first_sample,
            n_samples=len(samples),
            ready_at_ns=0,
        )
        for index, samples in enumerate(audio)
    )
    outcome = instance.run_step(BatchPlan(plan_id=0, instance=InstanceIndex(0), rows=rows, audio=audio))
    if isinstance(outcome, BatchFailure):
        raise RuntimeError(f"a step failed: {outcome.error}")
    errors = [row.error for row in outcome.rows if row.error is not None]
    if errors:
        raise RuntimeError(f"a row failed: {errors[0]}")


def _batch(instance: "OneShotInstance", audio: list[Samples]) -> int:
    """Nanoseconds that a batch took.

    Raises:
        RuntimeError: It failed.
    """
    from server.ids import InstanceIndex, RequestId
    from server.plan import BatchFailure, Request, RequestBatch

    requests = tuple(Request(request_id=RequestId(i), payload=samples) for i, samples in enumerate(audio))
    batch = RequestBatch(plan_id=0, instance=InstanceIndex(0), requests=requests, queued_at_ns=(0,) * len(requests))
    outcome = instance.run_batch(batch)
    if isinstance(outcome, BatchFailure):
        raise RuntimeError(f"a batch failed: {outcome.error}")
    return outcome.step_ns
