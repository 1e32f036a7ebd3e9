"""The Prometheus page: every figure under its name, readable by Prometheus' own parser."""

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.figures.metrics import GatewayStats, ServiceCollector, metrics_page
from server.figures.stats import EngineStats, Histogram
from tests.support.statistics import engine_stats

GATEWAY = GatewayStats(
    connections=31,
    connections_opened=32,
    connections_closed={"1000": 33, "abort": 34},
    refusals={"bad_parameter": 35, "capacity_exceeded": 36},
    received_bytes=37,
    key_streams={"call centre": 61, "lab": 62},
    codec_streams=63,
    codec_processes=64,
    codec_processes_lost=65,
    http_active=67,
    http_answered={("/v2/models/{model}/infer", 200): 68, ("/v2/models/{model}/infer", 400): 69},
)
Sample = tuple[str, tuple[tuple[str, str], ...]]


def page(engine: EngineStats, gateway: GatewayStats = GATEWAY) -> dict[Sample, float]:
    text = metrics_page(ServiceCollector(lambda: engine, lambda: gateway))().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("moorage_ready", {}, 1),
        ("moorage_sequences_live", {}, 21),
        ("moorage_sequences_started_total", {}, 22),
        ("moorage_sequences_ended_total", {"cause": "end"}, 23),
        ("moorage_sequences_ended_total", {"cause": "idle_timeout"}, 24),
        ("moorage_slots", {"state": "free"}, 2),
        ("moorage_slots", {"state": "used"}, 5),
        ("moorage_slots", {"state": "quarantined"}, 1),
        ("moorage_refusals_total", {"reason": "capacity_exceeded"}, 61),
        ("moorage_refusals_total", {"reason": "bad_parameter"}, 35),
        ("moorage_utterances_total", {"cause": "endpoint"}, 26),
        ("moorage_audio_seconds_total", {}, 27.5),
        ("moorage_recording_seconds_total", {}, 76.5),
        ("moorage_finals_waiting", {}, 28),
        ("moorage_finals_replaced_total", {"reason": "queue_full"}, 29),
        ("moorage_stale_results_total", {}, 30),
        ("moorage_connections", {}, 31),
        ("moorage_connections_opened_total", {}, 32),
        ("moorage_connections_closed_total", {"code": "1000"}, 33),
        ("moorage_connections_closed_total", {"code": "abort"}, 34),
        ("moorage_received_bytes_total", {}, 37),
        ("moorage_encoder_frames_total", {"model": "accumulator"}, 11),
        ("moorage_decoder_passes_total", {"model": "accumulator"}, 12),
        ("moorage_decoder_passes_total", {"model": "sum"}, 112),
        ("moorage_decoder_positions_total", {"model": "accumulator"}, 13),
        ("moorage_instances", {"model": "accumulator", "state": "ready"}, 1),
        ("moorage_instances", {"model": "accumulator", "state": "down"}, 1),
        ("moorage_instance_restarts_total", {"model": "accumulator"}, 3),
        ("moorage_step_failures_total", {"model": "sum"}, 108),
        ("moorage_row_failures_total", {"model": "accumulator"}, 19),
        ("moorage_queue_seconds_bucket", {"model": "accumulator", "le": "1.0"}, 11),
        ("moorage_queue_seconds_bucket", {"model": "accumulator", "le": "2.0"}, 13),
        ("moorage_queue_seconds_bucket", {"model": "accumulator", "le": "+Inf"}, 16),
        ("moorage_queue_seconds_count", {"model": "accumulator"}, 16),
        ("moorage_queue_seconds_sum", {"model": "accumulator"}, 10.5),
        ("moorage_step_seconds_bucket", {"model": "sum", "le": "1.0"}, 104),
        ("moorage_step_seconds_sum", {"model": "sum"}, 101.5),
        ("moorage_batch_size_bucket", {"model": "sum", "le": "+Inf"}, 113),
        ("moorage_batch_size_sum", {"model": "accumulator"}, 12.5),
        ("moorage_instance_busy_seconds_total", {"model": "accumulator", "model_instance": "1"}, 10.75),
        ("moorage_instance_busy_seconds_total", {"model": "sum", "model_instance": "0"}, 100.25),
        ("moorage_tick_seconds", {"model": "accumulator"}, 0.24),
        ("moorage_measured_streams", {"model": "accumulator"}, 5),
        ("moorage_lag_seconds_bucket", {"le": "+Inf"}, 83),
        ("moorage_lag_seconds_sum", {}, 40.5),
        ("moorage_lag_max_seconds", {}, 43.5),
        ("moorage_early_finals_total", {"outcome": "used"}, 56),
        ("moorage_early_finals_total", {"outcome": "wasted"}, 57),
        ("moorage_sentiments_total", {"outcome": "told"}, 74),
        ("moorage_sentiments_total", {"outcome": "late"}, 75),
        ("moorage_key_sequences", {"key": "call centre"}, 61),
        ("moorage_key_sequences", {"key": "lab"}, 62),
        ("moorage_codec_streams", {}, 63),
        ("moorage_codec_processes", {}, 64),
        ("moorage_codec_processes_lost_total", {}, 65),
        ("moorage_http_requests_active", {}, 67),
        ("moorage_http_requests_total", {"route": "/v2/models/{model}/infer", "status": "200"}, 68),
        ("moorage_http_requests_total", {"route": "/v2/models/{model}/infer", "status": "400"}, 69),
        ("moorage_word_delay_seconds_sum", {"stage": "shown"}, 46.5),
        ("moorage_word_delay_seconds_bucket", {"stage": "committed", "le": "1.0"}, 47),
        ("moorage_final_delay_seconds_count", {"cause": "endpoint"}, 101),
        ("moorage_final_delay_seconds_sum", {"cause": "finalize"}, 55.5),
        ("moorage_backlog", {"model": "accumulator"}, 308),
        ("moorage_backlog", {"model": "adder"}, 408),
        ("moorage_backlog_oldest_seconds", {"model": "accumulator"}, 309),
        ("moorage_ready_rows", {"model": "accumulator"}, 307),
        ("moorage_slot_wait_seconds_bucket", {"model": "accumulator", "le": "+Inf"}, 23),
        ("moorage_slot_wait_seconds_sum", {"model": "adder"}, 203.5),
        ("moorage_sequences_queued_total", {"model": "accumulator"}, 310),
        ("moorage_sequences_idle_total", {"model": "accumulator"}, 312),
        ("moorage_sequence_restarts_total", {"model": "adder"}, 413),
        ("moorage_padded_slots_total", {"model": "accumulator"}, 316),
        ("moorage_catch_up_ticks_total", {"model": "accumulator"}, 317),
        ("moorage_late_rows_total", {"model": "accumulator"}, 318),
        ("moorage_slots_vacated_total", {"model": "accumulator", "cause": "end"}, 302),
        ("moorage_slots_vacated_total", {"model": "adder", "cause": "backlog_timeout"}, 403),
        ("moorage_requests_waiting", {"model": "sum", "level": "1"}, 507),
        ("moorage_requests_waiting", {"model": "sum", "level": "2"}, 508),
        ("moorage_late_requests_total", {"model": "sum"}, 509),
        ("moorage_model_requests_total", {"model": "adder", "outcome": "completed"}, 211),
        ("moorage_model_requests_total", {"model": "sum", "outcome": "request_timeout"}, 112),
        ("moorage_requests_total", {"model": "sum"}, 114),
        ("moorage_samples_total", {"model": "sum"}, 115),
        ("moorage_rows_total", {"model": "adder"}, 214),
        ("moorage_batch_size_sum", {"model": "adder"}, 202.5),
        ("moorage_resource", {"resource": "gpu", "state": "used"}, 5),
        ("moorage_resource", {"resource": "gpu", "state": "free"}, 2),
        ("moorage_resource_waiting", {}, 58),
        ("moorage_wrong_scheduler", {"model": "accumulator"}, 1),
        ("moorage_wrong_scheduler", {"model": "sum"}, 0),
        ("moorage_state_bytes", {"model": "accumulator"}, 59),
        ("moorage_cache_bytes", {"model": "accumulator", "state": "used"}, 13),
        ("moorage_cache_bytes", {"model": "accumulator", "state": "free"}, 37),
        ("moorage_copies_ending", {"model": "accumulator"}, 60),
        ("moorage_audits_total", {"outcome": "same"}, 63),
        ("moorage_audits_total", {"outcome": "mismatch"}, 64),
        ("moorage_audits_total", {"outcome": "tie"}, 0),
        ("moorage_audits_waiting", {}, 66),
        ("moorage_audits_running", {}, 67),
        ("moorage_audit_alarm", {}, 0),
    ],
)
def test_figures(name: str, labels: dict[str, str], value: float) -> None:
    assert page(engine_stats())[name, tuple(sorted(labels.items()))] == value


def test_names_follow_the_conventions_and_nothing_is_labelled_by_sequence() -> None:
    text = metrics_page(ServiceCollector(engine_stats, lambda: GATEWAY))().decode()
    families = [each for each in text_string_to_metric_families(text) if each.name.startswith("moorage_")]
    assert len(families) > 30
    for family in families:
        assert family.documentation.endswith("."), family.name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)(_|$)", family.name), family.name
        assert (family.type == "counter") == all(each.name.endswith("_total") for each in family.samples), family.name
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels <= {
            "le",
            "route",
            "status",
            "model",
            "model_instance",
            "state",
            "cause",
            "reason",
            "code",
            "stage",
            "key",
            "outcome",
            "level",
            "resource",
        }, family.name


def declared(text: str) -> list[str]:
    return re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)


def test_no_family_is_declared_twice() -> None:
    names = declared(metrics_page(ServiceCollector(engine_stats, lambda: GATEWAY))().decode())
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))


def test_a_model_that_counts_under_a_name_of_the_services_does_not_declare_it_twice() -> None:
    stats = engine_stats()
    counting = replace(stats, live=replace(stats.live, counters={"sequences_started": 7, "frames": 8}))
    text = metrics_page(ServiceCollector(lambda: counting, lambda: GATEWAY))().decode()
    names = declared(text)
    assert sorted(names) == sorted(set(names))
    figures = page(counting)
    assert figures["moorage_sequences_started_total", ()] == 22
    assert figures["moorage_work_sequences_started_total", (("model", "accumulator"),)] == 7
    assert figures["moorage_frames_total", (("model", "accumulator"),)] == 8


@pytest.mark.parametrize("expires_at_s", [None, 1_900_000_000.5])
def test_the_certificates_end(expires_at_s: float | None) -> None:
    collector = ServiceCollector(engine_stats, lambda: GATEWAY, lambda: expires_at_s)
    page = metrics_page(collector)().decode()
    assert ("moorage_tls_certificate_expiry_timestamp_seconds 1.9000000005e+09" in page) == (expires_at_s is not None)


def test_the_process_tells_its_memory_and_descriptors() -> None:
    figures = page(engine_stats())
    assert figures["process_resident_memory_bytes", ()] > 1e6
    assert figures["process_open_fds", ()] < figures["process_max_fds", ()]


def test_without_a_final_model_nothing_is_said_of_one() -> None:
    names = {labels for _, labels in page(engine_stats(has_final=False))}
    assert not any(("model", "sum") in labels for labels in names)
    assert page(engine_stats(is_ready=False))["moorage_ready", ()] == 0


def test_it_is_rendered_anew_each_time() -> None:
    stats = [engine_stats(is_ready=True), engine_stats(is_ready=False)]
    render = metrics_page(ServiceCollector(lambda: stats.pop(0), lambda: GATEWAY))
    assert b"moorage_ready 1.0" in render()
    assert b"moorage_ready 0.0" in render()


def test_two_services_in_one_process_do_not_meet() -> None:
    first = metrics_page(ServiceCollector(engine_stats, lambda: GATEWAY))
    second = metrics_page(ServiceCollector(engine_stats, GatewayStats))
    assert b"moorage_connections 31.0" in first()
    assert b"moorage_connections 0.0" in second()


def test_a_counted_histogram_reads_the_same() -> None:
    histogram = Histogram((0.1, 0.5))
    for value in (0.05, 0.1, 0.3, 9.0):
        histogram.observe(value)
    snapshot = histogram.snapshot()
    assert (snapshot.counts, snapshot.count) == ((2, 1, 1), 4)
