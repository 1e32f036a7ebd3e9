"""The service as its operator sees it: figures, readiness and models over HTTP while streams run."""

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.app import Service
from tests.support.accumulator_model import LOOKAHEAD_SAMPLES, TICK_SAMPLES, exact_audio
from tests.support.certificates import make_pair
from tests.support.engines import CONFIG, live_only
from tests.support.service import Heard, client, exchange, serving, slots_used

LINEAR16 = "encoding=linear16&sample_rate=16000"
END = json.dumps({"type": "CloseStream"})
FINALIZE = json.dumps({"type": "Finalize"})


def pcm(n_samples: int) -> bytes:
    return (exact_audio(1, n_samples) * 32768).astype("<i2").tobytes()


async def request(service: Service, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.request(method, f"http://127.0.0.1:{service.gateway.port}{path}")


async def figures(service: Service) -> dict[str, float]:
    """Samples by name, with their labels' values in braces."""
    page = (await request(service, "/metrics")).text
    return {
        sample.name + "".join(f"{{{value}}}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_figures_of_streams_that_ran() -> None:
    n_samples, n_streams = 1600, 3
    async with serving(CONFIG) as service:
        heard: list[Heard] = await asyncio.gather(
            *(exchange(service, [pcm(n_samples), FINALIZE, pcm(n_samples), END], LINEAR16) for _ in range(n_streams))
        )
        shown = await figures(service)
    ticks = (2 * n_samples - LOOKAHEAD_SAMPLES) // TICK_SAMPLES
    finals = sum(len(each.finals) for each in heard)
    assert finals == 2 * n_streams
    assert shown["moorage_lag_seconds_count"] == n_streams * (ticks + 2)
    assert shown["moorage_lag_max_seconds"] == 0
    assert shown["moorage_final_delay_seconds_count{finalize}"] == n_streams
    assert shown["moorage_final_delay_seconds_count{end}"] == n_streams
    assert shown["moorage_final_delay_seconds_count{endpoint}"] == 0
    assert 0 < shown["moorage_final_delay_seconds_sum{end}"] < 60 * n_streams
    assert shown["moorage_word_delay_seconds_count{committed}"] >= finals
    assert shown["moorage_word_delay_seconds_count{committed}"] == shown["moorage_word_delay_seconds_count{shown}"]
    assert shown["moorage_word_delay_seconds_sum{committed}"] >= shown["moorage_word_delay_seconds_sum{shown}"]
    assert shown["moorage_sequences_ended_total{end}"] == n_streams
    busy_s = sum(shown[f"moorage_instance_busy_seconds_total{{accumulator}}{{{index}}}"] for index in (0, 1))
    assert busy_s == pytest.approx(shown["moorage_step_seconds_sum{accumulator}"])
    assert shown["moorage_tick_seconds{accumulator}"] == TICK_SAMPLES / 16_000


async def test_a_stream_that_waits_for_its_result_shows_at_once() -> None:
    async with serving(live_only(instances=1, slots=1, step_s=0.3)) as service, client(service, LINEAR16) as each:
        await each.send(pcm(4 * TICK_SAMPLES))
        await slots_used(service, 1)
        async with asyncio.timeout(20):
            while (await figures(service))["moorage_lag_max_seconds"] < 0.1:  # noqa: ASYNC110  # a page has no events
                await asyncio.sleep(0.01)


async def test_models_while_a_stream_runs() -> None:
    async with serving(CONFIG) as service, client(service, LINEAR16):
        await slots_used(service, 1)
        live, final = (await request(service, "/v1/models")).json()["models"]
    assert (live["scheduler"], live["precision"], live["device"]) == ("sequence", "float32", "cpu")
    assert (live["instances"], live["instances_ready"], live["slots"]) == (2, 2, 4)
    assert (live["slots_total"], live["slots_used"], live["tick_ms"]) == (8, 1, TICK_SAMPLES / 16)
    assert (final["scheduler"], final["slots"], final["tick_ms"]) == ("dynamic", 0, None)


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/v1/models", "/nothing"])
async def test_head(path: str) -> None:
    async with serving() as service:
        whole, head = await request(service, path), await request(service, path, "HEAD")
    assert head.status_code == whole.status_code
    assert head.content == b""
    assert int(head.headers["Content-Length"]) > 0


async def test_the_end_of_the_certificate_in_use(tmp_path: Path) -> None:
    pair = make_pair()
    async with (
        serving(sections={"tls": pair.write(tmp_path)}) as service,
        httpx.AsyncClient(trust_env=False, verify=pair.trusting()) as http,
    ):
        page = (await http.get(f"https://127.0.0.1:{service.gateway.port}/metrics")).text
    (family,) = [
        each
        for each in text_string_to_metric_families(page)
        if each.name == "moorage_tls_certificate_expiry_timestamp_seconds"
    ]
    assert 0.9 * 86_400 < family.samples[0].value - time.time() < 1.1 * 86_400


async def test_readiness_says_why_not() -> None:
    async with serving(live_only()) as service:
        ready = await request(service, "/readyz")
        async with client(service, LINEAR16):  # a drain waits for it
            draining = asyncio.create_task(service.drain())
            async with asyncio.timeout(10):
                while (refused := await request(service, "/readyz")).status_code == 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            health = await request(service, "/healthz")
        await draining
    assert (ready.status_code, ready.json()["ready"], ready.json()["reasons"]) == (200, True, [])
    assert (refused.status_code, refused.json()["reasons"]) == (503, ["draining: the service is about to stop"])
    assert health.status_code == 200
