"""Deepgram's Python SDK against this service: only the address is ours."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.exceptions import InvalidStatus

from clients.word_error_rate import word_errors
from tests.sdk.deepgram_sdk import (
    ApiError,
    EventType,
    Heard,
    ListenV1Metadata,
    ListenV1SpeechStarted,
    ListenV1UtteranceEnd,
    RequestOptions,
    async_sdk,
    read_recording,
    stream,
    transcript,
)
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG
from tests.support.fixtures import fixture
from tests.support.service import serving
from tests.support.wire import linear16

SENTENCE = fixture("slt_16k")
PAUSE = fixture("two_utterances_16k")
STEREO = fixture("en_us_f2_44k_stereo")
MOST_ERRORS = 0.25
"""Of the words of a synthesised sentence: this is about the wire, not about hearing."""


def pcm(path: Any) -> bytes:
    """Raw linear16, channels interleaved."""
    samples, _ = soundfile.read(path, dtype="int16")
    data: bytes = samples.tobytes()
    return data


def send_all(data: bytes, size: int = 3200) -> Any:
    """Sends the bytes in messages of a tenth of a second, then CloseStream."""

    def act(connection: Any, heard: Heard) -> None:
        for at in range(0, len(data), size):
            connection.send_media(data[at : at + size])
        connection.send_close_stream()

    return act


def is_said(text: str, expected: str) -> bool:
    errors = word_errors(expected, text)
    return errors.distance <= MOST_ERRORS * errors.reference_words


@pytest.mark.timeout(300)
class TestRealService:
    def test_a_file_as_raw_audio(self, service_url: str) -> None:
        heard = stream(
            service_url, send_all(pcm(SENTENCE.path)), encoding="linear16", sample_rate=16_000, interim_results=True
        )
        assert heard.errors == []
        assert is_said(heard.text, SENTENCE.text), heard.text
        assert heard.interims
        assert any(transcript(each) for each in heard.interims)
        metadata = heard.messages[-1]
        assert isinstance(metadata, ListenV1Metadata)
        assert metadata.duration == pytest.approx(SENTENCE.seconds, abs=0.001)
        assert metadata.channels == 1
        at_s = 0.0
        for each in heard.finals:
            assert each.start == pytest.approx(at_s, abs=1e-6)
            at_s = each.start + each.duration

    @pytest.mark.parametrize("name", ["slt_16k", "en_us_16k", "en_gb_rp_48k", "en_029_44k"])
    def test_a_file_as_it_is(self, service_url: str, name: str) -> None:
        file = fixture(name)
        heard = stream(service_url, send_all(file.path.read_bytes()))
        assert is_said(heard.text, file.text), heard.text
        assert heard.interims == []

    def test_finalize_is_answered_and_the_stream_goes_on(self, service_url: str) -> None:
        data = pcm(PAUSE.path)

        def act(connection: Any, heard: Heard) -> None:
            connection.send_media(data[: len(data) // 2])
            connection.send_finalize()
            limit = time.monotonic() + 60
            while not any(each.from_finalize for each in heard.finals):
                assert time.monotonic() < limit
                time.sleep(0.02)
            connection.send_keep_alive()
            connection.send_media(data[len(data) // 2 :])
            connection.send_close_stream()

        heard = stream(service_url, act, encoding="linear16", sample_rate=16_000)
        assert sum(bool(each.from_finalize) for each in heard.finals) == 1
        assert isinstance(heard.messages[-1], ListenV1Metadata)
        assert len(heard.text.split()) >= len(PAUSE.text.split()) // 2

    @pytest.mark.parametrize("endpointing", [300, False])
    def test_speech_and_silence(self, service_url: str, endpointing: int | bool) -> None:
        data = pcm(PAUSE.path) + bytes(2 * 16_000 * 2)
        heard = stream(
            service_url,
            send_all(data),
            encoding="linear16",
            sample_rate=16_000,
            interim_results=True,
            vad_events=True,
            utterance_end_ms=1000,
            endpointing=endpointing,
        )
        started = [each for each in heard.messages if isinstance(each, ListenV1SpeechStarted)]
        ended = [each for each in heard.messages if isinstance(each, ListenV1UtteranceEnd)]
        assert started
        assert ended
        assert {each.speech_final for each in heard.finals if transcript(each)} == {bool(endpointing)}
        assert started[0].timestamp < heard.finals[0].channel.alternatives[0].words[0].end
        last = heard.finals[-1].channel.alternatives[0].words or heard.finals[-2].channel.alternatives[0].words
        assert ended[-1].last_word_end == pytest.approx(last[-1].end, abs=1e-6)

    def test_channels_apart(self, service_url: str) -> None:
        heard = stream(
            service_url,
            send_all(pcm(STEREO.path)),
            encoding="linear16",
            sample_rate=44_100,
            channels=2,
            multichannel=True,
        )
        spoken = {each.channel_index[0]: transcript(each) for each in heard.finals}
        assert set(spoken) == {0, 1}
        assert {each.channel_index[1] for each in heard.finals} == {2}
        assert any(is_said(text, STEREO.text) for text in spoken.values()), spoken

    def test_a_recording(self, service_url: str) -> None:
        body = SENTENCE.path.read_bytes()
        asked = {"smart_format": True, "utterances": True, "paragraphs": True}
        said = read_recording(service_url, body, model="nova-3", **asked)
        (channel,) = said.results.channels
        (alternative,) = channel.alternatives
        assert is_said(alternative.transcript, SENTENCE.text), alternative.transcript
        assert said.metadata.duration == pytest.approx(SENTENCE.seconds, abs=0.001)
        assert [word.punctuated_word for word in alternative.words] == alternative.transcript.split()
        assert " ".join(each.transcript for each in said.results.utterances) == alternative.transcript


class TestRecordings:
    """On a final model whose text is arithmetic."""

    AUDIO = exact_audio(1, 8_000)

    async def said(self, body: Any, **query: Any) -> Any:
        async with serving(CONFIG) as service:
            return await asyncio.to_thread(read_recording, f"ws://127.0.0.1:{service.gateway.port}", body, **query)

    async def test_it_is_what_the_sdk_expects(self) -> None:
        options = RequestOptions(additional_query_parameters={"sample_rate": "16000", "channels": "2"})
        both = np.stack((self.AUDIO, self.AUDIO[::-1]), axis=1)
        said = await self.said(
            linear16(both),
            encoding="linear16",
            multichannel=True,
            punctuate=True,
            utterances=True,
            utt_split=0.5,
            paragraphs=True,
            tag=["one", "two"],
            extra="key:value",
            request_options=options,
        )
        first, second = said.results.channels
        assert first.alternatives[0].transcript == summary(self.AUDIO)
        assert second.alternatives[0].transcript == summary(self.AUDIO[::-1])
        assert first.alternatives[0].paragraphs.paragraphs[0].sentences[0].text == summary(self.AUDIO)
        assert [each.channel for each in said.results.utterances] == [0, 1]
        assert (said.metadata.channels, said.metadata.duration) == (2, 0.5)
        assert len(said.metadata.sha256) == 64
        assert said.metadata.model_info

    async def test_it_is_sent_as_it_is_read_from_a_file(self) -> None:
        data = linear16(self.AUDIO)
        pieces = (data[at : at + 1000] for at in range(0, len(data), 1000))
        options = RequestOptions(additional_query_parameters={"sample_rate": "16000"})
        said = await self.said(pieces, encoding="linear16", request_options=options)
        assert said.results.channels[0].alternatives[0].transcript == summary(self.AUDIO)

    async def test_what_is_refused(self) -> None:
        for query in ({"diarize": True}, {"summarize": "v2"}, {"callback": "https://example.org"}, {"sentiment": True}):
            with pytest.raises(ApiError) as caught:
                await self.said(linear16(self.AUDIO), **query)
            assert caught.value.status_code == 400
            assert caught.value.body["err_code"] == "bad_parameter"


class TestWire:
    """On models whose text is arithmetic: every sample is heard, in order, once."""

    AUDIO = exact_audio(1, 3000)

    async def heard(self, act: Any, **query: Any) -> Heard:
        async with serving(CONFIG) as service:
            return await asyncio.to_thread(stream, f"ws://127.0.0.1:{service.gateway.port}", act, **query)

    @pytest.mark.parametrize("size", [333, 1600, 6000])
    async def test_every_sample(self, size: int) -> None:
        heard = await self.heard(send_all(linear16(self.AUDIO), size), encoding="linear16", sample_rate=16_000)
        assert heard.text == summary(self.AUDIO)

    async def test_finalize(self) -> None:
        data = linear16(self.AUDIO)

        def act(connection: Any, heard: Heard) -> None:
            connection.send_media(data[:2000])
            connection.send_finalize()
            connection.send_media(data[2000:])
            connection.send_finalize()
            connection.send_close_stream()

        heard = await self.heard(act, encoding="linear16", sample_rate=16_000)
        assert [transcript(each) for each in heard.finals] == [summary(self.AUDIO[:1000]), summary(self.AUDIO[1000:])]
        assert [each.from_finalize for each in heard.finals] == [True, True]

    async def test_nothing_is_sent(self) -> None:
        heard = await self.heard(lambda connection, _: connection.send_close_stream())
        assert [type(each) for each in heard.messages[-1:]] == [ListenV1Metadata]
        assert heard.text == ""

    async def test_a_lone_close_of_the_client(self) -> None:
        """As ``with client.listen.v1.connect(…)`` ends where nobody sent CloseStream."""
        async with serving(CONFIG) as service:
            url = f"ws://127.0.0.1:{service.gateway.port}"
            async with async_sdk(url).listen.v1.connect(model="nova-3") as connection:
                await connection.send_media(linear16(self.AUDIO))
            async with asyncio.timeout(10):
                while service.engine.stats().slots_used:  # noqa: ASYNC110  # the engine announces no such thing
                    await asyncio.sleep(0.005)

    async def test_asyncio(self) -> None:
        async with serving(CONFIG) as service:
            url = f"ws://127.0.0.1:{service.gateway.port}"
            heard = Heard()
            connect = async_sdk(url).listen.v1.connect
            async with connect(model="nova-3", encoding="linear16", sample_rate="16000") as connection:
                connection.on(EventType.MESSAGE, heard.messages.append)
                listening = asyncio.create_task(connection.start_listening())
                await connection.send_keep_alive()
                await connection.send_media(linear16(self.AUDIO))
                await connection.send_finalize()
                await connection.send_close_stream()
                async with asyncio.timeout(20):
                    await listening
        assert heard.text == summary(self.AUDIO)
        assert isinstance(heard.messages[-1], ListenV1Metadata)

    async def test_a_refused_option(self) -> None:
        async with serving(CONFIG) as service:
            url = f"ws://127.0.0.1:{service.gateway.port}"
            with pytest.raises(ApiError) as caught:
                async with async_sdk(url).listen.v1.connect(model="nova-3", diarize=True):
                    pass
            with pytest.raises(InvalidStatus) as seen:
                await asyncio.to_thread(stream, url, lambda *_: None, diarize=True)
        assert caught.value.status_code == 400
        headers = seen.value.response.headers
        assert headers["dg-error"].startswith(
            "query parameter diarize is 'true'; allowed: false. Speakers are not told"
        )
