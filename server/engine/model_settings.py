"""What the engine is told of each model. Frozen, in the units of the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.workers.orders import LoadLimits, ModelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """Copies of a model on one device."""

    device: str = "auto"
    count: int = 1
    threads: int = 0
    """CPU threads of each; 0: the machine's cores shared among the instances of all models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What every model has."""

    source: ModelSource
    instances: int = 1
    device: str = "auto"
    threads: int = 0
    """CPU threads of each instance; 0: the machine's cores shared among the instances of all models."""
    groups: tuple[InstanceGroup, ...] = ()
    """Where the instances are; (): ``instances`` on ``device`` with ``threads``."""
    scheduler: str = ""
    """``sequence`` or ``dynamic``; "": as the model declares."""
    allow_wrong_scheduler: bool = False
    optimize: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What a batch takes while it runs."""
    resource_priority: int = 1
    preferred_sizes: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[InstanceGroup, ...]:
        """Each instance by itself, in order."""
        groups = self.groups or (InstanceGroup(device=self.device, count=self.instances, threads=self.threads),)
        return tuple(
            InstanceGroup(device=group.device, threads=group.threads) for group in groups for _ in range(group.count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings(ModelSettings):
    """The live model's instances and its batcher."""

    slots: int = 0
    """Sequences of each instance; 0: measured."""
    limits: LoadLimits = field(default_factory=LoadLimits)
    strategy: str = "oldest"
    max_delay_ms: float = 10.0
    min_slot_utilisation: float = 0.0
    max_ticks: int = 1
    deadline_ms: float = 0.0
    flush_deadline_ms: float = 0.0
    lead_ms: float = 0.0
    max_queued_s: float = 10.0
    """Audio of one sequence that waits for its turn at most."""
    backlog: int = 0
    backlog_levels: int = 8
    backlog_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalSettings(ModelSettings):
    """The final model's instances and its batcher."""

    target_size: int = 8
    window_ms: float = 20.0
    max_queued: int = 1024
    timeout_ms: float = 0.0
    timeout_action: str = "reject"
    recordings_max_queued: int = 256
    """Pieces of recordings that wait, behind utterances; 0: none are read."""
    max_batch_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSettings(ModelSettings):
    """A further model, which takes tensors: its instances, and whichever batcher it gets."""

    name: str
    strategy: str = "oldest"
    slots: int = 8
    max_batch: int = 8
    max_delay_ms: float = 0.0
    min_slot_utilisation: float = 0.0
    deadline_ms: float = 0.0
    idle_timeout_s: float = 60.0
    max_queued_turns: int = 64
    backlog: int = 0
    backlog_wait_s: float = 0.0
    max_queued: int = 1024
    priority_levels: int = 1
    default_priority_level: int = 1
    timeout_ms: float = 0.0
    timeout_action: str = "reject"
    preserve_ordering: bool = False


AnySettings = LiveSettings | FinalSettings | TensorSettings
