"""Latency figures from hand-made timelines: every number is worked out by hand."""

import pytest

from clients.replay.latency import (
    NS,
    Heard,
    Latencies,
    SentChunk,
    Timeline,
    lines_up,
    percentiles,
    step_latencies,
    word_latencies,
)

MS = 1_000_000
START = 5 * NS


def at(milliseconds: float) -> int:
    """That long after the sequence's first sample was spoken."""
    return START + round(milliseconds * MS)


def sent_every(chunk_ms: int, until_ms: int) -> list[SentChunk]:
    return [SentChunk(end_s=end / 1000, sent_at_ns=at(end)) for end in range(chunk_ms, until_ms + 1, chunk_ms)]


def interim(at_ms: float, covered_s: float, text: str = "", committed: int = 0, utterance: int = 0) -> Heard:
    return Heard(
        utterance=utterance,
        text=text,
        committed_text=" ".join(text.split()[:committed]),
        covered_s=covered_s,
        arrived_at_ns=at(at_ms),
    )


def final(at_ms: float, text: str, utterance: int = 0, end_s: float = 0.0) -> Heard:
    return Heard(utterance=utterance, text=text, committed_text=text, covered_s=end_s, arrived_at_ns=at(at_ms))


def test_step_latency_counts_from_the_chunk_that_holds_the_last_sample_of_the_tick() -> None:
    # Tick 1 is complete with sample 4351 (271.9 ms): in the chunk that ends at 280 ms. Tick 2: 8191 (511.9 ms): 520 ms.
    timeline = Timeline(
        started_at_ns=START,
        sent=sent_every(40, 520),
        interims=[interim(300, 0.24), interim(600, 0.48), interim(700, 0.48)],
    )
    assert step_latencies(timeline) == Latencies(step_ms=(20.0, 80.0))


def test_a_chunk_that_ends_with_the_last_sample_completes_the_tick() -> None:
    sent = [SentChunk(end_s=4350 / 16000, sent_at_ns=at(1)), SentChunk(end_s=4351 / 16000, sent_at_ns=at(2))]
    assert step_latencies(Timeline(started_at_ns=START, sent=sent[:1])) == Latencies()
    timeline = Timeline(started_at_ns=START, sent=sent, interims=[interim(9, 0.24)])
    assert step_latencies(timeline).step_ms == (7.0,)


def test_one_result_may_cover_several_ticks_and_rounding_of_the_wire_is_forgiven() -> None:
    timeline = Timeline(started_at_ns=START, sent=sent_every(100, 800), interims=[interim(900, 0.7197)])
    assert step_latencies(timeline).step_ms == (600.0, 300.0, 100.0)


def test_ticks_without_a_result_are_counted_and_not_timed() -> None:
    timeline = Timeline(started_at_ns=START, sent=sent_every(40, 800), interims=[interim(300, 0.24)])
    assert step_latencies(timeline) == Latencies(step_ms=(20.0,), ticks_without_result=2)


def test_word_delays_run_from_the_end_of_the_word() -> None:
    timeline = Timeline(
        started_at_ns=START,
        interims=[
            interim(500, 0.24, "the"),
            interim(700, 0.48, "the cap", committed=1),
            interim(900, 0.72, "The cat", committed=1),
        ],
        finals=[final(1500, "The cat.")],
    )
    found = word_latencies(timeline, [0.3, 0.6])
    assert found.first_partial_ms == (200.0, 300.0)  # "cap" is not yet "cat"
    assert found.commit_ms == (400.0, 900.0)  # the second stands with the final
    assert found.final_ms == (900.0,)
    assert found.closing_final_ms == ()
    assert found.aligned_sequences == 1


def test_words_of_later_utterances_are_counted_on_from_those_before() -> None:
    timeline = Timeline(
        started_at_ns=START,
        interims=[
            interim(400, 0.24, "one"),
            interim(1300, 1.2, "two", utterance=1),  # before the final of utterance 0
            interim(1350, 1.2, "two", committed=1, utterance=1),
        ],
        finals=[final(1400, "One", 0), final(2000, "Two", 1)],
    )
    found = word_latencies(timeline, [0.2, 1.1])
    assert found.first_partial_ms == (200.0, 200.0)
    assert found.commit_ms == (1200.0, 250.0)
    assert found.final_ms == (1200.0, 900.0)


def test_an_utterance_that_ends_with_the_stream_waited_for_no_endpoint() -> None:
    timeline = Timeline(
        started_at_ns=START,
        sent=sent_every(40, 2000),
        finals=[
            final(2500, "one", 0, end_s=1.2),  # an endpoint ended it, however late its final came
            final(2600, "two", 1, end_s=2.0),
        ],
    )
    found = word_latencies(timeline, [0.5, 1.9])
    assert found.final_ms == (2000.0,)
    assert found.closing_final_ms == (700.0,)


def test_a_hyphenated_word_is_two_in_text_and_commits() -> None:
    timeline = Timeline(
        started_at_ns=START,
        interims=[interim(600, 0.48, "well-known fact", committed=1)],
        finals=[final(900, "well-known fact")],
    )
    assert word_latencies(timeline, [0.1, 0.2, 0.3]).commit_ms == (500.0, 400.0, 600.0)


def test_speed_stretches_audio_time() -> None:
    timeline = Timeline(started_at_ns=START, speed=2.0, finals=[final(500, "one")])
    assert word_latencies(timeline, [0.4]).final_ms == (300.0,)


def test_empty_utterances_have_no_final_delay() -> None:
    timeline = Timeline(started_at_ns=START, finals=[final(500, "", 0), final(800, "one", 1)])
    assert word_latencies(timeline, [0.5]).final_ms == (300.0,)


def test_words_that_do_not_line_up_are_refused() -> None:
    with pytest.raises(ValueError, match="1 words heard, 2 in the reference"):
        word_latencies(Timeline(started_at_ns=START, finals=[final(1, "one")]), [0.1, 0.2])


def test_lining_up_takes_equal_counts_and_few_errors() -> None:
    truth = [f"w{chr(97 + k)}" for k in range(10)]
    assert lines_up(truth, truth)
    assert lines_up(truth, ["x", *truth[1:]])
    assert not lines_up(truth, ["x", "y", *truth[2:]])
    assert not lines_up(truth, truth[1:])
    assert not lines_up([], [])


def test_percentiles_are_values_that_occurred() -> None:
    found = percentiles([float(value) for value in range(200, 0, -1)])
    assert found is not None
    assert (found.count, found.p50, found.p90, found.p99) == (200, 100.0, 180.0, 198.0)
    single = percentiles([7.0])
    assert single is not None
    assert (single.p50, single.p99) == (7.0, 7.0)
    assert percentiles([]) is None


def test_latencies_add_up() -> None:
    one = Latencies(step_ms=(1.0,), ticks_without_result=1, final_ms=(2.0,), aligned_sequences=1)
    two = Latencies(step_ms=(3.0,), commit_ms=(4.0,), first_partial_ms=(5.0,), closing_final_ms=(6.0,))
    assert one + two == Latencies(
        step_ms=(1.0, 3.0),
        ticks_without_result=1,
        first_partial_ms=(5.0,),
        commit_ms=(4.0,),
        final_ms=(2.0,),
        closing_final_ms=(6.0,),
        aligned_sequences=1,
    )
