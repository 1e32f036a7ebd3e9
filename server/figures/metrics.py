"""The Prometheus page, rendered from snapshots when it is asked for; nothing is counted here."""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from server.audit.auditor import AUDIT_OUTCOMES
from server.figures.batcher_metrics import batcher_families, buckets, steps_by_label
from server.figures.stats import DelayStats, EngineStats, StepStats

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
    key_streams: Mapping[str, int] = field(default_factory=dict)
    """Sequences open now, by name of the API key: as many as are configured."""
    codec_streams: int = 0
    """Connections whose audio is decoded in a codec process now."""
    codec_processes: int = 0
    codec_processes_lost: int = 0
    """Codec processes that died on their own."""
    http_active: int = 0
    """Requests with a body, and streams of requests, that are worked on now."""
    http_answered: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Requests below ``/v2`` and with bodies, by pattern of the address and status."""


class ServiceCollector(Collector):
    """Families out of the snapshots of engine and gateway."""

    def __init__(
        self,
        engine: Callable[[], EngineStats],
        gateway: Callable[[], GatewayStats],
        certificate_expires_at_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._gateway = gateway
        self._certificate_expires_at_s = certificate_expires_at_s
        """Of the certificate in use, since the epoch; None without TLS."""

    def collect(self) -> Iterator[Family]:
        """All families, from one snapshot each."""
        engine, gateway = self._engine(), self._gateway()
        families = list(self._families(engine, gateway))
        yield from families
        yield from _work(steps_by_label(engine), {family.name for family in families})

    def _families(self, engine: EngineStats, gateway: GatewayStats) -> Iterator[Family]:
        yield from _sequences(engine)
        yield from _models(engine)
        yield from _steps(engine)
        yield from _delays(engine.delays)
        yield from _finals(engine)
        yield from _early_finals(engine)
        yield from batcher_families(engine)
        yield from _audits(engine)
        yield from _connections(gateway)
        expires_at_s = self._certificate_expires_at_s()
        if expires_at_s is not None:
            name = "moorage_tls_certificate_expiry_timestamp_seconds"
            yield _gauge(name, "End of the certificate in use, since the epoch.", expires_at_s)
        refusals = dict(engine.refusals)
        for reason, count in gateway.refusals.items():
            refusals[reason] = refusals.get(reason, 0) + count
        yield _counter("moorage_refusals", "Sequences refused before they began.", "reason", refusals)


def metrics_page(collector: ServiceCollector) -> Callable[[], bytes]:
    """A renderer over a registry of its own: two services in one process do not meet. Where the system tells them, the
    process's own figures (memory, descriptors, CPU, start) are on the page too."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def _sequences(stats: EngineStats) -> Iterator[Family]:
    yield _gauge("moorage_ready", "1 while new sequences are taken.", int(stats.is_ready))
    yield _gauge("moorage_sequences_live", "Sequences open now.", stats.sequences_live)
    yield _total("moorage_sequences_started", "Sequences opened.", stats.sequences_started)
    yield _counter("moorage_sequences_ended", "Sequences ended, by cause.", "cause", stats.sequences_ended)
    yield _counter("moorage_utterances", "Utterances ended, by cause.", "cause", stats.utterances)
    yield _total("moorage_audio_seconds", "Audio taken in, in seconds.", stats.audio_s)
    yield _total("moorage_recording_seconds", "Audio of recordings that was read, in seconds.", stats.recorded_s)
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
    ticks = GaugeMetricFamily(
        "moorage_tick_seconds", "Audio of one tick: steps that take longer lose ground.", labels=["model"]
    )
    streams = GaugeMetricFamily(
        "moorage_measured_streams", "Real-time sequences an instance was measured to hold.", labels=["model"]
    )
    for model in stats.models:
        instances.add_metric([model.label, "ready"], model.instances_ready)
        instances.add_metric([model.label, "down"], model.instances - model.instances_ready)
        restarts.add_metric([model.label], model.instances_restarted)
        if model.tick_s:
            ticks.add_metric([model.label], model.tick_s)
        if model.streams is not None:
            streams.add_metric([model.label], model.streams)
    yield from (instances, restarts, ticks, streams)


def _steps(stats: EngineStats) -> Iterator[Family]:
    by_model = steps_by_label(stats)
    queue = _histogram("moorage_queue_seconds", "Audio complete until its batch is planned, per row.")
    step = _histogram("moorage_step_seconds", "One batch on the instance.")
    size = _histogram("moorage_batch_size", "Rows of a batch.")
    failures = CounterMetricFamily("moorage_step_failures", "Batches that did not run.", labels=["model"])
    row_failures = CounterMetricFamily("moorage_row_failures", "Rows that failed alone.", labels=["model"])
    busy = CounterMetricFamily(
        "moorage_instance_busy_seconds",
        "Time spent on batches: its rate is utilisation.",
        labels=["model", "model_instance"],
    )
    for model, steps in by_model.items():
        for instance, busy_s in steps.busy_s.items():
            busy.add_metric([model, str(instance)], busy_s)
        for family, histogram in ((queue, steps.queue_s), (step, steps.step_s), (size, steps.batch_size)):
            family.add_metric([model], buckets(histogram), histogram.total)
        failures.add_metric([model], steps.failures)
        row_failures.add_metric([model], steps.row_failures)
    yield from (queue, step, size, busy, failures, row_failures)


def _work(by_model: Mapping[str, StepStats], taken: Set[str]) -> Iterator[Family]:
    """What the models count of their own work: moorage_encoder_frames_total and so on. Their names are theirs to
    choose: one that is ``taken`` becomes moorage_work_…, for a page that declares a family twice is refused whole."""
    for name in sorted({name for steps in by_model.values() for name in steps.counters}):
        full_name = f"moorage_{name}" if f"moorage_{name}" not in taken else f"moorage_work_{name}"
        family = CounterMetricFamily(full_name, f"Work of the models: {name}.", labels=["model"])
        for model, steps in by_model.items():
            if name in steps.counters:
                family.add_metric([model], steps.counters[name])
        yield family


def _delays(stats: DelayStats) -> Iterator[Family]:
    lag = HistogramMetricFamily("moorage_lag_seconds", "Last sample of a tick or flush arrived until its result.")
    lag.add_metric([], buckets(stats.lag_s), stats.lag_s.total)
    yield lag
    yield _gauge("moorage_lag_max_seconds", "Longest that a complete tick waits for its result now.", stats.max_lag_s)
    words = HistogramMetricFamily(
        "moorage_word_delay_seconds",
        "Word's end arrived until it is first shown, and until it stands.",
        labels=["stage"],
    )
    for stage, histogram in (("shown", stats.word_shown_s), ("committed", stats.word_committed_s)):
        words.add_metric([stage], buckets(histogram), histogram.total)
    yield words
    finals = HistogramMetricFamily(
        "moorage_final_delay_seconds",
        "End of an utterance's last word arrived until its final is told.",
        labels=["cause"],
    )
    for cause, histogram in sorted(stats.final_s.items()):
        finals.add_metric([cause], buckets(histogram), histogram.total)
    yield finals


def _finals(stats: EngineStats) -> Iterator[Family]:
    yield _gauge("moorage_finals_waiting", "Utterances whose final text is pending.", stats.finals_waiting)
    yield _counter(
        "moorage_finals_replaced", "Finals that had to be the live text, by reason.", "reason", stats.finals_replaced
    )


def _audits(stats: EngineStats) -> Iterator[Family]:
    text = "Finished sequences decoded again alone: same, tie, mismatch; dropped for want of room, or failed."
    outcomes = dict.fromkeys(AUDIT_OUTCOMES, 0) | dict(stats.audit.outcomes)
    yield _counter("moorage_audits", text, "outcome", outcomes)
    yield _gauge("moorage_audits_waiting", "Finished sequences that wait to be decoded again.", stats.audit.waiting)
    text = "Sequences that are being decoded again; each has a slot, which a client that finds none free gets at once."
    yield _gauge("moorage_audits_running", text, stats.audit.running)
    alarm = int(stats.audit.alarm is not None)
    yield _gauge("moorage_audit_alarm", "1 for some time after an audit has found a wrong text.", alarm)


def _early_finals(stats: EngineStats) -> Iterator[Family]:
    text = "Utterances read before they had ended: used as their final, or wasted because speech went on."
    yield _counter("moorage_early_finals", text, "outcome", stats.early_finals)
    text = "Texts whose sentiment was asked for: told, late, or why there is none."
    yield _counter("moorage_sentiments", text, "outcome", stats.sentiments)


def _connections(stats: GatewayStats) -> Iterator[Family]:
    yield _gauge("moorage_connections", "Websockets open now.", stats.connections)
    yield _total("moorage_connections_opened", "Websockets opened.", stats.connections_opened)
    yield _counter("moorage_connections_closed", "Websockets closed, by code.", "code", stats.connections_closed)
    yield _total("moorage_received_bytes", "Bytes of audio as clients send it.", stats.received_bytes)
    keys = GaugeMetricFamily("moorage_key_sequences", "Sequences open now, by name of the API key.", labels=["key"])
    for key, count in sorted(stats.key_streams.items()):
        keys.add_metric([key], count)
    yield keys
    yield _gauge("moorage_codec_streams", "Connections whose audio a codec process decodes.", stats.codec_streams)
    yield _gauge("moorage_codec_processes", "Codec processes.", stats.codec_processes)
    yield _total("moorage_codec_processes_lost", "Codec processes that died on their own.", stats.codec_processes_lost)
    yield _gauge("moorage_http_requests_active", "Requests with a body that are worked on now.", stats.http_active)
    answered = CounterMetricFamily("moorage_http_requests", "Requests answered.", labels=["route", "status"])
    for (route, status), count in sorted(stats.http_answered.items()):
        answered.add_metric([route, str(status)], count)
    yield answered


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
