"""The session without sockets: messages in, commands out; events in, messages out."""

import hashlib
import json
from collections.abc import Sequence

import pytest

from asr_model.transcript import UtteranceEnd
from server.errors import (
    BadAudio,
    BadMessage,
    IdleTimeout,
    MessageTooLarge,
    MoorageError,
    SequenceTooLong,
    ShuttingDown,
    SlowReader,
    StepFailed,
)
from server.events import CloseCause, Event, SequenceFailed
from server.wire.control_messages import Message
from server.wire.session import (
    TRANSITIONS,
    Audio,
    Close,
    Command,
    End,
    Fail,
    Finalize,
    KeepAlive,
    Session,
    State,
)
from tests.support.wire import (
    FINAL,
    LIVE,
    SEQUENCE,
    closed,
    final,
    make_session,
    messages,
    partial,
    speech_started,
    tell,
)

DATA = bytes(range(250)) * 24
FINALIZE, CLOSE_STREAM, KEEP_ALIVE = (json.dumps({"type": name}) for name in ("Finalize", "CloseStream", "KeepAlive"))


def failure(commands: Sequence[Command]) -> MoorageError:
    [command] = commands
    assert isinstance(command, Fail)
    return command.error


def failed(error: MoorageError) -> SequenceFailed:
    return SequenceFailed(sequence_id=SEQUENCE, error=error)


def transcript(message: dict) -> str:  # type: ignore[type-arg]
    text: str = message["channel"]["alternatives"][0]["transcript"]
    return text


class TestAudio:
    def test_messages_are_passed_on_whole(self) -> None:
        session = make_session()
        assert session.receive_binary(DATA) == [Audio(DATA)]
        assert session.receive_binary(b"\x01") == [Audio(b"\x01")]

    @pytest.mark.parametrize("size", [1, 641, 6000])
    def test_the_hash_is_of_all_bytes_in_any_framing(self, size: int) -> None:
        session = make_session()
        for at in range(0, len(DATA), size):
            session.receive_binary(DATA[at : at + size])
        session.receive_binary(b"")
        assert tell(session, closed())[0]["sha256"] == hashlib.sha256(DATA).hexdigest()

    def test_a_message_that_is_too_large(self) -> None:
        session = make_session(max_message_bytes=6000)
        assert session.receive_binary(DATA) == [Audio(DATA)]
        error = failure(session.receive_binary(DATA + b"\x00"))
        assert isinstance(error, MessageTooLarge)
        assert str(error) == "a message of 6001 bytes; allowed: at most 6000 bytes"
        told, close = tell(session, closed(CloseCause.CANCELLED))
        assert (told["code"], told["closes"], close.code) == ("message_too_large", True, 1009)

    def test_what_the_decoder_finds_wrong(self) -> None:
        session = make_session()
        session.receive_binary(DATA)
        assert session.fail(BadAudio("no samples")) == [Fail(session._failure)]  # type: ignore[arg-type]
        assert session.receive_binary(DATA) == []
        told, close = tell(session, closed(CloseCause.CANCELLED))
        assert (told["message"], close) == ("no samples", Close(1003, "no samples"))


class TestControl:
    def test_messages(self) -> None:
        session = make_session()
        assert session.receive_text(KEEP_ALIVE) == [KeepAlive()]
        assert session.receive_text(FINALIZE) == [Finalize()]
        assert session.receive_text(CLOSE_STREAM) == [End()]
        assert session.state is State.ENDING

    def test_empty_audio_is_close_stream(self) -> None:
        session = make_session()
        assert session.receive_binary(b"") == [End()]
        assert session.state is State.ENDING

    def test_finalize_of_one_channel(self) -> None:
        session = make_session("channels=2&multichannel=true")
        assert session.receive_text('{"type": "Finalize", "channel": 1}') == [Finalize(channel=1)]
        assert isinstance(failure(session.receive_text('{"type": "Finalize", "channel": 2}')), BadMessage)

    def test_no_message_of_the_protocol(self) -> None:
        session = make_session(max_control_chars=100)
        assert isinstance(failure(session.receive_text("hello")), BadMessage)
        assert session.state is State.FAILED
        assert session.receive_text(FINALIZE) == session.receive_binary(DATA) == session.receive_text("hello") == []

    def test_a_text_that_is_too_long(self) -> None:
        session = make_session(max_control_chars=100)
        assert session.receive_text(KEEP_ALIVE.ljust(100)) == [KeepAlive()]
        assert "a text of 101 characters" in str(failure(session.receive_text(KEEP_ALIVE.ljust(101))))

    def test_configure_is_answered_at_once(self) -> None:
        session = make_session()
        assert session.receive_text('{"type": "Configure", "features": {"numerals": false}}') == [KeepAlive()]
        assert session.receive_text('{"type": "Configure", "keyterms": ["quay"]}') == [KeepAlive()]
        done, not_done = messages(session.pending())
        assert done == {"type": "ConfigureSuccess", "request_id": "req"}
        assert not_done == {
            "type": "ConfigureFailure",
            "request_id": "req",
            "code": "CONFIGURE_KEYTERMS_NOT_SUPPORTED",
            "description": "the models cannot be prompted with terms yet",
        }
        assert session.pending() == []
        assert session.state is State.OPEN

    def test_after_close_stream_messages_are_refused_once_and_the_rest_goes_on(self) -> None:
        session = make_session()
        session.receive_binary(DATA)
        session.receive_text(CLOSE_STREAM)
        for text in (FINALIZE, KEEP_ALIVE, CLOSE_STREAM, "nonsense", '{"type": "Configure"}'):
            assert session.receive_text(text) == []
        assert (
            session.receive_binary(DATA)
            == session.receive_binary(b"")
            == session.receive_binary(bytes(2_000_000))
            == []
        )
        [told] = messages(session.pending())
        assert told == {
            "type": "Error",
            "code": "sequence_ended",
            "variant": "SequenceEnded",
            "message": "Finalize after CloseStream is not taken",
            "description": "Finalize after CloseStream is not taken",
            "closes": False,
        }
        heard = tell(session, final("all", UtteranceEnd.END, (0.0, 0.2)), closed())
        assert transcript(heard[0]) == "all"
        assert heard[1]["sha256"] == hashlib.sha256(DATA).hexdigest()
        assert heard[2] == Close(1000, "")

    def test_the_table_is_complete(self) -> None:
        assert set(TRANSITIONS) == {(state, message) for state in State for message in Message}


class TestEnd:
    def test_metadata_and_close(self) -> None:
        session = make_session("encoding=linear16&sample_rate=48000&extra=call:7&tag=x")
        session.receive_binary(DATA)
        assert session.decoded(600) == session.decoded(400) == []
        session.receive_binary(b"")
        assert session.decoded(1) == []  # what the decoder still held
        assert tell(session, closed()) == [
            {
                "type": "Metadata",
                "transaction_key": "deprecated",
                "request_id": "req",
                "sha256": hashlib.sha256(DATA).hexdigest(),
                "created": "2026-01-02T03:04:05.678Z",
                "duration": 0.0625625,
                "channels": 1,
                "models": [LIVE.model_uuid, FINAL.model_uuid],
                "model_info": {
                    LIVE.model_uuid: {"name": "accumulator", "version": "1", "arch": "sum"},
                    FINAL.model_uuid: {"name": "sum", "version": "1", "arch": "sum"},
                },
                "extra": {"call": "7"},
            },
            Close(1000, ""),
        ]
        assert session.state is State.CLOSED
        assert tell(session, partial("late", covered_s=1.0), closed()) == []

    def test_no_audio_at_all(self) -> None:
        session = make_session()
        session.receive_text(CLOSE_STREAM)
        told, metadata, close = tell(session, final("", UtteranceEnd.END, (0.0, 0.0)), closed())
        assert (told["is_final"], metadata["duration"], close) == (True, 0.0, Close(1000, ""))
        assert metadata["sha256"] == hashlib.sha256(b"").hexdigest()
        assert "extra" not in metadata

    def test_the_client_left(self) -> None:
        session = make_session()
        assert tell(session, closed(CloseCause.CANCELLED)) == []
        assert session.state is State.CLOSED

    def test_a_broken_contract_is_told_when_the_sequence_has_closed(self) -> None:
        session = make_session("vad_events=true")
        session.receive_text("nonsense")
        results: list[Event] = [
            partial("a", covered_s=1.0),
            speech_started(0.5),
            final("a", UtteranceEnd.END, (0.0, 1.0)),
        ]
        [answer] = tell(session, *results)
        assert (answer["type"], answer["is_final"]) == ("Results", True)
        assert session.parting is not None
        error, close = tell(session, failed(session.parting))
        assert (error["type"], error["code"], error["variant"]) == ("Error", "bad_message", "SchemaError")
        assert error["description"] == error["message"]
        assert error["closes"]
        assert close.code == 1007
        assert close.reason.startswith("'nonsense' is not JSON")

    def test_every_channel_is_answered_before_a_reason_that_all_of_them_have(self) -> None:
        session = make_session("channels=2&multichannel=true")
        session.receive_text("nonsense")
        assert session.parting is not None
        assert session.translate(failed(session.parting), 1) == []
        told = session.translate(final("a", UtteranceEnd.END, (0.0, 1.0)), 0)
        assert len(told) == 1
        assert len(session.translate(failed(session.parting), 0)) == 2
        idle = make_session("channels=2&multichannel=true")
        assert idle.translate(failed(IdleTimeout("a")), 0) == []
        assert len(idle.translate(failed(IdleTimeout("b")), 1)) == 2

    def test_of_a_failure_of_the_service_or_a_client_that_does_not_read_nothing_more_is_told(self) -> None:
        for error in (StepFailed("x"), SlowReader("x")):
            session = make_session()
            session.fail(error)
            assert tell(session, final("a", UtteranceEnd.END, (0.0, 1.0))) == []

    def test_the_first_error_is_the_one_that_is_told(self) -> None:
        session = make_session()
        session.fail(BadAudio("first"))
        assert session.fail(StepFailed("later")) == []
        error, close = tell(session, failed(ShuttingDown("later still")))
        assert (error["code"], close.code) == ("bad_audio", 1003)

    def test_idle(self) -> None:
        error, close = tell(make_session(), failed(IdleTimeout("no audio for 10 s")))
        assert (error["code"], error["message"]) == ("idle_timeout", "no audio for 10 s")
        assert close == Close(1011, "NET-0001: no audio for 10 s")

    def test_a_slow_reader(self) -> None:
        session = make_session()
        session.fail(SlowReader("results were not read for 10 s"))
        error, close = tell(session, closed(CloseCause.CANCELLED))
        assert (error["code"], close) == ("slow_reader", Close(1008, "results were not read for 10 s"))

    def test_our_own_fault(self) -> None:
        error, close = tell(make_session(), failed(StepFailed("secret")))
        assert error["code"] == "step_failed"
        assert "secret" not in json.dumps(error) + close.reason
        assert close.code == 1011

    def test_refusals_that_were_not_told_come_before_the_end(self) -> None:
        session = make_session()
        session.receive_text(CLOSE_STREAM)
        session.receive_binary(DATA)
        assert [each["type"] for each in tell(session, closed())[:-1]] == ["Error", "Metadata"]


class TestWindingUp:
    def test_what_was_accepted_is_answered_then_the_reason_told(self) -> None:
        session = make_session()
        session.receive_binary(DATA)
        assert session.wind_up(ShuttingDown("the service is shutting down")) == [End()]
        assert session.state is State.WINDING_UP
        heard = tell(session, partial("all", covered_s=0.2), final("all", UtteranceEnd.END, (0.0, 0.2)), closed())
        assert [transcript(each) for each in heard[:2]] == ["all", "all"]
        assert (heard[2]["code"], heard[2]["message"], heard[2]["closes"]) == (
            "shutting_down",
            "the service is shutting down",
            True,
        )
        assert heard[3] == Close(1012, "the service is shutting down")

    def test_messages_that_cross_it_are_let_go(self) -> None:
        session = make_session()
        session.wind_up(ShuttingDown("x"))
        for text in (FINALIZE, KEEP_ALIVE, CLOSE_STREAM, "nonsense"):
            assert session.receive_text(text) == []
        assert session.receive_binary(DATA) == session.receive_binary(b"") == []
        assert session.pending() == []
        assert session.state is State.WINDING_UP

    def test_once(self) -> None:
        session = make_session()
        session.wind_up(ShuttingDown("first"))
        assert session.wind_up(SequenceTooLong("second")) == []
        assert tell(session, closed())[0]["code"] == "shutting_down"

    def test_not_after_the_client_has_ended(self) -> None:
        session = make_session()
        session.receive_text(CLOSE_STREAM)
        assert session.wind_up(ShuttingDown("x")) == []
        assert [each["type"] for each in tell(session, closed())[:-1]] == ["Metadata"]

    def test_a_failure_on_the_way_is_what_is_told(self) -> None:
        """What was accepted was not answered, and a polite goodbye would hide it."""
        session = make_session()
        session.wind_up(ShuttingDown("x"))
        error, close = tell(session, failed(StepFailed("y")))
        assert (error["code"], close.code) == ("step_failed", 1011)

    def test_a_sequence_of_the_greatest_length(self) -> None:
        session = make_session(max_sequence_s=2)
        assert session.decoded(31_999) == session.decoded(1) == []
        assert session.decoded(1) == [End()]
        assert session.decoded(8_000) == []
        error, close = tell(session, closed())
        assert (error["code"], close.code) == ("sequence_too_long", 1008)
        assert close.reason == "the audio is longer than 2 s, which is the most for one stream"

    def test_no_length_is_too_much_once_the_client_has_ended(self) -> None:
        session = make_session(max_sequence_s=2)
        session.receive_text(CLOSE_STREAM)
        assert session.decoded(64_000) == []
        assert tell(session, closed())[0]["duration"] == 4.0


class TestMultichannel:
    @staticmethod
    def session(query: str = "") -> Session:
        return make_session(f"encoding=linear16&channels=3&multichannel=true&{query}")

    def test_every_message_names_its_channel(self) -> None:
        session = self.session("vad_events=true&utterance_end_ms=1000")
        [started, interim] = tell(session, speech_started(0.0), partial("b", covered_s=0.5), channel=1)
        results, end = tell(session, final("c", UtteranceEnd.ENDPOINT, (0.0, 2.0)), channel=2)
        assert (started["channel"], interim["channel_index"]) == ([1, 3], [1, 3])
        assert (results["channel_index"], end["channel"]) == ([2, 3], [2, 3])
        assert interim["metadata"]["moorage"]["sequence_id"] == "5e9-1"
        assert results["metadata"]["moorage"]["sequence_id"] == "5e9-2"

    def test_timelines_are_apart(self) -> None:
        session = self.session()
        tell(session, final("a", UtteranceEnd.ENDPOINT, (0.0, 2.0)), channel=0)
        [other] = tell(session, final("b", UtteranceEnd.ENDPOINT, (0.0, 3.0)), channel=1)
        [next_one] = tell(session, final("c", UtteranceEnd.ENDPOINT, (2.0, 2.5), utterance=1), channel=0)
        assert [(each["start"], each["duration"]) for each in (other, next_one)] == [(0.0, 3.0), (2.0, 0.5)]

    def test_finalize_is_answered_once_per_channel(self) -> None:
        session = self.session()
        assert session.receive_text(FINALIZE) == [Finalize()]
        told = [tell(session, final("", UtteranceEnd.FINALIZE, (0.0, 0.0)), channel=channel) for channel in range(3)]
        assert [[each["channel_index"] for each in one if each["from_finalize"]] for one in told] == [
            [[channel, 3]] for channel in range(3)
        ]

    def test_one_end_after_the_last_channel(self) -> None:
        session = self.session()
        session.receive_text(CLOSE_STREAM)
        assert tell(session, closed(), channel=2) == tell(session, closed(), channel=0) == []
        assert tell(session, partial("b", covered_s=0.5), channel=1) != []
        metadata, close = tell(session, closed(), channel=1)
        assert (metadata["channels"], close) == (3, Close(1000, ""))

    def test_the_first_channel_that_fails_ends_the_session(self) -> None:
        session = self.session()
        tell(session, closed(), channel=0)
        error, close = tell(session, failed(StepFailed("x")), channel=1)
        assert (error["code"], close.code) == ("step_failed", 1011)
        assert tell(session, closed(), partial("c", covered_s=1.0), channel=2) == []

    def test_a_broken_contract_is_told_once(self) -> None:
        session = self.session()
        session.receive_text("nonsense")
        assert len(tell(session, closed(CloseCause.CANCELLED), channel=1)) == 2
        assert tell(session, closed(CloseCause.CANCELLED), channel=0) == []

    @pytest.mark.parametrize("has_ended", [False, True])
    def test_a_channel_that_is_cut_lets_the_others_be_answered(self, has_ended: bool) -> None:
        session, error = self.session(), ShuttingDown("x")
        if has_ended:
            session.receive_text(CLOSE_STREAM)
        session.cut(error)
        assert session.parting is error
        assert tell(session, failed(error), channel=1) == []
        assert len(session.wind_up(error)) == (0 if has_ended else 1)
        assert [each["type"] for each in tell(session, partial("c", covered_s=1.0), channel=2)] == ["Results"]
        assert tell(session, closed(), channel=0) == []
        told, close = tell(session, closed(), channel=2)
        assert (told["code"], close) == ("shutting_down", Close(1012, "x"))

    def test_winding_up_waits_for_every_channel(self) -> None:
        session = self.session()
        session.wind_up(ShuttingDown("x"))
        assert tell(session, closed(), channel=0) == tell(session, closed(), channel=1) == []
        assert tell(session, closed(), channel=2)[-1] == Close(1012, "x")
