"""The messages of ``/v1/listen`` from server to client, as Deepgram's live API has them.

What is ours stands under ``metadata.moorage``; clients written for Deepgram do not look there.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asr_model.transcript import Sentiment, UtteranceEnd
from server.errors import BadMessage, MoorageError
from server.events import StepInfo
from server.wire.close_codes import public_message
from server.wire.control_messages import ConfigureRefusal
from server.wire.message_fields import (
    Alternative,
    Channel,
    ConfigureAnswer,
    Error,
    Metadata,
    ModelInfo,
    MoorageInfo,
    QueuedMessage,
    Results,
    SpeechStartedMessage,
    UtteranceEndMessage,
    WordMessage,
)
from server.wire.text_format import TextFormat, WrittenWord

SECOND_DECIMALS: Final = 7
"""A sample of 16 kHz is 62.5 µs: positions come out exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model as clients are told of it."""

    name: str
    version: str
    arch: str

    @property
    def model_uuid(self) -> str:
        """The same for the same model on every server."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"moorage:{self.name}:{self.version}"))

    def info(self) -> ModelInfo:
        """As a message has it."""
        return {"name": self.name, "version": self.version, "arch": self.arch}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCards:
    """The models of a service."""

    live: ModelCard
    final: ModelCard | None
    """None where the live text is the final text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who answers whom; made outside, where clocks and randomness are."""

    request_id: str
    sequence_ids: tuple[str, ...]
    """By channel."""
    created: str
    """ISO 8601, UTC."""
    models: ModelCards

    @property
    def answering_model(self) -> ModelCard:
        """The model behind final texts."""
        return self.models.final or self.models.live


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The stretch of the timeline that a result stands for."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenResult:
    """A reading of an utterance, written as the client wants it."""

    words: tuple[WrittenWord, ...]
    live_words: tuple[WrittenWord, ...]
    """The live model's own, beside a final reading."""
    committed_words: int
    card: ModelCard
    """The model behind ``words``."""
    utterance: int
    covered_s: float
    step: StepInfo
    cause: UtteranceEnd | None = None
    """Why the utterance ended; None: it is open."""
    is_speech_final: bool = False
    sentiment: Sentiment | None = None


def results_message(
    result: WrittenResult, span: Span, channel: tuple[int, int], identity: Identity, text: TextFormat
) -> Results:
    """The message with a reading. ``channel``: which of how many."""
    return {
        "type": "Results",
        "channel_index": list(channel),
        "duration": _seconds(span.end_s - span.start_s),
        "start": _seconds(span.start_s),
        "is_final": result.cause is not None,
        "speech_final": result.is_speech_final,
        "from_finalize": result.cause is UtteranceEnd.FINALIZE,
        "channel": _channel(result, text),
        "metadata": {
            "request_id": identity.request_id,
            "model_info": result.card.info(),
            "model_uuid": result.card.model_uuid,
            "moorage": _moorage(result, identity.sequence_ids[channel[0]], text),
        },
    }


def speech_started_message(channel: tuple[int, int], at_s: float) -> SpeechStartedMessage:
    """Speech begins at ``at_s``."""
    return {"type": "SpeechStarted", "channel": list(channel), "timestamp": _seconds(at_s)}


def utterance_end_message(channel: tuple[int, int], last_word_s: float) -> UtteranceEndMessage:
    """Nothing was said for a while after ``last_word_s``."""
    return {"type": "UtteranceEnd", "channel": list(channel), "last_word_end": _seconds(last_word_s)}


def queued_message(channel: tuple[int, int], position: int, expected_wait_s: float | None) -> QueuedMessage:
    """The stream's place in the line for a slot."""
    wait_ms = None if expected_wait_s is None else round(expected_wait_s * 1000)
    return {"type": "Queued", "channel": list(channel), "position": position, "expected_wait_ms": wait_ms}


def metadata_message(
    identity: Identity, *, sha256: str, duration_s: float, channels: int, extra: Sequence[tuple[str, str]]
) -> Metadata:
    """The session as a whole."""
    cards = [card for card in (identity.models.live, identity.models.final) if card is not None]
    message: Metadata = {
        "type": "Metadata",
        "transaction_key": "deprecated",
        "request_id": identity.request_id,
        "sha256": sha256,
        "created": identity.created,
        "duration": _seconds(duration_s),
        "channels": channels,
        "models": [card.model_uuid for card in cards],
        "model_info": {card.model_uuid: card.info() for card in cards},
    }
    if extra:
        message["extra"] = dict(extra)
    return message


def configure_answer(identity: Identity, refusal: ConfigureRefusal | None) -> ConfigureAnswer:
    """What a Configure message is answered with."""
    if refusal is None:
        return {"type": "ConfigureSuccess", "request_id": identity.request_id}
    return {
        "type": "ConfigureFailure",
        "request_id": identity.request_id,
        "code": refusal.code,
        "description": refusal.description,
    }


def error_message(error: MoorageError, *, closes: bool) -> Error:
    """What the client is told of an error."""
    message = public_message(error)
    words = error.code.split("_")
    return {
        "type": "Error",
        "code": error.code,
        "variant": "SchemaError" if isinstance(error, BadMessage) else "".join(word.title() for word in words),
        "message": message,
        "description": message,
        "closes": closes,
    }


def _channel(result: WrittenResult, text: TextFormat) -> Channel:
    words = result.words
    confidence = sum(word.source.confidence for word in words) / len(words) if words else 0.0
    alternative: Alternative = {
        "transcript": text.transcript(words),
        "confidence": round(confidence, 4),
        "words": [word_message(word, text) for word in words],
    }
    if result.sentiment is not None:
        alternative["sentiment"] = result.sentiment.label
        alternative["sentiment_score"] = round(result.sentiment.score, 4)
    return {"alternatives": [alternative]}


def word_message(word: WrittenWord, text: TextFormat) -> WordMessage:
    """One word as clients get it."""
    message: WordMessage = {
        "word": word.bare,
        "start": _seconds(word.source.start_s),
        "end": _seconds(word.source.end_s),
        "confidence": round(word.source.confidence, 4),
    }
    if text.punctuate:
        message["punctuated_word"] = word.text
    return message


def _moorage(result: WrittenResult, sequence_id: str, text: TextFormat) -> MoorageInfo:
    info: MoorageInfo = {
        "sequence_id": sequence_id,
        "instance": result.step.instance,
        "slot": result.step.slot,
        "batch_size": result.step.batch_size,
        "queue_ms": round(result.step.queue_ms, 3),
        "step_ms": round(result.step.step_ms, 3),
        "utterance": result.utterance,
        "covered_s": _seconds(result.covered_s),
        "committed_words": result.committed_words,
    }
    if result.cause is not None:
        info["live_text"] = text.transcript(result.live_words)
        info["live_words"] = [word_message(word, text) for word in result.live_words]
    return info


def _seconds(value: float) -> float:
    return round(value, SECOND_DECIMALS)
