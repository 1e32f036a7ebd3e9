"""How late a sequence is told things, measured where its audio arrives. Pure: times are arguments.

* *lag*: the last sample of a tick (or a flush) has arrived -> its result is there.
* *word delay*: the sample at a word's end has arrived -> the first partial that held the word as it was committed, and
  -> its commit.
* *final delay*: the sample at the end of an utterance's last word has arrived -> the final is told, so endpoint silence
  and the wait for earlier finals are in it.

Arrival is when the engine took the audio: what a client holds back, and what waits in a socket that is not read, is not
in these figures. A client that sends faster than speech is spoken makes its own words late by its own backlog.
"""

from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from asr_model.transcript import EndedUtterance, LiveOutput, UtteranceEnd, Word
from server.figures.stats import DELAYS, SECONDS, DelayStats, Histogram
from server.plan import BatchRow

SAMPLE_RATE: Final = 16_000
MARK_SAMPLES: Final = 320
"""Arrivals closer together than this share a mark, which counts them up to 20 ms too late."""
MAX_MARKS: Final = 4_096
"""Marks of one sequence: above it the oldest go. They reach back 82 s, longer than any utterance."""


class ArrivalTimes:
    """When each part of a sequence's audio arrived. Bounded: ``forget`` what is past; the oldest goes at the limit."""

    __slots__ = ("_at_ns", "_forgotten", "_positions")

    def __init__(self) -> None:
        self._forgotten = 0
        """Of positions up to this one nothing is known any more."""
        self._positions = array("q")
        """Samples received up to each mark, ascending."""
        self._at_ns = array("q")

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def received_samples(self) -> int:
        """Samples that have arrived."""
        return self._positions[-1] if self._positions else 0

    def append(self, n_samples: int, now_ns: int) -> None:
        """So many more samples arrived."""
        position = self.received_samples + n_samples
        if len(self) > 1 and position - self._positions[-2] < MARK_SAMPLES:
            self._positions[-1], self._at_ns[-1] = position, now_ns
            return
        if len(self) >= MAX_MARKS:
            self.forget(self._positions[MAX_MARKS // 4])
        self._positions.append(position)
        self._at_ns.append(now_ns)

    def at_ns(self, position: int) -> int | None:
        """When the sequence's first ``position`` samples were there; None if they are not, or nothing is known."""
        if not self._positions or not self._forgotten < position <= self.received_samples:
            return None
        return self._at_ns[bisect_left(self._positions, position)]

    def forget(self, position: int) -> None:
        """Positions below this one will not be asked for. The newest mark stays."""
        first = min(bisect_left(self._positions, position), len(self) - 1)
        if first > 64:  # moving what is left is cheap when it is rare
            self._forgotten = self._positions[first - 1]
            del self._positions[:first]
            del self._at_ns[:first]


@dataclass(slots=True, kw_only=True, eq=False)
class _Shown:
    """A word of the open utterance as partials showed it last."""

    key: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenFinal:
    cause: UtteranceEnd
    spoken_at_ns: int | None
    """None: without words, or its audio is forgotten. Then it is not measured."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Histograms:
    lag_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    word_shown_s: Histogram = field(default_factory=lambda: Histogram(DELAYS))
    word_committed_s: Histogram = field(default_factory=lambda: Histogram(DELAYS))
    final_s: dict[str, Histogram] = field(
        default_factory=lambda: {cause.value: Histogram(DELAYS) for cause in UtteranceEnd}
    )


class SequenceDelays:
    """The delays of one sequence. Made by ``DelayRecorder.open``."""

    __slots__ = (
        "_arrivals",
        "_finals",
        "_histograms",
        "_n_committed",
        "_n_told",
        "_next_tick_end",
        "_shown",
        "_tick_samples",
        "max_lag_ns",
    )

    def __init__(self, histograms: _Histograms, tick_samples: int, lookahead_samples: int) -> None:
        self._histograms = histograms
        self._tick_samples = tick_samples
        self._next_tick_end = tick_samples + lookahead_samples
        self._arrivals = ArrivalTimes()
        self._shown: list[_Shown] = []
        self._n_committed = 0
        self._finals: deque[_OpenFinal] = deque()
        self._n_told = 0
        self.max_lag_ns = 0
        """Greatest lag of its results so far."""

    def cut_anew(self, tick_samples: int, lookahead_samples: int) -> None:
        """Another model will read the sequence, which nobody has begun to."""
        self._tick_samples = tick_samples
        self._next_tick_end = tick_samples + lookahead_samples

    def arrived(self, n_samples: int, now_ns: int) -> None:
        """The sequence's next samples were taken."""
        if n_samples:
            self._arrivals.append(n_samples, now_ns)

    def lag_ns(self, now_ns: int) -> int:
        """Time for which a complete tick has waited for its result; 0 if none waits."""
        complete_at_ns = self._arrivals.at_ns(self._next_tick_end)
        return 0 if complete_at_ns is None else max(0, now_ns - complete_at_ns)

    def answered(self, row: BatchRow, output: LiveOutput, now_ns: int) -> None:
        """A row's result is there."""
        lag_ns = max(0, now_ns - row.ready_at_ns)
        self._histograms.lag_s.observe(lag_ns / 1e9)
        self.max_lag_ns = max(self.max_lag_ns, lag_ns)
        if output.ended is not None:
            self._end(output.ended, row, now_ns)
        if not row.flush:
            self._next_tick_end += self._tick_samples
            del self._shown[len(output.committed) + len(output.draft) :]
            self._show((*output.committed, *output.draft), now_ns)
            self._commit(output.committed, now_ns)
        self._arrivals.forget(min(output.keep_from_sample, self._next_tick_end))

    def told(self, n_finals: int, now_ns: int) -> None:
        """So many finals were told since the sequence began."""
        while self._n_told < n_finals and self._finals:
            final = self._finals.popleft()
            self._n_told += 1
            if final.spoken_at_ns is not None:
                self._histograms.final_s[final.cause.value].observe((now_ns - final.spoken_at_ns) / 1e9)

    def _end(self, ended: EndedUtterance, row: BatchRow, now_ns: int) -> None:
        self._show(ended.words, now_ns)
        self._commit(ended.words, now_ns)
        # only a cut at the maximum length leaves words of the hypothesis to the next utterance
        self._shown = self._shown[len(ended.words) :] if ended.cause is UtteranceEnd.LENGTH else []
        self._n_committed = 0
        if ended.words or row.flush:  # of nothing, only a flush is told
            spoken_at_ns = self._spoken_at_ns(ended.words[-1]) if ended.words else None
            self._finals.append(_OpenFinal(cause=ended.cause, spoken_at_ns=spoken_at_ns))

    def _show(self, words: tuple[Word, ...], now_ns: int) -> None:
        for index in range(min(self._n_committed, len(self._shown)), len(words)):
            key = _key(words[index])
            if index >= len(self._shown):
                self._shown.append(_Shown(key=key, at_ns=now_ns))
            elif self._shown[index].key != key:
                self._shown[index] = _Shown(key=key, at_ns=now_ns)

    def _commit(self, words: tuple[Word, ...], now_ns: int) -> None:
        for index in range(self._n_committed, len(words)):
            spoken_at_ns = self._spoken_at_ns(words[index])
            if spoken_at_ns is not None:
                self._histograms.word_shown_s.observe((self._shown[index].at_ns - spoken_at_ns) / 1e9)
                self._histograms.word_committed_s.observe((now_ns - spoken_at_ns) / 1e9)
        self._n_committed = max(self._n_committed, len(words))

    def _spoken_at_ns(self, word: Word) -> int | None:
        """When the word's last sample had arrived; a time beyond the audio means the audio's end."""
        return self._arrivals.at_ns(min(round(word.end_s * SAMPLE_RATE), self._arrivals.received_samples))


class DelayRecorder:
    """The delays of all sequences together, and who is late now."""

    def __init__(self) -> None:
        self._histograms = _Histograms()
        self._open: set[SequenceDelays] = set()

    def open(self, tick_samples: int, lookahead_samples: int) -> SequenceDelays:
        """A new sequence, on this grid of ticks."""
        delays = SequenceDelays(self._histograms, tick_samples, lookahead_samples)
        self._open.add(delays)
        return delays

    def close(self, delays: SequenceDelays) -> None:
        """The sequence has ended: it is late no more. Idempotent."""
        self._open.discard(delays)

    def stats(self, now_ns: int) -> DelayStats:
        """A snapshot."""
        histograms = self._histograms
        return DelayStats(
            lag_s=histograms.lag_s.snapshot(),
            max_lag_s=max((delays.lag_ns(now_ns) for delays in self._open), default=0) / 1e9,
            word_shown_s=histograms.word_shown_s.snapshot(),
            word_committed_s=histograms.word_committed_s.snapshot(),
            final_s={cause: histogram.snapshot() for cause, histogram in histograms.final_s.items()},
        )


def _key(word: Word) -> str:
    """The word's letters: punctuation and capitals still change after they are read."""
    return "".join(mark for mark in word.text.casefold() if mark.isalnum()) or word.text
