"""Deepgram's shape for recordings: the query, and the answer field by field."""

from dataclasses import replace

import pytest

from asr_model.transcript import Sentiment, Word
from server.wire.messages import ModelCard
from server.wire.parameters import PARAMETERS
from server.wire.query import BadQuery
from server.wire.recordings.deepgram_answer import Recording, answer, stretches
from server.wire.recordings.deepgram_query import RECORDING_PARAMETERS, RecordingOptions, parse_recording_query
from tests.server.wire.recordings.spoken_words import said

CARD = ModelCard(name="moonshine-base", version="1", arch="moonshine")


def recording(*channels: tuple[Word, ...]) -> Recording:
    return Recording(
        request_id="r-1",
        sha256="ab" * 32,
        created="2026-01-01T00:00:00.000Z",
        duration_s=9.5,
        channels=channels,
        model=CARD,
    )


def test_nothing_asked_is_the_plain_text() -> None:
    body = answer(recording(said("Hello, world.")), parse_recording_query(""))

    assert body["metadata"] == {
        "transaction_key": "deprecated",
        "request_id": "r-1",
        "sha256": "ab" * 32,
        "created": "2026-01-01T00:00:00.000Z",
        "duration": 9.5,
        "channels": 1,
        "models": [CARD.model_uuid],
        "model_info": {CARD.model_uuid: CARD.info()},
    }
    assert body["results"] == {
        "channels": [
            {
                "alternatives": [
                    {
                        "transcript": "Hello, world.",
                        "confidence": 0.9,
                        "words": [
                            {"word": "hello", "start": 0.0, "end": 0.4, "confidence": 0.9, "punctuated_word": "Hello,"},
                            {"word": "world", "start": 0.4, "end": 0.8, "confidence": 0.9, "punctuated_word": "world."},
                        ],
                    }
                ]
            }
        ]
    }


def test_utterances_are_cut_at_pauses_and_ordered_over_channels() -> None:
    left = (*said("One two."), *said("Three.", 5.0))
    right = said("Yes.", 2.0)

    body = answer(recording(left, right), parse_recording_query("utterances=true&utt_split=1.5"))

    assert isinstance(body["results"], dict)
    found = body["results"]["utterances"]
    assert [(each["channel"], each["transcript"], each["start"]) for each in found] == [
        (0, "One two.", 0.0),
        (1, "Yes.", 2.0),
        (0, "Three.", 5.0),
    ]
    assert len({each["id"] for each in found}) == 3


@pytest.mark.parametrize(("split_s", "n"), [("0.99", 2), ("1.01", 1)])
def test_utt_split_is_the_gap_between_words(split_s: str, n: int) -> None:
    words = (*said("a b"), *said("c", 1.8))
    options = parse_recording_query(f"utterances=true&utt_split={split_s}")
    assert len(stretches(recording(words), options)) == n


def test_paragraphs_are_sentences_with_pauses_between_them() -> None:
    words = (*said("One. Two? Three"), *said("goes on.", 2.0), *said("Four.", 9.0))

    body = answer(recording(words), RecordingOptions(paragraphs=True))

    assert isinstance(body["results"], dict)
    found = body["results"]["channels"][0]["alternatives"][0]["paragraphs"]
    assert found["transcript"] == "One. Two? Three goes on.\n\nFour."
    first, second = found["paragraphs"]
    assert [sentence["text"] for sentence in first["sentences"]] == ["One.", "Two?", "Three goes on."]
    assert (first["num_words"], first["start"], first["end"]) == (5, 0.0, 2.8)
    assert (second["num_words"], second["start"]) == (1, 9.0)


def test_the_sixth_sentence_begins_another_paragraph() -> None:
    body = answer(recording(said("A. B. C. D. E. F.")), RecordingOptions(paragraphs=True))

    assert isinstance(body["results"], dict)
    found = body["results"]["channels"][0]["alternatives"][0]["paragraphs"]["paragraphs"]
    assert [len(each["sentences"]) for each in found] == [5, 1]


def test_sentiments_are_of_utterances_and_their_mean_is_weighted_by_words() -> None:
    words = (*said("Good good good."), *said("Bad.", 9.0))
    told = [Sentiment.of(0.8), Sentiment.of(-0.4)]

    body = answer(recording(words), RecordingOptions(sentiment=True), told)

    assert isinstance(body["results"], dict)
    found = body["results"]["sentiments"]
    assert [(each["text"], each["start_word"], each["end_word"], each["sentiment"]) for each in found["segments"]] == [
        ("Good good good.", 0, 2, "positive"),
        ("Bad.", 3, 3, "negative"),
    ]
    assert found["average"] == {"sentiment": "positive", "sentiment_score": 0.5}


def test_what_has_no_sentiment_weighs_nothing() -> None:
    words = (*said("Good good good."), *said("Bad.", 9.0))
    options = RecordingOptions(sentiment=True, utterances=True)

    body = answer(recording(words), options, [None, Sentiment.of(-0.4)])

    assert isinstance(body["results"], dict)
    found = body["results"]["sentiments"]
    assert [each["start_word"] for each in found["segments"]] == [3]
    assert found["average"] == {"sentiment": "negative", "sentiment_score": -0.4}
    silent, bad = body["results"]["utterances"]
    assert "sentiment" not in silent
    assert "sentiment_score" not in silent
    assert (bad["sentiment"], bad["sentiment_score"]) == ("negative", -0.4)


def test_without_any_sentiment_there_is_no_mean() -> None:
    options = RecordingOptions(sentiment=True, utterances=True)

    body = answer(recording(said("Good.")), options, [None])

    assert isinstance(body["results"], dict)
    assert "sentiments" not in body["results"]
    assert "sentiment" not in body["results"]["utterances"][0]


def test_text_is_written_as_asked_everywhere() -> None:
    options = parse_recording_query("punctuate=false&filler_words=false&utterances=true&paragraphs=true")

    body = answer(recording(said("Well, uh, yes.")), options)

    assert isinstance(body["results"], dict)
    (alternative,) = body["results"]["channels"][0]["alternatives"]
    assert alternative["transcript"] == "well yes"
    assert alternative["paragraphs"]["transcript"] == "well yes"
    assert body["results"]["utterances"][0]["transcript"] == "well yes"
    assert "punctuated_word" not in alternative["words"][0]


def test_labels_come_back() -> None:
    body = answer(recording(()), parse_recording_query("tag=a&tag=b&extra=call:7"))

    assert isinstance(body["metadata"], dict)
    assert body["metadata"]["tags"] == ["a", "b"]
    assert body["metadata"]["extra"] == {"call": "7"}


def test_a_recording_without_words_has_an_empty_reading() -> None:
    everything = RecordingOptions(utterances=True, paragraphs=True, sentiment=True)

    body = answer(recording(()), everything, [])

    assert isinstance(body["results"], dict)
    assert body["results"]["utterances"] == []
    assert "sentiments" not in body["results"]
    assert body["results"]["channels"][0]["alternatives"][0]["transcript"] == ""


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("interim_results=true", "Of live streams only"),
        ("utterance_end_ms=1000", "Of live streams only"),
        ("endpointing=300", "Of live streams only"),
        ("diarize=true", "Speakers are not told apart"),
        ("summarize=v2", "summarize"),
        ("utt_split=0", "a number from 0.1 to 60"),
        ("utt_split=1e3", "a number from 0.1 to 60"),
        ("multichannel=true", "channels is missing"),
        ("colour=red", "is not known"),
    ],
)
def test_what_would_change_the_result_is_refused_by_name(query: str, message: str) -> None:
    with pytest.raises(BadQuery) as caught:
        parse_recording_query(query)
    assert message in str(caught.value)


def test_every_parameter_of_live_streams_is_known_here() -> None:
    assert set(PARAMETERS) <= set(RECORDING_PARAMETERS)
    assert parse_recording_query("interim_results=false") == replace(RecordingOptions())
