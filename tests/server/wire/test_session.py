"""The session without sockets: messages in, commands out; events in, messages out."""

import hashlib
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_model.transcript import UtteranceEnd
from server.errors import BadAudio, BadMessage, IdleTimeout, ShuttingDown, StepFailed
from server.events import CloseCause, Event, SequenceFailed
from server.resampler import Resampler
from server.wire.messages import bare_word
from server.wire.session import (
    TRANSITIONS,
    Close,
    End,
    Fail,
    Finalize,
    KeepAlive,
    Message,
    State,
    Text,
)
from tests.support.accumulator_model import exact_audio
from tests.support.wire import (
    FINAL,
    LIVE,
    SEQUENCE,
    audio_of,
    closed,
    final,
    linear16,
    make_session,
    messages,
    partial,
    tell,
)

AUDIO = exact_audio(1, 3000)
DATA = linear16(AUDIO)
FINALIZE, CLOSE_STREAM, KEEP_ALIVE = (json.dumps({"type": name}) for name in ("Finalize", "CloseStream", "KeepAlive"))


def failure(commands: list[object]) -> BaseException:
    assert len(commands) == 1
    assert isinstance(commands[0], Fail)
    return commands[0].error


class TestAudio:
    @pytest.mark.parametrize("size", [1, 2, 3, 641, 6000])
    def test_any_framing_gives_the_same_samples(self, size: int) -> None:
        session = make_session()
        commands = [
            command for at in range(0, len(DATA), size) for command in session.receive_binary(DATA[at : at + size])
        ]
        np.testing.assert_array_equal(audio_of(commands), AUDIO)

    def test_half_a_sample_is_a_sign_of_life(self) -> None:
        assert make_session().receive_binary(b"\x01") == [KeepAlive()]

    def test_finalize_does_not_touch_the_resampler(self) -> None:
        """What comes after a Finalize is bit-equal to what comes without one (I8)."""
        with_finalize, without = make_session(sample_rate=44_100), make_session(sample_rate=44_100)
        half = 2 * 1501
        first = with_finalize.receive_binary(DATA[:half])
        assert with_finalize.receive_text(FINALIZE) == [Finalize()]
        rest = with_finalize.receive_binary(DATA[half:]) + with_finalize.receive_binary(b"")
        plain = without.receive_binary(DATA) + without.receive_binary(b"")
        np.testing.assert_array_equal(audio_of(first + rest), audio_of(plain))

    @pytest.mark.parametrize("rate", [8_000, 48_000])
    def test_the_end_brings_what_the_resampler_held_back(self, rate: int) -> None:
        session, resampler = make_session(sample_rate=rate), Resampler(rate)
        commands = session.receive_binary(DATA) + session.receive_text(CLOSE_STREAM)
        assert commands[-1] == End()
        expected = np.concatenate([resampler.process(AUDIO), resampler.finish()])
        np.testing.assert_array_equal(audio_of(commands), expected)

    @pytest.mark.parametrize("magic", [b"RIFF", b"fLaC", b"OggS"])
    def test_a_container_fails_the_session(self, magic: bytes) -> None:
        session = make_session()
        error = failure([*session.receive_binary(magic + bytes(100))])
        assert isinstance(error, BadAudio)
        assert str(error).startswith(f"the audio starts with a {magic.decode()} header")
        assert session.receive_binary(DATA) == []

    def test_a_container_byte_by_byte(self) -> None:
        session = make_session()
        commands = [command for byte in b"RIFF" for command in session.receive_binary(bytes([byte]))]
        assert isinstance(commands[-1], Fail)


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

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("hello", "'hello' is not JSON; text messages are JSON objects, audio goes in binary messages"),
            ("", "'' is not JSON; text messages are JSON objects, audio goes in binary messages"),
            ('{"type": "Finalize"', '\'{"type": "Finalize"\' is not JSON; text messages are JSON objects, audio goes '),
            ("[1]", "'[1]' is not a JSON object with a \"type\"; allowed types: Finalize, CloseStream, KeepAlive"),
            ('"Finalize"', '\'"Finalize"\' is not a JSON object with a "type"; allowed types: '),
            ('{"type": "Reset"}', "message type 'Reset' is not known; allowed types: Finalize, CloseStream, KeepAlive"),
            ('{"type": "audio"}', "message type 'audio' is not known; allowed types: "),
            ('{"type": "finalize"}', "message type 'finalize' is not known; allowed types: "),
            ('{"type": ["Finalize"]}', "message type ['Finalize'] is not known; allowed types: "),
            ("{}", "message type None is not known; allowed types: Finalize, CloseStream, KeepAlive"),
            ("[" * 4000, "'" + "[" * 78 + "… is not JSON; "),
            ("x" * 5000, "a text of 5000 characters is no control message; audio goes in binary messages"),
        ],
    )
    def test_what_is_no_message(self, text: str, message: str) -> None:
        session = make_session()
        error = failure([*session.receive_text(text)])
        assert isinstance(error, BadMessage)
        assert str(error).startswith(message)
        assert session.state is State.FAILED

    def test_after_close_stream_audio_is_refused_once_and_the_rest_goes_on(self) -> None:
        session = make_session()
        session.receive_binary(DATA)
        session.receive_text(CLOSE_STREAM)
        assert session.receive_binary(DATA) == []
        assert session.receive_text(FINALIZE) == []
        assert session.receive_text(KEEP_ALIVE) == []
        assert session.receive_binary(b"") == []
        [told] = messages(session.pending())
        assert told == {
            "type": "Error",
            "code": "sequence_ended",
            "message": "audio after CloseStream is not taken",
            "description": "audio after CloseStream is not taken",
            "closes": False,
        }
        heard = tell(session, final("all", UtteranceEnd.END, (0.0, 0.2)), closed())
        assert heard[0]["channel"]["alternatives"][0]["transcript"] == "all"
        assert heard[1]["sha256"] == hashlib.sha256(DATA).hexdigest()
        assert heard[2] == Close(1000, "")

    def test_the_table_is_complete(self) -> None:
        assert set(TRANSITIONS) == {(state, message) for state in State for message in Message}


class TestInterim:
    def test_fields(self) -> None:
        [message] = tell(make_session(), partial("Hello, world", "this is", covered_s=2.5))
        word = {"start": 0.0, "end": 0.5, "confidence": 0.5, "punctuated_word": "Hello,", "word": "hello"}
        alternative = message["channel"]["alternatives"][0]
        assert alternative["words"][0] == word
        assert len(alternative["words"]) == 4
        assert (alternative["transcript"], alternative["confidence"]) == ("Hello, world this is", 0.5)
        del message["channel"]
        moorage = message["metadata"]["moorage"]
        assert [each["word"] for each in moorage.pop("live_words")] == ["hello", "world", "this", "is"]
        assert message == {
            "type": "Results",
            "channel_index": [0, 1],
            "duration": 2.5,
            "start": 0.0,
            "is_final": False,
            "speech_final": False,
            "from_finalize": False,
            "metadata": {
                "request_id": "req",
                "model_info": {"name": "accumulator", "version": "1", "arch": "sum"},
                "model_uuid": LIVE.model_uuid,
                "moorage": {
                    "sequence_id": SEQUENCE,
                    "instance": 1,
                    "slot": 2,
                    "batch_size": 3,
                    "queue_ms": 4.5,
                    "step_ms": 6.25,
                    "utterance": 0,
                    "covered_s": 2.5,
                    "committed_words": 2,
                    "live_text": "Hello, world this is",
                },
            },
        }

    def test_one_per_tick_even_without_text(self) -> None:
        session = make_session()
        assert len(tell(session, partial("", covered_s=0.24), partial("", covered_s=0.48))) == 2

    def test_only_if_asked_for(self) -> None:
        assert tell(make_session(interim_results=False), partial("a", covered_s=1.0)) == []

    def test_starts_where_the_finals_have_come_to(self) -> None:
        session = make_session()
        tell(session, final("one", UtteranceEnd.ENDPOINT, (0.0, 2.0)))
        [message] = tell(session, partial("two", utterance=1, start_s=2.25, covered_s=3.0))
        assert (message["start"], message["duration"]) == (2.0, 1.0)

    def test_of_an_utterance_whose_predecessor_is_still_open(self) -> None:
        [message] = tell(make_session(), partial("two", utterance=1, start_s=2.25, covered_s=3.0))
        assert (message["start"], message["duration"]) == (2.25, 0.75)


class TestFinal:
    @pytest.mark.parametrize(
        ("cause", "speech_final", "from_finalize"),
        [
            (UtteranceEnd.ENDPOINT, True, False),
            (UtteranceEnd.FINALIZE, True, True),
            (UtteranceEnd.END, True, False),
            (UtteranceEnd.LENGTH, False, False),
            (UtteranceEnd.STALL, False, False),
        ],
    )
    def test_causes(self, cause: UtteranceEnd, speech_final: bool, from_finalize: bool) -> None:
        [message] = tell(make_session(), final("one two", cause, (0.0, 2.0), live="won too"))
        assert (message["is_final"], message["speech_final"], message["from_finalize"]) == (
            True,
            speech_final,
            from_finalize,
        )
        assert message["channel"]["alternatives"][0]["transcript"] == "one two"
        assert message["metadata"]["model_uuid"] == FINAL.model_uuid
        moorage = message["metadata"]["moorage"]
        assert (moorage["live_text"], moorage["committed_words"], moorage["covered_s"]) == ("won too", 2, 2.0)
        assert [word["word"] for word in moorage["live_words"]] == ["won", "too"]

    def test_they_tile_the_timeline_over_untold_ones(self) -> None:
        session = make_session()
        heard = tell(
            session,
            final("one", UtteranceEnd.ENDPOINT, (0.0, 1.5)),
            final("", UtteranceEnd.ENDPOINT, (1.5, 4.0), utterance=1),
            final("three", UtteranceEnd.LENGTH, (4.0, 6.0), utterance=2),
            final("", UtteranceEnd.FINALIZE, (6.0, 6.0), utterance=3),
        )
        assert [(each["start"], each["duration"]) for each in heard] == [(0.0, 1.5), (1.5, 4.5), (6.0, 0.0)]

    def test_an_empty_one_answers_finalize(self) -> None:
        [message] = tell(make_session(interim_results=False), final("", UtteranceEnd.FINALIZE, (0.0, 0.0)))
        assert message["from_finalize"]
        assert message["channel"]["alternatives"] == [{"transcript": "", "confidence": 0.0, "words": []}]

    def test_an_empty_one_at_the_end_only_if_it_is_the_only_one(self) -> None:
        assert len(tell(make_session(), final("", UtteranceEnd.END, (0.0, 0.0)))) == 1
        session = make_session()
        tell(session, final("one", UtteranceEnd.ENDPOINT, (0.0, 1.0)))
        assert tell(session, final("", UtteranceEnd.END, (1.0, 2.0), utterance=1)) == []

    def test_text_that_the_final_model_takes_back_is_told(self) -> None:
        [message] = tell(make_session(), final("", UtteranceEnd.ENDPOINT, (0.0, 1.0), live="uh"))
        assert message["channel"]["alternatives"][0]["transcript"] == ""


class TestEnd:
    def test_metadata_and_close(self) -> None:
        session = make_session(sample_rate=48_000)
        session.receive_binary(DATA)
        session.receive_binary(b"")
        assert tell(session, closed()) == [
            {
                "type": "Metadata",
                "transaction_key": "deprecated",
                "request_id": "req",
                "sha256": hashlib.sha256(DATA).hexdigest(),
                "created": "2026-01-02T03:04:05.678Z",
                "duration": 0.0625,
                "channels": 1,
                "models": [LIVE.model_uuid, FINAL.model_uuid],
                "model_info": {
                    LIVE.model_uuid: {"name": "accumulator", "version": "1", "arch": "sum"},
                    FINAL.model_uuid: {"name": "sum", "version": "1", "arch": "sum"},
                },
            },
            Close(1000, ""),
        ]
        assert session.state is State.CLOSED
        assert tell(session, partial("late", covered_s=1.0), closed()) == []

    def test_a_final_names_the_model_that_its_text_is_of(self) -> None:
        session = make_session()
        spoken = final("a", UtteranceEnd.FINALIZE, (0.0, 1.0))
        replaced = replace(final("b", UtteranceEnd.FINALIZE, (1.0, 2.0), utterance=1), has_final_pass=False)
        names = [message["metadata"]["model_info"]["name"] for message in tell(session, spoken, replaced)]
        assert names == [FINAL.name, LIVE.name]

    def test_the_client_left(self) -> None:
        session = make_session()
        assert tell(session, closed(CloseCause.CANCELLED)) == []
        assert session.state is State.CLOSED

    def test_a_broken_contract_is_told_when_the_sequence_has_closed(self) -> None:
        session = make_session()
        session.receive_text("nonsense")
        assert tell(session, partial("a", covered_s=1.0), final("a", UtteranceEnd.END, (0.0, 1.0))) == []
        error, close = tell(session, closed(CloseCause.CANCELLED))
        assert (error["type"], error["code"], error["closes"]) == ("Error", "bad_message", True)
        assert close.code == 1007
        assert close.reason.startswith("'nonsense' is not JSON")

    def test_the_first_error_is_the_one_that_is_told(self) -> None:
        session = make_session()
        session.receive_binary(b"RIFF")
        assert session.fail(StepFailed("later")) == []
        error, close = tell(session, SequenceFailed(sequence_id=SEQUENCE, error=ShuttingDown("later still")))
        assert (error["code"], close.code) == ("bad_audio", 1003)

    def test_idle(self) -> None:
        error, close = tell(
            make_session(), SequenceFailed(sequence_id=SEQUENCE, error=IdleTimeout("no audio for 10 s"))
        )
        assert (error["code"], error["message"]) == ("idle_timeout", "no audio for 10 s")
        assert close == Close(1011, "NET-0001: no audio for 10 s")

    def test_our_own_fault(self) -> None:
        failed = SequenceFailed(sequence_id=SEQUENCE, error=StepFailed("secret"))
        error, close = tell(make_session(), failed)
        assert error["code"] == "step_failed"
        assert "secret" not in json.dumps(error) + close.reason
        assert close.code == 1011


class TestWords:
    @pytest.mark.parametrize(
        ("written", "bare"),
        [
            ("Hello,", "hello"),
            ("Don't", "don't"),
            ("'quoted'", "quoted"),
            ("well-known.", "well-known"),
            ("U.S.", "us"),
            ("3.5", "35"),
            ("—", "—"),
            ("Él", "él"),
        ],
    )
    def test_bare(self, written: str, bare: str) -> None:
        assert bare_word(written) == bare


MESSAGES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"", b"RIFF", b"\x00", DATA[:64]]),
    st.sampled_from([FINALIZE, CLOSE_STREAM, KEEP_ALIVE, "{}", "[[", "null"]),
    st.text(max_size=20),
)
EVENTS = st.sampled_from(
    [
        partial("a", "b", covered_s=1.0),
        final("a", UtteranceEnd.ENDPOINT, (0.0, 1.0)),
        final("", UtteranceEnd.FINALIZE, (1.0, 1.0), utterance=1),
        closed(),
        closed(CloseCause.CANCELLED),
        SequenceFailed(sequence_id=SEQUENCE, error=StepFailed("x")),
    ]
)


class TestAnyOrder:
    @given(st.sampled_from([8_000, 16_000, 48_000]), st.lists(st.one_of(MESSAGES, EVENTS), max_size=25))
    @settings(deadline=None, max_examples=300)
    def test_nothing_is_raised_and_nothing_follows_a_close(self, rate: int, inputs: list[bytes | str | Event]) -> None:
        session = make_session(sample_rate=rate)
        outgoing: list[Text | Close] = []
        kinds: list[type] = []
        for each in inputs:
            if isinstance(each, bytes):
                kinds += [type(command) for command in session.receive_binary(each)]
            elif isinstance(each, str):
                kinds += [type(command) for command in session.receive_text(each)]
            else:
                outgoing += session.translate(each)
            outgoing += session.pending()
        counts = Counter(kinds)
        assert counts[Fail] <= 1
        assert counts[End] <= 1
        if Fail in kinds:
            assert kinds[-1] is Fail
        if End in kinds:
            assert set(kinds[kinds.index(End) + 1 :]) <= {Fail}
        closes = [index for index, each in enumerate(outgoing) if isinstance(each, Close)]
        assert closes in ([], [len(outgoing) - 1])
        for told in outgoing:
            if isinstance(told, Text):
                assert json.loads(told.text)["type"] in ("Results", "Metadata", "Error")
