"""Plays sequences through a streaming model's slots, without batchers: which row steps when is the test's choice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from asr_model.contract import Samples, SlotRange, State, StepOutput, StepRow, StreamingModel
from asr_model.transcript import EndedUtterance, LiveOutput, joined


@dataclass(slots=True)
class Played:
    """One sequence in a slot."""

    audio: Samples
    endpoint_silence_ms: int | None = None
    """What it asks for at START."""
    position: int = 0
    """Samples that have been taken in by whole ticks."""
    started: bool = False
    outputs: list[LiveOutput] = field(default_factory=list)
    ended: list[EndedUtterance] = field(default_factory=list)
    closed: bool = False

    @property
    def text(self) -> str:
        """Text of all ended utterances."""
        return " ".join(joined(utterance.words) for utterance in self.ended if utterance.words)


class SlotPlayer:
    """State tensors of ``n_slots`` slots and the sequences in them."""

    def __init__(self, model: StreamingModel, n_slots: int) -> None:
        self.model, self.n_slots = model, n_slots
        spec = model.spec
        self.state: State = {
            name: torch.full((n_slots, *tensor.shape), tensor.initial, dtype=tensor.dtype)
            for name, tensor in spec.state.items()
        }
        self.sequences: dict[int, Played] = {}
        self.counters: dict[str, int] = {}

    def open(self, slot: int, audio: Samples, endpoint_silence_ms: int | None = None) -> Played:
        """A new sequence takes the slot."""
        self.sequences[slot] = Played(audio.astype(np.float32), endpoint_silence_ms)
        return self.sequences[slot]

    def tick_end(self, slot: int, n_ticks: int = 1) -> int:
        """Sample at which the slot's next tick, or the last of some, is complete."""
        spec, played = self.model.spec, self.sequences[slot]
        return played.position + n_ticks * spec.tick_samples + (spec.lookahead_samples if played.position == 0 else 0)

    def step(
        self,
        ticks: Iterable[int] = (),
        flushes: dict[int, tuple[int, bool]] | None = None,
        span: SlotRange | None = None,
    ) -> StepOutput:
        """One step: a tick of each of the slots ``ticks``, or as many as a mapping says, and flushes
        ``{slot: (at sample, end)}``."""
        rows: list[StepRow] = []
        for slot in ticks:
            n_ticks = ticks[slot] if isinstance(ticks, Mapping) else 1
            played, end = self.sequences[slot], self.tick_end(slot, n_ticks)
            row = self._row(slot, played.audio[played.position : end], flush=False, end=False)
            rows.append(replace(row, n_ticks=n_ticks))
            played.position = end
        for slot, (at, end_of_sequence) in (flushes or {}).items():
            played = self.sequences[slot]
            rows.append(self._row(slot, played.audio[played.position : at], flush=True, end=end_of_sequence))
            played.closed = end_of_sequence
        if span is not None:
            rows.sort(key=lambda row: row.slot)
        result = self.model.step(rows, self.state, span)
        for i, row in enumerate(rows):
            played = self.sequences[row.slot]
            for output in (*result.earlier.get(i, ()), result.outputs[i]):
                assert isinstance(output, LiveOutput)
                played.outputs.append(output)
                if output.ended is not None:
                    played.ended.append(output.ended)
        for name, count in result.counters.items():
            self.counters[name] = self.counters.get(name, 0) + count
        return result

    def _row(self, slot: int, audio: Samples, *, flush: bool, end: bool) -> StepRow:
        played = self.sequences[slot]
        start, played.started = not played.started, True
        if start:
            for name, tensor in self.model.spec.state.items():
                self.state[name][slot] = tensor.initial
        return StepRow(
            slot=slot,
            start=start,
            flush=flush,
            end=end,
            first_sample=played.position,
            audio=audio,
            endpoint_silence_ms=played.endpoint_silence_ms if start else None,
        )

    def has_tick(self, slot: int, n_ticks: int = 1) -> bool:
        """Whether the slot's audio completes another tick, or so many."""
        return self.tick_end(slot, n_ticks) <= len(self.sequences[slot].audio)

    def play(self, slots: Iterable[int] | None = None) -> None:
        """All sequences to their end: ticks as long as there are any, then END."""
        live = [s for s in (self.sequences if slots is None else slots) if not self.sequences[s].closed]
        while live:
            ticks = [slot for slot in live if self.has_tick(slot)]
            ends = {slot: (len(self.sequences[slot].audio), True) for slot in live if slot not in ticks}
            self.step(ticks, ends)
            live = ticks

    def snapshot(self, slot: int, names: Iterable[str]) -> dict[str, Tensor]:
        """Copies of the slot's tensors."""
        return {name: self.state[name][slot].clone() for name in names}
