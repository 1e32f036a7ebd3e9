"""One client's session on ``/v1/listen``, sans IO: messages in, commands for the engine out; events in, messages out.

The whole behaviour is the table ``TRANSITIONS``. Nothing here raises for what a client sends: a broken contract becomes
the command ``Fail``, and its error is told to the client when the sequence has closed (I4).
"""

import hashlib
import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from asr_model.transcript import UtteranceEnd
from server.errors import BadMessage, MoorageError, PeerError, SequenceAlreadyEnded
from server.events import CloseCause, Event, Partial, SequenceClosed, SequenceFailed, UtteranceFinal
from server.linear16 import Linear16Decoder
from server.plan import Samples
from server.resampler import Resampler
from server.wire.close_codes import NORMAL, close_code, close_reason
from server.wire.messages import (
    Identity,
    Span,
    error_message,
    final_results,
    interim_results,
    metadata_message,
)
from server.wire.query import SessionOptions

MAX_CONTROL_CHARS: Final = 4096
"""Control messages are short; a longer text is not one."""


@dataclass(frozen=True, slots=True)
class SendAudio:
    """Give these samples to the sequence."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Finalize:
    """Flush the open utterance; the sequence goes on."""


@dataclass(frozen=True, slots=True)
class End:
    """Flush and end the sequence."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The client is there, although it sends no audio."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Cancel the sequence: the client broke the contract."""

    error: MoorageError


Command = SendAudio | Finalize | End | KeepAlive | Fail


@dataclass(frozen=True, slots=True)
class Text:
    """Send this text message."""

    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection; nothing follows."""

    code: int
    reason: str


Outgoing = Text | Close


class State(Enum):
    """Where a session stands."""

    OPEN = "open"
    """Audio and control messages are taken."""
    ENDING = "ending"
    """CloseStream came; the last results are on their way."""
    FAILED = "failed"
    """The client broke the contract; its sequence is being cancelled."""
    CLOSED = "closed"
    """The terminal event was told."""


class Message(Enum):
    """What a client can send."""

    AUDIO = "audio"
    FINALIZE = "Finalize"
    CLOSE_STREAM = "CloseStream"
    KEEP_ALIVE = "KeepAlive"


class Action(Enum):
    """What a session does about a message."""

    TAKE = "take"
    """Pass it on to the sequence."""
    IGNORE = "ignore"
    """Nothing: it has no meaning any more, and no harm."""
    REFUSE = "refuse"
    """Tell the client once that it is not taken; what was accepted before is still answered."""


TRANSITIONS: Final[dict[tuple[State, Message], tuple[Action, State]]] = {
    (State.OPEN, Message.AUDIO): (Action.TAKE, State.OPEN),
    (State.OPEN, Message.FINALIZE): (Action.TAKE, State.OPEN),
    (State.OPEN, Message.KEEP_ALIVE): (Action.TAKE, State.OPEN),
    (State.OPEN, Message.CLOSE_STREAM): (Action.TAKE, State.ENDING),
    (State.ENDING, Message.AUDIO): (Action.REFUSE, State.ENDING),
    (State.ENDING, Message.FINALIZE): (Action.REFUSE, State.ENDING),
    (State.ENDING, Message.KEEP_ALIVE): (Action.IGNORE, State.ENDING),
    (State.ENDING, Message.CLOSE_STREAM): (Action.IGNORE, State.ENDING),
    **{(State.FAILED, message): (Action.IGNORE, State.FAILED) for message in Message},
    **{(State.CLOSED, message): (Action.IGNORE, State.CLOSED) for message in Message},
}


@dataclass(slots=True)
class _Told:
    """What of the timeline the client has heard of."""

    until_s: float = 0.0
    """Finals were sent up to here; the next one starts here, so that they tile the timeline."""
    next_utterance: int = 0
    finals: int = 0
    errors: list[MoorageError] = field(default_factory=list)
    """Refusals that are still to be told."""
    refused: bool = False


class Session:
    """The protocol state of one connection."""

    def __init__(self, options: SessionOptions, identity: Identity) -> None:
        self._options = options
        self._identity = identity
        self._state = State.OPEN
        self._decoder = Linear16Decoder()
        self._resampler = Resampler(options.sample_rate)
        self._sha256 = hashlib.sha256()
        self._received_samples = 0
        self._told = _Told()
        self._failure: MoorageError | None = None

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self._state

    def receive_binary(self, data: bytes) -> list[Command]:
        """Audio in any framing; an empty message is CloseStream."""
        if not data:
            return self._receive(Message.CLOSE_STREAM)
        return self._receive(Message.AUDIO, data)

    def receive_text(self, text: str) -> list[Command]:
        """A control message."""
        try:
            message = _control_message(text)
        except BadMessage as error:
            return self.fail(error)
        return self._receive(message)

    def fail(self, error: MoorageError) -> list[Command]:
        """The connection cannot go on; what was accepted is given up. The first error is the one that is told."""
        if self._state in (State.FAILED, State.CLOSED):
            return []
        self._state = State.FAILED
        self._failure = error
        return [Fail(error)]

    def translate(self, event: Event) -> list[Outgoing]:
        """The messages that tell a client of ``event``."""
        if self._state is State.CLOSED:
            return []
        match event:
            case Partial():
                return self._partial(event)
            case UtteranceFinal():
                return self._final(event)
            case SequenceClosed():
                return self._closed(event)
            case SequenceFailed():
                return self._failed(event.error)

    def pending(self) -> list[Outgoing]:
        """Refusals that were not told yet: due at once, without an event of the engine."""
        errors, self._told.errors = self._told.errors, []
        return [_text(error_message(error, closes=False)) for error in errors]

    def _receive(self, message: Message, data: bytes = b"") -> list[Command]:
        action, self._state = TRANSITIONS[self._state, message]
        if action is Action.IGNORE:
            return []
        if action is Action.REFUSE:
            return self._refuse(message)
        match message:
            case Message.AUDIO:
                return self._audio(data)
            case Message.FINALIZE:
                return [Finalize()]
            case Message.KEEP_ALIVE:
                return [KeepAlive()]
            case Message.CLOSE_STREAM:
                tail = self._resampler.finish()
                return [SendAudio(tail), End()] if len(tail) else [End()]

    def _audio(self, data: bytes) -> list[Command]:
        try:
            samples = self._decoder.decode(data)
        except PeerError as error:
            return self.fail(error)
        self._sha256.update(data)
        self._received_samples += len(samples)
        resampled = self._resampler.process(samples)
        # bytes that complete no sample yet are a sign of life all the same
        return [SendAudio(resampled)] if len(resampled) else [KeepAlive()]

    def _refuse(self, message: Message) -> list[Command]:
        if not self._told.refused:
            self._told.refused = True
            self._told.errors.append(SequenceAlreadyEnded(f"{message.value} after CloseStream is not taken"))
        return []

    def _partial(self, event: Partial) -> list[Outgoing]:
        if not self._options.interim_results or self._state is State.FAILED:
            return []
        is_next = event.utterance == self._told.next_utterance
        start_s = self._told.until_s if is_next else event.start_s
        span = Span(start_s=start_s, end_s=max(start_s, event.covered_s))
        return [_text(interim_results(event, span, self._identity))]

    def _final(self, event: UtteranceFinal) -> list[Outgoing]:
        self._told.next_utterance = event.utterance + 1
        if self._state is State.FAILED or not self._is_worth_telling(event):
            return []
        span = Span(start_s=self._told.until_s, end_s=max(self._told.until_s, event.end_s))
        self._told.until_s = span.end_s
        self._told.finals += 1
        return [_text(final_results(event, span, self._identity))]

    def _is_worth_telling(self, event: UtteranceFinal) -> bool:
        """Empty utterances are told only where the client waits for an answer.

        That is after each Finalize, and at the end if there has been no final result at all.
        """
        if event.words or event.live_words or event.cause is UtteranceEnd.FINALIZE:
            return True
        return event.cause is UtteranceEnd.END and self._told.finals == 0

    def _closed(self, event: SequenceClosed) -> list[Outgoing]:
        if self._failure is not None:
            return self._failed(self._failure)
        outgoing = self.pending()
        self._state = State.CLOSED
        if event.cause is CloseCause.CANCELLED:
            return outgoing
        duration_s = self._received_samples / self._options.sample_rate
        message = metadata_message(self._identity, sha256=self._sha256.hexdigest(), duration_s=duration_s)
        return [*outgoing, _text(message), Close(NORMAL, "")]

    def _failed(self, error: MoorageError) -> list[Outgoing]:
        first = self._failure or error
        outgoing = self.pending()
        self._state = State.CLOSED
        return [*outgoing, _text(error_message(first, closes=True)), Close(close_code(first), close_reason(first))]


def _control_message(text: str) -> Message:
    """Raises: BadMessage: not a control message of this protocol."""
    allowed = "Finalize, CloseStream, KeepAlive"
    if len(text) > MAX_CONTROL_CHARS:
        raise BadMessage(f"a text of {len(text)} characters is no control message; audio goes in binary messages")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage(
            f"{_shown(text)} is not JSON; text messages are JSON objects, audio goes in binary messages"
        ) from None
    if not isinstance(message, dict):
        raise BadMessage(f'{_shown(text)} is not a JSON object with a "type"; allowed types: {allowed}')
    name = message.get("type")
    try:
        kind = Message(name)
    except ValueError:
        kind = Message.AUDIO
    if kind is Message.AUDIO:
        raise BadMessage(f"message type {_shown(name)} is not known; allowed types: {allowed}")
    return kind


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def _text(message: object) -> Text:
    return Text(json.dumps(message, ensure_ascii=False))
