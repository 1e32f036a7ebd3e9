"""Latencies out of what a stream sent and heard, on times that are made up."""

import json

import numpy as np
import pytest

from clients.bench.load_job import LoadJob, LoadRecord, StreamRecord
from clients.bench.track import SpokenWord, Track
from clients.bench.trial import evaluate

MS = 1_000_000
TICK, LOOKAHEAD = 2_560, 240
BEGAN_NS = 1_000 * MS
JOB = LoadJob(
    url="ws://x",
    streams=1,
    audio=np.zeros(16_000 * 20, np.int16),
    tick_samples=TICK,
    chunk_ms=80,
    settle_s=1.0,
    measure_s=4.0,
    grace_s=0.32,
)
TRACK = Track(
    samples=np.zeros(16_000 * 20, np.float32),
    words=tuple(SpokenWord(text=text, end_s=end_s) for text, end_s in (("a", 1.2), ("bee", 1.6), ("sea", 2.0))),
    utterances=((0, 32_000),),
    names=("made up",),
)


def result(text: str, covered_s: float, *, utterance: int = 0, committed: int = 0, final: bool = False) -> str:
    words = [{"word": word, "start": 0, "end": 0, "confidence": 1} for word in text.split()]
    moorage = {
        "sequence_id": "s",
        "instance": 0,
        "slot": 0,
        "batch_size": 1,
        "queue_ms": 0,
        "step_ms": 0,
        "utterance": utterance,
        "covered_s": covered_s,
        "committed_words": committed,
    }
    return json.dumps(
        {
            "type": "Results",
            "start": 0,
            "duration": 0,
            "is_final": final,
            "channel": {"alternatives": [{"transcript": text, "confidence": 1, "words": words}]},
            "metadata": {"moorage": moorage},
        }
    )


def ticks(latency_ms: float, *, until: int = 31) -> list[tuple[int, str | bytes]]:
    """An interim result for each tick, so long after the chunk that completes it was due."""
    found: list[tuple[int, str | bytes]] = []
    for tick in range(1, until + 1):
        due_ms = -(-(tick * TICK + LOOKAHEAD) // 1_280) * 80
        found.append((round((due_ms + latency_ms) * MS), result("", (tick * TICK + LOOKAHEAD) / 16_000)))
    return found


def record(*received: tuple[int, str | bytes], late_ns: int = 0, failure: str = "") -> LoadRecord:
    stream = StreamRecord(offset_samples=0, started_at_ns=0, failure=failure)
    stream.late_ns = [late_ns] * 62
    stream.received = sorted(received)
    return LoadRecord(began_at_ns=BEGAN_NS, streams=(stream,))


def test_step_latency_counts_from_when_a_tick_was_due() -> None:
    trial = evaluate(record(*ticks(50.0), late_ns=900 * MS), JOB, TRACK, LOOKAHEAD)
    assert trial.step is not None
    assert trial.late_send is not None
    assert (trial.step.p50_ms, trial.step.p99_ms) == (50.0, 50.0)
    assert trial.step.count == 25, "ticks that were due in the 4 s that are measured"
    assert trial.late_send.p50_ms == 900.0
    assert trial.ticks_without_result == 0
    assert trial.is_held(160.0)


def test_a_tick_without_result_counts_with_the_time_waited() -> None:
    trial = evaluate(record(*ticks(50.0, until=20)), JOB, TRACK, LOOKAHEAD)
    assert trial.step is not None
    assert trial.ticks_without_result == 10
    assert trial.step.count == 25
    assert trial.step.p99_ms > 1_500
    assert not trial.is_held(160.0)


def test_lag_is_audio_spoken_and_not_covered() -> None:
    """Each result comes 50 ms after a chunk of 80 ms: the spoken part of the next one counts too."""
    trial = evaluate(record(*ticks(50.0)), JOB, TRACK, LOOKAHEAD)
    assert trial.lag is not None
    assert trial.lag.p50_ms == pytest.approx(50.0 + 80.0 - 15.0)


def test_word_and_final_delays() -> None:
    """ "bee" ends at 1.6 s; "x" was never said, "sea" comes late."""
    heard = (
        (1_500 * MS, result("a", 1.4)),
        (1_900 * MS, result("a bee", 1.8, committed=1)),
        (2_300 * MS, result("a bee x", 2.2, committed=2)),
        (2_600 * MS, result("a bee sea", 2.4, committed=3)),
        (3_200 * MS, result("a bee sea", 3.0, final=True)),
    )
    trial = evaluate(record(*heard), JOB, TRACK, LOOKAHEAD)
    assert trial.first_partial is not None
    assert trial.commit is not None
    assert trial.final is not None
    assert (trial.first_partial.count, trial.commit.count, trial.final.count) == (3, 3, 1)
    assert (trial.first_partial.p50_ms, trial.first_partial.p99_ms) == (300.0, 600.0)
    assert (trial.commit.p50_ms, trial.commit.p99_ms) == (700.0, 700.0)
    assert trial.final.p50_ms == 1_200.0


def test_misheard_words_have_no_delay() -> None:
    trial = evaluate(record((2_600 * MS, result("eh bee see", 2.4, final=True))), JOB, TRACK, LOOKAHEAD)
    assert trial.first_partial is not None
    assert trial.first_partial.count == 1
    assert trial.final is None, "its last word is not what was said"


def test_a_stream_that_ended_fails_the_trial() -> None:
    trial = evaluate(record(*ticks(50.0), failure="1011"), JOB, TRACK, LOOKAHEAD)
    assert trial.failure == "1 streams ended: 1011"
    assert not trial.is_held(160.0)


def test_streams_that_never_were() -> None:
    trial = evaluate(LoadRecord(began_at_ns=0, streams=(), failure="refused"), JOB, TRACK, LOOKAHEAD)
    assert (trial.failure, trial.step) == ("refused", None)


def test_what_is_no_result_is_passed_over() -> None:
    trial = evaluate(record(*ticks(50.0), (1, '{"type": "Metadata"}'), (2, "{"), (3, "null")), JOB, TRACK, LOOKAHEAD)
    assert trial.is_held(160.0)
