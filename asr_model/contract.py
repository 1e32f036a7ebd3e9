"""What a model declares and how it is called. Two kinds, two schedulers; the wrong one is a correctness bug.

A StreamingModel keeps state between ticks. All of it is declared here as tensors with a leading slot axis; the state
store owns them. A OneShotModel keeps none: any request may join any batch on any instance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, dtype

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a model needs from the service."""

    name: str
    scheduler: Scheduler
    tick_samples: int = 0
    """Samples from one tick to the next (sequence models). Tick k = 1, 2, … is complete with sample
    ``tick_samples * k + lookahead_samples``."""
    lookahead_samples: int = 0
    precision: str = "float32"
    """Number format of its weights and matrix products: what people are told."""
    state: Mapping[str, StateTensor] = field(default_factory=dict)

    def slot_bytes(self) -> int:
        """Bytes of state that one slot takes."""
        return sum(int(np.prod(tensor.shape)) * tensor.dtype.itemsize for tensor in self.state.values())


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """Outputs parallel to the rows; an entry of ``errors`` replaces the output of that row."""

    outputs: Sequence[object]
    errors: Mapping[int, str] = field(default_factory=dict)
    """Row index to what was wrong with that row alone (NaN in its audio or state)."""
    counters: Mapping[str, int] = field(default_factory=dict)


class StreamingModel(Protocol):
    """A model whose answers depend on what its slot remembers."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration."""

    def step(self, rows: Sequence[StepRow], state: State) -> StepOutput:
        """One step. Updates the rows' slots in place and no other slot. Slots of the rows are distinct."""


class OneShotModel(Protocol):
    """A model that keeps nothing."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration."""

    def run(self, audio: Sequence[Samples], pause: Callable[[], None]) -> list[FinalOutput]:
        """One batch. Calls ``pause`` between slices of some milliseconds, so that live steps on the device go first."""


Model = StreamingModel | OneShotModel
