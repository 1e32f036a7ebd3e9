"""Lines about streams, from a real gateway with exact models: every stream has its lines, none has what was said."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from server.configuration.config import LogConfig
from tests.support.accumulator_model import BOMB, exact_audio
from tests.support.engines import live_only
from tests.support.service import client, exchange, serving, slots_used

LINEAR16 = "encoding=linear16&sample_rate=16000"


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The fields of the lines of a kind."""
    return [vars(record) for record in caplog.records if vars(record).get("event") == event]


def pcm(n_samples: int, *extra: float) -> bytes:
    """16-bit audio whose samples are exact, with some that mean something to the model at its end."""
    values = [*exact_audio(1, n_samples).tolist(), *extra]
    return b"".join(round(value * 32768).to_bytes(2, "little", signed=True) for value in values)


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def test_a_stream_from_its_opening_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as service:
        heard = await exchange(service, [pcm(1600), b'{"type": "CloseStream"}'.decode()], LINEAR16)
    (opened,), (ended,) = said(caplog, "stream_opened"), said(caplog, "stream_ended")
    assert opened["request_id"] == ended["request_id"]
    assert (opened["key"], opened["sequences"], opened["encoding"], opened["sample_rate"]) == (
        None,
        1,
        "linear16",
        16000,
    )
    assert (ended["cause"], ended["close_code"], ended["audio_s"]) == ("end", 1000, 0.1)
    assert ended["finals"] == len(heard.finals)
    assert 0 < ended["max_lag_ms"] < 10_000
    assert 0 < ended["connected_s"] < 20


async def test_a_lost_client(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as service, client(service, f"{LINEAR16}&interim_results=true") as each:
        await each.send(pcm(1600))
        await each.hears(1)
        each.socket.transport.abort()
        await slots_used(service, 0)
    (ended,) = said(caplog, "stream_ended")
    assert (ended["cause"], ended["close_code"]) == ("cancelled", None)


async def test_a_stream_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as service:
        heard = await exchange(service, [pcm(100, BOMB), pcm(100)], LINEAR16)
    (ended,) = said(caplog, "stream_ended")
    assert (ended["cause"], ended["close_code"]) == ("step_failed", heard.code)


@pytest.mark.parametrize(
    ("query", "cause", "status"), [("sample_rate=1", "bad_parameter", 400), (LINEAR16, "capacity_exceeded", 503)]
)
async def test_a_refusal(caplog: pytest.LogCaptureFixture, query: str, cause: str, status: int) -> None:
    async with serving(live_only(instances=1, slots=1)) as service, client(service, LINEAR16):
        with pytest.raises(InvalidStatus) as refused:
            async with client(service, query):
                pass
    assert refused.value.response.status_code == status
    (line,) = said(caplog, "stream_refused")
    assert line["cause"] == cause
    assert len(said(caplog, "stream_opened")) == len(said(caplog, "stream_ended")) == 1


@pytest.mark.parametrize("is_asked", [False, True])
async def test_texts_only_where_they_are_asked_for(caplog: pytest.LogCaptureFixture, is_asked: bool) -> None:
    async with serving(sections={"log": LogConfig(transcripts=is_asked)}) as service:
        heard = await exchange(service, [pcm(1600), b'{"type": "CloseStream"}'.decode()], LINEAR16)
    (text,) = heard.texts
    assert text
    lines = said(caplog, "transcript")
    assert [line["text"] for line in lines] == ([text] if is_asked else [])
    everything = " ".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert (text in everything) is is_asked


async def test_the_wait_for_a_slot_is_told(caplog: pytest.LogCaptureFixture) -> None:
    config = live_only(instances=1, slots=1)
    config = replace(config, live=replace(config.live, backlog=1))
    async with serving(config) as service, client(service, LINEAR16) as first:
        await slots_used(service, 1)
        async with client(service, LINEAR16) as second:
            await second.hears(1)
            await first.end()
            await second.end()
    assert [line["queued"] for line in said(caplog, "stream_opened")] == [0, 1]
    waits = [line["slot_wait_s"] for line in said(caplog, "stream_ended")]
    assert (waits[0], waits[1] > 0) == (0.0, True)
