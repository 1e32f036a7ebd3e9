"""What the engine is told: its models and the bounds of what it keeps; from that, what pools and batchers are told."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from server.audit.auditor import AuditSettings
from server.batching.dynamic_config import DynamicBatcherConfig
from server.batching.request_queue import QueueLevel, TimeoutAction
from server.batching.sequence_config import DuplicateStart, SequenceBatcherConfig, Strategy
from server.engine.model_settings import (
    FinalSettings,
    InstanceGroup,
    LiveSettings,
    ModelSettings,
    TensorSettings,
)
from server.workers.batch_buckets import batch_buckets
from server.workers.orders import Loaded, LoadLimits
from server.workers.pool_settings import Placement, PoolSettings
from server.workers.worker import WorkerKind

__all__ = ["SAMPLE_RATE", "EngineConfig", "FinalSettings", "InstanceGroup", "LiveSettings", "TensorSettings"]

SAMPLE_RATE: Final = 16_000
STEP_LIMIT_S: Final = 30.0
"""A live step that takes longer hangs: it takes a fraction of a second."""
FINAL_WORK: Final = 0.58
"""Work of the final pass over a second of speech, in parts of what live reading takes: 2.6 against 4.5 GFLOP."""
FINAL_LIMIT_S: Final = 300.0
"""The same for a final batch, which gives way to live steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The whole engine."""

    live: LiveSettings
    final: FinalSettings | None
    """None: the live text is the final text."""
    models: tuple[TensorSettings, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    """How much there is of each."""
    sentiment: str = ""
    """Which of ``models`` tells how finals sound; "": none does."""
    worker_kind: WorkerKind = WorkerKind.PROCESS
    idle_timeout_s: float = 10.0
    """Time without audio or keep-alive after which a sequence ends; 0: never."""
    max_finals: int = 256
    """Finals of one sequence, pending or unread, above which its sender waits."""
    max_utterance_s: float = 60.0
    """Audio that is kept for one sequence's next final pass at most; a longer utterance keeps its live text."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    """How many finished sequences are decoded again; unless it is told, none."""
    unload_limit_s: float = 25.0
    """Time for the sequences and requests of a model that is unloaded to come to their ends; then they fail."""

    def live_pool(self) -> PoolSettings:
        """The live model's workers."""
        return PoolSettings(
            role="live",
            scheduler=self.live.scheduler,
            source=self.live.source,
            placements=self._placements(self.live),
            slots=self.live.slots,
            limits=replace(self.live.limits, cpu_share=self._cpu_share()),
            plan_limit_s=STEP_LIMIT_S,
            worker_kind=self.worker_kind,
            optimize=self.live.optimize,
            batches=batch_buckets(self.live.limits.max_batch, self.live.preferred_sizes),
            allow_wrong_scheduler=self.live.allow_wrong_scheduler,
        )

    def final_pool(self, final: FinalSettings) -> PoolSettings:
        """The final model's workers."""
        return PoolSettings(
            role="final",
            scheduler=final.scheduler,
            source=final.source,
            placements=self._placements(final),
            slots=0,
            limits=self.live.limits,
            plan_limit_s=FINAL_LIMIT_S,
            worker_kind=self.worker_kind,
            optimize=final.optimize,
            batches=batch_buckets(final.target_size, final.preferred_sizes),
            allow_wrong_scheduler=final.allow_wrong_scheduler,
        )

    def tensor_pool(self, model: TensorSettings) -> PoolSettings:
        """The workers of a further model."""
        return PoolSettings(
            role=model.name,
            scheduler=model.scheduler,
            source=model.source,
            placements=self._placements(model),
            slots=model.slots,
            limits=LoadLimits(max_slots=model.slots, max_batch=model.max_batch),
            plan_limit_s=FINAL_LIMIT_S,
            worker_kind=self.worker_kind,
            optimize=model.optimize,
            batches=batch_buckets(model.max_batch, model.preferred_sizes),
            allow_wrong_scheduler=model.allow_wrong_scheduler,
        )

    def live_batcher(
        self, declared: Loaded, slots: int | tuple[int, ...], devices: tuple[str, ...] = ()
    ) -> SequenceBatcherConfig:
        """The sequence batcher for a model with these ticks and instances with so many slots on these devices."""
        live = self.live
        first_tick_samples = declared.tick_samples + declared.lookahead_samples
        return SequenceBatcherConfig(
            instances=len(live.places),
            slots=slots,
            devices=devices,
            tick_samples=declared.tick_samples,
            lookahead_samples=declared.lookahead_samples,
            max_batch=live.limits.max_batch,
            strategy=Strategy(live.strategy),
            max_delay_ns=_ns(live.max_delay_ms),
            preferred_sizes=live.preferred_sizes,
            min_slot_utilisation=live.min_slot_utilisation,
            max_ticks=live.max_ticks,
            deadline_ns=_ns(live.deadline_ms),
            flush_deadline_ns=_ns(live.flush_deadline_ms or live.deadline_ms),
            lead_ns=_ns(live.lead_ms),
            max_queued_samples=max(first_tick_samples, round(live.max_queued_s * SAMPLE_RATE)),
            backlog=live.backlog,
            backlog_levels=live.backlog_levels,
            backlog_wait_ns=round(live.backlog_wait_s * 1e9),
            idle_timeout_ns=round(self.idle_timeout_s * 1e9),
        )

    def final_batcher(self, final: FinalSettings) -> DynamicBatcherConfig:
        """The dynamic batcher of utterances, with recordings behind them."""
        levels = [
            QueueLevel(
                max_queued=final.max_queued,
                timeout_ns=_ns(final.timeout_ms),
                timeout_action=TimeoutAction(final.timeout_action),
            )
        ]
        if final.recordings_max_queued:
            levels.append(QueueLevel(max_queued=final.recordings_max_queued))
        return DynamicBatcherConfig(
            instances=len(final.places),
            target_size=final.target_size,
            window_ns=_ns(final.window_ms),
            max_batch_samples=round(final.max_batch_s * SAMPLE_RATE),
            preferred_sizes=final.preferred_sizes,
            levels=tuple(levels),
        )

    def _cpu_share(self) -> float:
        """Part of the streams that live instances on a CPU hold by themselves, which is left once final passes take
        their part of the cores. Where there are cores for both, that is all of them.
        """
        if self.final is None or all(place.device.startswith("cuda") for place in self.final.places):
            return 1.0
        live_cores = min(_usable_cores(), sum(place.threads for place in self._placements(self.live)))
        return min(1.0, _usable_cores() / (live_cores * (1.0 + FINAL_WORK)))

    def _placements(self, model: ModelSettings) -> tuple[Placement, ...]:
        models = [each for each in (self.live, self.final, *self.models) if each is not None]
        share = max(1, _usable_cores() // sum(len(each.places) for each in models))
        return tuple(Placement(device=place.device, threads=place.threads or share) for place in model.places)


def turn_batcher(
    model: TensorSettings, declared: Loaded, slots: tuple[int, ...], devices: tuple[str, ...]
) -> SequenceBatcherConfig:
    """The sequence batcher of a model that takes tensors, over instances with so many slots on these devices."""
    return SequenceBatcherConfig(
        instances=len(slots),
        slots=slots,
        devices=devices,
        tick_samples=1,
        lookahead_samples=0,
        max_batch=model.max_batch,
        takes_turns=True,
        strategy=Strategy(model.strategy),
        max_delay_ns=_ns(model.max_delay_ms),
        preferred_sizes=model.preferred_sizes,
        min_slot_utilisation=model.min_slot_utilisation,
        deadline_ns=_ns(model.deadline_ms),
        ragged=declared.ragged,
        max_queued_turns=model.max_queued_turns,
        duplicate_start=DuplicateStart.RESTART,
        backlog=model.backlog,
        backlog_wait_ns=round(model.backlog_wait_s * 1e9),
        idle_timeout_ns=round(model.idle_timeout_s * 1e9),
    )


def tensor_batcher(model: TensorSettings, declared: Loaded) -> DynamicBatcherConfig:
    """The dynamic batcher of a model that takes tensors."""
    level = QueueLevel(
        max_queued=model.max_queued,
        timeout_ns=_ns(model.timeout_ms),
        timeout_action=TimeoutAction(model.timeout_action),
        deadline_ns=_ns(model.deadline_ms),
    )
    return DynamicBatcherConfig(
        instances=len(model.places),
        target_size=model.max_batch,
        window_ns=_ns(model.max_delay_ms),
        preferred_sizes=model.preferred_sizes,
        levels=(level,) * model.priority_levels,
        default_level=model.default_priority_level,
        preserve_ordering=model.preserve_ordering,
        ragged=declared.ragged,
    )


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
