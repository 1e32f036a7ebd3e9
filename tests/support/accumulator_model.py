"""Models whose answers are plain arithmetic on what they were given: any leak, loss, swap or duplicate of audio, state
or replies is a wrong number. Importable by a worker process.

A word's text is ``count:sum`` of the samples since START (live) or of the request (final), the sum in units of 1/1024,
so that it is exact for the integer-valued samples that ``exact_audio`` makes.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from asr_model.contract import (
    ModelSpec,
    Samples,
    Scheduler,
    SlotRange,
    State,
    StateTensor,
    StepOutput,
    StepRow,
)
from asr_model.transcript import AudioRange, EndedUtterance, FinalOutput, LiveOutput, UtteranceEnd, Word

TICK_SAMPLES = 64
LOOKAHEAD_SAMPLES = 7
UNIT = 1024
DEFAULT_SILENCE_MS = 800
ENDPOINT = 0.75
"""A tick whose last sample is this ends an utterance (ENDPOINT), unless the sequence was opened with an endpoint
silence of 0. Words of a sequence that asked for a silence of its own say it: ``count:sum@silence``."""
QUIET = 0.0
"""A sample that is no speech; all others are."""
PAUSE_SAMPLES = 8
"""So many of them end a tick in a pause, which is no part of the utterance's audio."""
POISON = -0.75
"""A row with this sample is reported as a row error."""
BOMB = 0.875
"""A step with this sample raises."""
KILLER = -0.875
"""A step with this sample kills its process."""
CRASH = -0.9375
"""A step with this sample raises as a device does that cannot be used on."""
MUTE = -0.8125
"""Of a request with this sample nothing is heard."""
DUD = 0.90625
"""A request with this sample fails its batch."""
SLOW = 0.9375
"""A request with this sample takes a fifth of a second longer, in slices of a hundredth."""


OWN_OF_THE_SERVICE = ("warm-up-", "probe-")
"""Ids of sequences before there are clients: a slow model is fast with those, or every start would take long."""

Options = Mapping[str, object]


def exact_audio(seed: int, n_samples: int) -> Samples:
    """Samples k / 1024 with |k| up to 511: none of those that mean something."""
    integers = np.random.default_rng(seed).integers(-511, 512, n_samples)
    return (integers / UNIT).astype(np.float32)


def summary(samples: Samples) -> str:
    """What the models say of samples given to them whole."""
    return f"{samples.size}:{round(float(samples.astype(np.float64).sum()) * UNIT)}"


def make_live(options: Options, device: torch.device) -> "AccumulatorModel":
    """Factory for a ModelSource.

    Raises:
        ValueError: An option is unknown.
    """
    unknown = set(options) - {"step_s", "refuse_file"}
    if unknown:
        raise ValueError(f"unknown options: {sorted(unknown)}")
    if "refuse_file" in options and Path(str(options["refuse_file"])).exists():
        raise RuntimeError("this model cannot be loaded now")
    return AccumulatorModel(step_s=_seconds(options, "step_s"))


def make_undeclared(options: Options, device: torch.device) -> "UndeclaredModel":
    """Factory for a ModelSource."""
    return UndeclaredModel()


def make_tuned(options: Options, device: torch.device) -> "TunedModel":
    """Factory for a ModelSource: a model whose kernels may be changed. With ``deaf`` it does not do as it is asked."""
    return TunedModel(optimize="none" if options.get("deaf") else str(options.get("optimize", "none")))


def make_mute(options: Options, device: torch.device) -> "MuteModel":
    """Factory for a ModelSource."""
    return MuteModel()


def make_final(options: Options, device: torch.device) -> "SumModel":
    """Factory for a ModelSource."""
    return SumModel(run_s=_seconds(options, "run_s"))


def _seconds(options: Options, name: str) -> float:
    value = options.get(name, 0.0)
    assert isinstance(value, float)
    return value


class AccumulatorModel:
    """A StreamingModel with state: sum and count since START, what the open utterance has, and an untouched canary."""

    def __init__(self, *, step_s: float = 0.0, lookahead: int = LOOKAHEAD_SAMPLES) -> None:
        self._step_s = step_s
        self._spec = ModelSpec(
            name="accumulator",
            scheduler=Scheduler.SEQUENCE,
            tick_samples=TICK_SAMPLES,
            lookahead_samples=lookahead,
            state={
                "total": StateTensor(shape=(), dtype=torch.float64),
                "count": StateTensor(shape=(), dtype=torch.int64),
                "utterance_first": StateTensor(shape=(), dtype=torch.int64),
                "endpoint_silence_ms": StateTensor(shape=(), dtype=torch.int64, initial=DEFAULT_SILENCE_MS),
                "heard_until": StateTensor(shape=(), dtype=torch.int64),
                "canary": StateTensor(shape=(3, 5), dtype=torch.float32, initial=7.0),
            },
        )

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        if not all(row.sequence_id.startswith(OWN_OF_THE_SERVICE) for row in rows):
            time.sleep(self._step_s)
        audio = [torch.from_numpy(row.audio.astype(np.float64)) for row in rows]
        for row in rows:
            if (row.audio == np.float32(BOMB)).any():
                state["total"][row.slot] += 1.0  # half done: the slot must not be used on
                raise RuntimeError("a bomb in the audio, with internals that no client may see")
            if (row.audio == np.float32(CRASH)).any():
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            if (row.audio == np.float32(KILLER)).any():
                os.kill(os.getpid(), signal.SIGKILL)
        errors = {i: "poison" for i, row in enumerate(rows) if (row.audio == np.float32(POISON)).any()}
        outputs = [self._row(row, samples, state) for row, samples in zip(rows, audio, strict=True)]
        n_ticks = sum(not row.flush for row in rows)
        return StepOutput(outputs=outputs, errors=errors, counters={"encoder_frames": 10 * n_ticks})

    def _row(self, row: StepRow, samples: torch.Tensor, state: State) -> LiveOutput:
        slot = row.slot
        total = float(state["total"][slot]) + float(samples.sum())
        count = int(state["count"][slot]) + samples.numel()
        first = int(state["utterance_first"][slot])
        if row.start and row.endpoint_silence_ms is not None:
            state["endpoint_silence_ms"][slot] = row.endpoint_silence_ms
        silence_ms = int(state["endpoint_silence_ms"][slot])
        asked = "" if silence_ms == DEFAULT_SILENCE_MS else f"@{silence_ms}"
        word = Word(
            text=f"{count}:{round(total * UNIT)}{asked}", start_s=first / 16_000, end_s=count / 16_000, confidence=1.0
        )
        ended: UtteranceEnd | None = None
        if row.flush:
            ended = UtteranceEnd.END if row.end else UtteranceEnd.FINALIZE
        elif samples.numel() and float(samples[-1]) == ENDPOINT and silence_ms:
            ended = UtteranceEnd.ENDPOINT
        if not row.flush:
            state["total"][slot] = total
            state["count"][slot] = count
        if ended is not None:
            state["utterance_first"][slot] = count
        words = (word,) if count > first else ()
        position = count - samples.numel()
        heard = [at for at in samples.nonzero()[:, 0].tolist() if position + at >= first]
        until = position + heard[-1] + 1 if heard else int(state["heard_until"][slot])
        is_pause = count - until >= PAUSE_SAMPLES and until > first
        if not row.flush:
            state["heard_until"][slot] = until
        return LiveOutput(
            encoded_samples=count,
            committed=() if ended else words,
            draft=(),
            ended=None
            if ended is None
            else EndedUtterance(
                cause=ended,
                first_sample=first,
                end_sample=count,
                words=words,
                tail_samples=count - until if is_pause else 0,
            ),
            keep_from_sample=count if ended else first,
            is_speech=bool(heard),
            speech_from_sample=position + heard[0] if heard else None,
            speech_until_sample=position + heard[-1] + 1 if heard else None,
            likely=AudioRange(first_sample=first, end_sample=until) if is_pause and ended is None else None,
        )


class UndeclaredModel(AccumulatorModel):
    """Does not say which batcher it needs."""

    @property
    def spec(self) -> ModelSpec:
        return replace(super().spec, scheduler=None)


class TunedModel(AccumulatorModel):
    """Takes another kernel."""

    def __init__(self, *, optimize: str) -> None:
        super().__init__()
        self._optimize = optimize

    @property
    def spec(self) -> ModelSpec:
        return replace(super().spec, optimizations=("none", "int8"), optimize=self._optimize)


class MuteModel(AccumulatorModel):
    """Answers every row with nothing."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        return StepOutput(outputs=[None] * len(rows))


class SumModel:
    """A OneShotModel: each request's own count and sum. Pauses between requests."""

    def __init__(self, *, run_s: float = 0.0) -> None:
        self._run_s = run_s

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(name="sum", scheduler=Scheduler.DYNAMIC)

    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        time.sleep(self._run_s)
        outputs = []
        for samples in audio:
            pause()
            if (samples == np.float32(SLOW)).any():
                for _ in range(20):
                    time.sleep(0.01)
                    pause()
            if (samples == np.float32(POISON)).any() or (samples == np.float32(DUD)).any():
                raise RuntimeError("poison")
            if (samples == np.float32(MUTE)).any():
                outputs.append(FinalOutput(words=()))
                continue
            seconds = samples.size / 16_000
            outputs.append(
                FinalOutput(words=(Word(text=summary(samples), start_s=0.0, end_s=seconds, confidence=1.0),))
            )
        return outputs
