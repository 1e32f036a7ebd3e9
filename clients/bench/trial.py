"""From what a load client brought back to latencies. Pure.

Step latency counts from when a tick's last sample was due, not from when it was sent: a service that makes its clients
wait is not excused. Words are found again by their text and their place; what was misheard has no delay.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Final

from pydantic import ValidationError

from clients.bench.figures import Trial, spread
from clients.bench.load_job import LoadJob, LoadRecord, StreamRecord
from clients.bench.track import SpokenWord, Track
from clients.messages import AnyMessage, Results
from clients.replay.latency import COVER_SLACK_SAMPLES, NS, Heard
from clients.transcribe.audio_file import MODEL_RATE
from clients.word_error_rate import words

WORD_MARGIN_S: Final = 2.0
"""Words that end so near to the end of a trial are left out: their results may come after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One word that a stream heard back."""

    text: str
    shown_at_ns: int
    stood_at_ns: int | None
    """When it was committed; None: not yet."""
    final_at_ns: int | None
    """When its utterance's final came, if it is the last word of one."""


@dataclass(slots=True, kw_only=True)
class Latencies:
    """Of all streams, in milliseconds."""

    step: list[float] = field(default_factory=list)
    missing: int = 0
    first_partial: list[float] = field(default_factory=list)
    commit: list[float] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)


def evaluate(record: LoadRecord, job: LoadJob, track: Track, lookahead_samples: int) -> Trial:
    """The figures of a trial, without what the parent's meters say."""
    if record.failure:
        return Trial(streams=job.streams, step=None, failure=record.failure)
    latencies = Latencies()
    failures = [stream.failure for stream in record.streams if stream.failure]
    for stream in record.streams:
        interims, finals = heard(stream)
        _steps(latencies, stream, interims, (record.began_at_ns, job, lookahead_samples))
        _words(latencies, stream, said(interims, finals), (job, track))
    late = [late_ns / 1e6 for stream in record.streams for late_ns in stream.late_ns]
    return Trial(
        streams=job.streams,
        step=spread(latencies.step),
        ticks_without_result=latencies.missing,
        first_partial=spread(latencies.first_partial),
        commit=spread(latencies.commit),
        final=spread(latencies.final),
        lag=spread(latencies.lag),
        late_send=spread(late),
        failure=f"{len(failures)} streams ended: {failures[0]}" if failures else "",
    )


def heard(stream: StreamRecord) -> tuple[list[Heard], list[Heard]]:
    """Interim results and finals of a stream, in order of arrival."""
    interims: list[Heard] = []
    finals: list[Heard] = []
    for arrived_at_ns, raw in stream.received:
        message = _result(raw)
        if message is None:
            continue
        committed, _ = message.split()
        (finals if message.is_final else interims).append(
            Heard(
                utterance=message.moorage.utterance,
                text=message.live_text if message.is_final else message.transcript,
                committed_text=message.live_text if message.is_final else committed,
                covered_s=message.moorage.covered_s,
                arrived_at_ns=arrived_at_ns,
            )
        )
    return interims, finals


def _result(raw: str | bytes) -> Results | None:
    try:
        if AnyMessage.model_validate_json(raw).type != "Results":
            return None
        return Results.model_validate_json(raw)
    except ValidationError:
        return None


def _steps(
    latencies: Latencies, stream: StreamRecord, interims: list[Heard], measured: tuple[int, LoadJob, int]
) -> None:
    """Step latency of every tick that was due while measured, and the lag at every result."""
    began_at_ns, job, lookahead_samples = measured
    ended_at_ns = began_at_ns + round(job.measure_s * NS)
    covered = [each.covered_s * MODEL_RATE + COVER_SLACK_SAMPLES for each in interims]
    chunk_samples = MODEL_RATE * job.chunk_ms // 1000
    sent_samples = len(stream.late_ns) * chunk_samples
    tick = 0
    while (tick_end := (tick := tick + 1) * job.tick_samples + lookahead_samples) <= job.seconds * MODEL_RATE:
        spoken_samples = -(-tick_end // chunk_samples) * chunk_samples
        due_ns = stream.started_at_ns + spoken_samples * NS // MODEL_RATE
        if not began_at_ns <= due_ns < ended_at_ns:
            continue
        first = bisect_left(covered, tick * job.tick_samples)
        if first < len(covered):
            latencies.step.append((interims[first].arrived_at_ns - due_ns) / 1e6)
        else:  # late by at least what is left of the trial, sent or not
            latencies.missing += 1
            latencies.step.append((ended_at_ns - due_ns) / 1e6 + job.grace_s * 1e3)
    for each in interims:
        if began_at_ns <= each.arrived_at_ns < ended_at_ns:
            spoken_s = min((each.arrived_at_ns - stream.started_at_ns) / NS, sent_samples / MODEL_RATE)
            latencies.lag.append(1e3 * (spoken_s - each.covered_s))


def said(interims: list[Heard], finals: list[Heard]) -> Iterator[Said]:
    """The words of a stream, in order, each with when it was first shown, when it stood, when its final came."""
    told = {final.utterance: final for final in finals}
    history: dict[int, list[tuple[list[str], int, int]]] = {}
    for each in interims:
        entry = (words(each.text), len(words(each.committed_text)), each.arrived_at_ns)
        history.setdefault(each.utterance, []).append(entry)
    for utterance in sorted(set(history) | set(told)):
        entries = history.get(utterance, [])
        final = told.get(utterance)
        if final is not None:
            entries = [*entries, (words(final.text), len(words(final.text)), final.arrived_at_ns)]
        newest = entries[-1][0]
        for index, word in enumerate(newest):
            shown = (at for text, _, at in entries if len(text) > index and text[index] == word)
            stood = (at for _, committed, at in entries if committed > index)
            is_last = final is not None and index + 1 == len(newest)
            yield Said(
                text=word,
                shown_at_ns=next(shown),
                stood_at_ns=next(stood, None),
                final_at_ns=final.arrived_at_ns if final is not None and is_last else None,
            )


def _words(latencies: Latencies, stream: StreamRecord, told: Iterator[Said], source: tuple[LoadJob, Track]) -> None:
    """Word and final delays of the words that were said and heard alike."""
    job, track = source
    begin_s = stream.offset_samples / MODEL_RATE
    spoken = track.words_between(begin_s, begin_s + job.seconds)
    heard_back = list(told)
    for word, answer in matched(spoken, heard_back):
        end_s = word.end_s - begin_s
        if not job.settle_s <= end_s < job.seconds - WORD_MARGIN_S:
            continue
        spoken_at_ns = stream.started_at_ns + round(end_s * NS)
        latencies.first_partial.append((answer.shown_at_ns - spoken_at_ns) / 1e6)
        if answer.stood_at_ns is not None:
            latencies.commit.append((answer.stood_at_ns - spoken_at_ns) / 1e6)
        if answer.final_at_ns is not None:
            latencies.final.append((answer.final_at_ns - spoken_at_ns) / 1e6)


def matched(spoken: list[SpokenWord], heard_back: list[Said]) -> Iterator[tuple[SpokenWord, Said]]:
    """Pairs of equal words in the same order."""
    matcher = SequenceMatcher(None, [each.text for each in spoken], [each.text for each in heard_back], autojunk=False)
    for block in matcher.get_matching_blocks():
        for index in range(block.size):
            yield spoken[block.a + index], heard_back[block.b + index]
