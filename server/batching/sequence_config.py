"""What a sequence batcher is told of its model and of the service's limits. Frozen, with its bounds."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.errors import ConfigError
from server.ids import InstanceIndex
from server.plan import BatchRow

_AT_LEAST_ONE: Final = (
    "instances",
    "tick_samples",
    "max_batch",
    "max_queued_marks",
    "max_queued_turns",
    "max_ticks",
    "backlog_levels",
    "scrub_retry_ns",
)
_NOT_NEGATIVE: Final = (
    "lookahead_samples",
    "max_delay_ns",
    "deadline_ns",
    "flush_deadline_ns",
    "lead_ns",
    "backlog",
    "backlog_wait_ns",
    "idle_timeout_ns",
    "max_remembered_ids",
)


class Strategy(Enum):
    """How the rows of a step lie."""

    OLDEST = "oldest"
    """Gathered: the rows that have waited longest, wherever their slots are."""
    DIRECT = "direct"
    """As they lie: a range of neighbouring slots with a mask, nothing gathered."""


class DuplicateStart(Enum):
    """What a START for a live id does."""

    REFUSE = "refuse"
    RESTART = "restart"
    """What is queued is answered, then the START initialises the slot again. For turns only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBatcherConfig:
    """What the batcher needs to know of a model and of the service's limits."""

    instances: int
    """Loaded copies of the model, at least 1."""
    slots: int | tuple[int, ...]
    """Slots of each instance, at least 1; a tuple has one number per instance."""
    devices: tuple[str, ...] = ()
    """Device of each instance, so that sequences spread over devices before they share one; (): all the same."""
    tick_samples: int
    """Samples from one tick to the next, at least 1."""
    lookahead_samples: int
    """Tick k = 1, 2, … is complete with sample ``tick_samples * k + lookahead_samples``; at least 0."""
    max_batch: int
    """Rows of a step, at least 1; with ``direct`` the slots that a step may span."""
    takes_turns: bool = False
    """Turns instead of chunks; what is said of samples, ticks, marks and flushes does not matter then."""
    strategy: Strategy = Strategy.OLDEST
    max_delay_ns: int = 0
    """How long a ready row waits for company; 0: a step runs with what is ready."""
    preferred_sizes: tuple[int, ...] = ()
    """Batch sizes that go at once, the largest that can be formed first; anything else waits for ``max_delay_ns``."""
    min_slot_utilisation: float = 0.0
    """``direct``: rows as a share of the instance's slots from which a step does not wait; 0: no such share."""
    max_ticks: int = 1
    """Whole ticks of a late sequence that one row may hold, at least 1."""
    deadline_ns: int = 0
    """When the answer to a row is due, after the row is ready; 0: never. The row that is due first goes first, and no
    step waits for company past the time at which it must begin."""
    flush_deadline_ns: int = 0
    """The same for flushes: somebody waits for the end of what was said."""
    lead_ns: int = 0
    """Above 0: a busy instance gets its next step so long before the present one is expected to end. 0: afterwards."""
    ragged: frozenset[str] = frozenset()
    """Inputs of turns whose lengths may differ within a step."""
    max_queued_samples: int = 480_000
    """Samples of one sequence that no row has consumed (30 s); at least the first tick's."""
    max_queued_marks: int = 64
    """Finalize marks of one sequence that no row has answered, at least 1."""
    max_queued_turns: int = 64
    """Turns of one sequence that no step has taken, at least 1."""
    duplicate_start: DuplicateStart = DuplicateStart.REFUSE
    backlog: int = 0
    """Sequences that may wait for a slot; 0: they are refused where there is none."""
    backlog_levels: int = 1
    """Priorities of the backlog, at least 1."""
    backlog_wait_ns: int = 0
    """How long a sequence may wait for a slot; 0: without limit."""
    idle_timeout_ns: int = 0
    """A sequence without audio, keep-alive or work for so long is lost; 0: never."""
    scrub_retry_ns: int = 1_000_000_000
    """After a scrub that did not prove a slot clean, it is tried again so much later; at least 1."""
    max_remembered_ids: int = 4_096
    """Ids of ended sequences that are told apart from unknown ones, at least 0."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigError: a value is out of its bounds, or two do not go together.
        """
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, but is {getattr(self, name)}")
        self._check_instances()
        self._check_batches()
        if self.max_queued_samples < self.tick_samples + self.lookahead_samples:
            raise ConfigError(f"max_queued_samples = {self.max_queued_samples} cannot hold the first tick")
        if self.duplicate_start is DuplicateStart.RESTART and not self.takes_turns:
            raise ConfigError('duplicate_start = "restart" is for turns: audio of two clients would become one text')

    def slots_of(self, instance: InstanceIndex) -> int:
        """Slots of one instance."""
        return self.slots if isinstance(self.slots, int) else self.slots[instance]

    def device_of(self, instance: InstanceIndex) -> str:
        """Device of one instance; "" where nothing is said."""
        return self.devices[instance] if self.devices else ""

    @property
    def n_slots(self) -> int:
        """Slots of all instances."""
        return sum(self.slots_of(InstanceIndex(index)) for index in range(self.instances))

    @property
    def has_deadlines(self) -> bool:
        """Whether some rows are due at a time."""
        return bool(self.deadline_ns or self.flush_deadline_ns)

    def is_late(self, row: BatchRow, now_ns: int) -> bool:
        """Whether the answer to a row comes after its deadline."""
        allowed_ns = self.flush_deadline_ns if row.flush else self.deadline_ns
        return bool(allowed_ns) and now_ns > row.ready_at_ns + allowed_ns

    @property
    def most_in_flight(self) -> int:
        """Steps of one instance that may be in flight."""
        return 2 if self.lead_ns else 1

    def _check_instances(self) -> None:
        slots_by_instance = (self.slots,) * self.instances if isinstance(self.slots, int) else self.slots
        for name, values in (("slots", slots_by_instance), ("devices", self.devices or slots_by_instance)):
            if len(values) != self.instances:
                raise ConfigError(f"{name} has {len(values)} entries for {self.instances} instances")
        for slots in slots_by_instance:
            if slots < 1:
                raise ConfigError(f"slots must be at least 1, not {slots}")

    def _check_batches(self) -> None:
        for size in self.preferred_sizes:
            if not 1 <= size <= self.max_batch:
                raise ConfigError(f"preferred_sizes must be 1 to max_batch = {self.max_batch}, not {size}")
        if not 0.0 <= self.min_slot_utilisation <= 1.0:
            raise ConfigError(f"min_slot_utilisation must be 0 to 1, not {self.min_slot_utilisation}")
        if self.strategy is Strategy.DIRECT and self.preferred_sizes:
            raise ConfigError('preferred_sizes are for strategy "oldest": the steps of "direct" are ranges of slots')
        if self.strategy is Strategy.OLDEST and self.min_slot_utilisation:
            raise ConfigError('min_slot_utilisation is for strategy "direct": the steps of "oldest" have no empty rows')
