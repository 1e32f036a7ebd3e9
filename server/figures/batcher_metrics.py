"""The families of the schedulers: lines for slots, evictions, padding, requests, shared resources."""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from server.batching.dynamic_config import DynamicBatcherStats
from server.batching.sequence_stats import BatcherStats
from server.figures.stats import EngineStats, HistogramSnapshot, ModelStats, StepStats

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

SEQUENCE_GAUGES: Final[Mapping[str, tuple[str, Callable[[BatcherStats], float]]]] = {
    "moorage_backlog": ("Sequences that wait for a slot.", lambda stats: stats.backlog),
    "moorage_backlog_oldest_seconds": (
        "How long the sequence that has waited longest for a slot waits by now.",
        lambda stats: stats.backlog_oldest_ns / 1e9,
    ),
    "moorage_ready_rows": ("Rows that could run now.", lambda stats: stats.ready_rows),
}
SEQUENCE_COUNTERS: Final[Mapping[str, tuple[str, Callable[[BatcherStats], float]]]] = {
    "moorage_sequences_queued": ("Sequences that had to wait for a slot.", lambda stats: stats.queued),
    "moorage_sequences_idle": ("Sequences found idle, and ended for it.", lambda stats: stats.idle),
    "moorage_sequence_restarts": ("Sequences started again under their id.", lambda stats: stats.restarts),
    "moorage_padded_slots": ("Slots that direct steps ran over without a row.", lambda stats: stats.padded_slots),
    "moorage_catch_up_ticks": ("Ticks read beyond the first of their row.", lambda stats: stats.catch_up_ticks),
    "moorage_late_rows": ("Rows answered after their deadline.", lambda stats: stats.late_rows),
}


def batcher_families(stats: EngineStats) -> Iterator[Family]:
    """All of them."""
    labels = {model.role: model.label for model in stats.models}
    yield from _sequences({labels.get(name, name): each for name, each in stats.sequence_batchers.items()})
    yield from _requests({labels.get(name, name): each for name, each in stats.request_batchers.items()})
    yield from _outcomes(_steps_by_label(stats, labels))
    yield from _models(stats.models)
    if stats.resources is not None:
        family = GaugeMetricFamily("moorage_resource", "Shared resources, by state.", labels=["resource", "state"])
        for name, total in stats.resources.totals.items():
            used = stats.resources.in_use.get(name, 0)
            family.add_metric([name, "used"], used)
            family.add_metric([name, "free"], total - used)
        yield family
        text = "Instances that would run if there were enough of a resource."
        yield GaugeMetricFamily("moorage_resource_waiting", text, value=stats.resources.waiting)


def steps_by_label(stats: EngineStats) -> dict[str, StepStats]:
    """The figures of every model's batches, by its label."""
    return _steps_by_label(stats, {model.role: model.label for model in stats.models})


def _steps_by_label(stats: EngineStats, labels: Mapping[str, str]) -> dict[str, StepStats]:
    steps = {labels.get("live", "live"): stats.live}
    if stats.final is not None:
        steps[labels.get("final", "final")] = stats.final
    return steps | dict(stats.further)


def _sequences(batchers: Mapping[str, BatcherStats]) -> Iterator[Family]:
    for name, (text, value) in SEQUENCE_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=["model"])
        for model, stats in batchers.items():
            gauge.add_metric([model], value(stats))
        yield gauge
    for name, (text, value) in SEQUENCE_COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=["model"])
        for model, stats in batchers.items():
            counter.add_metric([model], value(stats))
        yield counter
    text = "Sequences that gave their slot, or their place in line, back, by cause."
    ended = CounterMetricFamily("moorage_slots_vacated", text, labels=["model", "cause"])
    for model, stats in batchers.items():
        for cause, count in sorted(stats.ended.items()):
            ended.add_metric([model, cause], count)
    yield ended


def _requests(batchers: Mapping[str, DynamicBatcherStats]) -> Iterator[Family]:
    waiting = GaugeMetricFamily(
        "moorage_requests_waiting", "Requests that wait for their batch, by level.", labels=["model", "level"]
    )
    late = CounterMetricFamily("moorage_late_requests", "Requests answered after their deadline.", labels=["model"])
    for model, stats in batchers.items():
        for level, count in enumerate(stats.queued_by_level, start=1):
            waiting.add_metric([model, str(level)], count)
        late.add_metric([model], stats.late)
    yield from (waiting, late)


def _outcomes(steps: Mapping[str, StepStats]) -> Iterator[Family]:
    requests = CounterMetricFamily(
        "moorage_model_requests", "Requests that have ended, by outcome.", labels=["model", "outcome"]
    )
    wait = HistogramMetricFamily(
        "moorage_slot_wait_seconds", "How long a sequence that had to wait for a slot waited.", labels=["model"]
    )
    for model, stats in steps.items():
        for outcome, count in sorted(stats.outcomes.items()):
            requests.add_metric([model, outcome], count)
        if stats.slot_wait_s.upper_bounds:
            wait.add_metric([model], buckets(stats.slot_wait_s), stats.slot_wait_s.total)
    yield from (requests, wait)


def _models(models: tuple[ModelStats, ...]) -> Iterator[Family]:
    wrong = GaugeMetricFamily(
        "moorage_wrong_scheduler", "1 where a model is served by the scheduler that it cannot have.", labels=["model"]
    )
    state = GaugeMetricFamily("moorage_state_bytes", "Memory that the state of all slots takes.", labels=["model"])
    cache = GaugeMetricFamily(
        "moorage_cache_bytes",
        "Memory that caches which grow with their sequences share, by state.",
        labels=["model", "state"],
    )
    ending = GaugeMetricFamily(
        "moorage_copies_ending", "Replaced copies that still have sequences or requests.", labels=["model"]
    )
    for model in models:
        wrong.add_metric([model.label], int(model.is_wrong_scheduler))
        if model.state_bytes:
            state.add_metric([model.label], model.state_bytes)
        if model.cache_bytes:
            cache.add_metric([model.label, "used"], model.cache_bytes_used)
            cache.add_metric([model.label, "free"], model.cache_bytes - model.cache_bytes_used)
        ending.add_metric([model.label], model.copies_ending)
    yield from (wrong, state, cache, ending)


def buckets(histogram: HistogramSnapshot) -> list[tuple[str, float]]:
    """A histogram as the page has it: cumulated."""
    bounds = [*(str(bound) for bound in histogram.upper_bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
