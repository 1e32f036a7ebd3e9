"""What ``POST /v1/listen`` answers, as Deepgram's API for recordings has it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from asr_model.transcript import Sentiment, Word
from server.wire.messages import SECOND_DECIMALS, ModelCard, word_message
from server.wire.recordings.deepgram_query import RecordingOptions
from server.wire.recordings.spoken import Words, confidence, paragraphs, utterances

Json = dict[str, object]

SCORE_DECIMALS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was read."""

    request_id: str
    sha256: str
    """Of the audio as it came."""
    created: str
    """ISO 8601, UTC."""
    duration_s: float
    channels: Sequence[tuple[Word, ...]]
    """Words of each channel; one where they were mixed."""
    model: ModelCard


def answer(recording: Recording, options: RecordingOptions, sentiments: Sequence[Sentiment | None] = ()) -> Json:
    """The whole answer.

    Args:
        recording: What was read.
        options: What the client asked for.
        sentiments: Of each of ``stretches``, or () where nobody asks; None: not to be had. Where none is, the answer
            has no ``sentiments``.
    """
    written = [options.text.written(words) for words in recording.channels]
    results: Json = {"channels": [_channel(words, options) for words in written]}
    if options.utterances:
        results["utterances"] = [
            _utterance(words, channel, f"{recording.request_id}-{index}", options, sentiment)
            for index, ((channel, words), sentiment) in enumerate(
                zip_longest(stretches(recording, options), sentiments)
            )
        ]
    if any(sentiment is not None for sentiment in sentiments):
        results["sentiments"] = _sentiments(recording, options, sentiments)
    return {"metadata": _metadata(recording, options), "results": results}


def stretches(recording: Recording, options: RecordingOptions) -> list[tuple[int, Words]]:
    """The utterances of all channels with their channel, in the order of their starts."""
    found = [
        (channel, words)
        for channel, spoken in enumerate(recording.channels)
        for words in utterances(options.text.written(spoken), options.split_s)
    ]
    return sorted(found, key=lambda each: (each[1][0].source.start_s, each[0]))


def _metadata(recording: Recording, options: RecordingOptions) -> Json:
    model = recording.model
    metadata: Json = {
        "transaction_key": "deprecated",
        "request_id": recording.request_id,
        "sha256": recording.sha256,
        "created": recording.created,
        "duration": _seconds(recording.duration_s),
        "channels": len(recording.channels),
        "models": [model.model_uuid],
        "model_info": {model.model_uuid: model.info()},
    }
    if options.tags:
        metadata["tags"] = list(options.tags)
    if options.extra:
        metadata["extra"] = dict(options.extra)
    return metadata


def _channel(words: Words, options: RecordingOptions) -> Json:
    alternative: Json = {
        "transcript": options.text.transcript(tuple(words)),
        "confidence": confidence(words),
        "words": [word_message(word, options.text) for word in words],
    }
    if options.paragraphs:
        alternative["paragraphs"] = _paragraphs(words, options)
    return {"alternatives": [alternative]}


def _paragraphs(words: Words, options: RecordingOptions) -> Json:
    found = list(paragraphs(words))
    texts = [" ".join(options.text.transcript(tuple(sentence)) for sentence in paragraph) for paragraph in found]
    return {
        "transcript": "\n\n".join(texts),
        "paragraphs": [
            {
                "sentences": [
                    {
                        "text": options.text.transcript(tuple(sentence)),
                        "start": _seconds(sentence[0].source.start_s),
                        "end": _seconds(sentence[-1].source.end_s),
                    }
                    for sentence in paragraph
                ],
                "num_words": sum(len(sentence) for sentence in paragraph),
                "start": _seconds(paragraph[0][0].source.start_s),
                "end": _seconds(paragraph[-1][-1].source.end_s),
            }
            for paragraph in found
        ],
    }


def _utterance(
    words: Words, channel: int, utterance_id: str, options: RecordingOptions, sentiment: Sentiment | None
) -> Json:
    told = {} if sentiment is None else _sentiment(sentiment)
    return {
        "start": _seconds(words[0].source.start_s),
        "end": _seconds(words[-1].source.end_s),
        "confidence": confidence(words),
        "channel": channel,
        "transcript": options.text.transcript(tuple(words)),
        "words": [word_message(word, options.text) for word in words],
        "id": utterance_id,
        **told,
    }


def _sentiments(recording: Recording, options: RecordingOptions, sentiments: Sequence[Sentiment | None]) -> Json:
    """Of each utterance that has one, of which there must be one, and their mean weighted by words; words are counted
    over all utterances in their order.
    """
    segments: list[Json] = []
    first, n_told, weighted = 0, 0, 0.0
    for (_, words), sentiment in zip(stretches(recording, options), sentiments, strict=True):
        if sentiment is not None:
            segments.append(
                {
                    "text": options.text.transcript(tuple(words)),
                    "start_word": first,
                    "end_word": first + len(words) - 1,
                    **_sentiment(sentiment),
                }
            )
            weighted += sentiment.score * len(words)
            n_told += len(words)
        first += len(words)
    return {"segments": segments, "average": _sentiment(Sentiment.of(weighted / n_told))}


def _sentiment(sentiment: Sentiment) -> Json:
    return {"sentiment": sentiment.label, "sentiment_score": round(sentiment.score, SCORE_DECIMALS)}


def _seconds(value: float) -> float:
    return round(value, SECOND_DECIMALS)
