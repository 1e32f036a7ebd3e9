"""Counts what batches did, for either scheduler. Bounded: histograms and sums."""

from collections import Counter
from collections.abc import Sequence

from server.figures.stats import BATCH_SIZES, DELAYS, SECONDS, Histogram, StepStats
from server.ids import InstanceIndex
from server.plan import BatchFailure
from server.workers.orders import BatchOutcome


class StepRecorder:
    """Filled by the engine at every plan and every outcome."""

    def __init__(self) -> None:
        self._queue_s = Histogram(SECONDS)
        self._step_s = Histogram(SECONDS)
        self._batch_size = Histogram(BATCH_SIZES)
        self._slot_wait_s = Histogram(DELAYS)
        self._failures = 0
        self._row_failures = 0
        self._counters: Counter[str] = Counter()
        self._busy_ns: Counter[int] = Counter()
        self._outcomes: Counter[str] = Counter()

    def planned(self, queue_ns: Sequence[int]) -> None:
        """A batch was planned, its rows had waited so long. One without rows only scrubs slots and is not counted."""
        if not queue_ns:
            return
        self._batch_size.observe(len(queue_ns))
        for each_ns in queue_ns:
            self._queue_s.observe(each_ns / 1e9)

    def finished(self, outcome: BatchOutcome, instance: InstanceIndex) -> None:
        """A batch came back from its instance."""
        if isinstance(outcome, BatchFailure):
            self._failures += 1
            return
        self._row_failures += sum(row.error is not None for row in outcome.rows)
        self._counters.update(outcome.counters)
        self._busy_ns[instance] += outcome.step_ns
        if outcome.rows:
            self._step_s.observe(outcome.step_ns / 1e9)

    def answered(self, outcome: str) -> None:
        """A request has ended: ``completed``, ``cancelled`` or an error code."""
        self._outcomes[outcome] += 1

    def placed(self, waited_ns: int) -> None:
        """A sequence that waited for a slot got one."""
        self._slot_wait_s.observe(waited_ns / 1e9)

    def stats(self) -> StepStats:
        """A snapshot."""
        return StepStats(
            queue_s=self._queue_s.snapshot(),
            step_s=self._step_s.snapshot(),
            batch_size=self._batch_size.snapshot(),
            slot_wait_s=self._slot_wait_s.snapshot(),
            failures=self._failures,
            row_failures=self._row_failures,
            counters=dict(self._counters),
            outcomes=dict(self._outcomes),
            busy_s={instance: busy_ns / 1e9 for instance, busy_ns in sorted(self._busy_ns.items())},
        )
