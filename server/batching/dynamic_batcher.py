"""The dynamic batcher: packs requests to a stateless model into batches, whichever they are and on any instance.

Pure, with the verbs and rules of the sequence batcher: time is the argument ``now_ns``, what happens comes out as
effects. Requests run in the order in which they came. Early ones, of which nobody knows yet whether they will be
wanted, run only where nothing else does, and their batch is abandoned when something else waits for its instance.
Upholds I4, I5, I11.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from server.batching.admission import check_audio, check_result
from server.effects import RequestCancelled, RequestCompleted, RequestEffect, RequestFailed
from server.errors import (
    ConfigError,
    InstanceFailed,
    MessageTooLarge,
    MoorageError,
    QueueFull,
    ServiceError,
    StepFailed,
)
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, BatchResult, Request, RequestBatch, Samples

_REMEMBERED_BATCHES: Final = 64
"""Batches of lost instances whose late results are still told apart from a mistake of the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatcherConfig:
    """What the batcher needs to know of the service's limits."""

    instances: int
    """Loaded copies of the model, at least 1."""
    target_size: int
    """Requests of a full batch, at least 1."""
    window_ns: int = 0
    """How long the oldest request waits for a full batch; 0: a batch runs with what is there."""
    max_queued: int = 1_024
    """Requests that no batch has taken, at least 1."""
    max_batch_samples: int = 16_000_000
    """Bound on a batch's padded audio: its longest request times its size; at least 1."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigError: a value is out of its bounds.
        """
        for name in ("instances", "target_size", "max_queued", "max_batch_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.window_ns < 0:
            raise ConfigError(f"window_ns must not be negative, but is {self.window_ns}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatcherStats:
    """A snapshot for metrics."""

    queued: int
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


class DynamicBatcher:
    """The pure scheduler of a stateless model."""

    def __init__(self, config: DynamicBatcherConfig) -> None:
        """Every instance is idle."""
        self._config = config
        self._queue: OrderedDict[RequestId, tuple[Request, int]] = OrderedDict()
        self._early: OrderedDict[RequestId, tuple[Request, int]] = OrderedDict()
        self._queued_samples = 0
        self._running: dict[RequestId, int] = {}
        """Live requests in flight, with the plan that holds them: the id of one that left may be used again."""
        self._idle = OrderedDict.fromkeys(InstanceIndex(index) for index in range(config.instances))
        self._in_flight: dict[InstanceIndex, RequestBatch] = {}
        self._early_running: set[RequestId] = set()
        """Those of them that are early."""
        self._abandoned: set[int] = set()
        """Plans in flight that should stop."""
        self._lost: set[InstanceIndex] = set()
        self._orphaned_plans: deque[int] = deque(maxlen=_REMEMBERED_BATCHES)
        self._latest_ns = 0
        self._n_plans = 0
        self._n_accepted = 0
        self._n_stale = 0
        self._ended: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def offer(self, request: Request, now_ns: int) -> None:
        """Queue a request.

        Raises:
            BadAudio: not float32 [N], or not finite.
            MessageTooLarge: longer than a whole batch may be.
            QueueFull: too many wait, or it is early and there is something else to do.
            ServiceError: the id is live.
        """
        now_ns = self._advance(now_ns)
        try:
            self._check(request)
        except MoorageError as error:
            self._refused[error.code] += 1
            raise
        self._line(request)[request.request_id] = (request, now_ns)
        self._queued_samples += request.samples.size
        self._n_accepted += 1

    def takes_early(self, samples: Samples) -> bool:
        """Whether an early request of these samples would be taken now: there is nothing else to do."""
        fits = samples.size <= self._config.max_batch_samples
        return fits and not self._queue and bool(self._idle) and len(self._early) < self._config.target_size

    def cancel(self, request_id: RequestId, now_ns: int) -> list[RequestEffect]:
        """The caller leaves; in flight, its result will be dropped. Not live: nothing."""
        self._advance(now_ns)
        queued = self._queue.pop(request_id, None) or self._early.pop(request_id, None)
        if queued is not None:
            self._queued_samples -= queued[0].samples.size
        elif request_id in self._running:
            self._stop_running(request_id)
        else:
            return []
        self._ended["cancelled"] += 1
        return [RequestCancelled(request_id=request_id)]

    def confirm(self, request_id: RequestId, now_ns: int) -> None:
        """An early request is wanted: from now on it is one like any other. Not live, or not early: nothing."""
        now_ns = self._advance(now_ns)
        queued = self._early.pop(request_id, None)
        if queued is not None:
            self._queue[request_id] = (replace(queued[0], is_early=False), now_ns)
        self._early_running.discard(request_id)

    def to_abandon(self) -> list[RequestBatch]:
        """Batches in flight that should stop now, each told once: nobody wants them, or all of their requests are early
        and others wait for an instance. Call it after any other verb; ``commit`` follows for them too.
        """
        found = []
        n_needed = 0 if self._idle else -(-len(self._queue) // self._config.target_size)
        n_needed -= sum(batch.plan_id in self._abandoned for batch in self._in_flight.values())
        for batch in self._in_flight.values():
            wanted = self._wanted(batch)
            may_wait = all(request.request_id in self._early_running for request in wanted)
            if batch.plan_id not in self._abandoned and may_wait and (not wanted or n_needed > 0):
                n_needed -= 1
                self._abandoned.add(batch.plan_id)
                found.append(batch)
        return found

    def plan(self, now_ns: int) -> RequestBatch | None:
        """The next batch that is due, on the instance that has been idle longest."""
        now_ns = self._advance(now_ns)
        due_at_ns = self.next_deadline_ns()
        if due_at_ns is None or due_at_ns > now_ns:
            return None
        instance, _ = self._idle.popitem(last=False)
        self._n_plans += 1
        chosen = self._front()
        for request, _ in chosen:
            del self._line(request)[request.request_id]
            self._queued_samples -= request.samples.size
            self._running[request.request_id] = self._n_plans
            if request.is_early:
                self._early_running.add(request.request_id)
        batch = RequestBatch(
            plan_id=self._n_plans,
            instance=instance,
            requests=tuple(request for request, _ in chosen),
            queued_at_ns=tuple(queued_at_ns for _, queued_at_ns in chosen),
            planned_at_ns=now_ns,
        )
        self._in_flight[instance] = batch
        return batch

    def commit(self, batch: RequestBatch, result: BatchResult | BatchFailure, now_ns: int) -> list[RequestEffect]:
        """Give every caller its own result, in the order of the batch. ``result.rows`` is parallel to the requests.

        Raises:
            ServiceError: the batch is not in flight, or the result is not one of this batch; nothing has changed.
        """
        self._advance(now_ns)
        is_orphan = batch.plan_id in self._orphaned_plans
        current = self._in_flight.get(batch.instance)
        if not is_orphan and (current is None or current.plan_id != batch.plan_id):
            raise ServiceError(f"batch {batch.plan_id} is not in flight")
        check_result(result, batch.plan_id, len(batch.requests))
        if is_orphan:
            self._orphaned_plans.remove(batch.plan_id)
            self._n_stale += len(batch.requests)
            return []
        del self._in_flight[batch.instance]
        self._abandoned.discard(batch.plan_id)
        if isinstance(result, BatchFailure) and result.is_abandoned:
            self._queue_again(batch)
            return []
        if isinstance(result, BatchFailure) and result.instance_lost:
            self._lost.add(batch.instance)
        else:
            self._idle[batch.instance] = None
        return [
            effect for index in range(len(batch.requests)) if (effect := self._finish(batch, index, result)) is not None
        ]

    def lose_instance(self, instance: InstanceIndex, error: str, now_ns: int) -> list[RequestEffect]:
        """The instance died, in a batch or between batches: the requests in flight end with InstanceFailed and it takes
        nothing until ``instance_restored``. A result that its batch still brings is stale. Lost: nothing.
        """
        self._advance(now_ns)
        self._lost.add(instance)
        self._idle.pop(instance, None)
        batch = self._in_flight.pop(instance, None)
        if batch is None:
            return []
        self._orphaned_plans.append(batch.plan_id)
        self._abandoned.discard(batch.plan_id)
        ids = [request.request_id for request in batch.requests]
        return [self._fail(each, InstanceFailed(error)) for each in ids if self._running.get(each) == batch.plan_id]

    def instance_restored(self, instance: InstanceIndex, now_ns: int) -> None:
        """A lost instance runs again.

        Raises:
            ServiceError: it was not lost.
        """
        self._advance(now_ns)
        if instance not in self._lost:
            raise ServiceError(f"instance {instance} was not lost")
        self._lost.remove(instance)
        self._idle[instance] = None

    def next_deadline_ns(self) -> int | None:
        """Earliest time at which ``plan`` does something without other input; past: it would now."""
        if not self._idle or not (self._queue or self._early):
            return None
        if not self._queue:
            return next(iter(self._early.values()))[1]
        oldest_ns = next(iter(self._queue.values()))[1]
        n_front = len(self._front())
        is_full = n_front == self._config.target_size or n_front < len(self._queue)
        return oldest_ns if is_full else oldest_ns + self._config.window_ns

    def stats(self) -> DynamicBatcherStats:
        """A snapshot."""
        return DynamicBatcherStats(
            queued=len(self._queue) + len(self._early),
            queued_samples=self._queued_samples,
            in_flight=len(self._running),
            accepted=self._n_accepted,
            ended=dict(self._ended),
            refused=dict(self._refused),
            stale_results=self._n_stale,
            instances_idle=len(self._idle),
            instances_lost=len(self._lost),
        )

    def _check(self, request: Request) -> None:
        samples = request.samples
        if any(request.request_id in each for each in (self._queue, self._early, self._running)):
            raise ServiceError(f"request {request.request_id} is live")
        check_audio(samples)
        if samples.size > self._config.max_batch_samples:
            raise MessageTooLarge(f"{samples.size} samples: at most {self._config.max_batch_samples} in one request")
        if request.is_early and not self.takes_early(request.samples):
            raise QueueFull("an early request is taken where there is nothing else to do")
        if len(self._queue) >= self._config.max_queued:
            raise QueueFull(f"{len(self._queue)} requests wait: no more than that")

    def _line(self, request: Request) -> OrderedDict[RequestId, tuple[Request, int]]:
        return self._early if request.is_early else self._queue

    def _wanted(self, batch: RequestBatch) -> list[Request]:
        """The batch's requests whose callers have not left."""
        return [each for each in batch.requests if self._running.get(each.request_id) == batch.plan_id]

    def _queue_again(self, batch: RequestBatch) -> None:
        """The batch stopped: its instance is idle, and who still waits comes first, in the old order."""
        self._idle[batch.instance] = None
        queued_at_ns = dict(zip((each.request_id for each in batch.requests), batch.queued_at_ns, strict=True))
        for each in reversed(self._wanted(batch)):
            del self._running[each.request_id]
            request = replace(each, is_early=each.request_id in self._early_running)
            self._early_running.discard(each.request_id)
            line = self._line(request)
            line[request.request_id] = (request, queued_at_ns[request.request_id])
            line.move_to_end(request.request_id, last=False)
            self._queued_samples += request.samples.size

    def _front(self) -> list[tuple[Request, int]]:
        """The oldest requests that fit in one batch. It stops at the first that does not fit, so none is overtaken."""
        chosen: list[tuple[Request, int]] = []
        longest_samples = 0
        for request, queued_at_ns in (self._queue or self._early).values():
            longest_samples = max(longest_samples, request.samples.size)
            if longest_samples * (len(chosen) + 1) > self._config.max_batch_samples:
                break
            chosen.append((request, queued_at_ns))
            if len(chosen) == self._config.target_size:
                break
        return chosen

    def _finish(self, batch: RequestBatch, index: int, result: BatchResult | BatchFailure) -> RequestEffect | None:
        request_id = batch.requests[index].request_id
        if self._running.get(request_id) != batch.plan_id:
            self._n_stale += 1
            return None
        if isinstance(result, BatchFailure):
            return self._fail(request_id, (InstanceFailed if result.instance_lost else StepFailed)(result.error))
        row = result.rows[index]
        if row.error is not None:
            return self._fail(request_id, StepFailed(row.error))
        self._stop_running(request_id)
        self._ended["completed"] += 1
        return RequestCompleted(
            request_id=request_id,
            instance=batch.instance,
            output=row.output,
            batch_size=len(batch.requests),
            queue_ns=batch.planned_at_ns - batch.queued_at_ns[index],
            step_ns=result.step_ns,
        )

    def _stop_running(self, request_id: RequestId) -> None:
        del self._running[request_id]
        self._early_running.discard(request_id)

    def _fail(self, request_id: RequestId, error: MoorageError) -> RequestFailed:
        self._stop_running(request_id)
        self._ended[error.code] += 1
        return RequestFailed(request_id=request_id, error=error)

    def _advance(self, now_ns: int) -> int:
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns
