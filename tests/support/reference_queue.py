"""The queue of a dynamic batcher as plainly as it can be said: everything is sorted anew whenever somebody asks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from server.batching.dynamic_batcher import DynamicBatcherConfig
from server.batching.request_queue import QueueLevel, TimeoutAction
from server.ids import RequestId
from server.plan import Request, Tensors


@dataclass(slots=True, kw_only=True, eq=False)
class Item:
    """A request that waits."""

    request: Request
    order: int
    queued_at_ns: int
    level: int
    timeout_at_ns: float = inf
    deadline_at_ns: float = inf
    is_delayed: bool = False

    @property
    def line(self) -> tuple[int, bool]:
        return (self.level, self.is_delayed)

    @property
    def number(self) -> RequestId:
        return self.request.request_id

    @property
    def n_samples(self) -> int:
        return 0 if isinstance(self.request.payload, Tensors) else self.request.samples.size

    @property
    def n_rows(self) -> int:
        return self.request.payload.n_rows if isinstance(self.request.payload, Tensors) else 1

    def shape(self, ragged: frozenset[str]) -> object:
        if not isinstance(self.request.payload, Tensors):
            return None
        return {
            name: (array.dtype, None if name in ragged else array.shape[1:])
            for name, array in self.request.payload.arrays.items()
        }


class ReferenceQueue:
    """Who waits, early ones apart."""

    def __init__(self, config: DynamicBatcherConfig) -> None:
        self.config = config
        self.items: list[Item] = []
        self.early: list[Item] = []
        self.passed: Counter[tuple[int, bool]] = Counter()
        """Batches since a line's oldest was taken."""
        self.unserved: Counter[int] = Counter()
        """Batches since anybody of a level was taken."""

    def item(self, request: Request, order: int, now_ns: int) -> Item:
        levels = self.config.queue_levels
        level = request.priority if 1 <= request.priority <= len(levels) else self.config.default_level
        policy: QueueLevel = levels[level - 1]
        item = Item(request=request, order=order, queued_at_ns=now_ns, level=level)
        if not request.is_early:
            own_ns = inf if request.timeout_ns is None else request.timeout_ns
            item.timeout_at_ns = now_ns + min(policy.timeout_ns or inf, own_ns)
            item.deadline_at_ns = now_ns + (policy.deadline_ns or inf)
            if request.deadline_ns is not None:
                item.deadline_at_ns = max(now_ns, request.deadline_ns)
        return item

    def is_full(self, level: int, n_held: int) -> bool:
        return len([item for item in self.items if item.level == level]) + n_held >= self._policy(level).max_queued

    def in_order(self) -> list[Item]:
        ordered = sorted(self.items, key=lambda item: (item.line, item.deadline_at_ns, item.order))
        lines = sorted({item.line for item in self.items})
        most = max((self.passed[line] for line in lines), default=0)
        if most >= self.config.ageing_batches:
            leader = self._oldest(next(line for line in lines if self.passed[line] == most))
            ordered.remove(leader)
            ordered.insert(0, leader)
        return ordered

    def front(self, now_ns: int) -> tuple[list[Item], float]:
        """The next batch, and when it is due."""
        if not self.items:
            size = self._fitting(self.early)
            return self.early[:size], min((item.queued_at_ns for item in self.early[:size]), default=inf)
        batch, is_ready = self._formed(hold_back=True)
        oldest_ns = min(item.queued_at_ns for item in batch)
        if is_ready:
            due_ns: float = oldest_ns
        else:
            due_ns = min(oldest_ns + self.config.window_ns, *(item.deadline_at_ns for item in batch))
        if self.config.window_ns and now_ns >= oldest_ns + self.config.window_ns:
            batch, _ = self._formed(hold_back=False)
        return batch, due_ns

    def take(self, batch: Sequence[Item]) -> None:
        for line in {item.line for item in self.items}:
            self.passed[line] = 0 if self._oldest(line) in batch else self.passed[line] + 1
        for level in {item.level for item in self.items}:
            self.unserved[level] = 0 if level in {item.level for item in batch} else self.unserved[level] + 1
        self.drop(batch)

    def drop(self, gone: Sequence[Item]) -> None:
        self.items = [item for item in self.items if item not in gone]
        self.early = [item for item in self.early if item not in gone]
        self._forget_empty_lines()

    def time_out(self, now_ns: int) -> list[Item]:
        """Those who are rejected, the first timeout first."""
        over = [item for item in self.items if item.timeout_at_ns <= now_ns and not item.is_delayed]
        rejected = [item for item in over if self._policy(item.level).timeout_action is TimeoutAction.REJECT]
        for item in over:
            item.is_delayed = item not in rejected
        self.drop(rejected)
        return sorted(rejected, key=lambda item: (item.timeout_at_ns, item.order))

    def next_timeout_ns(self) -> float:
        return min((item.timeout_at_ns for item in self.items if not item.is_delayed), default=inf)

    def _policy(self, level: int) -> QueueLevel:
        return self.config.queue_levels[level - 1]

    def _oldest(self, line: tuple[int, bool]) -> Item:
        of_line = [item for item in self.items if item.line == line]
        soonest = min(of_line, key=lambda item: (item.deadline_at_ns, item.order))
        without = [item for item in of_line if item.deadline_at_ns == inf]
        return min([soonest, *without], key=lambda item: item.order)

    def _formed(self, *, hold_back: bool) -> tuple[list[Item], bool]:
        ordered = self.in_order()
        first = ordered[0]
        longest, may_join = first.n_samples, [first]
        for item in ordered[1:]:
            fits = item.shape(self.config.ragged) == first.shape(self.config.ragged)
            if fits and (item.level <= first.level or item.n_samples <= longest):
                longest = max(longest, item.n_samples)
                may_join.append(item)
        size = self._fitting(may_join)
        batch = may_join[:size]
        preferred = self.config.preferred_sizes or (self.config.target_size,)
        sums = [sum(item.n_rows for item in batch[: count + 1]) for count in range(size)]
        best = max((count + 1 for count, rows in enumerate(sums) if rows in preferred), default=0)
        if not best:
            best = next((count + 1 for count in range(size - 1) if sums[count + 1] > max(preferred)), 0)
        is_ready = best > 0 or size < len(ordered) or sums[-1] >= max(preferred)
        return batch[:best] if best and hold_back and self.config.preferred_sizes else batch, is_ready

    def _fitting(self, items: Sequence[Item]) -> int:
        """How many of the first may be one batch."""
        size = 0
        for count in range(1, len(items) + 1):
            longest = max(item.n_samples for item in items[:count])
            n_rows = sum(item.n_rows for item in items[:count])
            if n_rows > self.config.target_size or longest * count > self.config.max_batch_samples:
                break
            size = count
        return size

    def _forget_empty_lines(self) -> None:
        for line in [line for line in self.passed if line not in {item.line for item in self.items}]:
            del self.passed[line]
        for level in [level for level in self.unserved if level not in {item.level for item in self.items}]:
            del self.unserved[level]
