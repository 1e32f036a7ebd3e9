"""Recordings of people, read by the real final model of a service that also tells how they sound."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from clients.word_error_rate import word_errors
from server.app import Service
from server.clock import SystemClock
from server.composition import engine_config, model_cards
from server.configuration.config import FinalConfig, LiveConfig, MoorageConfig, ServerConfig
from server.configuration.model_sections import TensorModelConfig
from server.engine.engine import Engine
from server.workers.worker import WorkerKind
from tests.support.fixtures import SharedRow, fixture, fixtures, shared_rows
from tests.support.models import http

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORM = "/v1/audio/transcriptions"
CONFIG = MoorageConfig(
    server=ServerConfig(port=0),
    live=LiveConfig(model="light-lstm", device="cpu", threads=1, instances=1, slots=1),
    final=FinalConfig(device="cpu", threads=1, sentiment="mood"),
    models=(TensorModelConfig(name="mood", model="sentiment", device="cpu", threads=1),),
)
UTTERANCE = min(fixtures("utterance"), key=lambda each: each.seconds)
MOST_ERRORS = 0.15
"""Of the words of a clear sentence."""
MOST_OF_A_CHAPTER = 4.0
"""Per cent of its words."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service."""
    engine = Engine(engine_config(CONFIG, WorkerKind.THREAD), SystemClock())
    service = Service(CONFIG, engine, model_cards(CONFIG))
    await service.start()
    try:
        async with http(service) as web:
            web.timeout = httpx.Timeout(110.0)
            yield web
    finally:
        await service.stop()


async def transcribed(web: httpx.AsyncClient, name: str, data: bytes, **fields: Any) -> httpx.Response:
    said = await web.post(FORM, data={"model": "whisper-1"} | fields, files={"file": (name, data)})
    assert said.status_code == 200, said.text
    return said


def is_said(text: str, expected: str) -> bool:
    errors = word_errors(expected, text)
    return errors.distance <= MOST_ERRORS * errors.reference_words


async def test_as_deepgram_has_it(web: httpx.AsyncClient) -> None:
    query = "utterances=true&paragraphs=true&sentiment=true&model=nova-3&smart_format=true"
    said = await web.post(f"/v1/listen?{query}", content=UTTERANCE.path.read_bytes())
    assert said.status_code == 200, said.text
    body = said.json()
    assert body["metadata"]["duration"] == pytest.approx(UTTERANCE.seconds, abs=0.01)
    (channel,) = body["results"]["channels"]
    (alternative,) = channel["alternatives"]
    assert is_said(alternative["transcript"], UTTERANCE.text), alternative["transcript"]
    starts = [word["start"] for word in alternative["words"]]
    assert starts == sorted(starts)
    assert alternative["words"][-1]["end"] <= UTTERANCE.seconds + 0.1
    assert " ".join(each["transcript"] for each in body["results"]["utterances"]) == alternative["transcript"]
    segments = body["results"]["sentiments"]["segments"]
    assert [each["text"] for each in segments] == [each["transcript"] for each in body["results"]["utterances"]]
    assert all(-1 <= each["sentiment_score"] <= 1 for each in segments)
    assert alternative["paragraphs"]["transcript"].replace("\n\n", " ") == alternative["transcript"]


async def test_as_openai_has_it(web: httpx.AsyncClient) -> None:
    name, data = UTTERANCE.path.name, UTTERANCE.path.read_bytes()
    times = {"timestamp_granularities[]": ["word", "segment"]}
    plain, verbose, srt, streamed = await asyncio.gather(
        transcribed(web, name, data),
        transcribed(web, name, data, response_format="verbose_json", **times),
        transcribed(web, name, data, response_format="srt"),
        transcribed(web, name, data, stream="true"),
    )
    text = plain.json()["text"]
    assert is_said(text, UTTERANCE.text), text
    whole = verbose.json()
    assert (whole["text"], whole["language"]) == (text, "english")
    assert " ".join(word["word"] for word in whole["words"]) == text
    assert " ".join(segment["text"] for segment in whole["segments"]) == text
    assert "-->" in srt.text
    last = json.loads(streamed.text.strip().splitlines()[-1].removeprefix("data: "))
    assert (last["type"], last["text"]) == ("transcript.text.done", text)


@pytest.mark.parametrize("name", ["en_us_16k", "en_gb_rp_48k"])
async def test_files_of_other_kinds(web: httpx.AsyncClient, name: str) -> None:
    file = fixture(name)
    text = (await transcribed(web, file.path.name, file.path.read_bytes())).json()["text"]
    assert is_said(text, file.text), text


async def test_silence_is_no_text(web: httpx.AsyncClient) -> None:
    file = fixtures("silence")[0]
    assert (await transcribed(web, file.path.name, file.path.read_bytes())).json()["text"] == ""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chapter", shared_rows("long")[:1], ids=lambda row: row.id)
async def test_a_chapter_is_read_as_well_as_its_sentences(web: httpx.AsyncClient, chapter: SharedRow) -> None:
    """Cutting at pauses loses no words: errors of minutes of speech are no more than those of single utterances."""
    web.timeout = httpx.Timeout(800.0)
    text = (await transcribed(web, chapter.path.name, chapter.path.read_bytes())).json()["text"]
    assert word_errors(chapter.text, text).percent < MOST_OF_A_CHAPTER
