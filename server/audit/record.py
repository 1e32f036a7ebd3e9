"""What is kept of a sequence so that it can be decoded again: its audio, where Finalize stood, what it heard, and in
which batches. Pure and bounded (I5).

What a sequence hears is a function of its samples and of where Finalize stood among them (I7), and of nothing behind
them: so the beginning of a long sequence is audited like the whole of a short one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from asr_model.transcript import EndedUtterance, LiveOutput, Word
from server.effects import RowCompleted
from server.ids import InstanceIndex, SequenceId, SlotIndex
from server.plan import NOTHING_ASKED, Samples, SequenceOptions

MAX_MARKS: Final = 1024
"""Finalizes that are kept; the record is cut before the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTrace:
    """Where one row of the sequence ran."""

    plan_id: int
    instance: InstanceIndex
    slot: SlotIndex
    batch_size: int
    first_sample: int
    end_sample: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Audio up to a Finalize, or up to where the record ends."""

    samples: Samples
    finalize: bool


class Record:
    """One sequence, from its START on.

    Args:
        sequence_id: Whose record it is.
        options: What its client asked for.
        max_samples: Audio kept at most; what comes after is not kept, nor what is heard of it.
    """

    __slots__ = (
        "_chunks",
        "_is_cut",
        "_marks",
        "_max_samples",
        "_n_samples",
        "_options",
        "_sequence_id",
        "_told",
        "rows",
    )

    def __init__(self, sequence_id: SequenceId, options: SequenceOptions = NOTHING_ASKED, *, max_samples: int) -> None:
        self._sequence_id, self._options, self._max_samples = sequence_id, options, max_samples
        self._chunks: list[Samples] = []
        self._marks: list[int] = []
        self._n_samples = 0
        self._is_cut = False
        self._told: list[tuple[EndedUtterance, bool]] = []
        """Utterances, and whether END ended them."""
        self.rows: list[RowTrace] = []
        """Rows within the kept audio."""

    @property
    def sequence_id(self) -> SequenceId:
        """Whose record it is."""
        return self._sequence_id

    @property
    def options(self) -> SequenceOptions:
        """What its client asked for."""
        return self._options

    @property
    def n_samples(self) -> int:
        """Samples kept."""
        return self._n_samples

    @property
    def is_cut(self) -> bool:
        """Whether the sequence went on behind what is kept."""
        return self._is_cut

    @property
    def heard_samples(self) -> int:
        """Samples that rows have covered."""
        return max((row.end_sample for row in self.rows), default=0)

    def send(self, samples: Samples) -> None:
        """Keeps a copy of the sequence's next samples: float32 [N]."""
        if self._is_cut:
            return
        room = self._max_samples - self._n_samples
        if samples.size > room:
            self._is_cut = True
        if kept := min(room, samples.size):
            self._chunks.append(samples[:kept].copy())
            self._n_samples += kept

    def finalize(self) -> None:
        """A Finalize stands after the samples so far."""
        if self._is_cut:
            return
        if len(self._marks) == MAX_MARKS:
            self._is_cut = True
        else:
            self._marks.append(self._n_samples)

    def complete_row(self, effect: RowCompleted) -> None:
        """A row of the sequence has run."""
        row, output = effect.row, effect.output
        end_sample = row.first_sample + row.n_samples
        if end_sample > self._n_samples or (self._is_cut and self._is_behind_marks(row.flush, end_sample)):
            return
        self.rows.append(
            RowTrace(
                plan_id=effect.plan_id,
                instance=effect.instance,
                slot=row.slot,
                batch_size=effect.batch_size,
                first_sample=row.first_sample,
                end_sample=end_sample,
            )
        )
        if isinstance(output, LiveOutput) and output.ended is not None:
            self._told.append((output.ended, row.end))

    def again(self, sequence_id: SequenceId) -> "Record":
        """A record of the same audio, in which nothing was heard yet."""
        other = Record(sequence_id, self._options, max_samples=self._max_samples)
        other._chunks, other._marks, other._n_samples = self._chunks, self._marks, self._n_samples
        return other

    def words(self, *, without_end: bool) -> tuple[Word, ...]:
        """The live words of all utterances.

        Args:
            without_end: Leave out what END ended: of a record that is cut, no END stood there.
        """
        return tuple(word for ended, by_end in self._told if not (by_end and without_end) for word in ended.words)

    def passages(self) -> Iterator[Passage]:
        """The audio as it is to be sent again, with Finalize between; END comes after the last."""
        audio = np.concatenate(self._chunks) if self._chunks else np.empty(0, dtype=np.float32)
        bounds = [0, *self._marks, self._n_samples]
        for index, (first, end) in enumerate(pairwise(bounds)):
            yield Passage(samples=audio[first:end], finalize=index < len(self._marks))

    def _is_behind_marks(self, is_flush: bool, end_sample: int) -> bool:
        """Whether it is a flush for a mark that the record has no more."""
        return is_flush and end_sample not in self._marks
