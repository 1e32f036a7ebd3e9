"""The requests that wait for a batch: levels, their policies, and who comes first.

Pure. A level is served before the ones below it, inside a level whoever must be answered first, else who came first; a
request that was delayed by its timeout comes after the others of its level. Each level has thus two lines. Nobody
starves behind a higher level or behind those with deadlines: a line whose oldest request was passed over by
``ageing_batches`` batches leads the next with it. Upholds I5, I11.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf

from server.errors import ConfigError, QueueFull
from server.ids import RequestId
from server.plan import Request


class TimeoutAction(Enum):
    """What becomes of a request that has waited for its timeout."""

    REJECT = "reject"
    """It fails with RequestTimeout."""
    DELAY = "delay"
    """It lets the others of its level go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLevel:
    """The policy of one priority level."""

    max_queued: int = 1_024
    """Requests of the level that no batch has taken, at least 1."""
    timeout_ns: int = 0
    """How long a request waits for its batch before ``timeout_action``; 0: as long as it takes."""
    timeout_action: TimeoutAction = TimeoutAction.REJECT
    deadline_ns: int = 0
    """When a request should be answered, counted from its offer, if it says nothing itself; 0: it has no deadline."""
    allow_timeout_override: bool = True
    """Whether a request's own timeout counts, where it is shorter than the level's, or the level has none."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigError: a value is out of its bounds.
        """
        if self.max_queued < 1:
            raise ConfigError(f"max_queued must be at least 1, not {self.max_queued}")
        for name in ("timeout_ns", "deadline_ns"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, but is {getattr(self, name)}")

    def timeout_of(self, request: Request) -> int | None:
        """Nanoseconds that the request may wait; None: as long as it takes."""
        own_ns = request.timeout_ns if self.allow_timeout_override else None
        timeouts_ns = [each for each in (self.timeout_ns or None, own_ns) if each is not None]
        return min(timeouts_ns, default=None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """A request in the queue, with what decides when it runs."""

    request: Request
    order: int
    """Counts offers; lower came first."""
    queued_at_ns: int
    level: int
    """Its priority level, 1 is the highest."""
    n_rows: int
    """Rows that it takes of a batch."""
    shape: object = None
    """Requests of one batch have the same; None: audio, which is padded."""
    timeout_at_ns: int | None = None
    deadline_at_ns: int | None = None

    @property
    def urgency(self) -> tuple[float, int]:
        """Lowest first: the deadline, then the order of the offers."""
        return (inf if self.deadline_at_ns is None else self.deadline_at_ns, self.order)


@dataclass(slots=True, kw_only=True, eq=False)
class _Line:
    """Requests of one level, all in time or all delayed."""

    by_urgency: list[Waiting] = field(default_factory=list)
    n_passed: int = 0
    """Batches since one took ``oldest``, or since the line was empty."""

    @property
    def oldest(self) -> Waiting:
        """Who came first of the one with the nearest deadline and those without a deadline. The line is not empty."""
        n_with_deadline = bisect_left(self.by_urgency, (inf, 0), key=lambda each: each.urgency)
        firsts = (self.by_urgency[0], *self.by_urgency[n_with_deadline : n_with_deadline + 1])
        return min(firsts, key=lambda each: each.order)

    def join(self, waiting: Waiting) -> None:
        insort(self.by_urgency, waiting, key=lambda each: each.urgency)

    def leave(self, waiting: Waiting) -> None:
        del self.by_urgency[bisect_left(self.by_urgency, waiting.urgency, key=lambda each: each.urgency)]
        if not self.by_urgency:
            self.n_passed = 0


class RequestQueue:
    """Levels of requests.

    Args:
        levels: The highest first; at least one.
        default_level: 1-based; of requests whose priority names no level.
        ageing_batches: Batches that may pass over a line before it leads one, at least 1.
    """

    def __init__(self, levels: Sequence[QueueLevel], default_level: int, ageing_batches: int) -> None:
        self._levels = tuple(levels)
        self._default_level = default_level
        self._ageing_batches = ageing_batches
        self._lines = tuple((_Line(), _Line()) for _ in levels)
        self._waiting: dict[RequestId, Waiting] = {}
        self._n_rows = 0
        self._delayed: set[RequestId] = set()
        self._timeouts: list[tuple[int, int, RequestId]] = []
        """A heap; with some of requests that have left."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting.values())

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._waiting

    @property
    def n_levels(self) -> int:
        """Priority levels."""
        return len(self._levels)

    @property
    def n_rows(self) -> int:
        """Rows of all who wait."""
        return self._n_rows

    @property
    def n_delayed(self) -> int:
        """Those who let others go first."""
        return len(self._delayed)

    def level_of(self, request: Request) -> int:
        """The request's level; the default one if it names none that there is."""
        return request.priority if 1 <= request.priority <= len(self._levels) else self._default_level

    def policy_of(self, request: Request) -> QueueLevel:
        """The policy of the request's level."""
        return self._levels[self.level_of(request) - 1]

    def n_queued(self, level: int) -> int:
        """Requests that wait in a level, 1-based."""
        return sum(len(line.by_urgency) for line in self._lines[level - 1])

    def check_room(self, request: Request, n_besides: int = 0) -> None:
        """Whether the request's level takes one more, where ``n_besides`` count as if they waited too.

        Raises:
            QueueFull: it does not.
        """
        level = self.level_of(request)
        if self.n_queued(level) + n_besides >= self._levels[level - 1].max_queued:
            where = f" in level {level}" if len(self._levels) > 1 else ""
            raise QueueFull(f"{self._levels[level - 1].max_queued} requests wait{where}: no more than that")

    def add(self, waiting: Waiting) -> None:
        """Put a request where it belongs; one that was in a batch and comes back is where it was."""
        request_id = waiting.request.request_id
        self._waiting[request_id] = waiting
        self._n_rows += waiting.n_rows
        self._line_of(waiting).join(waiting)
        if waiting.timeout_at_ns is not None and request_id not in self._delayed:
            heappush(self._timeouts, (waiting.timeout_at_ns, waiting.order, request_id))

    def remove(self, request_id: RequestId) -> Waiting | None:
        """Take a request out; None: it does not wait."""
        waiting = self._waiting.get(request_id)
        if waiting is None:
            return None
        self._line_of(waiting).leave(waiting)
        self._delayed.discard(request_id)
        del self._waiting[request_id]
        self._n_rows -= waiting.n_rows
        if len(self._timeouts) > 2 * len(self._waiting) + 16:
            self._timeouts = [each for each in self._timeouts if self._is_running_out(each)]
            heapify(self._timeouts)
        return waiting

    def take(self, batch: Sequence[Waiting]) -> None:
        """These run now; a line whose oldest is not one of them has been passed over."""
        taken = set(batch)
        for line in chain.from_iterable(self._lines):
            if line.by_urgency:
                line.n_passed = 0 if line.oldest in taken else line.n_passed + 1
        for waiting in batch:
            self.remove(waiting.request.request_id)

    def in_order(self) -> Iterator[Waiting]:
        """Everyone, first who should run first."""
        lines = list(chain.from_iterable(self._lines))
        leader = None
        aged = max(lines, key=lambda line: line.n_passed)
        if aged.n_passed >= self._ageing_batches:
            leader = aged.oldest
            yield leader
        for line in lines:
            yield from (waiting for waiting in line.by_urgency if waiting is not leader)

    def time_out(self, now_ns: int) -> list[Waiting]:
        """Everyone whose timeout has come is delayed, or taken out and given back, as its level's policy says."""
        rejected = []
        while self._timeouts and (self._timeouts[0][0] <= now_ns or not self._is_running_out(self._timeouts[0])):
            timeout = heappop(self._timeouts)
            if not self._is_running_out(timeout):
                continue
            waiting = self._waiting[timeout[2]]
            if self._levels[waiting.level - 1].timeout_action is TimeoutAction.REJECT:
                self.remove(timeout[2])
                rejected.append(waiting)
            else:
                self._line_of(waiting).leave(waiting)
                self._delayed.add(timeout[2])
                self._line_of(waiting).join(waiting)
        return rejected

    def next_timeout_ns(self) -> int | None:
        """When ``time_out`` does something."""
        while self._timeouts and not self._is_running_out(self._timeouts[0]):
            heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else None

    def _is_running_out(self, timeout: tuple[int, int, RequestId]) -> bool:
        """Whether it is of one that waits, and not of an earlier request of that id."""
        waiting = self._waiting.get(timeout[2])
        return waiting is not None and waiting.order == timeout[1] and timeout[2] not in self._delayed

    def _line_of(self, waiting: Waiting) -> _Line:
        in_time, delayed = self._lines[waiting.level - 1]
        return delayed if waiting.request.request_id in self._delayed else in_time
