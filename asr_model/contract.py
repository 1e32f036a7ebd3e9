"""What a model declares and how it is called. Two kinds, two schedulers; the wrong one is a correctness bug.

A StreamingModel keeps state between ticks. All of it is declared here as tensors with a leading slot axis; the state
store owns them. A OneShotModel keeps none: any request may join any batch on any instance.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, dtype

from asr_model.tensor_spec import TensorSpec
from asr_model.transcript import FinalOutput

Samples = NDArray[np.float32]
"""float32 [N], 16 kHz, in [-1, 1]."""


class Scheduler(Enum):
    """Which batcher a model needs. Declared per model, never guessed."""

    SEQUENCE = "sequence"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One tensor of a slot's state."""

    shape: tuple[int, ...]
    """Shape of one slot, without the slot axis."""
    dtype: dtype
    initial: float = 0.0
    """Value of every element at START."""
    initial_file: str = ""
    """NumPy file (.npy) of ``shape`` with the values at START; "": ``initial``."""
    page: int = 0
    """0: every slot has all of ``shape``. Above 0: a cache that grows along its first axis, up to ``shape[0]`` entries,
    by pages of so many entries (``asr_model.paged_cache``)."""
    share: float = 1.0
    """Of a cache that grows: the part, above 0 to 1, of what all slots could take at most that an instance has for
    them. One whole slot fits always."""


class Control(Enum):
    """What a model may be told of its sequence, as an input of its batch."""

    START = "start"
    END = "end"
    READY = "ready"
    CORRELATION_ID = "correlation_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a model needs from the service."""

    name: str
    scheduler: Scheduler | None
    """None: the model does not say, and the configuration must."""
    tick_samples: int = 0
    """Samples from one tick to the next (sequence models). Tick k = 1, 2, … is complete with sample
    ``tick_samples * k + lookahead_samples``."""
    lookahead_samples: int = 0
    precision: str = "float32"
    """Number format of its weights and matrix products: what people are told."""
    state: Mapping[str, StateTensor] = field(default_factory=dict)
    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    """Of a model that takes tensors; empty: it listens to audio."""
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    optimizations: tuple[str, ...] = ("none",)
    """Values of ``optimize`` that its factory takes: they change kernels, never scheduling."""
    optimize: str = "none"
    """The one in use."""
    max_ticks: int = 1
    """Whole ticks that a row may hold in one step, for sequences that are late."""

    @property
    def listens(self) -> bool:
        """Whether it takes audio and answers with words."""
        return not self.inputs

    def slot_bytes(self) -> int:
        """Bytes of state that one slot takes; of caches that grow, its share."""
        return sum(
            math.ceil(math.prod(tensor.shape) * (tensor.share if tensor.page else 1.0)) * tensor.dtype.itemsize
            for tensor in self.state.values()
        )


State = Mapping[str, Tensor]
"""Tensors [S, *shape], one per entry of ``ModelSpec.state``, on the model's device; changed in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One row of a step: a whole tick, or a flush of the samples since the last tick."""

    slot: int
    start: bool
    """The slot was initialised for this row just before the step."""
    flush: bool
    end: bool
    first_sample: int
    audio: Samples
    endpoint_silence_ms: int | None = None
    """Only with ``start``: silence that ends an utterance of this sequence; 0: none does; None: as the model is set."""
    n_ticks: int = 1
    """Whole ticks in ``audio``; above 1 only for a model whose spec allows it."""
    sequence_id: str = ""
    """For a model that wants to know whose audio it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRange:
    """Neighbouring slots, to be run over as they lie (views of the state, nothing gathered)."""

    first: int
    n_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBatch:
    """Inputs of a step or a batch. B rows: those of the plan, or every slot of its range with READY false where there
    is no row (then inputs are zeros and empty texts)."""

    inputs: Mapping[str, Tensor | NDArray[Any]]
    """By name [B, …] on the model's device; texts as object arrays of ``bytes``. Ragged ones padded with zeros."""
    lengths: Mapping[str, Tensor]
    """Of ragged inputs: int64 [B], before padding."""
    slots: Tensor
    """int64 [B]; empty for a model without state."""
    start: Tensor
    """bool [B], as ``end`` and ``ready``."""
    end: Tensor
    ready: Tensor
    correlation_ids: tuple[int | str, ...]
    """Of each row, 0 where there is none; () for a model without state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """Outputs parallel to the rows; an entry of ``errors`` replaces the output of that row."""

    outputs: Sequence[object]
    errors: Mapping[int, str] = field(default_factory=dict)
    """Row index to what was wrong with that row alone (NaN in its audio or state)."""
    counters: Mapping[str, int] = field(default_factory=dict)
    earlier: Mapping[int, Sequence[object]] = field(default_factory=dict)
    """Row index to the outputs of its ticks before the last, for rows of several ticks."""


@runtime_checkable
class StreamingModel(Protocol):
    """A model whose answers depend on what its slot remembers."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration."""

    def step(self, rows: Sequence[StepRow], state: State, span: SlotRange | None = None) -> StepOutput:
        """One step. Updates the rows' slots in place and no other slot. Slots of the rows are distinct.

        Args:
            rows: the rows; ascending by slot with a ``span``.
            state: all slots.
            span: run over these slots as they lie, masking those without a row; None: gather the rows.
        """


@runtime_checkable
class OneShotModel(Protocol):
    """A model that keeps nothing."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration."""

    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        """One batch. Calls ``pause`` between slices of some milliseconds, so that live steps on the device go first."""


@runtime_checkable
class TensorStreamingModel(Protocol):
    """A stateful model that takes tensors. Updates the slots of ready rows in place and no other slot."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration, with ``inputs`` and ``outputs``."""

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor | NDArray[Any]]:
        """Outputs by name, [B, …]; rows that are not ready may hold anything."""


@runtime_checkable
class TensorModel(Protocol):
    """A model that takes tensors and keeps nothing."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration, with ``inputs`` and ``outputs``."""

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor | NDArray[Any]]:
        """Outputs by name, [B, …]."""


Model = StreamingModel | OneShotModel | TensorStreamingModel | TensorModel
