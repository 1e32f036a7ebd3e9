"""The audio of one sequence that no step has taken yet, cut into what a row may hold.

A portion is one whole tick, or a flush up to a mark (Finalize, END). Portions come out in the order of their
positions, a tick before a mark that stands at or after the tick's last sample. So what a sequence's rows hold depends
on its samples and on where the marks stand among them, and neither on chunk sizes nor on arrival times (I7). Both
samples and marks are bounded (I5).
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from server.errors import QueueFull
from server.plan import Samples

_SMALLEST_RING_SAMPLES: Final = 8_192
"""Two ticks of 240 ms: what a stream that keeps up needs."""


class PortionKind(Enum):
    """What makes a portion complete."""

    TICK = "tick"
    FINALIZE = "finalize"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one row may hold: the samples not yet taken, up to ``end_sample``."""

    kind: PortionKind
    end_sample: int
    """One past the last sample of the tick, or where the mark stands."""
    ready_at_ns: int
    """When its last sample, or its mark, arrived."""

    @property
    def is_flush(self) -> bool:
        """Whether it is read on scratch."""
        return self.kind is not PortionKind.TICK


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenPortion:
    """A portion with its audio."""

    portion: Portion
    first_sample: int
    samples: Samples
    """float32 [n_samples], a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The grid of ticks and the bounds of a queue."""

    tick_samples: int
    lookahead_samples: int
    """Tick k = 1, 2, … is complete with sample ``tick_samples * k + lookahead_samples``."""
    max_samples: int
    max_marks: int


class SampleQueue:
    """Bounded first-in-first-out of samples with the portions that are complete."""

    def __init__(self, limits: QueueLimits) -> None:
        """Empty and open, at sample 0."""
        self._limits = limits
        self._ring = _SampleRing()
        self._portions: deque[Portion] = deque()
        self._n_marks = 0
        self._received_samples = 0
        self._next_tick_end = limits.tick_samples + limits.lookahead_samples
        self._is_closed = False

    @property
    def received_samples(self) -> int:
        """Samples accepted since the sequence began."""
        return self._received_samples

    @property
    def queued_samples(self) -> int:
        """Samples that no row has consumed."""
        return self._ring.n_samples

    @property
    def room_samples(self) -> int:
        """Samples that fit now."""
        return max(0, self._limits.max_samples - self._ring.n_samples)

    @property
    def is_closed(self) -> bool:
        """Whether END was pushed; nothing may follow it."""
        return self._is_closed

    @property
    def head(self) -> Portion | None:
        """The portion that is next, if one is complete."""
        return self._portions[0] if self._portions else None

    def push(self, samples: Samples, now_ns: int, *, finalize: bool = False, end: bool = False) -> None:
        """Append samples and, after them, marks.

        Raises:
            QueueFull: there is no room for all of it; nothing was taken.
        """
        if samples.size > self.room_samples:
            raise QueueFull(f"{samples.size} samples do not fit: there is room for {self.room_samples}")
        if finalize and self._n_marks >= self._limits.max_marks:
            raise QueueFull(f"{self._n_marks} Finalize marks wait: no more than that")
        self._take_in(samples, now_ns, finalize=finalize, end=end)

    def cut_anew(self, limits: QueueLimits, now_ns: int) -> "SampleQueue":
        """What is in it, of which nothing was taken, on another grid of ticks; all of it, whatever the bound."""
        if limits == self._limits:
            return self
        assert self._ring.n_samples == self._received_samples, "it begins with the sequence's first sample"
        queue, samples = SampleQueue(limits), self._ring.peek(self._ring.n_samples)
        for portion in self._portions:
            queue._take_in(
                samples[queue.received_samples : portion.end_sample],
                portion.ready_at_ns,
                finalize=portion.kind is PortionKind.FINALIZE,
                end=portion.kind is PortionKind.END,
            )
        queue._take_in(samples[queue.received_samples :], now_ns)
        return queue

    def take(self) -> TakenPortion:
        """Take the head, which must be there. A Finalize leaves its samples: they come again with their tick."""
        portion = self._portions.popleft()
        first_sample = self._received_samples - self._ring.n_samples
        samples = self._ring.peek(portion.end_sample - first_sample)
        if portion.kind is PortionKind.FINALIZE:
            self._n_marks -= 1
        else:
            self._ring.drop(samples.size)
        return TakenPortion(portion=portion, first_sample=first_sample, samples=samples)

    def _take_in(self, samples: Samples, now_ns: int, *, finalize: bool = False, end: bool = False) -> None:
        self._ring.push(samples)
        self._received_samples += samples.size
        while self._next_tick_end <= self._received_samples:
            self._append(PortionKind.TICK, self._next_tick_end, now_ns)
            self._next_tick_end += self._limits.tick_samples
        if finalize:
            self._n_marks += 1
            self._append(PortionKind.FINALIZE, self._received_samples, now_ns)
        if end:
            self._is_closed = True
            self._append(PortionKind.END, self._received_samples, now_ns)

    def _append(self, kind: PortionKind, end_sample: int, now_ns: int) -> None:
        self._portions.append(Portion(kind=kind, end_sample=end_sample, ready_at_ns=now_ns))


class _SampleRing:
    """Ring of samples: its memory follows what it holds, and chunk sizes leave no trace in it."""

    def __init__(self) -> None:
        self._buffer: Samples = np.empty(_SMALLEST_RING_SAMPLES, dtype=np.float32)
        self._first = 0
        self.n_samples = 0

    def push(self, samples: Samples) -> None:
        if self.n_samples + samples.size > self._buffer.size:
            self._resize(max(2 * self._buffer.size, self.n_samples + samples.size))
        at = (self._first + self.n_samples) % self._buffer.size
        until_wrap = min(samples.size, self._buffer.size - at)
        self._buffer[at : at + until_wrap] = samples[:until_wrap]
        self._buffer[: samples.size - until_wrap] = samples[until_wrap:]
        self.n_samples += samples.size

    def peek(self, n_samples: int) -> Samples:
        until_wrap = min(n_samples, self._buffer.size - self._first)
        return np.concatenate(
            (self._buffer[self._first : self._first + until_wrap], self._buffer[: n_samples - until_wrap])
        )

    def drop(self, n_samples: int) -> None:
        self._first = (self._first + n_samples) % self._buffer.size
        self.n_samples -= n_samples
        smaller = max(_SMALLEST_RING_SAMPLES, self._buffer.size // 2)
        if smaller < self._buffer.size and 4 * self.n_samples <= self._buffer.size:
            self._resize(smaller)

    def _resize(self, size: int) -> None:
        kept = self.peek(self.n_samples)
        self._buffer = np.empty(size, dtype=np.float32)
        self._buffer[: kept.size] = kept
        self._first = 0
