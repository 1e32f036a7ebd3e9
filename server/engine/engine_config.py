"""What the engine is told: the live model, perhaps a final one, and the bounds of what it keeps. Frozen."""

import os
from dataclasses import dataclass, field, replace
from typing import Final

from server.batching.dynamic_batcher import DynamicBatcherConfig
from server.batching.sequence_batcher import SequenceBatcherConfig
from server.workers.orders import Loaded, LoadLimits, ModelSource
from server.workers.pool import PoolSettings
from server.workers.worker import WorkerKind

SAMPLE_RATE: Final = 16_000
STEP_LIMIT_S: Final = 30.0
"""A live step that takes longer hangs: it takes a fraction of a second."""
FINAL_WORK: Final = 0.58
"""Work of the final pass over a second of speech, in parts of what live reading takes: 2.6 against 4.5 GFLOP."""
FINAL_LIMIT_S: Final = 300.0
"""The same for a final batch, which gives way to live steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The live model's instances and its batcher."""

    source: ModelSource
    instances: int = 1
    device: str = "auto"
    threads: int = 0
    """CPU threads of each instance; 0: the machine's cores shared among the instances of both models."""
    slots: int = 0
    """Sequences of each instance; 0: measured."""
    limits: LoadLimits = field(default_factory=LoadLimits)
    max_delay_ms: float = 10.0
    max_queued_s: float = 10.0
    """Audio of one sequence that waits for its turn at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalSettings:
    """The final model's instances and its batcher."""

    source: ModelSource
    instances: int = 1
    device: str = "auto"
    threads: int = 0
    target_size: int = 8
    window_ms: float = 20.0
    max_queued: int = 1024
    max_batch_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The whole engine."""

    live: LiveSettings
    final: FinalSettings | None
    """None: the live text is the final text."""
    worker_kind: WorkerKind = WorkerKind.PROCESS
    idle_timeout_s: float = 10.0
    """Time without audio or keep-alive after which a sequence ends; 0: never."""
    max_finals: int = 256
    """Finals of one sequence, pending or unread, above which its sender waits."""
    max_utterance_s: float = 60.0
    """Audio that is kept for one sequence's next final pass at most; a longer utterance keeps its live text."""

    def live_pool(self) -> PoolSettings:
        """The live model's workers."""
        return PoolSettings(
            role="live",
            scheduler="sequence",
            source=self.live.source,
            instances=self.live.instances,
            device=self.live.device,
            threads=self._threads(self.live.threads),
            slots=self.live.slots,
            limits=replace(self.live.limits, cpu_share=self._cpu_share()),
            plan_limit_s=STEP_LIMIT_S,
            worker_kind=self.worker_kind,
        )

    def final_pool(self, final: FinalSettings) -> PoolSettings:
        """The final model's workers."""
        return PoolSettings(
            role="final",
            scheduler="dynamic",
            source=final.source,
            instances=final.instances,
            device=final.device,
            threads=self._threads(final.threads),
            slots=0,
            limits=self.live.limits,
            plan_limit_s=FINAL_LIMIT_S,
            worker_kind=self.worker_kind,
        )

    def live_batcher(self, declared: Loaded, slots: int) -> SequenceBatcherConfig:
        """The sequence batcher for a model with these ticks and instances with so many slots."""
        live = self.live
        first_tick_samples = declared.tick_samples + declared.lookahead_samples
        return SequenceBatcherConfig(
            instances=live.instances,
            slots=slots,
            tick_samples=declared.tick_samples,
            lookahead_samples=declared.lookahead_samples,
            max_batch=live.limits.max_batch,
            max_delay_ns=round(live.max_delay_ms * 1e6),
            max_queued_samples=max(first_tick_samples, round(live.max_queued_s * SAMPLE_RATE)),
            idle_timeout_ns=round(self.idle_timeout_s * 1e9),
        )

    def final_batcher(self, final: FinalSettings) -> DynamicBatcherConfig:
        """The dynamic batcher."""
        return DynamicBatcherConfig(
            instances=final.instances,
            target_size=final.target_size,
            window_ns=round(final.window_ms * 1e6),
            max_queued=final.max_queued,
            max_batch_samples=round(final.max_batch_s * SAMPLE_RATE),
        )

    def _cpu_share(self) -> float:
        """Part of the streams that live instances on a CPU hold by themselves, which is left once final passes take
        their part of the cores. Where there are cores for both, that is all of them.
        """
        if self.final is None or self.final.device.startswith("cuda"):
            return 1.0
        live_cores = min(_usable_cores(), self.live.instances * self._threads(self.live.threads))
        return min(1.0, _usable_cores() / (live_cores * (1.0 + FINAL_WORK)))

    def _threads(self, threads: int) -> int:
        instances = self.live.instances + (self.final.instances if self.final is not None else 0)
        return threads or max(1, _usable_cores() // instances)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
