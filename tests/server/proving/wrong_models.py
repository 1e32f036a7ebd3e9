"""Models that are not what they say: each is right when it serves one client alone, and wrong in a way of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from asr_model.contract import ModelSpec, Samples, Scheduler, SlotRange, State, StepOutput, StepRow
from asr_model.transcript import FinalOutput, LiveOutput, Word
from tests.support.accumulator_model import UNIT, AccumulatorModel, SumModel, summary


def said(output: object, text: str) -> object:
    """The output with another word in place of its own."""
    assert isinstance(output, LiveOutput)
    words = tuple(replace(word, text=text) for word in output.committed)
    ended = output.ended
    if ended is not None:
        ended = replace(ended, words=tuple(replace(word, text=text) for word in ended.words))
    return replace(output, committed=words, ended=ended)


class OwnMemory(AccumulatorModel):
    """Keeps the sum in an attribute, by slot, and begins anew at START: nobody notices until a slot is moved."""

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[int, float] = {}

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        output = super().step(rows, state)
        texts = []
        for row in rows:
            before = 0.0 if row.start else self._sums.get(row.slot, 0.0)
            self._sums[row.slot] = before + float(row.audio.sum())
            texts.append(f"{round(self._sums[row.slot] * UNIT)}")
        return StepOutput(outputs=[said(each, text) for each, text in zip(output.outputs, texts, strict=True)])


class NeverForgets(OwnMemory):
    """The same, without beginning anew."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        return super().step([replace(row, start=False) for row in rows], state)


class WritesBeside(AccumulatorModel):
    """A step moves the sum of the slot after its row's too."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        output = super().step(rows, state)
        for row in rows:
            state["canary"][(row.slot + 1) % len(state["canary"])] += 1.0
        return output


class HearsTheOthers(AccumulatorModel):
    """Levels every row by the loudest of the batch."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        loudest = max(float(np.abs(row.audio).max(initial=0.0)) for row in rows)
        output = super().step(rows, state)
        return StepOutput(outputs=[said(each, f"{loudest:.4f}") for each in output.outputs])


class TakesRowsForSlots(AccumulatorModel):
    """Uses a row's place in the batch for its slot: right as long as there is only slot 0."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        return super().step([replace(row, slot=place) for place, row in enumerate(rows)], state)


class Forgetful(AccumulatorModel):
    """Says what each tick holds and nothing of those before: it needs no slots, though it has some."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        output = super().step(rows, state)
        return StepOutput(
            outputs=[said(each, summary(row.audio)) for each, row in zip(output.outputs, rows, strict=True)]
        )


class Mute(AccumulatorModel):
    """Answers nothing at all."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        return StepOutput(outputs=[None] * len(rows))


class Broken(AccumulatorModel):
    """Every step fails."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        raise RuntimeError("broken")


class SaysItIsStateless(AccumulatorModel):
    """Keeps state and declares the other scheduler."""

    @property
    def spec(self) -> ModelSpec:
        return replace(super().spec, scheduler=Scheduler.DYNAMIC)


class Remembers(SumModel):
    """A one-shot model that adds up whatever it was ever given."""

    def __init__(self) -> None:
        super().__init__()
        self._total = 0.0

    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        outputs = []
        for samples in audio:
            self._total += float(samples.astype(np.float64).sum())
            word = Word(text=f"{round(self._total * UNIT)}", start_s=0.0, end_s=1.0, confidence=1.0)
            outputs.append(FinalOutput(words=(word,)))
        return outputs


class PadsBadly(SumModel):
    """A one-shot model for which the padding of a batch is audio too."""

    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        longest = max(len(samples) for samples in audio)
        return super().run([np.pad(samples, (0, longest - len(samples))) for samples in audio], pause)


def make_forgetful(options: Mapping[str, object], device: torch.device) -> Forgetful:
    """Factory for a ModelSource."""
    return Forgetful()


def make_own_memory(options: Mapping[str, object], device: torch.device) -> OwnMemory:
    """Factory for a ModelSource."""
    return OwnMemory()


def make_says_it_is_stateless(options: Mapping[str, object], device: torch.device) -> SaysItIsStateless:
    """Factory for a ModelSource."""
    return SaysItIsStateless()


def make_remembers(options: Mapping[str, object], device: torch.device) -> Remembers:
    """Factory for a ModelSource."""
    return Remembers()


class Undeclared(AccumulatorModel):
    """Keeps state and does not say so."""

    @property
    def spec(self) -> ModelSpec:
        return replace(super().spec, scheduler=None)


def make_mute(options: Mapping[str, object], device: torch.device) -> Mute:
    """Factory for a ModelSource."""
    return Mute()


def make_undeclared(options: Mapping[str, object], device: torch.device) -> Undeclared:
    """Factory for a ModelSource."""
    return Undeclared()
