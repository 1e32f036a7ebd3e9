"""The real live model under the wrong scheduler: its audits say so within the minute, and never under the right one."""

import asyncio
import json

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect

from tests.asr_model.conftest import samples_of
from tests.integration.test_serve import served
from tests.support.fixtures import fixtures
from tests.support.service import Client

N_STREAMS = 3
SECONDS = 5
SETTINGS = {
    "MOORAGE_AUDIT__SHARE": "1.0",
    "MOORAGE_LIVE__MAX_BATCH": "1",
    "MOORAGE_SERVER__MAX_QUEUED_FINALS": "64",
}
WRONG = {"MOORAGE_LIVE__SCHEDULER": "dynamic", "MOORAGE_LIVE__ALLOW_WRONG_SCHEDULER": "true"}


async def stream(port: int, number: int) -> int | None:
    """One utterance as fast as it is taken, begun a little after the one before; the close code."""
    audio = (samples_of(fixtures("utterance")[number])[: SECONDS * 16_000] * 32767).astype("<i2")
    await asyncio.sleep(0.37 * number)
    url = f"ws://127.0.0.1:{port}/v1/listen?encoding=linear16&sample_rate=16000"
    async with connect(url, proxy=None, compression=None) as socket:
        speaker = Client(socket)
        for chunk in np.array_split(audio, max(1, len(audio) // 4_000)):
            await speaker.send(chunk.tobytes())
            await asyncio.sleep(0.05)
        async with asyncio.timeout(200):
            await speaker.send(json.dumps({"type": "CloseStream"}))
            return (await speaker._listening).code


async def verdicts(port: int) -> tuple[dict[str, float], int]:
    """Outcomes once every stream was decoded again, and what strict readiness then is."""
    async with httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as web, asyncio.timeout(300):
        while True:
            lines = (await web.get("/metrics")).text.splitlines()
            pairs = [line.split() for line in lines if line.startswith("moorage_audits_total{")]
            found = {name.partition('outcome="')[2].removesuffix('"}'): float(value) for name, value in pairs}
            if found["same"] + found["tie"] + found["mismatch"] + found["dropped"] >= N_STREAMS:
                return found, (await web.get("/readyz?strict")).status_code
            await asyncio.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("is_wrong", [False, True])
async def test_audits_of_the_live_model(is_wrong: bool) -> None:
    async with served(
        "--live-instances", "2", "--live-slots", "4", **SETTINGS, **(WRONG if is_wrong else {})
    ) as service:
        codes = await asyncio.gather(*(stream(service.port, number) for number in range(N_STREAMS)))
        assert codes == [1000] * N_STREAMS, "no client is told of an error"
        found, status = await verdicts(service.port)
    assert (found["mismatch"] > 0, status) == (is_wrong, 503 if is_wrong else 200), found
