"""The light model behind the contract: 160 ms ticks, all memory in slot state, a flush on scratch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, State, StateTensor, StepOutput, StepRow
from asr_model.light.features import HOP_SAMPLES, WINDOW_SAMPLES, LogMel
from asr_model.light.network import HIDDEN, INPUT, LAYERS, RandomLstm
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
SPEECH_LEVEL: Final = 0.01
"""Root mean square of a tick (-40 dBFS) from which it counts as speech."""
ENDPOINT_SILENCE_MS: Final = 640
"""Silence that ends an utterance, unless the sequence asks for another."""
NEVER_MS: Final = 1 << 40


def build(options: Mapping[str, object], device: torch.device) -> "LightModel":
    """The model; it has no options.

    Raises:
        ValueError: it is given some.
    """
    if options:
        raise ValueError(f"light-lstm has no option {', '.join(sorted(options))}")
    return LightModel(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the network made of a step's rows."""

    symbols: list[int]
    """Of each row: the likeliest symbol of its last 40 ms."""
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
            state={
                "remainder": StateTensor(shape=(LOOKAHEAD_SAMPLES,), dtype=torch.float32),
                "hidden": StateTensor(shape=(LAYERS, HIDDEN), dtype=torch.float32),
                "cells": StateTensor(shape=(LAYERS, HIDDEN), dtype=torch.float32),
                "utterance": StateTensor(shape=(WIDTH,), dtype=torch.int64),
                "endpoint_ms": StateTensor(shape=(), dtype=torch.int64, initial=ENDPOINT_SILENCE_MS),
            },
        )

    @torch.inference_mode()
    def step(self, rows: Sequence[StepRow], state: State) -> StepOutput:
        """One tick or flush of every row; see ``StreamingModel.step``. Outputs are ``LiveOutput``."""
        slots = torch.tensor([row.slot for row in rows], device=self._device)
        for row in rows:
            if row.endpoint_silence_ms is not None:
                state["endpoint_ms"][row.slot] = row.endpoint_silence_ms or NEVER_MS
        heard = self._listen(rows, slots, state)
        utterances = [Utterance.unpack(numbers) for numbers in state["utterance"][slots].tolist()]
        limits_ms = state["endpoint_ms"][slots].tolist()
        outputs = [
            say(row, utterance, heard.symbols[i], heard.is_speech[i], limits_ms[i])
            for i, (row, utterance) in enumerate(zip(rows, utterances, strict=True))
        ]
        packed = torch.tensor([utterance.pack() for utterance in utterances], device=self._device)
        state["utterance"].index_copy_(0, slots, packed)
        errors = {i: "audio or state is not finite" for i, finite in enumerate(heard.is_finite) if not finite}
        ticks = sum(not row.flush for row in rows)
        return StepOutput(outputs=outputs, errors=errors, counters={"ticks": ticks, "encoder_frames": 16 * len(rows)})

    def _listen(self, rows: Sequence[StepRow], slots: Tensor, state: State) -> Heard:
        """Features and network. Moves the state of the rows that are ticks."""
        audio = self._audio(rows, slots, state)
        frames = self._front_end(audio)
        x = frames.view(len(rows), TICK_STEPS, INPUT).transpose(0, 1)
        logits, hidden, cells = self._network(
            x, state["hidden"][slots].transpose(0, 1), state["cells"][slots].transpose(0, 1)
        )
        last = torch.tensor([_steps(row) - 1 for row in rows], device=self._device)
        logits = logits[last, torch.arange(len(rows), device=self._device)]
        ticks = [i for i, row in enumerate(rows) if not row.flush]
        if ticks:
            index = torch.tensor(ticks, device=self._device)
            state["hidden"].index_copy_(0, slots[index], hidden.transpose(0, 1)[index])
            state["cells"].index_copy_(0, slots[index], cells.transpose(0, 1)[index])
            state["remainder"].index_copy_(0, slots[index], audio[index, TICK_SAMPLES:])
        return Heard(
            symbols=logits.argmax(1).tolist(),
            is_speech=(audio[:, :TICK_SAMPLES].square().mean(1).sqrt() >= SPEECH_LEVEL).tolist(),
            is_finite=logits.isfinite().all(1).tolist(),
        )

    def _audio(self, rows: Sequence[StepRow], slots: Tensor, state: State) -> Tensor:
        """The tick's samples and the look-ahead behind them, zeros where there are none: float32 [B, 2800]."""
        audio = torch.zeros(len(rows), FIRST_TICK_SAMPLES)
        for i, row in enumerate(rows):
            begin = _kept(row)
            audio[i, begin : begin + len(row.audio)] = torch.from_numpy(row.audio)
        audio = audio.to(self._device)
        goes_on = torch.tensor([_kept(row) > 0 for row in rows], device=self._device)
        audio[:, :LOOKAHEAD_SAMPLES] = torch.where(
            goes_on[:, None], state["remainder"][slots], audio[:, :LOOKAHEAD_SAMPLES]
        )
        return audio


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
