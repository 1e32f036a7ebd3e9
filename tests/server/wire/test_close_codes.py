"""Which error closes a connection how."""

import pytest

from server.errors import (
    BadAudio,
    BadMessage,
    CapacityExceeded,
    ConfigError,
    IdleTimeout,
    InstanceFailed,
    MessageTooLarge,
    MoorageError,
    PeerError,
    QueueFull,
    SequenceAlreadyEnded,
    SequenceTooLong,
    ServiceError,
    ShuttingDown,
    SlowReader,
    StepFailed,
    UnknownSequence,
)
from server.wire.close_codes import close_code, close_reason


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadAudio("x"), 1003),
        (BadMessage("x"), 1007),
        (SequenceAlreadyEnded("x"), 1008),
        (UnknownSequence("x"), 1008),
        (SlowReader("x"), 1008),
        (SequenceTooLong("x"), 1008),
        (MessageTooLarge("x"), 1009),
        (IdleTimeout("x"), 1011),
        (StepFailed("x"), 1011),
        (InstanceFailed("x"), 1011),
        (QueueFull("x"), 1011),
        (ShuttingDown("x"), 1012),
        (CapacityExceeded("x"), 1013),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MoorageError) else "",
)
def test_codes(error: MoorageError, code: int) -> None:
    assert close_code(error) == code


def every_error(kind: type[MoorageError]) -> list[type[MoorageError]]:
    return [each for below in kind.__subclasses__() for each in (below, *every_error(below))]


@pytest.mark.parametrize("kind", [*every_error(PeerError), *every_error(ServiceError)])
def test_every_error_has_a_code(kind: type[MoorageError]) -> None:
    assert 1000 < close_code(kind.__new__(kind)) < 1014


class TestReason:
    def test_idle_clients_find_their_word(self) -> None:
        assert close_reason(IdleTimeout("no audio for 10 s")) == "NET-0001: no audio for 10 s"

    def test_our_own_faults_stay_ours(self) -> None:
        for error in (StepFailed("CUDA error at 0x12"), ConfigError("x"), QueueFull("x")):
            assert close_reason(error) == "the service failed; its log has the reason"

    def test_it_fits_a_close_frame(self) -> None:
        reason = close_reason(BadAudio("é" * 200))
        assert len(reason.encode()) == 122
        assert set(reason) == {"é"}
