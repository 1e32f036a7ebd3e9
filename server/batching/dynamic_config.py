"""What a dynamic batcher is told, and what it tells of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.batching.batch_forming import BatchLimits
from server.batching.request_queue import QueueLevel, TimeoutAction
from server.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatcherConfig:
    """What the batcher needs to know of the service's limits."""

    instances: int
    """Loaded copies of the model, at least 1."""
    target_size: int
    """Rows of a full batch, at least 1: requests of audio, or the rows of requests with tensors."""
    window_ns: int = 0
    """How long the oldest request waits for a batch that is full or of a preferred size; 0: a batch runs as it is."""
    max_queued: int = 1_024
    """Requests that no batch has taken, at least 1, where there are no levels."""
    max_batch_samples: int = 16_000_000
    """Bound on a batch's padded audio: its longest request times its size; at least 1."""
    preferred_sizes: tuple[int, ...] = ()
    """Sizes in rows, 1 to ``target_size``, that run best: the largest that can be formed goes at once, and nothing
    waits for more than the largest of them. (): only the full batch is one.
    """
    levels: tuple[QueueLevel, ...] = ()
    """Priority levels, the highest first; (): one, of ``max_queued``."""
    default_level: int = 1
    """1-based; of requests whose priority names no level."""
    ageing_batches: int = 8
    """Batches that may pass over the oldest request of a level before one is led by it, at least 1."""
    preserve_ordering: bool = False
    """Answers come in the order of the offers. For one level that rejects; early requests are then not taken."""
    ragged: frozenset[str] = frozenset()
    """Inputs of a model that takes tensors whose lengths may differ inside a batch."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigError: a value is out of its bounds.
        """
        for name in ("instances", "max_queued", "ageing_batches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.window_ns < 0:
            raise ConfigError(f"window_ns must not be negative, but is {self.window_ns}")
        if not 1 <= self.default_level <= len(self.queue_levels):
            raise ConfigError(f"default_level must be 1 to {len(self.queue_levels)}, not {self.default_level}")
        reorders = len(self.queue_levels) > 1 or self.queue_levels[0].timeout_action is TimeoutAction.DELAY
        if self.preserve_ordering and reorders:
            raise ConfigError("preserve_ordering is for one level whose timeout_action is reject: others reorder")
        _ = self.limits

    @property
    def queue_levels(self) -> tuple[QueueLevel, ...]:
        """At least one."""
        return self.levels or (QueueLevel(max_queued=self.max_queued),)

    @property
    def limits(self) -> BatchLimits:
        """What bounds a batch.

        Raises:
            ConfigError: a value is out of its bounds.
        """
        return BatchLimits(
            target_size=self.target_size,
            preferred_sizes=self.preferred_sizes,
            max_batch_samples=self.max_batch_samples,
            ragged=self.ragged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatcherStats:
    """A snapshot for metrics."""

    queued: int
    """Early ones too."""
    queued_samples: int
    in_flight: int
    """Requests whose batch runs, without those that have left."""
    accepted: int
    ended: Mapping[str, int]
    """By cause: ``completed``, ``cancelled`` and the codes of the errors that ended requests."""
    refused: Mapping[str, int]
    """Offers that were not taken, by the code of the error."""
    stale_results: int
    """Results of requests that had left."""
    instances_idle: int
    instances_lost: int
    queued_by_level: tuple[int, ...] = (0,)
    """The highest level first; without early ones."""
    held: int = 0
    """Answers that are there and not told yet: they wait for those before them, or for ``expire``."""
    delayed: int = 0
    """Requests that wait and have let others go first, since their timeout came."""
    late: int = 0
    """Answers that came after their deadline."""
    oldest_queued_at_ns: int | None = None
    """None: nobody waits."""
    batch_rows: Mapping[int, int] = field(default_factory=dict)
    """Batches by their rows."""
