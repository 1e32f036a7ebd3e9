"""The Prometheus page, rendered from snapshots when it is asked for; nothing is counted here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from server.stats import EngineStats, HistogramSnapshot, StepStats

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStats:
    """What the gateway has done."""

    connections: int = 0
    """Websockets open now."""
    connections_opened: int = 0
    connections_closed: Mapping[str, int] = field(default_factory=dict)
    """By close code; ``abort`` where none was exchanged."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Upgrades refused before the engine was asked, by error code."""
    received_bytes: int = 0
    """Of audio, as clients send it."""


class ServiceCollector(Collector):
    """Families out of the snapshots of engine and gateway."""

    def __init__(self, engine: Callable[[], EngineStats], gateway: Callable[[], GatewayStats]) -> None:
        self._engine = engine
        self._gateway = gateway

    def collect(self) -> Iterator[Family]:
        """All families, from one snapshot each."""
        engine, gateway = self._engine(), self._gateway()
        yield from _sequences(engine)
        yield from _models(engine)
        yield from _steps(engine)
        yield from _finals(engine)
        yield from _connections(gateway)
        refusals = dict(engine.refusals)
        for reason, count in gateway.refusals.items():
            refusals[reason] = refusals.get(reason, 0) + count
        yield _counter("moorage_refusals", "Sequences refused before they began.", "reason", refusals)


def metrics_page(collector: ServiceCollector) -> Callable[[], bytes]:
    """A renderer over a registry of its own: two services in one process do not meet."""
    registry = CollectorRegistry()
    registry.register(collector)
    return lambda: generate_latest(registry)


def _sequences(stats: EngineStats) -> Iterator[Family]:
    yield _gauge("moorage_ready", "1 while new sequences are taken.", int(stats.is_ready))
    yield _gauge("moorage_sequences_live", "Sequences open now.", stats.sequences_live)
    yield _total("moorage_sequences_started", "Sequences opened.", stats.sequences_started)
    yield _counter("moorage_sequences_ended", "Sequences ended, by cause.", "cause", stats.sequences_ended)
    yield _counter("moorage_utterances", "Utterances ended, by cause.", "cause", stats.utterances)
    yield _total("moorage_audio_seconds", "Audio taken in, in seconds.", stats.audio_s)
    free = stats.slots_total - stats.slots_used - stats.slots_quarantined
    slots = {"free": free, "used": stats.slots_used, "quarantined": stats.slots_quarantined}
    family = GaugeMetricFamily("moorage_slots", "Slots of all live instances, by state.", labels=["state"])
    for state, count in slots.items():
        family.add_metric([state], count)
    yield family
    yield _total("moorage_stale_results", "Results dropped because their slot had a new tenant.", stats.stale_results)


def _models(stats: EngineStats) -> Iterator[Family]:
    instances = GaugeMetricFamily("moorage_instances", "Loaded model copies, by state.", labels=["model", "state"])
    restarts = CounterMetricFamily("moorage_instance_restarts", "Instances started again.", labels=["model"])
    for model in stats.models:
        instances.add_metric([model.name, "ready"], model.instances_ready)
        instances.add_metric([model.name, "down"], model.instances - model.instances_ready)
        restarts.add_metric([model.name], model.instances_restarted)
    yield instances
    yield restarts


def _steps(stats: EngineStats) -> Iterator[Family]:
    names = {model.role: model.name for model in stats.models}
    by_model: dict[str, StepStats] = {names.get("live", "live"): stats.live}
    if stats.final is not None:
        by_model[names.get("final", "final")] = stats.final
    queue = _histogram("moorage_queue_seconds", "Audio complete until its batch is planned, per row.")
    step = _histogram("moorage_step_seconds", "One batch on the instance.")
    size = _histogram("moorage_batch_size", "Rows of a batch.")
    failures = CounterMetricFamily("moorage_step_failures", "Batches that did not run.", labels=["model"])
    row_failures = CounterMetricFamily("moorage_row_failures", "Rows that failed alone.", labels=["model"])
    for model, steps in by_model.items():
        for family, histogram in ((queue, steps.queue_s), (step, steps.step_s), (size, steps.batch_size)):
            family.add_metric([model], _buckets(histogram), histogram.total)
        failures.add_metric([model], steps.failures)
        row_failures.add_metric([model], steps.row_failures)
    yield from (queue, step, size, failures, row_failures)
    yield from _work(by_model)


def _work(by_model: Mapping[str, StepStats]) -> Iterator[Family]:
    """What the models count of their own work: moorage_encoder_frames_total and so on."""
    for name in sorted({name for steps in by_model.values() for name in steps.counters}):
        family = CounterMetricFamily(f"moorage_{name}", f"Work of the models: {name}.", labels=["model"])
        for model, steps in by_model.items():
            if name in steps.counters:
                family.add_metric([model], steps.counters[name])
        yield family


def _finals(stats: EngineStats) -> Iterator[Family]:
    yield _gauge("moorage_finals_waiting", "Utterances whose final text is pending.", stats.finals_waiting)
    yield _counter(
        "moorage_finals_replaced", "Finals that had to be the live text, by reason.", "reason", stats.finals_replaced
    )


def _connections(stats: GatewayStats) -> Iterator[Family]:
    yield _gauge("moorage_connections", "Websockets open now.", stats.connections)
    yield _total("moorage_connections_opened", "Websockets opened.", stats.connections_opened)
    yield _counter("moorage_connections_closed", "Websockets closed, by code.", "code", stats.connections_closed)
    yield _total("moorage_received_bytes", "Bytes of audio as clients send it.", stats.received_bytes)


def _gauge(name: str, text: str, value: float) -> Family:
    return GaugeMetricFamily(name, text, value=value)


def _total(name: str, text: str, value: float) -> Family:
    return CounterMetricFamily(name, text, value=value)


def _counter(name: str, text: str, label: str, values: Mapping[str, int]) -> Family:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, text, labels=["model"])


def _buckets(histogram: HistogramSnapshot) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in histogram.upper_bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
