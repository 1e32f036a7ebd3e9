"""A session with its client: what is sent in, what comes out, decoded."""

import json
from collections.abc import Sequence
from typing import Any

from asr_model.transcript import UtteranceEnd, Word
from server.events import CloseCause, Event, Partial, SequenceClosed, SpeechStarted, StepInfo, UtteranceFinal
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import Samples
from server.wire.messages import Identity, ModelCard, ModelCards
from server.wire.query import parse_query
from server.wire.session import Outgoing, Session, SessionLimits, Text

SEQUENCE = SequenceId("5e9")
LIVE = ModelCard(name="accumulator", version="1", arch="sum")
FINAL = ModelCard(name="sum", version="1", arch="sum")
IDENTITY = Identity(
    request_id="req",
    sequence_ids=(SEQUENCE, "5e9-1", "5e9-2"),
    created="2026-01-02T03:04:05.678Z",
    models=ModelCards(live=LIVE, final=FINAL),
)
STEP = StepInfo(instance=InstanceIndex(1), slot=SlotIndex(2), batch_size=3, queue_ms=4.5, step_ms=6.25)


def make_session(query: str = "", **limits: Any) -> Session:
    """An open session; interim results are on unless the query says otherwise. ``limits`` are those of the session."""
    options = parse_query(query if "interim_results" in query else f"interim_results=true&{query}")
    return Session(options, IDENTITY, SessionLimits(**limits))


def said(text: str, start_s: float = 0.0) -> tuple[Word, ...]:
    """Words half a second long each."""
    return tuple(
        Word(text=word, start_s=start_s + index / 2, end_s=start_s + (index + 1) / 2, confidence=0.5)
        for index, word in enumerate(text.split())
    )


def partial(committed: str, draft: str = "", *, utterance: int = 0, start_s: float = 0.0, covered_s: float) -> Partial:
    """A Partial."""
    return Partial(
        sequence_id=SEQUENCE,
        utterance=utterance,
        start_s=start_s,
        covered_s=covered_s,
        committed=said(committed, start_s),
        draft=said(draft, start_s + len(committed.split()) / 2),
        is_speech=True,
        step=STEP,
    )


def final(
    text: str, cause: UtteranceEnd, span: tuple[float, float], *, utterance: int = 0, live: str | None = None
) -> UtteranceFinal:
    """An UtteranceFinal."""
    return UtteranceFinal(
        sequence_id=SEQUENCE,
        utterance=utterance,
        cause=cause,
        start_s=span[0],
        end_s=span[1],
        words=said(text, span[0]),
        live_words=said(text if live is None else live, span[0]),
        step=STEP,
    )


def speech_started(at_s: float) -> SpeechStarted:
    """A SpeechStarted."""
    return SpeechStarted(sequence_id=SEQUENCE, at_s=at_s)


def closed(cause: CloseCause = CloseCause.END) -> SequenceClosed:
    """A SequenceClosed."""
    return SequenceClosed(sequence_id=SEQUENCE, cause=cause, audio_s=0.0)


def messages(outgoing: Sequence[Outgoing]) -> list[Any]:
    """Decoded texts, and closes as they are."""
    return [json.loads(each.text) if isinstance(each, Text) else each for each in outgoing]


def tell(session: Session, *events: Event, channel: int = 0) -> list[Any]:
    """What the client hears of the events of a channel."""
    return [message for event in events for message in messages(session.translate(event, channel))]


def linear16(samples: Samples) -> bytes:
    """Samples that are multiples of 1/32768, as a client sends them."""
    return (samples * 32768).astype("<i2").tobytes()
