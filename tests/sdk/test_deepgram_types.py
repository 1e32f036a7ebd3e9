"""Every message against the SDK's own types, checked as strictly as they can be."""

from typing import Any

import pytest
from deepgram.listen.v1 import types
from deepgram.types.listen_v1response import ListenV1Response
from pydantic import BaseModel, ConfigDict, create_model

from asr_model.transcript import Sentiment, UtteranceEnd
from server.errors import IdleTimeout
from server.events import SequenceFailed
from server.wire.recordings.deepgram_answer import Recording, answer
from server.wire.recordings.deepgram_query import parse_recording_query
from tests.support.wire import (
    FINAL,
    SEQUENCE,
    closed,
    final,
    make_session,
    messages,
    partial,
    said,
    speech_started,
    tell,
)


def every_message() -> list[dict[str, Any]]:
    session = make_session("vad_events=true&utterance_end_ms=1000")
    session.receive_text('{"type": "Configure"}')
    session.receive_text('{"type": "Configure", "keyterms": ["x"]}')
    told = messages(session.pending())
    told += tell(session, speech_started(0.0), partial("Hello,", "wor", covered_s=1.0))
    told += tell(session, final("Hello, world.", UtteranceEnd.ENDPOINT, (0.0, 3.0)), closed())[:-1]
    plain = make_session("punctuate=false")
    told += tell(plain, final("Hello.", UtteranceEnd.FINALIZE, (0.0, 1.0)))
    told += tell(plain, SequenceFailed(sequence_id=SEQUENCE, error=IdleTimeout("x")))[:-1]
    return told


MODELS: dict[str, type[BaseModel]] = {
    "Results": types.ListenV1Results,
    "Metadata": types.ListenV1Metadata,
    "SpeechStarted": types.ListenV1SpeechStarted,
    "UtteranceEnd": types.ListenV1UtteranceEnd,
    "Error": types.ListenV1Error,
    "ConfigureSuccess": types.ListenV1ConfigureSuccess,
    "ConfigureFailure": types.ListenV1ConfigureFailure,
}


@pytest.mark.parametrize("message", every_message(), ids=lambda message: message["type"])
def test_it_is_what_the_sdk_expects(message: dict[str, Any]) -> None:
    model = MODELS[message["type"]]
    strict = create_model(f"Strict{model.__name__}", __base__=model)
    strict.model_config = ConfigDict(strict=True, extra="allow")
    strict.model_rebuild(force=True)
    required = {name for name, each in model.model_fields.items() if each.is_required()}
    assert required <= set(message)
    assert strict.model_validate(message).model_dump()["type"] == message["type"]


def test_the_answer_to_a_recording_is_what_the_sdk_expects() -> None:
    words = (*said("Hello, world. Good bye."), *said("Again.", 9.0))
    query = "utterances=true&paragraphs=true&sentiment=true&tag=a&extra=k:v"
    options = parse_recording_query(query)
    recording = Recording(
        request_id="r", sha256="ab", created="2026-01-02T03:04:05.678Z", duration_s=10.0, channels=[words], model=FINAL
    )
    body = answer(recording, options, [Sentiment.of(0.5), Sentiment.of(-0.5)])
    read: Any = ListenV1Response.model_validate(body)
    assert read.metadata.channels == 1
    assert read.results.channels[0].alternatives[0].transcript == "Hello, world. Good bye. Again."
    assert [each.transcript for each in read.results.utterances] == ["Hello, world. Good bye.", "Again."]
    assert [each.sentiment for each in read.results.sentiments.segments] == ["positive", "negative"]
    assert read.results.sentiments.average.sentiment == "neutral"


def test_all_of_them_were_made() -> None:
    assert {message["type"] for message in every_message()} == set(MODELS)
