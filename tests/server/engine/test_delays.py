"""Delays from arrival times: exact at every position, bounded for ever."""

import numpy as np
import pytest

from asr_model.transcript import EndedUtterance, LiveOutput, UtteranceEnd, Word
from server.engine.delays import MAX_MARKS, ArrivalTimes, DelayRecorder, SequenceDelays
from server.figures.stats import HistogramSnapshot
from server.ids import SequenceId, SlotIndex
from server.plan import BatchRow

TICK, LOOKAHEAD = 3840, 511
MS = 1_000_000


def word(text: str, end_s: float) -> Word:
    return Word(text=text, start_s=max(0.0, end_s - 0.2), end_s=end_s, confidence=1.0)


def row(*, flush: bool = False, ready_at_ns: int = 0) -> BatchRow:
    return BatchRow(
        slot=SlotIndex(0),
        generation=0,
        sequence_id=SequenceId("s"),
        start=False,
        flush=flush,
        end=False,
        first_sample=0,
        n_samples=TICK,
        ready_at_ns=ready_at_ns,
    )


def output(
    committed: tuple[Word, ...] = (), draft: tuple[Word, ...] = (), ended: EndedUtterance | None = None, keep: int = 0
) -> LiveOutput:
    return LiveOutput(
        encoded_samples=0, committed=committed, draft=draft, ended=ended, keep_from_sample=keep, is_speech=True
    )


def ended(*words: Word, cause: UtteranceEnd = UtteranceEnd.ENDPOINT) -> EndedUtterance:
    return EndedUtterance(cause=cause, first_sample=0, end_sample=TICK, words=words)


def spoken(seconds: float, *, chunk_ms: int = 20) -> tuple[DelayRecorder, SequenceDelays]:
    """A sequence whose audio arrived as it was spoken, from time 0."""
    recorder = DelayRecorder()
    delays = recorder.open(TICK, LOOKAHEAD)
    for index in range(round(seconds * 1000 / chunk_ms)):
        delays.arrived(16 * chunk_ms, (index + 1) * chunk_ms * MS)
    return recorder, delays


def only(histogram: HistogramSnapshot) -> float:
    """The one value in it."""
    assert histogram.count == 1, histogram
    return histogram.total


class TestArrivalTimes:
    @pytest.mark.parametrize("chunk_samples", [1, 7, 160, 320, 1280, 16_000])
    def test_a_position_arrived_with_the_chunk_that_holds_it_or_up_to_20_ms_later(self, chunk_samples: int) -> None:
        arrivals, received = ArrivalTimes(), 0
        while received < 40_000:
            received += chunk_samples
            arrivals.append(chunk_samples, received)
        for position in range(1, received, 997):
            exact = -(-position // chunk_samples) * chunk_samples
            at_ns = arrivals.at_ns(position)
            assert at_ns is not None
            assert exact <= at_ns <= exact + 320 + chunk_samples

    def test_what_is_not_there_has_no_time(self) -> None:
        arrivals = ArrivalTimes()
        assert arrivals.at_ns(1) is None
        arrivals.append(100, 5)
        assert (arrivals.at_ns(100), arrivals.at_ns(101)) == (5, None)

    def test_it_stays_small_for_ever(self) -> None:
        arrivals = ArrivalTimes()
        for index in range(20_000):
            arrivals.append(320, index)
        assert len(arrivals) <= MAX_MARKS
        assert arrivals.received_samples == 20_000 * 320
        assert arrivals.at_ns(20_000 * 320) == 19_999

    def test_what_is_forgotten_has_no_time_rather_than_a_wrong_one(self) -> None:
        arrivals = ArrivalTimes()
        for index in range(1000):
            arrivals.append(320, index)
        arrivals.forget(160_000)
        assert arrivals.at_ns(320) is None
        assert arrivals.at_ns(160_000) == 499
        assert len(arrivals) == 501

    def test_the_newest_mark_is_never_forgotten(self) -> None:
        arrivals = ArrivalTimes()
        for index in range(200):
            arrivals.append(320, index)
        arrivals.forget(10**9)
        assert arrivals.received_samples == 64_000


class TestLag:
    def test_a_result_counts_from_the_arrival_of_its_last_sample(self) -> None:
        recorder, delays = spoken(1.0)
        delays.answered(row(ready_at_ns=280 * MS), output(), 400 * MS)
        assert only(recorder.stats(0).lag_s) == pytest.approx(0.12)
        assert delays.max_lag_ns == 120 * MS

    def test_now_it_is_the_wait_of_the_oldest_complete_tick(self) -> None:
        recorder, delays = spoken(0.6)
        # tick 1 is complete with sample 4351, which came in the chunk that ended at 280 ms; tick 2 (8191) at 520 ms
        assert recorder.stats(600 * MS).max_lag_s == pytest.approx(0.32)
        delays.answered(row(), output(), 600 * MS)
        assert recorder.stats(600 * MS).max_lag_s == pytest.approx(0.08)
        delays.answered(row(), output(), 600 * MS)
        assert recorder.stats(600 * MS).max_lag_s == 0.0

    def test_a_flush_answers_no_tick(self) -> None:
        recorder, delays = spoken(0.6)
        delays.answered(row(flush=True), output(ended=ended()), 600 * MS)
        assert recorder.stats(600 * MS).max_lag_s == pytest.approx(0.32)

    def test_the_slowest_sequence_counts_until_it_ends(self) -> None:
        recorder, delays = spoken(0.3)
        recorder.open(TICK, LOOKAHEAD).arrived(TICK + LOOKAHEAD, 500 * MS)
        assert recorder.stats(600 * MS).max_lag_s == pytest.approx(0.32)
        recorder.close(delays)
        recorder.close(delays)
        assert recorder.stats(600 * MS).max_lag_s == pytest.approx(0.1)

    def test_on_the_ticks_of_another_model(self) -> None:
        _, delays = spoken(0.2)
        assert delays.lag_ns(500 * MS) == 0, "its first tick is not whole"
        delays.cut_anew(1600, 0)
        assert delays.lag_ns(500 * MS) == 400 * MS
        delays.answered(row(), output(), 500 * MS)
        assert delays.lag_ns(500 * MS) == 300 * MS


class TestWords:
    def test_shown_then_committed(self) -> None:
        recorder, delays = spoken(2.0)
        delays.answered(row(), output(draft=(word("hello", 0.4),)), 700 * MS)
        delays.answered(row(), output(committed=(word("Hello,", 0.4),)), 1200 * MS)
        stats = recorder.stats(0)
        assert only(stats.word_shown_s) == pytest.approx(0.3)
        assert only(stats.word_committed_s) == pytest.approx(0.8)

    def test_a_word_that_was_another_before_was_not_shown_yet(self) -> None:
        recorder, delays = spoken(2.0)
        delays.answered(row(), output(draft=(word("yellow", 0.4),)), 700 * MS)
        delays.answered(row(), output(draft=(word("hello", 0.4),)), 900 * MS)
        delays.answered(row(), output(draft=()), 1000 * MS)
        delays.answered(row(), output(draft=(word("hello", 0.4),)), 1100 * MS)
        delays.answered(row(), output(committed=(word("hello", 0.4),)), 1200 * MS)
        assert only(recorder.stats(0).word_shown_s) == pytest.approx(0.7)

    def test_each_word_counts_once(self) -> None:
        recorder, delays = spoken(2.0)
        first, second = word("a", 0.4), word("b", 0.8)
        for committed, draft in (((first,), (second,)), ((first,), (second,)), ((first, second), ())):
            delays.answered(row(), output(committed=committed, draft=draft), 1000 * MS)
        delays.answered(row(), output(ended=ended(first, second)), 1500 * MS)
        assert recorder.stats(0).word_committed_s.count == 2

    def test_an_end_commits_the_rest(self) -> None:
        recorder, delays = spoken(2.0)
        delays.answered(row(flush=True), output(ended=ended(word("a", 1.0))), 1500 * MS)
        stats = recorder.stats(0)
        assert only(stats.word_shown_s) == pytest.approx(0.5)
        assert only(stats.word_committed_s) == pytest.approx(0.5)

    def test_a_cut_at_the_maximum_length_leaves_words_that_were_shown(self) -> None:
        recorder, delays = spoken(2.0)
        cut, rest = word("cut", 0.4), word("rest", 0.6)
        delays.answered(row(), output(committed=(cut,), draft=(rest,)), 700 * MS)
        length = ended(cut, cause=UtteranceEnd.LENGTH)
        delays.answered(row(), output(draft=(rest,), ended=length), 900 * MS)
        delays.answered(row(), output(committed=(rest,)), 1000 * MS)
        assert recorder.stats(0).word_shown_s.total == pytest.approx(0.3 + 0.1)

    def test_other_ends_leave_nothing(self) -> None:
        recorder, delays = spoken(2.0)
        delays.answered(row(), output(draft=(word("a", 0.4),)), 700 * MS)
        delays.answered(row(), output(ended=ended()), 900 * MS)
        delays.answered(row(), output(committed=(word("a", 0.9),)), 1000 * MS)
        assert only(recorder.stats(0).word_shown_s) == pytest.approx(0.1)

    def test_a_time_beyond_the_audio_means_its_end(self) -> None:
        recorder, delays = spoken(1.0)
        delays.answered(row(flush=True), output(ended=ended(word("a", 9.0))), 1500 * MS)
        assert only(recorder.stats(0).word_committed_s) == pytest.approx(0.5)

    def test_a_hypothesis_may_shrink_below_what_stood(self) -> None:
        recorder, delays = spoken(2.0)
        words = tuple(word(text, 0.5) for text in "abc")
        delays.answered(row(), output(committed=words), 700 * MS)
        delays.answered(row(), output(committed=words[:1]), 800 * MS)
        delays.answered(row(), output(committed=words, draft=words), 900 * MS)
        delays.answered(row(), output(ended=ended(*words, *words)), 1000 * MS)
        assert recorder.stats(0).word_committed_s.count == 6


class TestFinals:
    def test_from_the_last_words_end_to_being_told(self) -> None:
        recorder, delays = spoken(3.0)
        delays.answered(row(), output(ended=ended(word("a", 0.5), word("b", 1.0))), 1900 * MS)
        delays.told(0, 2000 * MS)
        assert recorder.stats(0).final_s["endpoint"].count == 0
        delays.told(1, 2200 * MS)
        delays.told(1, 2300 * MS)
        assert only(recorder.stats(0).final_s["endpoint"]) == pytest.approx(1.2)

    def test_each_under_its_cause_in_order(self) -> None:
        recorder, delays = spoken(3.0)
        delays.answered(row(), output(ended=ended(word("a", 0.5))), 1000 * MS)
        delays.answered(row(flush=True), output(ended=ended(word("b", 1.5), cause=UtteranceEnd.FINALIZE)), 2000 * MS)
        delays.told(2, 2500 * MS)
        finals = recorder.stats(0).final_s
        assert only(finals["endpoint"]) == pytest.approx(2.0)
        assert only(finals["finalize"]) == pytest.approx(1.0)

    def test_an_empty_answer_to_finalize_is_a_final_without_delay(self) -> None:
        recorder, delays = spoken(3.0)
        delays.answered(row(flush=True), output(ended=ended(cause=UtteranceEnd.FINALIZE)), 1000 * MS)
        delays.answered(row(flush=True), output(ended=ended(word("b", 1.5), cause=UtteranceEnd.END)), 2000 * MS)
        delays.told(2, 2500 * MS)
        finals = recorder.stats(0).final_s
        assert finals["finalize"].count == 0
        assert only(finals["end"]) == pytest.approx(1.0)

    def test_nothing_said_before_an_endpoint_is_no_final(self) -> None:
        recorder, delays = spoken(3.0)
        delays.answered(row(), output(ended=ended()), 1000 * MS)
        delays.answered(row(), output(ended=ended(word("b", 1.5))), 2000 * MS)
        delays.told(1, 2500 * MS)
        assert only(recorder.stats(0).final_s["endpoint"]) == pytest.approx(1.0)


def test_hours_of_words_take_no_memory() -> None:
    recorder = DelayRecorder()
    delays = recorder.open(TICK, LOOKAHEAD)
    rng = np.random.default_rng(0)
    samples = 0
    for tick in range(6_000):  # 24 minutes
        delays.arrived(TICK, tick * 240 * MS)
        samples += TICK
        said = (word("x", samples / 16_000 - 0.1 * rng.random()),)
        closes = ended(*said) if tick % 5 == 4 else None
        delays.answered(row(), output(committed=() if closes else said, ended=closes, keep=samples), tick * 240 * MS)
        delays.told(tick // 5, tick * 240 * MS)
    assert len(delays._arrivals) < 200
    assert len(delays._finals) <= 2
