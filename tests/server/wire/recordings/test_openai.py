"""OpenAI's shape for recordings: which fields are taken, and what each format of the answer looks like."""

import json

import pytest

from server.errors import CapacityExceeded
from server.wire.recordings.openai_answer import answer, delta_event, done_event, error_body
from server.wire.recordings.openai_form import BadField, ResponseFormat, TranscriptionForm, parse_form
from tests.server.wire.recordings.spoken_words import said

FORM = {"model": ["whisper-1"]}
PIECES = [said("Hello, world."), (), said("How are you?", 20.0)]


def test_a_model_is_all_that_is_needed() -> None:
    assert parse_form(FORM) == TranscriptionForm()
    assert parse_form({"model": ["my-final"]}, ("my-final",)) == TranscriptionForm()
    assert parse_form({"model": ["gpt-4o-mini-transcribe-2025-12-15"]}) == TranscriptionForm()


def test_all_that_changes_nothing_is_taken() -> None:
    harmless = {
        "language": ["en"],
        "temperature": ["0.0"],
        "prompt": [""],
        "stream": ["false"],
        "chunking_strategy": ["auto"],
    }
    assert parse_form(FORM | harmless) == TranscriptionForm()


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({}, "model", "is missing; allowed: whisper-1"),
        ({"model": ["whisper-2"]}, "model", "is 'whisper-2'; allowed: whisper-1"),
        (FORM | {"language": ["de"]}, "language", "the models read English alone"),
        (FORM | {"prompt": ["Moorage"]}, "prompt", "cannot be prompted"),
        (FORM | {"temperature": ["0.8"]}, "temperature", "allowed: 0"),
        (FORM | {"response_format": ["xml"]}, "response_format", "allowed: json, text, srt, verbose_json, vtt"),
        (FORM | {"response_format": ["json", "text"]}, "response_format", "is given twice"),
        (FORM | {"include[]": ["logprobs"]}, "include[]", "is not supported"),
        (FORM | {"timestamp_granularities[]": ["word"]}, "timestamp_granularities[]", "needs response_format"),
        (
            FORM | {"response_format": ["verbose_json"], "timestamp_granularities[]": ["line"]},
            "timestamp_granularities[]",
            "allowed: word, segment",
        ),
        (FORM | {"stream": ["true"], "response_format": ["srt"]}, "stream", "needs response_format json or text"),
        (FORM | {"stream": ["maybe"]}, "stream", "allowed: true, false"),
        (FORM | {"chunking_strategy": ['{"type": "server_vad"}']}, "chunking_strategy", "allowed: auto"),
        (FORM | {"diarize": ["true"]}, "diarize", "is not known; allowed: file, model"),
        (FORM | {"language": ["e" * 5000]}, "language", "has more than 4096 characters"),
    ],
)
def test_what_would_be_ignored_elsewhere_is_refused_by_name(
    fields: dict[str, list[str]], param: str, message: str
) -> None:
    with pytest.raises(BadField, match="^" + param.replace("[]", r"\[\]")) as caught:
        parse_form(fields)
    assert message in str(caught.value)
    assert caught.value.param == param


def test_granularities_choose_words_and_segments() -> None:
    verbose = FORM | {"response_format": ["verbose_json"]}

    def times(*values: str) -> tuple[bool, bool]:
        form = parse_form(verbose | ({"timestamp_granularities[]": list(values)} if values else {}))
        return form.word_times, form.segment_times

    assert times() == (False, True)
    assert times("word") == (True, False)
    assert times("word", "segment") == (True, True)


def test_json_and_text_have_the_words_as_one_line() -> None:
    body = json.loads(answer(TranscriptionForm(), PIECES, 24.2))

    assert body == {"text": "Hello, world. How are you?", "usage": {"type": "duration", "seconds": 25}}
    text = answer(TranscriptionForm(response_format=ResponseFormat.TEXT), PIECES, 24.2)
    assert text == "Hello, world. How are you?\n"


def test_verbose_json_has_a_segment_for_each_piece_with_words() -> None:
    form = TranscriptionForm(response_format=ResponseFormat.VERBOSE_JSON, word_times=True)

    body = json.loads(answer(form, PIECES, 24.25))

    assert (body["task"], body["language"], body["duration"]) == ("transcribe", "english", 24.25)
    first, second = body["segments"]
    assert (first["id"], first["start"], first["end"], first["text"]) == (0, 0.0, 0.8, "Hello, world.")
    assert (second["id"], second["seek"], second["start"], second["end"]) == (1, 2000, 20.0, 21.2)
    assert first["avg_logprob"] == pytest.approx(-0.105)
    assert first["no_speech_prob"] == pytest.approx(0.1)
    assert [word["word"] for word in body["words"]] == ["Hello,", "world.", "How", "are", "you?"]


def test_subtitles_are_subtitles() -> None:
    srt = answer(TranscriptionForm(response_format=ResponseFormat.SRT), PIECES, 24.2)
    vtt = answer(TranscriptionForm(response_format=ResponseFormat.VTT), PIECES, 24.2)

    assert srt.startswith("1\n00:00:00,000 --> 00:00:0")
    assert "2\n00:00:20,000 --> " in srt
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> ")


def test_events_add_up_to_the_text() -> None:
    deltas = [delta_event(PIECES[0], is_first=True), delta_event(PIECES[2], is_first=False)]
    done = json.loads(done_event(PIECES, 3.0).removeprefix("data: "))

    assert done["text"] == "".join(json.loads(event.removeprefix("data: "))["delta"] for event in deltas)
    assert done["type"] == "transcript.text.done"


def test_a_recording_without_words_is_an_empty_text() -> None:
    assert json.loads(answer(TranscriptionForm(), [(), ()], 3.0))["text"] == ""
    assert answer(TranscriptionForm(response_format=ResponseFormat.VTT), [], 3.0) == "WEBVTT\n"
    verbose = json.loads(answer(TranscriptionForm(response_format=ResponseFormat.VERBOSE_JSON), [()], 3.0))
    assert verbose["segments"] == []


def test_errors_name_the_field_and_hide_what_is_ours() -> None:
    refused = error_body(BadField("prompt", "no"))
    full = error_body(CapacityExceeded("slot table of instance 3"))

    assert refused["error"] == {
        "message": "prompt: no",
        "type": "invalid_request_error",
        "param": "prompt",
        "code": "bad_parameter",
    }
    assert isinstance(full["error"], dict)
    assert full["error"]["type"] == "server_error"
