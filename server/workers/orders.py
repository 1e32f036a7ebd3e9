"""What crosses between a worker and the model's side of it: orders there, one reply to each back. Frozen and flat.

Free of torch, so that the process of the service never loads it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from asr_model.tensor_spec import TensorSpec
from server.plan import BatchFailure, BatchPlan, BatchResult, RequestBatch
from server.proving.judgement import Probe, Probed

CACHE_BYTES: Final = "cache_bytes"
"""Counter of a step that is none: what caches that grow hold now. The pool takes it out of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from; picklable."""

    name: str
    """In the model registry, and for people: logs, statistics, errors."""
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The model's own; it refuses unknown ones with a ValueError."""
    factory: str | None = None
    """``module:function`` for a model outside the registry; called as ``function(options, device)``, as those in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load a model."""

    source: ModelSource
    instance: int
    device: str
    """``cpu``, ``cuda``, ``cuda:N``, or ``auto``, which spreads instances over the CUDA devices there are."""
    threads: int
    """CPU threads; 0 leaves them as they are."""
    gate: int = 0
    """Its place in the device gate, among those of its kind."""
    optimize: str = ""
    """What is done to the model's kernels; "": nothing, or what its own options say. It changes no scheduling."""
    unpinned: bool = False
    """The dynamic batcher has it, though it may be a model that keeps state: then it keeps that by sequence id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was loaded."""

    model: str
    scheduler: str
    """``sequence`` or ``dynamic``, as the model declares; "" if it does not say."""
    device: str
    """Resolved."""
    tick_samples: int
    lookahead_samples: int
    slot_bytes: int
    precision: str
    """Number format of its weights and products, as ``float32``."""
    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    """Of a model that takes tensors; empty: it listens to audio."""
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    optimizations: tuple[str, ...] = ("none",)
    """Values of ``optimize`` that it takes on this device."""
    optimize: str = "none"
    """The one in use."""
    max_ticks: int = 1
    """Whole ticks of one row that it takes through one pass; any model takes rows of several, one after the other."""

    @property
    def listens(self) -> bool:
        """Whether it takes audio and answers with words."""
        return not self.inputs

    @property
    def ragged(self) -> frozenset[str]:
        """Inputs whose rows may differ in length within a batch."""
        return frozenset(name for name, spec in self.inputs.items() if spec.ragged)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """What bounds the slots that a measurement gives."""

    max_slots: int = 1024
    load_fraction: float = 0.8
    """Part of the measured real-time streams that is offered, above 0 to 1."""
    max_batch: int = 64
    """Rows of a step at most."""
    cpu_share: float = 1.0
    """Part of the measured streams that a CPU still holds when it reads their utterances' final texts too, which the
    measurement leaves out; above 0 to 1."""

    def slots(self, streams: int, device: str) -> int:
        """Slots for so many real-time streams: at least one, so that a slow machine serves at all."""
        share = self.cpu_share if device == "cpu" else 1.0
        return min(self.max_slots, max(1, math.floor(self.load_fraction * share * streams)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Warm up and take the memory of the slots."""

    slots: int
    """0: as many as a measurement allows, for a model that listens."""
    limits: LoadLimits
    batches: tuple[int, ...] = ()
    """Batch sizes to warm up, besides 1; those above the slots are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Ready to run plans."""

    slots: int
    """0 for a model without state."""
    streams: int | None
    """Real-time streams that were measured; None if slots were given."""
    state_bytes: int = 0
    """Memory that the state of all slots takes on the device."""
    cache_bytes: int = 0
    """Of it, what caches that grow have for all slots together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Loading or preparing failed."""

    error: str
    is_configuration: bool
    """The settings are to blame, not the machine."""


BatchOutcome = BatchResult | BatchFailure
Order = Load | Probe | Prepare | BatchPlan | RequestBatch
Reply = Loaded | Probed | Prepared | Refused | BatchOutcome
