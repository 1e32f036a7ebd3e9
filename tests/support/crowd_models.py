"""Small models for crowds: whatever is lost, doubled, swapped or left behind in a slot makes a wrong number, for good.

Both have four tensors of one shape and type, so that nothing but its name tells one from another; the names are
declared in another order than they sort in, one begins like another, and the outputs sort otherwise than the state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from asr_model.contract import (
    ModelSpec,
    Samples,
    Scheduler,
    SlotRange,
    State,
    StateTensor,
    StepOutput,
    StepRow,
    TensorBatch,
)
from asr_model.paged_cache import PagedCache
from asr_model.tensor_spec import TensorSpec
from tests.support.accumulator import Reading
from tests.support.factories import LOOKAHEAD, TICK

TOTAL: Final = "cache_last_channel"
COUNT: Final = "cache_last_channel_len"
WEIGHTED: Final = "a_out"
MIX: Final = "Z_in"
"""Order and number of rows: rounded anew with each, from what the others hold."""
HEARD: Final = "a_out_heard"
"""Of the model that takes tensors: everything, in a cache that grows."""
MAX_HEARD: Final = 128
GARBAGE: Final = -1e9
"""In slots that nobody has, or whose sequence has failed."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a model of a crowd says of a row."""

    reading: Reading
    mix: float
    cached: Reading | None = None
    """What the cache says; it should be the reading. None: there is no cache."""


def plain_state() -> dict[str, StateTensor]:
    """The four tensors, with three initial values."""
    initial = {COUNT: 0.0, MIX: 0.5, TOTAL: 0.0, WEIGHTED: 0.0}
    return {name: StateTensor(shape=(), dtype=torch.float64, initial=value) for name, value in initial.items()}


class CrowdModel:
    """A StreamingModel. Rows of ``failing`` sequences fail and leave their slot as no sequence may find it."""

    def __init__(self) -> None:
        self.failing: frozenset[str] = frozenset()
        self.is_broken = False
        """The next step changes its slots, and then raises."""

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(
            name="crowd",
            scheduler=Scheduler.SEQUENCE,
            tick_samples=TICK,
            lookahead_samples=LOOKAHEAD,
            max_ticks=2,
            state=plain_state(),
        )

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        """With a span every slot of it is run over, those without a row with nothing."""
        lanes = [row.slot for row in rows] if span is None else list(range(span.first, span.first + span.n_slots))
        places = [lanes.index(row.slot) for row in rows]
        keeps = np.zeros(len(lanes), dtype=bool)
        keeps[places] = [not row.flush for row in rows]
        ticks = [_ticks(row) for row in rows]
        said: list[list[object]] = [[] for _ in rows]
        for nth in range(max(len(each) for each in ticks)):
            audio: list[Samples] = [np.empty(0, np.float32)] * len(lanes)
            for place, each in zip(places, ticks, strict=True):
                audio[place] = each[nth] if nth < len(each) else audio[place]
            heard = _hear(state, lanes, keeps, *_padded(audio))
            for index, place in enumerate(places):
                if nth < len(ticks[index]):
                    said[index].append(_said(heard, place))
        failing = [index for index, row in enumerate(rows) if row.sequence_id in self.failing]
        _scribble(state, [row.slot for row in rows] if self.is_broken else [rows[index].slot for index in failing])
        if self.is_broken:
            raise RuntimeError("broken")
        return StepOutput(
            outputs=[each[-1] for each in said],
            earlier={index: each[:-1] for index, each in enumerate(said)},
            errors=dict.fromkeys(failing, "bad row"),
        )


class CrowdTensorModel:
    """A TensorStreamingModel of the same arithmetic, with a cache that grows. A ``failing`` sequence overfills it."""

    def __init__(self, *, ragged: bool) -> None:
        self.failing: frozenset[str] = frozenset()
        self.is_broken = False
        self._ragged = ragged

    @property
    def spec(self) -> ModelSpec:
        cache = StateTensor(shape=(MAX_HEARD,), dtype=torch.float32, page=8, share=0.5)
        return ModelSpec(
            name="crowd turns",
            scheduler=Scheduler.SEQUENCE,
            state={HEARD: cache, **plain_state()},
            inputs={"INPUT": TensorSpec(datatype="FP32", shape=(-1,), ragged=self._ragged)},
            outputs={
                name: TensorSpec(datatype="FP64", shape=(1,))
                for name in ("z_total", "a_mix", "m_weighted", "M_count", "heard", "B_size")
            },
        )

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        """A row that is not ready counts nothing, and no value of it."""
        values = torch.as_tensor(batch.inputs["INPUT"])
        lengths = batch.lengths.get("INPUT", torch.full_like(batch.slots, values.shape[1])) * batch.ready
        failing = torch.tensor([name in self.failing for name in batch.correlation_ids])
        cache = PagedCache(HEARD, state)
        cache.append(batch.slots, values, torch.where(failing, MAX_HEARD + 1, lengths))
        slots, ready = batch.slots.tolist(), batch.ready.tolist()
        heard = _hear(state, slots, np.ones(len(slots), bool), values.numpy().astype(np.float64), lengths.numpy())
        written, sizes = cache.read(batch.slots)
        spoilt = ready if self.is_broken else failing.tolist()
        _scribble(state, [slot for slot, is_spoilt in zip(slots, spoilt, strict=True) if is_spoilt])
        if self.is_broken:
            raise RuntimeError("broken")
        answers = {
            "z_total": heard[TOTAL],
            "a_mix": heard[MIX],
            "m_weighted": heard[WEIGHTED],
            "M_count": heard[COUNT],
            "heard": written.double().sum(1).numpy(),
            "B_size": sizes.double().numpy(),
        }
        return {name: torch.from_numpy(answer)[:, None] for name, answer in answers.items()}


def answered(arrays: Mapping[str, NDArray[Any]]) -> Heard:
    """What a row of the model that takes tensors was answered."""
    value = {name: float(array[0, 0]) for name, array in arrays.items()}
    reading = Reading(total=int(value["z_total"]), weighted=int(value["m_weighted"]), n_samples=int(value["M_count"]))
    cached = replace(reading, total=int(value["heard"]), n_samples=int(value["B_size"]))
    return Heard(reading=reading, mix=value["a_mix"], cached=cached)


def _ticks(row: StepRow) -> list[Samples]:
    first_samples = row.audio.size - (row.n_ticks - 1) * TICK
    return np.split(row.audio, range(first_samples, row.audio.size, TICK))


def _padded(audio: Sequence[Samples]) -> tuple[Array, NDArray[np.int64]]:
    lengths = np.array([each.size for each in audio])
    padded = np.zeros((len(audio), lengths.max()))
    for place, each in enumerate(audio):
        padded[place, : each.size] = each
    return padded, lengths


def _hear(
    state: State, slots: list[int], keeps: NDArray[np.bool_], values: Array, lengths: NDArray[np.int64]
) -> dict[str, Array]:
    """What the slots hold with these values; it is kept where asked."""
    held = {name: state[name].numpy() for name in (TOTAL, COUNT, WEIGHTED, MIX)}
    before = {name: array[slots] for name, array in held.items()}
    own = np.where(np.arange(values.shape[1]) < lengths[:, None], values, 0.0)
    positions = before[COUNT][:, None] + 1 + np.arange(values.shape[1])
    total, weighted = before[TOTAL] + own.sum(1), before[WEIGHTED] + (own * positions).sum(1)
    mix = np.where(lengths > 0, before[MIX] * 0.7 + total / 3 + weighted * 1e-3, before[MIX])
    after = {TOTAL: total, WEIGHTED: weighted, COUNT: before[COUNT] + lengths, MIX: mix}
    for name, array in held.items():
        array[slots] = np.where(keeps, after[name], before[name])
    return after


def _said(heard: Mapping[str, Array], place: int) -> Heard:
    total, weighted, count = (int(heard[name][place]) for name in (TOTAL, WEIGHTED, COUNT))
    reading = Reading(total=total, weighted=weighted, n_samples=count)
    return Heard(reading=reading, mix=float(heard[MIX][place]))


def _scribble(state: State, slots: list[int]) -> None:
    for name in (TOTAL, COUNT, WEIGHTED, MIX):
        state[name][slots] = GARBAGE
