"""The one error tree.

    MoorageError
    ├── PeerError        the client broke the contract; it is told what was wrong and what is allowed
    └── ServiceError     we did; the client is told the code and never our internals

``code`` is the word on the wire, ``scope`` says how much an error ends.
"""

from enum import Enum
from typing import ClassVar


class Scope(Enum):
    """What an error ends."""

    REQUEST = "request"
    SEQUENCE = "sequence"
    CONNECTION = "connection"
    INSTANCE = "instance"


class MoorageError(Exception):
    """Root of every error that Moorage raises on purpose."""

    code: ClassVar[str] = "error"
    scope: ClassVar[Scope] = Scope.SEQUENCE


class PeerError(MoorageError):
    """The client broke the contract."""


class UnknownSequence(PeerError):
    """A chunk names a sequence that is not live: only START opens one (I3)."""

    code = "unknown_sequence"


class DuplicateSequence(PeerError):
    """START for an id that is live already."""

    code = "duplicate_sequence"


class SequenceAlreadyEnded(PeerError):
    """A chunk after END."""

    code = "sequence_ended"


class BadAudio(PeerError):
    """Audio that cannot be what it is declared to be: NaN, wrong magic, wrong shape."""

    code = "bad_audio"


class BadMessage(PeerError):
    """A message outside the protocol."""

    code = "bad_message"
    scope = Scope.CONNECTION


class BadParameter(PeerError):
    """A query parameter or value that the service does not know."""

    code = "bad_parameter"
    scope = Scope.CONNECTION


class MessageTooLarge(PeerError):
    """A message above the configured size."""

    code = "message_too_large"
    scope = Scope.CONNECTION


class IdleTimeout(PeerError):
    """Neither audio nor a keep-alive arrived in time (I9)."""

    code = "idle_timeout"


class SlowReader(PeerError):
    """The client did not read its results in time: they are never dropped, so its connection is."""

    code = "slow_reader"
    scope = Scope.CONNECTION


class SequenceTooLong(PeerError):
    """The sequence has reached the configured length; what came before is answered."""

    code = "sequence_too_long"


class Unauthorized(PeerError):
    """The request has no API key, or one that is not known."""

    code = "invalid_auth"
    scope = Scope.CONNECTION


class OriginRefused(PeerError):
    """The request comes from a web page of an origin that is not allowed."""

    code = "origin_refused"
    scope = Scope.CONNECTION


class KeyLimit(PeerError):
    """The API key has used up what it may; ``retry_after_s`` is when that may have changed."""

    code = "key_limit"
    scope = Scope.CONNECTION

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnknownModel(PeerError):
    """No model of that name is loaded."""

    code = "unknown_model"
    scope = Scope.REQUEST


class BadTensor(PeerError):
    """An input that the model does not take: its name, type, shape or size."""

    code = "bad_tensor"
    scope = Scope.REQUEST


class MissingStart(UnknownSequence):
    """A turn without START for a sequence that is not live."""

    code = "missing_start"


class ServiceError(MoorageError):
    """We broke the contract, or cannot take more."""


class CapacityExceeded(ServiceError):
    """Every slot is taken; ``retry_after_s`` is a hint for the client."""

    code = "capacity_exceeded"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(ServiceError):
    """A bounded queue has no room for this chunk or request now (I5)."""

    code = "queue_full"
    scope = Scope.REQUEST


class BacklogTimeout(ServiceError):
    """No slot became free in the time that a sequence may wait for one."""

    code = "backlog_timeout"


class RequestTimeout(ServiceError):
    """A request waited longer for its batch than it, or its queue's policy, allows."""

    code = "request_timeout"
    scope = Scope.REQUEST


class StepFailed(ServiceError):
    """The model failed in a step that held this row."""

    code = "step_failed"


class InstanceFailed(ServiceError):
    """The instance that held the sequence is gone."""

    code = "instance_failed"
    scope = Scope.INSTANCE


class CodecFailed(ServiceError):
    """The process that decoded the sequence's audio is gone, or failed at no fault of the audio."""

    code = "codec_failed"


class ShuttingDown(ServiceError):
    """The service takes no new work."""

    code = "shutting_down"


class ConfigError(ServiceError):
    """A configuration that cannot be served; the message names the dotted path of the field."""

    code = "bad_config"
    scope = Scope.INSTANCE
