"""One client's session on ``/v1/listen``, sans IO: messages in, commands for the engine out; events in, messages out.

The whole behaviour is the table ``TRANSITIONS``. Nothing here raises for what a client sends: a broken contract becomes
the command ``Fail``, and its error is told to the client when the sequence has closed (I4). A session has one sequence
or, with ``multichannel``, one per channel; it ends when the last of them has, or the first has failed.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.codec.resampler import MODEL_RATE
from server.errors import (
    BadMessage,
    IdleTimeout,
    MessageTooLarge,
    MoorageError,
    PeerError,
    SequenceAlreadyEnded,
    SequenceTooLong,
    SlowReader,
)
from server.events import (
    CloseCause,
    Event,
    Partial,
    Queued,
    SequenceClosed,
    SequenceFailed,
    SpeechStarted,
    UtteranceFinal,
)
from server.wire.close_codes import NORMAL, close_code, close_reason
from server.wire.control_messages import ControlMessage, Message, parse_control
from server.wire.messages import Identity, configure_answer, error_message, metadata_message
from server.wire.query import SessionOptions
from server.wire.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Audio:
    """Decode these bytes, a whole message, and give what comes out to the sequences."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Finalize:
    """Flush the open utterance; the sequence goes on."""

    channel: int | None = None
    """None: of every sequence."""


@dataclass(frozen=True, slots=True)
class End:
    """Give what the decoder still holds to the sequences, flush and end them."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The client is there, although it sends no audio."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the sequences: the connection cannot go on. What was accepted is answered if ``Session.is_answering``."""

    error: MoorageError


Command = Audio | Finalize | End | KeepAlive | Fail


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
    WINDING_UP = "winding up"
    """The service ends the session; what was accepted is answered, then the reason is told."""
    FAILED = "failed"
    """The connection cannot go on; its sequences are being cancelled."""
    CLOSED = "closed"
    """The end was told."""


class Action(Enum):
    """What a session does about a message."""

    TAKE = "take"
    """Do what it says."""
    IGNORE = "ignore"
    """Nothing: it has no meaning any more, and no harm."""
    REFUSE = "refuse"
    """Tell the client once that it is not taken; what was accepted before is still answered."""


TRANSITIONS: Final[dict[tuple[State, Message], tuple[Action, State]]] = {
    **{(State.OPEN, message): (Action.TAKE, State.OPEN) for message in Message},
    (State.OPEN, Message.CLOSE_STREAM): (Action.TAKE, State.ENDING),
    (State.OPEN, Message.UNREADABLE): (Action.TAKE, State.FAILED),
    **{(State.ENDING, message): (Action.REFUSE, State.ENDING) for message in Message},
    (State.ENDING, Message.KEEP_ALIVE): (Action.IGNORE, State.ENDING),
    (State.ENDING, Message.CLOSE_STREAM): (Action.IGNORE, State.ENDING),
    **{
        (state, message): (Action.IGNORE, state)
        for state in (State.WINDING_UP, State.FAILED, State.CLOSED)
        for message in Message
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """What one session may take."""

    max_message_bytes: int = 1_048_576
    """Of one message with audio."""
    max_control_chars: int = 4096
    """Control messages are short; a longer text is not one."""
    max_sequence_s: float | None = None
    """Seconds of audio, per channel; None: no limit."""


class Session:
    """The protocol state of one connection."""

    def __init__(self, options: SessionOptions, identity: Identity, limits: SessionLimits | None = None) -> None:
        self._options = options
        self._identity = identity
        self._limits = limits or SessionLimits()
        self._state = State.OPEN
        self._sha256 = hashlib.sha256()
        self._decoded_samples = 0
        self._timelines = tuple(Timeline(options, identity, channel) for channel in range(options.sequences))
        self._ended_channels: set[int] = set()
        self._pending: list[Outgoing] = []
        self._has_refused = False
        self._failure: MoorageError | None = None
        self._parting: MoorageError | None = None

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self._state

    @property
    def parting(self) -> MoorageError | None:
        """Why the sequences are ended, if not because the client is done."""
        return self._failure or self._parting

    @property
    def is_answering(self) -> bool:
        """Whether what was accepted before a failure is still answered: the client broke the contract, but reads."""
        return isinstance(self._failure, PeerError) and not isinstance(self._failure, SlowReader)

    def receive_binary(self, data: bytes) -> list[Command]:
        """A whole message of audio; an empty one is CloseStream."""
        return self._receive(Message.AUDIO, data) if data else self._receive(Message.CLOSE_STREAM)

    def receive_text(self, text: str) -> list[Command]:
        """A control message."""
        try:
            control = parse_control(text, max_chars=self._limits.max_control_chars, channels=self._options.sequences)
        except BadMessage as error:
            return self._receive(Message.UNREADABLE, error=error)
        return self._receive(control.kind, control=control)

    def decoded(self, n_samples: int) -> list[Command]:
        """So many samples of 16 kHz more were given to each sequence."""
        if self._state in (State.FAILED, State.CLOSED):
            return []
        self._decoded_samples += n_samples
        limit_s = self._limits.max_sequence_s
        if limit_s is None or self._decoded_samples <= limit_s * MODEL_RATE:
            return []
        return self.wind_up(
            SequenceTooLong(f"the audio is longer than {limit_s:g} s, which is the most for one stream")
        )

    def wind_up(self, error: MoorageError) -> list[Command]:
        """The service ends the session: what was accepted is answered, then ``error`` told. Else nothing follows."""
        if self._state is not State.OPEN:
            return []
        self._state = State.WINDING_UP
        self._parting = error
        return [End()]

    def cut(self, error: MoorageError) -> None:
        """Some of its sequences are ended unanswered: the session's end is told with ``error``, after the others'."""
        self._parting = self._parting or error

    def fail(self, error: MoorageError) -> list[Command]:
        """The connection cannot go on. The first error is the one that is told."""
        if self._failure is not None or self._state is State.CLOSED:
            return []
        self._state = State.FAILED
        self._failure = error
        return [Fail(error)]

    def translate(self, event: Event, channel: int = 0) -> list[Outgoing]:
        """The messages that tell a client of an ``event`` of the sequence of ``channel``."""
        if self._state is State.CLOSED:
            return []
        match event:
            case SequenceClosed():
                return self._closed(event, channel)
            case SequenceFailed():
                return self._lost(event.error, channel)
        is_told = self._state is not State.FAILED or (self.is_answering and isinstance(event, UtteranceFinal))
        return self._tell(event, self._timelines[channel]) if is_told else []

    def pending(self) -> list[Outgoing]:
        """Answers that are due at once, without an event of the engine: refusals, and replies to Configure."""
        pending, self._pending = self._pending, []
        return pending

    def _receive(
        self,
        message: Message,
        data: bytes = b"",
        *,
        control: ControlMessage | None = None,
        error: MoorageError | None = None,
    ) -> list[Command]:
        action, next_state = TRANSITIONS[self._state, message]
        if action is Action.IGNORE:
            return []
        if action is Action.REFUSE:
            return self._refuse(message)
        if error is not None:
            return self.fail(error)
        self._state = next_state
        match message:
            case Message.FINALIZE:
                return [Finalize(control.channel if control else None)]
            case Message.CLOSE_STREAM:
                return [End()]
            case Message.CONFIGURE:
                self._pending.append(_text(configure_answer(self._identity, control.refusal if control else None)))
            case Message.AUDIO:
                return self._audio(data)
        return [KeepAlive()]

    def _audio(self, data: bytes) -> list[Command]:
        most = self._limits.max_message_bytes
        if len(data) > most:
            return self.fail(MessageTooLarge(f"a message of {len(data)} bytes; allowed: at most {most} bytes"))
        self._sha256.update(data)
        return [Audio(data)]

    def _refuse(self, message: Message) -> list[Command]:
        if not self._has_refused:
            self._has_refused = True
            error = SequenceAlreadyEnded(f"{message.value} after CloseStream is not taken")
            self._pending.append(_text(error_message(error, closes=False)))
        return []

    def _tell(self, event: Queued | SpeechStarted | Partial | UtteranceFinal, timeline: Timeline) -> list[Outgoing]:
        match event:
            case Queued():
                told = timeline.queued(event)
            case SpeechStarted():
                told = timeline.speech_started(event)
            case Partial():
                told = timeline.partial(event)
            case UtteranceFinal():
                told = timeline.final(event)
        return [_text(message) for message in told]

    def _closed(self, event: SequenceClosed, channel: int) -> list[Outgoing]:
        if self._failure is not None and not (self.is_answering and event.cause is CloseCause.END):
            return self._failed(self._failure)
        if event.cause is CloseCause.CANCELLED:
            self._state = State.CLOSED
            return self.pending()
        return self._ended(channel)

    def _lost(self, error: MoorageError, channel: int) -> list[Outgoing]:
        """All channels are ended for the same reason, and each is answered; a failure of one ends all at once."""
        if isinstance(error, IdleTimeout):
            self._parting = self._parting or error
        return self._ended(channel) if error in (self._failure, self._parting) else self._failed(error)

    def _ended(self, channel: int) -> list[Outgoing]:
        self._ended_channels.add(channel)
        if len(self._ended_channels) < len(self._timelines):
            return []
        return self._failed(self.parting) if self.parting else self._finished()

    def _finished(self) -> list[Outgoing]:
        self._state = State.CLOSED
        message = metadata_message(
            self._identity,
            sha256=self._sha256.hexdigest(),
            duration_s=self._decoded_samples / MODEL_RATE,
            channels=len(self._timelines),
            extra=self._options.extra,
        )
        return [*self.pending(), _text(message), Close(NORMAL, "")]

    def _failed(self, error: MoorageError) -> list[Outgoing]:
        first = self._failure or error
        self._state = State.CLOSED
        message = error_message(first, closes=True)
        return [*self.pending(), _text(message), Close(close_code(first), close_reason(first))]


def _text(message: object) -> Text:
    return Text(json.dumps(message, ensure_ascii=False))
