"""One life of a sequence id as the reference knows it: what was sent, and hence which rows it must get."""

from dataclasses import dataclass, field

import numpy as np

from server.batching.sample_queue import PortionKind
from server.batching.sequence_config import SequenceBatcherConfig
from server.effects import SequenceEffect
from server.ids import InstanceIndex, SlotIndex
from server.plan import Samples
from tests.support.accumulator import SILENCE, Reading, solo_rows

SlotPlace = tuple[InstanceIndex, SlotIndex]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRow:
    """A tick, a flush, or a turn that the sequence must get, straight from the definition."""

    reading: Reading
    """What it must hear."""
    ready_at_ns: int
    start: bool
    flush: bool = False
    end: bool = False
    first_sample: int = 0
    end_sample: int = 0
    shape: Shape = ()
    number: int = 0
    """Of the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTurn:
    """One turn."""

    number: int
    value: int
    shape: Shape
    start: bool
    end: bool
    at_ns: int


@dataclass(kw_only=True, eq=False)
class Run:
    """One life of a sequence id, from START to its terminal effect."""

    name: str
    voice: int
    solo: bool = False
    gives_way: bool = False
    level: int = 0
    sent: list[float] = field(default_factory=list)
    marks: list[tuple[int, PortionKind]] = field(default_factory=list)
    turns: list[SentTurn] = field(default_factory=list)
    n_planned: int = 0
    """Ticks, flushes and turns."""
    n_completed: int = 0
    in_flight: bool = False
    place: tuple[SlotPlace, int] | None = None
    """Slot and generation of its rows, known from its first one."""
    instance: int | None = None
    """None: it waits for a slot."""
    queued_at_ns: int = 0
    told: int = 0
    """Its place in the backlog, as it was last told; 0: it was not, for it waits for a row of one that gives way."""
    terminal: SequenceEffect | None = None
    turn: int = 0
    """Order in which sequences became able to run."""
    passed_over: int = 0
    """Steps of its instance that went without it since it became able to run."""
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    """(samples sent in all, when) after each offer."""
    mark_arrivals: list[int] = field(default_factory=list)
    alive_at_ns: int = 0
    alive_order: int = 0
    """Of the last signs of life of all runs."""
    is_expired: bool = False
    """The batcher ended it, because it was idle for too long."""
    _rows: list[DueRow] = field(default_factory=list)
    _rows_for: tuple[int, int, int] = (0, 0, 0)

    @property
    def is_closed(self) -> bool:
        """Whether END is the last it was told."""
        if self.turns:
            return self.turns[-1].end
        return bool(self.marks) and self.marks[-1][1] is PortionKind.END

    def rows(self, config: SequenceBatcherConfig) -> list[DueRow]:
        """The rows the sequence must get for what was sent so far."""
        sent = (len(self.sent), len(self.marks), len(self.turns))
        if sent != self._rows_for:
            self._rows = self._turn_rows() if self.turns else self._audio_rows(config)
            self._rows_for = sent
        return self._rows

    def next_row(self, config: SequenceBatcherConfig) -> DueRow | None:
        """The next row to be planned."""
        rows = self.rows(config)
        return rows[self.n_planned] if self.n_planned < len(rows) else None

    def next_rows(self, config: SequenceBatcherConfig) -> list[DueRow]:
        """What the next planned row must hold: one of them, or as many ticks as there are and may be."""
        rows = self.rows(config)[self.n_planned :]
        if self.turns or rows[0].flush:
            return rows[:1]
        n_ticks = next((index for index, row in enumerate(rows) if row.flush), len(rows))
        return rows[: min(n_ticks, config.max_ticks)]

    def queued(self, config: SequenceBatcherConfig) -> int:
        """Samples, or turns, that no row has consumed."""
        if self.turns:
            return len(self.turns) - self.n_planned
        taken = self.rows(config)[: self.n_planned]
        return len(self.sent) - max((row.end_sample for row in taken if not row.flush or row.end), default=0)

    def _audio_rows(self, config: SequenceBatcherConfig) -> list[DueRow]:
        arrived, marked = iter(self.arrivals), iter(self.mark_arrivals)
        n_sent, at_ns = 0, 0
        rows: list[DueRow] = []
        for row in solo_rows(
            self.sent, self.marks, tick_samples=config.tick_samples, lookahead_samples=config.lookahead_samples
        ):
            is_tick = row.kind is PortionKind.TICK
            while is_tick and n_sent < row.end_sample:
                n_sent, at_ns = next(arrived)
            rows.append(
                DueRow(
                    reading=row.reading,
                    ready_at_ns=at_ns if is_tick else next(marked),
                    start=not rows,
                    flush=not is_tick,
                    end=row.kind is PortionKind.END,
                    first_sample=row.first_sample,
                    end_sample=row.end_sample,
                )
            )
        return rows

    def _turn_rows(self) -> list[DueRow]:
        heard = SILENCE
        rows: list[DueRow] = []
        for turn in self.turns:
            heard = (SILENCE if turn.start else heard).plus(turn_values(turn.value, turn.shape).ravel())
            rows.append(
                DueRow(
                    reading=heard,
                    ready_at_ns=turn.at_ns,
                    start=turn.start,
                    end=turn.end,
                    shape=turn.shape,
                    number=turn.number,
                )
            )
        return rows


def speech(voice: int, position: int, n_samples: int) -> Samples:
    """Samples that tell whose they are: no two voices share a value at a position."""
    return np.arange(position, position + n_samples, dtype=np.float32) % 97 + 100 * voice


def turn_values(value: int, shape: Shape) -> Samples:
    """[1, *shape], full of the value."""
    return np.full((1, *shape), value, dtype=np.float32)
