"""The messages of ``/v1/listen`` from server to client, field by field as Deepgram's live API has them.

What is ours stands under ``metadata.moorage``; clients written for Deepgram do not look there.
"""

import uuid
from dataclasses import dataclass
from typing import Final, Literal, NotRequired, TypedDict

from asr_model.transcript import UtteranceEnd, Word, joined
from server.errors import MoorageError
from server.events import Partial, StepInfo, UtteranceFinal
from server.wire.close_codes import public_message

ENDS_SPEECH: Final = frozenset({UtteranceEnd.ENDPOINT, UtteranceEnd.FINALIZE, UtteranceEnd.END})
"""Causes after which the speaker has paused or is done; a cut by length or stall is in the middle of speech."""
SECOND_DECIMALS: Final = 7
"""A sample of 16 kHz is 62.5 µs: positions come out exact."""
INNER_MARKS: Final = frozenset("'’-")
"""Marks that belong to a word when they stand inside it."""


class WordMessage(TypedDict):
    """One word: ``word`` in lower case without punctuation, ``punctuated_word`` as the model wrote it."""

    word: str
    start: float
    end: float
    confidence: float
    punctuated_word: str


class Alternative(TypedDict):
    """One reading; there is always exactly one."""

    transcript: str
    confidence: float
    words: list[WordMessage]


class Channel(TypedDict):
    """One audio channel."""

    alternatives: list[Alternative]


class ModelInfo(TypedDict):
    """A model that answered."""

    name: str
    version: str
    arch: str


class MoorageInfo(TypedDict):
    """Where and how a result was computed."""

    sequence_id: str
    instance: int
    slot: int
    batch_size: int
    queue_ms: float
    step_ms: float
    utterance: int
    covered_s: float
    """Seconds of the sequence's audio that the result covers."""
    committed_words: int
    """The first so many words stand."""
    live_text: str
    live_words: list[WordMessage]


class ResultsMetadata(TypedDict):
    """Metadata of one result."""

    request_id: str
    model_info: ModelInfo
    model_uuid: str
    moorage: MoorageInfo


class Results(TypedDict):
    """A reading of an utterance, interim or final."""

    type: Literal["Results"]
    channel_index: list[int]
    duration: float
    start: float
    is_final: bool
    speech_final: bool
    from_finalize: bool
    channel: Channel
    metadata: ResultsMetadata


class Metadata(TypedDict):
    """The last message of a session that ended well."""

    type: Literal["Metadata"]
    transaction_key: str
    request_id: str
    sha256: str
    """Of the audio bytes as they came."""
    created: str
    duration: float
    channels: int
    models: list[str]
    model_info: dict[str, ModelInfo]


class Error(TypedDict):
    """Why something was refused; the connection closes after it where ``closes`` is true."""

    type: Literal["Error"]
    code: str
    message: str
    description: NotRequired[str]
    """The message once more, under the name that Deepgram's clients read."""
    closes: bool


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
    sequence_id: str
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


def interim_results(event: Partial, span: Span, identity: Identity) -> Results:
    """The open utterance as it is read now."""
    words = event.committed + event.draft
    return {
        "type": "Results",
        "channel_index": [0, 1],
        "duration": _seconds(span.end_s - span.start_s),
        "start": _seconds(span.start_s),
        "is_final": False,
        "speech_final": False,
        "from_finalize": False,
        "channel": _channel(words),
        "metadata": _metadata(
            identity,
            identity.models.live,
            _moorage(identity, event.step, event.utterance, event.covered_s, len(event.committed), words),
        ),
    }


def final_results(event: UtteranceFinal, span: Span, identity: Identity) -> Results:
    """An utterance, complete."""
    return {
        "type": "Results",
        "channel_index": [0, 1],
        "duration": _seconds(span.end_s - span.start_s),
        "start": _seconds(span.start_s),
        "is_final": True,
        "speech_final": event.cause in ENDS_SPEECH,
        "from_finalize": event.cause is UtteranceEnd.FINALIZE,
        "channel": _channel(event.words),
        "metadata": _metadata(
            identity,
            identity.answering_model if event.has_final_pass else identity.models.live,
            _moorage(identity, event.step, event.utterance, event.end_s, len(event.words), event.live_words),
        ),
    }


def metadata_message(identity: Identity, *, sha256: str, duration_s: float) -> Metadata:
    """The session as a whole."""
    cards = [card for card in (identity.models.live, identity.models.final) if card is not None]
    return {
        "type": "Metadata",
        "transaction_key": "deprecated",
        "request_id": identity.request_id,
        "sha256": sha256,
        "created": identity.created,
        "duration": _seconds(duration_s),
        "channels": 1,
        "models": [card.model_uuid for card in cards],
        "model_info": {card.model_uuid: card.info() for card in cards},
    }


def error_message(error: MoorageError, *, closes: bool) -> Error:
    """What the client is told of an error."""
    message = public_message(error)
    return {"type": "Error", "code": error.code, "message": message, "description": message, "closes": closes}


def bare_word(written: str) -> str:
    """A word in lower case and without punctuation around it: ``"Don't,"`` → ``don't``."""
    bare = "".join(mark for mark in written.lower() if mark.isalnum() or mark in INNER_MARKS).strip("'’-")
    return bare or written.lower()


def _channel(words: tuple[Word, ...]) -> Channel:
    confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
    return {
        "alternatives": [
            {"transcript": joined(words), "confidence": round(confidence, 4), "words": [_word(word) for word in words]}
        ]
    }


def _word(word: Word) -> WordMessage:
    return {
        "word": bare_word(word.text),
        "start": _seconds(word.start_s),
        "end": _seconds(word.end_s),
        "confidence": round(word.confidence, 4),
        "punctuated_word": word.text,
    }


def _metadata(identity: Identity, card: ModelCard, moorage: MoorageInfo) -> ResultsMetadata:
    return {
        "request_id": identity.request_id,
        "model_info": card.info(),
        "model_uuid": card.model_uuid,
        "moorage": moorage,
    }


def _moorage(
    identity: Identity, step: StepInfo, utterance: int, covered_s: float, committed_words: int, live: tuple[Word, ...]
) -> MoorageInfo:
    return {
        "sequence_id": identity.sequence_id,
        "instance": step.instance,
        "slot": step.slot,
        "batch_size": step.batch_size,
        "queue_ms": round(step.queue_ms, 3),
        "step_ms": round(step.step_ms, 3),
        "utterance": utterance,
        "covered_s": _seconds(covered_s),
        "committed_words": committed_words,
        "live_text": joined(live),
        "live_words": [_word(word) for word in live],
    }


def _seconds(value: float) -> float:
    return round(value, SECOND_DECIMALS)
