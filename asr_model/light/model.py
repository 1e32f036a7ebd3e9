"""The light model behind the contract: 160 ms ticks, all memory in slot state, a flush on scratch.

The ticks of a late sequence run through the network together. Over a range of slots the state is read and written as it
lies; rows of several ticks are gathered always.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Samples, Scheduler, SlotRange, State, StateTensor, StepOutput, StepRow
from asr_model.light.features import HOP_SAMPLES, WINDOW_SAMPLES, LogMel
from asr_model.light.network import HIDDEN, INPUT, LAYERS, RandomLstm
from asr_model.light.settings import LightSettings
from asr_model.light.utterance import MAX_WORDS, WIDTH, Utterance
from asr_model.moonshine.dimensions import SAMPLE_RATE
from asr_model.transcript import LiveOutput, UtteranceEnd

TICK_STEPS: Final = 4
STEP_SAMPLES: Final = 4 * HOP_SAMPLES
"""One step of the network takes four frames, 40 ms."""
TICK_SAMPLES: Final = TICK_STEPS * STEP_SAMPLES
LOOKAHEAD_SAMPLES: Final = WINDOW_SAMPLES - HOP_SAMPLES
"""By how much a tick's last frame reaches into the next tick."""
FIRST_TICK_SAMPLES: Final = TICK_SAMPLES + LOOKAHEAD_SAMPLES
MAX_TICKS: Final = 8
"""Ticks of a late sequence that run together, at most."""
CELLS: Final = ("hidden", "cells")
"""Names of the network's state."""
NO_SAMPLES: Final = np.empty(0, np.float32)
SPEECH_LEVEL: Final = 0.01
"""Root mean square of a tick (-40 dBFS) from which it counts as speech."""
ENDPOINT_SILENCE_MS: Final = 640
"""Silence that ends an utterance, unless the sequence asks for another."""
NEVER_MS: Final = 1 << 40


def build(options: Mapping[str, object], device: torch.device) -> "LightModel":
    """The model.

    Raises:
        ValueError: an option is unknown or has no such value.
    """
    LightSettings.of(options)
    return LightModel(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One tick, or the flush, of a row."""

    row: StepRow
    """Of this tick alone."""
    of: int
    """Which row of the step it is of."""
    before: Samples
    """The look-ahead of the tick before it in the same row; empty for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the network made of a step's ticks."""

    symbols: list[int]
    """Of each tick: the likeliest symbol of its last 40 ms."""
    is_speech: list[bool]
    is_finite: list[bool]


class LightModel:
    """StreamingModel (``asr_model.contract``) with random weights."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._front_end = LogMel(device)
        self._network = RandomLstm(device)
        self.spec = ModelSpec(
            name="light-lstm",
            scheduler=Scheduler.SEQUENCE,
            tick_samples=TICK_SAMPLES,
            lookahead_samples=LOOKAHEAD_SAMPLES,
            max_ticks=MAX_TICKS,
            state={
                "remainder": StateTensor(shape=(LOOKAHEAD_SAMPLES,), dtype=torch.float32),
                "hidden": StateTensor(shape=(LAYERS, HIDDEN), dtype=torch.float32),
                "cells": StateTensor(shape=(LAYERS, HIDDEN), dtype=torch.float32),
                "utterance": StateTensor(shape=(WIDTH,), dtype=torch.int64),
                "endpoint_ms": StateTensor(shape=(), dtype=torch.int64, initial=ENDPOINT_SILENCE_MS),
            },
        )

    @torch.inference_mode()
    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        """Ticks or a flush of every row; see ``StreamingModel.step``. Outputs are ``LiveOutput``."""
        slots = torch.tensor([row.slot for row in rows], device=self._device)
        for row in rows:
            if row.endpoint_silence_ms is not None:
                state["endpoint_ms"][row.slot] = row.endpoint_silence_ms or NEVER_MS
        ticks = [tick for i, row in enumerate(rows) for tick in _ticks(i, row)]
        heard = self._listen(ticks, slots, span, state)
        utterances = [Utterance.unpack(numbers) for numbers in state["utterance"][slots].tolist()]
        limits_ms = state["endpoint_ms"][slots].tolist()
        told: list[list[object]] = [[] for _ in rows]
        for tick, symbol, is_speech in zip(ticks, heard.symbols, heard.is_speech, strict=True):
            told[tick.of].append(say(tick.row, utterances[tick.of], symbol, is_speech, limits_ms[tick.of]))
        packed = torch.tensor([utterance.pack() for utterance in utterances], device=self._device)
        state["utterance"].index_copy_(0, slots, packed)
        broken = sorted({tick.of for tick, finite in zip(ticks, heard.is_finite, strict=True) if not finite})
        return StepOutput(
            outputs=[outputs[-1] for outputs in told],
            errors=dict.fromkeys(broken, "audio or state is not finite"),
            counters={"ticks": sum(not tick.row.flush for tick in ticks), "encoder_frames": 16 * len(ticks)},
            earlier={i: outputs[:-1] for i, outputs in enumerate(told) if len(outputs) > 1},
        )

    def _listen(self, ticks: list[Tick], slots: Tensor, span: SlotRange | None, state: State) -> Heard:
        """Features and network. Moves the state of the rows that are ticks; those of as many ticks go together."""
        of = [tick.of for tick in ticks]
        audio = self._audio(ticks, slots, state)
        frames = self._front_end(audio).view(len(ticks), TICK_STEPS, INPUT)
        symbols, is_finite = [0] * len(ticks), [True] * len(ticks)
        counts = Counter(of)
        for n in sorted(set(counts.values())):
            chosen = [i for i, at in enumerate(of) if counts[at] == n]
            part = [ticks[i] for i in chosen]
            index = torch.tensor(chosen, device=self._device)
            rows = index[::n]
            logits = self._run(frames[index].view(len(rows), n * TICK_STEPS, INPUT), part[::n], span, state)
            steps = [t % n * TICK_STEPS + _steps(tick.row) - 1 for t, tick in enumerate(part)]
            last = logits[torch.tensor(steps, device=self._device), torch.arange(len(part), device=self._device) // n]
            for i, symbol, finite in zip(chosen, last.argmax(1).tolist(), last.isfinite().all(1).tolist(), strict=True):
                symbols[i], is_finite[i] = symbol, finite
        last_of = {at: i for i, at in enumerate(of) if not ticks[i].row.flush}
        if last_of:
            moved = torch.tensor(list(last_of), device=self._device)
            kept = audio[torch.tensor(list(last_of.values()), device=self._device), TICK_SAMPLES:]
            state["remainder"].index_copy_(0, slots[moved], kept)
        is_speech = (audio[:, :TICK_SAMPLES].square().mean(1).sqrt() >= SPEECH_LEVEL).tolist()
        return Heard(symbols=symbols, is_speech=is_speech, is_finite=is_finite)

    def _run(self, x: Tensor, rows: Sequence[Tick], span: SlotRange | None, state: State) -> Tensor:
        """Logits [T, B, SYMBOLS] of x [B, T, INPUT]; moves the states of the rows that are ticks."""
        slots = torch.tensor([tick.row.slot for tick in rows], device=self._device)
        moves = torch.tensor([not tick.row.flush for tick in rows], device=self._device)
        if span is None or x.shape[1] > TICK_STEPS:
            h, c = (state[name][slots].transpose(0, 1) for name in CELLS)
            logits, *new = self._network(x.transpose(0, 1), h, c)
            for name, values in zip(CELLS, new, strict=True):
                state[name].index_copy_(0, slots[moves], values.transpose(0, 1)[moves])
            return logits
        lanes = slots - span.first
        spread = x.new_zeros(span.n_slots, *x.shape[1:]).index_copy_(0, lanes, x)
        is_moved = torch.zeros(span.n_slots, dtype=torch.bool, device=self._device).index_copy_(0, lanes, moves)
        views = [state[name][span.first : span.first + span.n_slots] for name in CELLS]
        logits, *new = self._network(spread.transpose(0, 1), *(view.transpose(0, 1) for view in views))
        for view, values in zip(views, new, strict=True):
            torch.where(is_moved[:, None, None], values.transpose(0, 1), view, out=view)
        return logits[:, lanes]

    def _audio(self, ticks: Sequence[Tick], slots: Tensor, state: State) -> Tensor:
        """The ticks' samples and the look-ahead behind them, zeros where there are none: float32 [U, 2800]."""
        audio = torch.zeros(len(ticks), FIRST_TICK_SAMPLES)
        for i, tick in enumerate(ticks):
            begin = _kept(tick.row)
            audio[i, begin - len(tick.before) : begin] = torch.from_numpy(tick.before)
            audio[i, begin : begin + len(tick.row.audio)] = torch.from_numpy(tick.row.audio)
        audio = audio.to(self._device)
        goes_on = torch.tensor([_kept(tick.row) > len(tick.before) for tick in ticks], device=self._device)
        of = torch.tensor([tick.of for tick in ticks], device=self._device)
        audio[:, :LOOKAHEAD_SAMPLES] = torch.where(
            goes_on[:, None], state["remainder"][slots[of]], audio[:, :LOOKAHEAD_SAMPLES]
        )
        return audio


def _ticks(index: int, row: StepRow) -> list[Tick]:
    """The row, tick by tick."""
    if row.n_ticks == 1:
        return [Tick(row=row, of=index, before=NO_SAMPLES)]
    first = FIRST_TICK_SAMPLES if row.first_sample == 0 else TICK_SAMPLES
    edges = [0, *(first + TICK_SAMPLES * n for n in range(row.n_ticks))]
    return [
        Tick(
            row=replace(row, first_sample=row.first_sample + begin, audio=row.audio[begin:end], n_ticks=1),
            of=index,
            before=row.audio[begin - LOOKAHEAD_SAMPLES : begin] if begin else NO_SAMPLES,
        )
        for begin, end in pairwise(edges)
    ]


def say(row: StepRow, utterance: Utterance, symbol: int, is_speech: bool, limit_ms: int) -> LiveOutput:
    """What a row says; moves its utterance."""
    first = row.first_sample - _kept(row)
    position = row.first_sample + len(row.audio)
    end = position if row.flush else first + TICK_SAMPLES
    ended = None
    if is_speech and end > utterance.first_sample:
        utterance.hear(symbol, first, end)
    else:
        utterance.rest(end - first)
    cause = _cause(row, utterance, limit_ms)
    if cause is not None:
        ended = utterance.end(cause, end)
    elif not utterance.is_open:
        utterance.first_sample = max(utterance.first_sample, end)
    return LiveOutput(
        encoded_samples=position,
        committed=tuple(said.word() for said in utterance.words),
        draft=(utterance.draft.word(),) if utterance.draft.syllables else (),
        ended=ended,
        keep_from_sample=utterance.first_sample,
        is_speech=is_speech,
        speech_from_sample=first if is_speech else None,
        speech_until_sample=end if is_speech else None,
    )


def _cause(row: StepRow, utterance: Utterance, limit_ms: int) -> UtteranceEnd | None:
    if row.flush:
        return UtteranceEnd.END if row.end else UtteranceEnd.FINALIZE
    if utterance.is_open and utterance.silent_samples * 1000 >= limit_ms * SAMPLE_RATE:
        return UtteranceEnd.ENDPOINT
    return UtteranceEnd.LENGTH if len(utterance.words) == MAX_WORDS else None


def _kept(row: StepRow) -> int:
    """Samples of the tick that came with the one before."""
    return LOOKAHEAD_SAMPLES if row.first_sample else 0


def _steps(row: StepRow) -> int:
    """Steps of the network that a row has audio for, at least 1."""
    samples = min(TICK_SAMPLES, _kept(row) + len(row.audio))
    return max(1, -(-samples // STEP_SAMPLES))
