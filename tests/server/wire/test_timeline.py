"""What a client is told of one channel: fields, positions, order."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_model.transcript import UtteranceEnd
from server.codec.resampler import MODEL_RATE
from tests.support.wire import FINAL, LIVE, SEQUENCE, closed, final, make_session, partial, said, speech_started, tell


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
        assert moorage["committed_words"] == 2
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
                },
            },
        }

    def test_one_per_tick_even_without_text(self) -> None:
        session = make_session()
        assert len(tell(session, partial("", covered_s=0.24), partial("", covered_s=0.48))) == 2

    def test_only_if_asked_for(self) -> None:
        assert tell(make_session("interim_results=false"), partial("a", covered_s=1.0)) == []

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
        flags = (message["is_final"], message["speech_final"], message["from_finalize"])
        assert flags == (True, speech_final, from_finalize)
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
        [message] = tell(make_session("interim_results=false"), final("", UtteranceEnd.FINALIZE, (0.0, 0.0)))
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

    def test_it_names_the_model_that_its_text_is_of(self) -> None:
        session = make_session()
        spoken = final("a", UtteranceEnd.FINALIZE, (0.0, 1.0))
        replaced = replace(final("b", UtteranceEnd.FINALIZE, (1.0, 2.0), utterance=1), has_final_pass=False)
        names = [message["metadata"]["model_info"]["name"] for message in tell(session, spoken, replaced)]
        assert names == [FINAL.name, LIVE.name]

    @pytest.mark.parametrize(
        ("query", "speech_final"),
        [("endpointing=300", True), ("endpointing=false", False), ("endpointing=3000&utterance_end_ms=1000", False)],
    )
    def test_speech_final_only_where_endpointing_asked_for_it(self, query: str, speech_final: bool) -> None:
        [message] = tell(make_session(query), final("a", UtteranceEnd.ENDPOINT, (0.0, 0.5)))
        assert message["speech_final"] == speech_final


class TestText:
    def test_without_punctuation(self) -> None:
        session = make_session("punctuate=false")
        [interim] = tell(session, partial("Hello, —", "Wor", covered_s=2.0))
        assert interim["channel"]["alternatives"][0]["transcript"] == "hello wor"
        word = {"word": "hello", "start": 0.0, "end": 0.5, "confidence": 0.5}
        assert interim["channel"]["alternatives"][0]["words"][0] == word
        assert interim["metadata"]["moorage"]["committed_words"] == 1
        [told] = tell(session, final("Hello, World.", UtteranceEnd.END, (0.0, 2.0), live="Hello, Worl—"))
        assert told["channel"]["alternatives"][0]["transcript"] == "hello world"
        assert told["metadata"]["moorage"]["live_text"] == "hello worl"

    def test_a_final_of_fillers_alone_is_told_empty(self) -> None:
        session = make_session("filler_words=false")
        [told] = tell(session, final("Um.", UtteranceEnd.ENDPOINT, (0.0, 1.0)))
        assert told["channel"]["alternatives"] == [{"transcript": "", "confidence": 0.0, "words": []}]

    def test_swear_words_are_masked_wherever_they_stand(self) -> None:
        session = make_session("profanity_filter=true")
        told = tell(session, partial("Oh shit", covered_s=1.0), final("Oh shit", UtteranceEnd.END, (0.0, 1.0)))
        assert "shit" not in str(told)
        assert [each["channel"]["alternatives"][0]["transcript"] for each in told] == ["Oh ****"] * 2


class TestSpeech:
    def test_started(self) -> None:
        [message] = tell(make_session("vad_events=true"), speech_started(1.2345))
        assert message == {"type": "SpeechStarted", "channel": [0, 1], "timestamp": 1.2345}
        assert len(tell(make_session("vad_events=true&interim_results=false"), speech_started(1.0))) == 1

    def test_only_if_asked_for(self) -> None:
        assert tell(make_session(), speech_started(1.0)) == []

    def test_utterance_end_comes_after_the_results_that_show_it(self) -> None:
        session = make_session("utterance_end_ms=1000")
        spoken = final("one two", UtteranceEnd.ENDPOINT, (0.0, 1.5))
        silence = partial("", utterance=1, start_s=1.5, covered_s=2.0)
        assert [each["type"] for each in tell(session, spoken, silence)] == ["Results", "Results", "UtteranceEnd"]

    def test_utterance_end_fields(self) -> None:
        session = make_session("utterance_end_ms=1000&endpointing=false")
        results, end = tell(session, final("one two", UtteranceEnd.ENDPOINT, (0.0, 2.0)))
        assert (results["is_final"], results["speech_final"]) == (True, False)
        assert end == {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 1.0}

    def test_it_is_not_told_unless_asked_for(self) -> None:
        assert len(tell(make_session(), final("one", UtteranceEnd.ENDPOINT, (0.0, 9.0)))) == 1

    def test_a_gap_that_only_the_next_final_shows_is_told_before_it(self) -> None:
        session = make_session("utterance_end_ms=1000")
        tell(
            session,
            final("one", UtteranceEnd.ENDPOINT, (0.0, 0.5)),
            partial("x", utterance=2, start_s=4.0, covered_s=4.5),
        )
        told = tell(session, final("two", UtteranceEnd.ENDPOINT, (2.0, 2.5), utterance=1))
        assert [each["type"] for each in told] == ["UtteranceEnd", "Results", "UtteranceEnd"]


class TestHours:
    """Positions are counted in samples of 16 kHz; ten hours are 576 million of them."""

    HOURS_SAMPLES = 10 * 3600 * MODEL_RATE

    def test_an_interim_result_after_ten_hours(self) -> None:
        start, covered = self.HOURS_SAMPLES - 3_840, self.HOURS_SAMPLES + 1
        [message] = tell(
            make_session(), partial("a", utterance=7, start_s=start / MODEL_RATE, covered_s=covered / MODEL_RATE)
        )
        assert (message["start"], message["duration"]) == (35_999.76, 0.2400625)

    @given(st.lists(st.integers(1, 40 * MODEL_RATE), min_size=2, max_size=40), st.integers(0, HOURS_SAMPLES))
    @settings(deadline=None)
    def test_finals_tile_to_the_sample(self, lengths: list[int], first: int) -> None:
        session = make_session()
        heard = []
        at = first
        for utterance, length in enumerate(lengths):
            span = (at / MODEL_RATE, (at + length) / MODEL_RATE)
            heard += tell(session, final("a", UtteranceEnd.LENGTH, span, utterance=utterance))
            at += length
        assert heard[0]["start"] == 0.0
        ends = [round(each["start"] + each["duration"], 7) for each in heard]
        assert ends[:-1] == [each["start"] for each in heard[1:]]
        assert ends[-1] == round(at / MODEL_RATE, 7)

    @pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000])
    def test_the_duration_of_ten_hours_in_any_rate(self, rate: int) -> None:
        """Blocks as a resampler gives them: 20 ms of the client's samples at a time."""
        session = make_session(f"encoding=linear16&sample_rate={rate}")
        block, given = rate // 50, 0
        for n_blocks in range(1, 10 * 3600 * 50 + 1):
            position = n_blocks * block * MODEL_RATE // rate
            session.decoded(position - given)
            given = position
        session.receive_binary(b"")
        [metadata, _] = tell(session, closed())
        assert metadata["duration"] == round(given / MODEL_RATE, 7)
        assert metadata["duration"] == pytest.approx(10 * 3600 * 50 * block / rate, abs=1 / MODEL_RATE)

    def test_words_keep_their_places(self) -> None:
        words = said("late", self.HOURS_SAMPLES / MODEL_RATE + 1 / MODEL_RATE)
        event = replace(final("x", UtteranceEnd.END, (36_000.0, 36_001.0)), words=words)
        [message] = tell(make_session(), event)
        assert message["channel"]["alternatives"][0]["words"][0]["start"] == 36_000.0000625
