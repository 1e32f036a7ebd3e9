"""Audits over the wire: a misrouted chunk, which no error shows, turns ``/readyz?strict`` and is in log and metrics."""

import asyncio
import json
import logging
from dataclasses import replace

import httpx
import numpy as np
import pytest

from server.app import Service
from server.audit.auditor import AuditSettings
from server.engine.engine_config import EngineConfig
from server.workers.capacity import speech
from server.workers.orders import LoadLimits, ModelSource
from tests.support.engines import live_only, until
from tests.support.service import Heard, client, serving

SECONDS = 1.6
N_CLIENTS = 3
HONEST: EngineConfig = replace(
    live_only(slots=4),
    live=replace(live_only().live, source=ModelSource(name="light-lstm"), limits=LoadLimits(max_batch=1)),
    audit=AuditSettings(share=1.0),
)
"""Two instances of a stateful model with a network, in steps of one row so that both have something to do."""
MISROUTED = replace(HONEST, live=replace(HONEST.live, scheduler="dynamic", allow_wrong_scheduler=True))


async def stream(service: Service, number: int) -> Heard:
    """Speech from another place for each client, in chunks of a tenth of a second."""
    samples = np.roll(speech(seconds=SECONDS), -number * 16_000)
    audio = (samples * 32767).astype("<i2").tobytes()
    async with client(service) as each:
        for first in range(0, len(audio), 3_200):
            await each.send(audio[first : first + 3_200])
            await asyncio.sleep(0.002)
        return await each.end()


async def get(service: Service, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as web:
        return await web.get(f"http://127.0.0.1:{service.gateway.port}{path}")


async def outcomes(service: Service) -> dict[str, float]:
    """The counter's values by outcome."""
    lines = (await get(service, "/metrics")).text.splitlines()
    found = [line.split() for line in lines if line.startswith("moorage_audits_total{")]
    return {name.partition('outcome="')[2].removesuffix('"}'): float(value) for name, value in found}


async def audited(service: Service) -> dict[str, float]:
    """The outcomes once every client's audio was decoded again."""
    async with asyncio.timeout(30):
        while True:
            found = await outcomes(service)
            if found["same"] + found["tie"] + found["mismatch"] == N_CLIENTS:
                return found
            await asyncio.sleep(0.05)


async def test_where_all_is_well_nothing_is_heard_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(HONEST) as service:
        heard = await asyncio.gather(*(stream(service, number) for number in range(N_CLIENTS)))
        assert all(each.code == 1000 for each in heard)
        assert await audited(service) == {"same": 3, "tie": 0, "mismatch": 0, "dropped": 0, "failed": 0}
        assert (await get(service, "/readyz?strict")).status_code == 200
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_two_clients_get_two_slots_while_one_is_an_audits() -> None:
    async with serving(replace(HONEST, live=replace(HONEST.live, slots=1))) as service:
        for number in range(3):
            await stream(service, number)
            await until(lambda: service.engine.stats().audit.running == 1)
            async with client(service) as one, client(service) as other:
                assert [(await each.end()).code for each in (one, other)] == [1000, 1000]
        page = (await get(service, "/metrics")).text
    assert 'moorage_audits_total{outcome="failed"} 0.0' in page
    assert "moorage_refusals_total{" not in page


async def test_a_misrouted_chunk_is_found(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MISROUTED) as service:
        (model,) = (await get(service, "/v1/models")).json()["models"]
        assert model["warning"].startswith(
            "WRONG SCHEDULER: it needs the sequence batcher and is served by the dynamic"
        )
        assert (model["scheduler_declared"], model["scheduler_proved"]) == ("sequence", "sequence")
        assert 'moorage_wrong_scheduler{model="light-lstm"} 1.0' in (await get(service, "/metrics")).text
        heard = await asyncio.gather(*(stream(service, number) for number in range(N_CLIENTS)))
        assert all(each.code == 1000 for each in heard), "no client is told of an error"
        found = await audited(service)
        assert found["mismatch"] >= 1
        strict, plain = await get(service, "/readyz?strict"), await get(service, "/readyz")
        assert (strict.status_code, plain.status_code) == (503, 200)
        (reason,) = json.loads(strict.text)["reasons"]
        assert reason.startswith("audit: sequence ")
        assert "moorage_audit_alarm 1.0" in (await get(service, "/metrics")).text
    told = [
        each.getMessage() for each in caplog.records if "a difference that no rounding explains" in each.getMessage()
    ]
    assert len(told) == found["mismatch"]
    assert all("it ran on instances 0, 1 (" in line for line in told)
