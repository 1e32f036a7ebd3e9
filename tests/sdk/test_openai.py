"""OpenAI's Python SDK against this service: only the address is ours."""

import asyncio
import io
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import soundfile

from clients.word_error_rate import word_errors
from server.configuration.config import HttpConfig
from server.plan import Samples
from tests.integration.test_access import KEY, keyed
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG
from tests.support.fixtures import fixture
from tests.support.service import serving

openai = pytest.importorskip("openai", reason="of the extra clients: make test-clients installs it and runs this")

T = TypeVar("T")
AUDIO = exact_audio(1, 8_000)
SENTENCE = fixture("en_us_16k")
MOST_ERRORS = 0.25
"""Of the words of a synthesised sentence: this is about the wire, not about hearing."""


def wav(audio: Samples) -> io.BytesIO:
    """A file with a name, as the SDK wants it."""
    file = io.BytesIO()
    soundfile.write(file, audio, 16_000, format="WAV", subtype="PCM_16")
    file.name = "speech.wav"
    file.seek(0)
    return file


async def using(work: Callable[[Any], T], sections: dict[str, Any] | None = None, key: str = "any") -> T:
    """What ``work`` makes of a client, which blocks: so it has a thread of its own."""
    async with serving(CONFIG, sections) as service:

        def run() -> T:
            address = f"http://127.0.0.1:{service.gateway.port}/v1"
            with openai.OpenAI(base_url=address, api_key=key, max_retries=0) as client:
                return work(client.audio.transcriptions)

        return await asyncio.to_thread(run)


async def test_the_text() -> None:
    said = await using(lambda api: api.create(model="whisper-1", file=wav(AUDIO)))
    assert said.text == summary(AUDIO)
    assert (said.usage.type, said.usage.seconds) == ("duration", 1)


async def test_words_and_segments() -> None:
    said = await using(
        lambda api: api.create(
            model="whisper-1",
            file=wav(AUDIO),
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
            language="en",
            temperature=0,
        )
    )
    assert (said.text, said.duration, said.language) == (summary(AUDIO), 0.5, "english")
    assert [(word.word, word.start, word.end) for word in said.words] == [(summary(AUDIO), 0.0, 0.5)]
    (segment,) = said.segments
    assert (segment.id, segment.text, segment.start, segment.end) == (0, summary(AUDIO), 0.0, 0.5)
    assert segment.no_speech_prob == 0.0


@pytest.mark.parametrize(
    ("form", "begin"), [("text", summary(AUDIO)), ("srt", "1\n00:00:00,000 -->"), ("vtt", "WEBVTT")]
)
async def test_other_forms(form: str, begin: str) -> None:
    said = await using(lambda api: api.create(model="whisper-1", file=wav(AUDIO), response_format=form))
    assert said.startswith(begin)
    assert summary(AUDIO) in said


async def test_a_stream_of_events() -> None:
    audio = np.concatenate([exact_audio(seed, 16_000) for seed in range(30)])

    def heard(api: Any) -> list[Any]:
        return list(api.create(model="gpt-4o-transcribe", file=wav(audio), stream=True))

    *deltas, done = await using(heard)
    assert [event.type for event in (*deltas, done)] == ["transcript.text.delta"] * len(deltas) + [
        "transcript.text.done"
    ]
    assert len(deltas) >= 2
    assert "".join(event.delta for event in deltas) == done.text


async def test_an_event_loop_of_the_client() -> None:
    async with serving(CONFIG) as service:
        address = f"http://127.0.0.1:{service.gateway.port}/v1"
        async with openai.AsyncOpenAI(base_url=address, api_key="any") as client:
            calls = (client.audio.transcriptions.create(model="whisper-1", file=wav(AUDIO)) for _ in range(6))
            said = await asyncio.gather(*calls)
    assert [each.text for each in said] == [summary(AUDIO)] * 6


async def test_what_is_refused() -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await using(lambda api: api.create(model="whisper-1", file=wav(AUDIO), prompt="Moorage"))
    assert (caught.value.param, caught.value.code, caught.value.type) == (
        "prompt",
        "bad_parameter",
        "invalid_request_error",
    )
    assert "cannot be prompted" in caught.value.message
    with pytest.raises(openai.BadRequestError, match="no container that is taken"):
        await using(lambda api: api.create(model="whisper-1", file=("a.wav", b"nothing that sounds")))


async def test_keys() -> None:
    with pytest.raises(openai.AuthenticationError):
        await using(lambda api: api.create(model="whisper-1", file=wav(AUDIO)), keyed())
    said = await using(lambda api: api.create(model="whisper-1", file=wav(AUDIO)), keyed(), KEY)
    assert said.text == summary(AUDIO)


async def test_a_file_that_is_too_large() -> None:
    sections = {"http": HttpConfig(max_body_bytes=10_000)}
    with pytest.raises(openai.APIStatusError) as caught:
        await using(lambda api: api.create(model="whisper-1", file=wav(AUDIO)), sections)
    assert (caught.value.status_code, caught.value.code) == (413, "body_too_large")


@pytest.mark.timeout(300)
def test_a_file_is_heard(service_url: str) -> None:
    address = service_url.replace("ws", "http", 1) + "/v1"
    with openai.OpenAI(base_url=address, api_key="any") as client, SENTENCE.path.open("rb") as file:
        text = client.audio.transcriptions.create(model="whisper-1", file=file).text
    assert word_errors(SENTENCE.text, text).distance <= MOST_ERRORS * len(SENTENCE.text.split()), text
