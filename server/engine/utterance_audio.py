"""The audio of a sequence that an utterance to come may still need, for its final pass. Pure and bounded (I5)."""

from collections import deque

import numpy as np

from server.plan import Samples


class UtteranceAudio:
    """Samples of one sequence by position, oldest first; forgets what is trimmed and what exceeds its bound.

    Args:
        max_samples: Samples kept at most. A longer utterance cannot be cut out whole any more.
    """

    __slots__ = ("_chunks", "_end", "_first", "_max_samples")

    def __init__(self, max_samples: int) -> None:
        self._max_samples = max_samples
        self._chunks: deque[Samples] = deque()
        self._first = 0
        self._end = 0

    @property
    def n_samples(self) -> int:
        """Samples kept."""
        return self._end - self._first

    def append(self, samples: Samples) -> None:
        """Keeps a copy of the sequence's next samples: float32 [N]."""
        if samples.size:
            self._chunks.append(samples.copy())
            self._end += samples.size
            self.trim(self._end - self._max_samples)

    def trim(self, keep_from_sample: int) -> None:
        """Forgets what is before that sample of the sequence."""
        while self._chunks and self._first < keep_from_sample:
            surplus = keep_from_sample - self._first
            chunk = self._chunks.popleft()
            if surplus < chunk.size:
                self._chunks.appendleft(chunk[surplus:].copy())  # a view would keep the whole chunk alive
                self._first = keep_from_sample
            else:
                self._first += chunk.size

    def cut(self, first_sample: int, end_sample: int) -> Samples | None:
        """A copy of the samples [first_sample, end_sample) of the sequence; None if some are forgotten or not there."""
        if first_sample < self._first or end_sample > self._end or first_sample >= end_sample:
            return None
        parts: list[Samples] = []
        position = self._first
        for chunk in self._chunks:
            parts.append(chunk[max(0, first_sample - position) : max(0, end_sample - position)])
            position += chunk.size
            if position >= end_sample:
                break
        return np.concatenate(parts)
