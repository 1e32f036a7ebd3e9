"""Latency as a client sees it. Pure: times are arguments, in nanoseconds of one monotonic clock.

* *step latency*: the last sample of a tick has arrived -> a result that covers it (text changed or not) is sent. Here:
  the chunk that holds the tick's last sample is sent -> the first interim result that covers the tick has arrived.
* *word delay*: a word's end in the audio (by forced alignment) -> the first partial that contains it, and -> its
  commit.
* *final delay*: the last sample of speech -> the final text, endpoint silence included.
* *live WER*: of ``live_text``; ``word_error_rate`` has it.

Audio time becomes clock time by the pace of the recording: the sample at second s was spoken at its start + s / speed.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from clients.word_error_rate import word_errors, words

MODEL_RATE = 16_000
TICK_SAMPLES, LOOKAHEAD_SAMPLES = 3_840, 511
"""Tick k = 1, 2, … of a sequence is complete with its sample 3,840 k + 511 at 16 kHz."""
COVER_SLACK_SAMPLES = 8
"""Rounding of ``covered_s`` on the wire."""
CLOSING_SLACK_SAMPLES = 160
"""What the service's resampler may add to or take from a sequence's length."""
ALLOWED_ERRORS = 0.1
"""Word errors per word above which the positions of words say nothing about which word is which."""
NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SentChunk:
    """Audio that left the client."""

    end_s: float
    """Seconds of the sequence's audio sent with this chunk and all before."""
    sent_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One interim result, or the live text of a final one, whose ``covered_s`` is where the utterance ends."""

    utterance: int
    text: str
    committed_text: str
    """The part of ``text`` that stands; all of it for a final."""
    covered_s: float
    arrived_at_ns: int


@dataclass(slots=True, kw_only=True)
class Timeline:
    """What was sent and heard of one sequence, in order."""

    started_at_ns: int
    """When the sequence's first sample was spoken."""
    speed: float = 1.0
    """Seconds of audio per second of clock."""
    sent: list[SentChunk] = field(default_factory=list)
    interims: list[Heard] = field(default_factory=list)
    finals: list[Heard] = field(default_factory=list)
    """One per utterance, in order."""

    def spoken_at_ns(self, audio_s: float) -> int:
        """When the sample at that second of the audio was spoken."""
        return self.started_at_ns + round(audio_s / self.speed * NS)

    def ends_with_stream(self, final: Heard) -> bool:
        """Whether the end of the stream ended an utterance, not an endpoint before it."""
        return bool(self.sent) and (self.sent[-1].end_s - final.covered_s) * MODEL_RATE < CLOSING_SLACK_SAMPLES

    def live_text(self) -> str:
        """What the live model said, as committed and flushed."""
        return " ".join(final.text for final in self.finals if final.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Measured latencies in milliseconds; adds up over sequences."""

    step_ms: tuple[float, ...] = ()
    ticks_without_result: int = 0
    """Complete ticks that no interim result covered."""
    first_partial_ms: tuple[float, ...] = ()
    """Word delay to the first partial that contains the word."""
    commit_ms: tuple[float, ...] = ()
    """Word delay to the commit."""
    final_ms: tuple[float, ...] = ()
    """Final delay of utterances that an endpoint ended."""
    closing_final_ms: tuple[float, ...] = ()
    """The same of utterances that the end of the stream ended: no endpoint silence in it."""
    aligned_sequences: int = 0
    """Sequences whose words lined up with the reference."""

    def __add__(self, other: "Latencies") -> "Latencies":
        return Latencies(
            step_ms=self.step_ms + other.step_ms,
            ticks_without_result=self.ticks_without_result + other.ticks_without_result,
            first_partial_ms=self.first_partial_ms + other.first_partial_ms,
            commit_ms=self.commit_ms + other.commit_ms,
            final_ms=self.final_ms + other.final_ms,
            closing_final_ms=self.closing_final_ms + other.closing_final_ms,
            aligned_sequences=self.aligned_sequences + other.aligned_sequences,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """By nearest rank."""

    count: int
    p50: float
    p90: float
    p99: float


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """p50, p90 and p99, or None of nothing."""
    if not values:
        return None
    ranked = sorted(values)

    def rank(percent: int) -> float:
        return ranked[max(0, math.ceil(percent * len(ranked) / 100) - 1)]

    return Percentiles(count=len(ranked), p50=rank(50), p90=rank(90), p99=rank(99))


def step_latencies(timeline: Timeline) -> Latencies:
    """Step latency of every complete tick of a sequence."""
    latencies: list[float] = []
    missing = 0
    covered = [heard.covered_s * MODEL_RATE + COVER_SLACK_SAMPLES for heard in timeline.interims]
    ends = [round(chunk.end_s * MODEL_RATE, 3) for chunk in timeline.sent]
    ticks = int((ends[-1] - LOOKAHEAD_SAMPLES) // TICK_SAMPLES) if ends else 0
    for tick in range(1, ticks + 1):
        chunk = timeline.sent[bisect_left(ends, TICK_SAMPLES * tick + LOOKAHEAD_SAMPLES)]
        first = bisect_left(covered, TICK_SAMPLES * tick)
        if first == len(covered):
            missing += 1
        else:
            latencies.append((timeline.interims[first].arrived_at_ns - chunk.sent_at_ns) / 1e6)
    return Latencies(step_ms=tuple(latencies), ticks_without_result=missing)


def lines_up(reference: Sequence[str], heard: Sequence[str]) -> bool:
    """Whether the k-th word heard may be taken for the k-th word of the reference."""
    if not reference or len(reference) != len(heard):
        return False
    return word_errors(" ".join(reference), " ".join(heard)).distance <= ALLOWED_ERRORS * len(reference)


def word_latencies(timeline: Timeline, word_ends_s: Sequence[float]) -> Latencies:
    """Word and final delays of a sequence whose live text lines up with the reference.

    Args:
        timeline: The sequence.
        word_ends_s: Second of the audio at which each word of the reference ends.

    Raises:
        ValueError: There are more or fewer words than ends: they do not line up.
    """
    said = [words(final.text) for final in timeline.finals]
    if sum(map(len, said)) != len(word_ends_s):
        raise ValueError(f"{sum(map(len, said))} words heard, {len(word_ends_s)} in the reference")
    first_partial: list[float] = []
    commit: list[float] = []
    final_ms: list[float] = []
    closing_ms: list[float] = []
    position = 0
    for final, live_words in zip(timeline.finals, said, strict=True):
        spoken = [timeline.spoken_at_ns(end_s) for end_s in word_ends_s[position : position + len(live_words)]]
        position += len(live_words)
        history = [
            (words(heard.text), len(words(heard.committed_text)), heard.arrived_at_ns)
            for heard in timeline.interims
            if heard.utterance == final.utterance and heard.arrived_at_ns <= final.arrived_at_ns
        ]
        for index, (word, spoken_at_ns) in enumerate(zip(live_words, spoken, strict=True)):
            shown = (at for text, _, at in history if len(text) > index and text[index] == word)
            stood = (at for _, committed, at in history if committed > index)
            first_partial.append((next(shown, final.arrived_at_ns) - spoken_at_ns) / 1e6)
            commit.append((next(stood, final.arrived_at_ns) - spoken_at_ns) / 1e6)
        if spoken:
            (closing_ms if timeline.ends_with_stream(final) else final_ms).append(
                (final.arrived_at_ns - spoken[-1]) / 1e6
            )
    return Latencies(
        first_partial_ms=tuple(first_partial),
        commit_ms=tuple(commit),
        final_ms=tuple(final_ms),
        closing_final_ms=tuple(closing_ms),
        aligned_sequences=1,
    )
