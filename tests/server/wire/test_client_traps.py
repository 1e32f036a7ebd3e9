"""What clients of this wire are known to do, and what has hung or hurt them elsewhere."""

import hashlib
import json

import pytest

from asr_model.transcript import UtteranceEnd
from server.errors import IdleTimeout
from server.events import SequenceFailed
from server.wire.session import Audio, Close, End, Finalize, KeepAlive
from tests.support.wire import SEQUENCE, closed, final, make_session, messages, partial, tell

KEEP_ALIVE = '{"type": "KeepAlive"}'
FINALIZE = '{"type": "Finalize"}'
FRAME = bytes(1600)
"""50 ms of linear16 at 16 kHz, as agents send it."""


def from_finalize(heard: list[dict]) -> list[bool]:  # type: ignore[type-arg]
    return [each["from_finalize"] for each in heard if each.get("is_final")]


class TestKeepAlive:
    def test_as_binary_it_is_audio(self) -> None:
        session = make_session()
        data = KEEP_ALIVE.encode()
        assert session.receive_binary(data) == [Audio(data)]
        session.receive_binary(b"")
        assert tell(session, closed())[0]["sha256"] == hashlib.sha256(data).hexdigest()

    def test_it_has_no_answer(self) -> None:
        session = make_session()
        for _ in range(100):
            assert session.receive_text(KEEP_ALIVE) == [KeepAlive()]
        assert session.pending() == []

    @pytest.mark.parametrize(
        "text", ['{ "type" : "KeepAlive" }', '{"id":1,"type":"KeepAlive"}\n', '{"type":"KeepAlive"}']
    )
    def test_json_is_read_not_compared(self, text: str) -> None:
        assert make_session().receive_text(text) == [KeepAlive()]

    def test_a_client_that_was_silent_finds_the_word_it_looks_for(self) -> None:
        event = SequenceFailed(sequence_id=SEQUENCE, error=IdleTimeout("no audio for 10 s"))
        error, close = tell(make_session(), event)
        assert error["closes"]
        assert close.code == 1011
        assert "NET-0001" in close.reason


class TestFinalize:
    def test_it_is_answered_in_silence_before_any_audio(self) -> None:
        session = make_session("interim_results=false")
        assert session.receive_text(FINALIZE) == [Finalize()]
        [answer] = tell(session, final("", UtteranceEnd.FINALIZE, (0.0, 0.0)))
        assert (answer["from_finalize"], answer["speech_final"], answer["duration"]) == (True, True, 0.0)

    def test_each_is_answered(self) -> None:
        session = make_session()
        for _ in range(3):
            assert session.receive_text(FINALIZE) == [Finalize()]
        answers = [final("", UtteranceEnd.FINALIZE, (0.0, 0.0), utterance=number) for number in range(3)]
        assert from_finalize(tell(session, *answers)) == [True, True, True]

    def test_an_older_final_is_not_its_answer(self) -> None:
        session = make_session()
        session.receive_text(FINALIZE)
        heard = tell(
            session,
            final("before", UtteranceEnd.ENDPOINT, (0.0, 1.0)),
            final("asked for", UtteranceEnd.FINALIZE, (1.0, 2.0), utterance=1),
        )
        assert from_finalize(heard) == [False, True]

    def test_the_stream_goes_on_after_it(self) -> None:
        session = make_session()
        session.receive_text(FINALIZE)
        tell(session, final("", UtteranceEnd.FINALIZE, (0.0, 0.0)))
        assert session.receive_binary(FRAME) == [Audio(FRAME)]
        assert tell(session, partial("on", utterance=1, covered_s=0.5))[0]["start"] == 0.0

    def test_right_before_the_end_both_are_answered(self) -> None:
        session = make_session()
        assert session.receive_text(FINALIZE) == [Finalize()]
        assert session.receive_binary(b"") == [End()]
        heard = tell(
            session,
            final("words", UtteranceEnd.FINALIZE, (0.0, 1.0)),
            final("", UtteranceEnd.END, (1.0, 1.0), utterance=1),
            closed(),
        )
        assert from_finalize(heard[:-1]) == [True]
        assert [heard[-2]["type"], heard[-1]] == ["Metadata", Close(1000, "")]


class TestEnd:
    def test_an_empty_binary_message_ends(self) -> None:
        assert make_session().receive_binary(b"") == [End()]

    def test_text_that_looks_empty_does_not(self) -> None:
        for text in ("", " ", "\x00"):
            assert make_session().receive_text(text) != [End()]

    def test_twice_is_once(self) -> None:
        session = make_session()
        assert session.receive_binary(b"") == [End()]
        assert session.receive_text('{"type": "CloseStream"}') == session.receive_binary(b"") == []
        assert session.pending() == []

    def test_there_is_always_a_final(self) -> None:
        """Clients wait for one with is_final before they believe that nothing was said."""
        session = make_session("interim_results=false")
        session.receive_binary(b"")
        heard = tell(session, final("", UtteranceEnd.END, (0.0, 3.0)), closed())
        assert [each.get("is_final") for each in heard[:-1]] == [True, None]

    def test_an_empty_result_has_its_reading_all_the_same(self) -> None:
        """Clients read alternatives[0] of every result, also of empty ones."""
        [answer] = tell(make_session(), final("", UtteranceEnd.FINALIZE, (0.0, 0.0)))
        assert answer["channel"]["alternatives"][0]["transcript"] == ""


class TestJson:
    def test_text_outside_of_ascii_arrives_as_it_is(self) -> None:
        [message] = tell(make_session(), final("café — “naïve”", UtteranceEnd.END, (0.0, 1.0)))
        assert message["channel"]["alternatives"][0]["transcript"] == "café — “naïve”"

    def test_every_message_has_a_type(self) -> None:
        session = make_session("vad_events=true&utterance_end_ms=1000")
        session.receive_text('{"type": "Configure"}')
        session.receive_binary(b"")
        session.receive_binary(FRAME)
        told = [*messages(session.pending()), *tell(session, final("a", UtteranceEnd.END, (0.0, 3.0)), closed())[:-1]]
        assert [each["type"] for each in told] == ["ConfigureSuccess", "Error", "Results", "UtteranceEnd", "Metadata"]
        assert all(json.dumps(each) for each in told)
