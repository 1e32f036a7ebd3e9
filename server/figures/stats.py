"""Snapshots of what the engine has done, as frozen plain data: the metrics page renders them, nobody changes them.

Pure: no clock, no locks. Histograms are bounded by their fixed buckets, counters by the words that the code counts.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from server.audit.auditor import AuditStats
from server.batching.dynamic_config import DynamicBatcherStats
from server.batching.resources import ResourceStats
from server.batching.sequence_stats import BatcherStats

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.24, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds for durations; 0.24 is one tick."""
DELAYS: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Upper bounds for what people wait for."""
BATCH_SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramSnapshot:
    """A histogram at one moment."""

    upper_bounds: tuple[float, ...]
    """Ascending; a value equal to a bound counts below it."""
    counts: tuple[int, ...]
    """Values per bucket, not cumulated; one longer than ``upper_bounds``, the last for what is above all of them."""
    total: float
    """Sum of all values."""

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)


NOTHING_MEASURED: Final = HistogramSnapshot(upper_bounds=(), counts=(0,), total=0.0)


class Histogram:
    """Counts values in fixed buckets: memory does not grow with use."""

    __slots__ = ("_counts", "_total", "_upper_bounds")

    def __init__(self, upper_bounds: tuple[float, ...]) -> None:
        self._upper_bounds = upper_bounds
        self._counts = [0] * (len(upper_bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self._counts[bisect_left(self._upper_bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        """What was counted so far."""
        return HistogramSnapshot(upper_bounds=self._upper_bounds, counts=tuple(self._counts), total=self._total)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStats:
    """One configured model."""

    role: str
    """``live`` or ``final``."""
    name: str
    scheduler: str
    """``sequence`` or ``dynamic``."""
    device: str
    instances: int
    instances_ready: int
    instances_restarted: int
    slots: int
    """Slots of each instance; 0 for a model without state."""
    slot_bytes: int
    streams: int | None
    """Real-time streams an instance was measured to hold; None if not measured."""
    precision: str = ""
    """Number format of its weights and products, as ``float32``; empty until it is loaded."""
    tick_s: float = 0.0
    """Audio of one tick; 0 for a model without state."""
    devices: tuple[str, ...] = ()
    """Of each instance that is loaded."""
    instance_slots: tuple[int, ...] = ()
    """Slots of each instance that is prepared."""
    state_bytes: int = 0
    """Memory that the state of all slots of all instances takes."""
    state: str = "READY"
    """``READY``, ``LOADING`` or ``UNAVAILABLE``."""
    declared_scheduler: str = ""
    """What the model says; "": nothing, or it is not loaded yet."""
    configured_scheduler: str = ""
    """What the configuration says; "": as the model declares."""
    is_wrong_scheduler: bool = False
    """Whether ``scheduler`` contradicts what is known of the model, which somebody has allowed: answers are wrong."""
    proved_scheduler: str = ""
    """What the probe found that it needs; "": nothing yet, or it could not tell."""
    evidence: tuple[str, ...] = ()
    """What that rests on, in words."""
    strategy: str = ""
    """Of the sequence batcher: ``oldest`` or ``direct``."""
    optimize: str = "none"
    """Kernels in use; they change no scheduling."""
    optimizations: tuple[str, ...] = ()
    """What ``optimize`` may be on these devices."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What a batch takes of the shared resources."""
    preferred_sizes: tuple[int, ...] = ()
    backlog_limit: int = 0
    """Sequences that may wait for a slot."""
    copies_ending: int = 0
    """Copies that were replaced and still have sequences or requests."""

    @property
    def label(self) -> str:
        """In metrics."""
        return self.name if self.role in ("live", "final") else self.role

    cache_bytes: int = 0
    """Of it, what caches that grow share."""
    cache_bytes_used: int = 0
    """Of that, what sequences held after the last steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one model's batches did."""

    queue_s: HistogramSnapshot
    """Per row or request: its audio is complete → its batch is planned."""
    step_s: HistogramSnapshot
    """Per batch: time on the instance."""
    batch_size: HistogramSnapshot
    failures: int
    """Batches that did not run to their end."""
    row_failures: int
    """Rows that failed alone."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Sums of the model's own: encoder_frames, cross_frames, decoder_passes, decoder_positions, …"""
    busy_s: Mapping[int, float] = field(default_factory=dict)
    """Per instance: seconds spent on batches."""
    slot_wait_s: HistogramSnapshot = NOTHING_MEASURED
    """Per sequence that had to wait for a slot and got one: how long that took."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Requests by what became of them: ``completed``, ``cancelled`` or an error code. Empty for the live model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayStats:
    """How late sequences are told things; see ``server.engine.delays``."""

    lag_s: HistogramSnapshot
    """Per result: its last sample arrived → it is there."""
    max_lag_s: float
    """Longest wait of a complete tick now."""
    word_shown_s: HistogramSnapshot
    word_committed_s: HistogramSnapshot
    final_s: Mapping[str, HistogramSnapshot]
    """By cause of the utterance's end: the end of its last word arrived → its final was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Everything the metrics page shows of the engine."""

    is_ready: bool
    is_loaded: bool
    """Whether the models were loaded; their instances may be lost since."""
    models: tuple[ModelStats, ...]
    live: StepStats
    final: StepStats | None
    """None where no final model is configured."""
    sequences_live: int
    sequences_started: int
    sequences_ended: Mapping[str, int]
    """By cause: ``end``, ``cancelled``, or the code of the error that ended the sequence."""
    slots_total: int
    """Of all live instances together."""
    slots_used: int
    slots_quarantined: int
    refusals: Mapping[str, int]
    """Opens that were refused, by error code."""
    utterances: Mapping[str, int]
    """Utterances that ended, by cause."""
    audio_s: float
    """Seconds of audio taken in."""
    finals_waiting: int
    """Utterances whose final text is pending."""
    finals_replaced: Mapping[str, int]
    """Utterances whose live text had to serve as final text, by reason: ``failed``, ``no_audio`` (too long to be kept),
    or the code of the batcher's refusal."""
    stale_results: int
    """Results dropped because their slot had another tenant by then."""
    delays: DelayStats
    early_finals: Mapping[str, int] = field(default_factory=dict)
    """Utterances that were read before they had ended, by outcome: ``used`` as their final, or ``wasted``."""
    recorded_s: float = 0.0
    """Seconds of recordings that were read."""
    sentiments: Mapping[str, int] = field(default_factory=dict)
    """Texts whose sentiment was asked for, by what came of it: ``told``, ``late``, ``failed`` or an error's code."""
    further: Mapping[str, StepStats] = field(default_factory=dict)
    """Of the models beside live and final, by name."""
    sequence_batchers: Mapping[str, BatcherStats] = field(default_factory=dict)
    """By role, of the copies that take new sequences."""
    request_batchers: Mapping[str, DynamicBatcherStats] = field(default_factory=dict)
    """By role, of the copies that take new requests."""
    resources: ResourceStats | None = None
    """What models share; None where nothing is configured."""
    audit: AuditStats = field(default_factory=AuditStats)
    """Of finished sequences that were decoded again."""
