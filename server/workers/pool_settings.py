"""What a pool is told: how many instances of which model, where they run, and under which batcher. Frozen and flat."""

from dataclasses import dataclass
from typing import Final

from server.errors import ConfigError
from server.workers.orders import Loaded, LoadLimits, ModelSource
from server.workers.worker import WorkerKind

TURN_SLOTS: Final = 64
"""Slots of a model whose sequences have turns, where none are given: nobody knows how often they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one instance runs."""

    device: str
    """``cpu``, ``cuda``, ``cuda:N``, or ``auto``, which spreads instances over the CUDA devices there are."""
    threads: int
    """CPU threads; 0 leaves them as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """One model's instances."""

    role: str
    """``live``, ``final`` or the name of a further model: for errors, logs and names."""
    scheduler: str
    """``sequence`` or ``dynamic``; "": as the model declares."""
    source: ModelSource
    placements: tuple[Placement, ...]
    """Of each instance."""
    slots: int
    """Of each instance; 0: measured for a model that listens, ``TURN_SLOTS`` for one that takes turns, none for one
    without state."""
    limits: LoadLimits
    plan_limit_s: float
    """A plan that takes longer hangs, and its process is replaced."""
    worker_kind: WorkerKind
    optimize: str = ""
    """As of ``Load``."""
    batches: tuple[int, ...] = ()
    """Batch sizes to warm up, as ``batch_buckets`` gives them."""
    generation: int = 1
    """Counts the copies that a name has had in turn: workers of two of them are told apart."""
    allow_wrong_scheduler: bool = False
    """Whether ``scheduler`` may be another than the model declares: then answers are wrong, for a demonstration."""

    @property
    def instances(self) -> int:
        """How many there are."""
        return len(self.placements)

    @property
    def threads(self) -> int:
        """CPU threads of the instance that has most."""
        return max(placement.threads for placement in self.placements)


def check_scheduler(settings: PoolSettings, loaded: Loaded) -> None:
    """Whether somebody says which batcher the model is to have; if that is the right one, the probe tells.

    Raises:
        ConfigError: Nobody does.
    """
    role, name = settings.role, settings.source.name
    if not (settings.scheduler or loaded.scheduler):
        raise ConfigError(f"{role}.scheduler: {name} does not say which batcher it needs; allowed: sequence, dynamic")


def check_ticks(settings: PoolSettings, loaded: Loaded) -> None:
    """Whether the model could run under its batcher at all, be it the wrong one.

    Raises:
        ConfigError: It could not.
    """
    role, name = settings.role, settings.source.name
    if (settings.scheduler or loaded.scheduler) == "sequence" and loaded.listens and not loaded.tick_samples:
        raise ConfigError(f"{role}.scheduler: {name} hears utterances whole; it has no ticks for the sequence batcher")
