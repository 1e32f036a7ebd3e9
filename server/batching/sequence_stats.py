"""What a sequence batcher counts, and its snapshots for metrics."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStats:
    """One instance."""

    slots: int
    slots_held: int
    slots_quarantined: int
    ready_rows: int
    is_lost: bool
    steps_in_flight: int = 0
    expected_step_ns: int | None = None
    """What a step of all that is ready would take; None: nothing was measured yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherStats:
    """A snapshot for metrics."""

    live: int
    """Sequences between START and their terminal effect, those that wait for a slot included."""
    started: int
    ended: Mapping[str, int]
    """By cause: ``end``, ``cancelled`` and the codes of the errors that ended sequences (``idle_timeout``,
    ``backlog_timeout``, ``step_failed``, ``instance_failed``, …)."""
    refused: Mapping[str, int]
    """Offers that were not taken, by the code of the error."""
    stale_results: int
    """Results of rows whose sequence had left."""
    queued_samples: int
    queued_turns: int
    ready_rows: int
    backlog: int
    """Sequences that wait for a slot now."""
    backlog_oldest_ns: int
    """How long the one that has waited longest waits by now; 0: none waits."""
    expected_wait_ns: int | None
    """What a sequence that came now would wait for a slot; None: nothing is known."""
    queued: int
    """Sequences that ever had to wait for a slot."""
    placed: int
    """Those of them that got one."""
    idle: int
    """Sequences found idle: each gets an END of the batcher's own, or ends at once."""
    restarts: int
    """STARTs for a live id that were taken."""
    steps: int
    rows: int
    """Rows of those steps; ``rows / steps`` is how full they were."""
    padded_slots: int
    """``direct``: slots that steps ran over without a row in them."""
    catch_up_ticks: int
    """Ticks beyond the first of their row."""
    late_rows: int
    """Rows answered after their deadline."""
    instances: tuple[InstanceStats, ...]


@dataclass(slots=True, kw_only=True)
class Counts:
    """What happened since the batcher was made; the batcher moves it."""

    started: int = 0
    stale_results: int = 0
    queued: int = 0
    placed: int = 0
    idle: int = 0
    restarts: int = 0
    steps: int = 0
    rows: int = 0
    padded_slots: int = 0
    catch_up_ticks: int = 0
    late_rows: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
