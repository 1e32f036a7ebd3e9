"""The dynamic batcher: packs requests to a stateless model into batches, whichever they are and on any instance.

Pure, with the verbs and rules of the sequence batcher: time is the argument ``now_ns``, what happens comes out as
effects. Who comes first is ``request_queue``'s to say, what makes a batch ``batch_forming``'s. Early requests, of which
nobody knows yet whether they will be wanted, run only where nothing else does, and their batch is abandoned when
something else waits for its instance. Upholds I4, I5, I11.

    offer / confirm / cancel    from the caller
    plan  -> a batch to run     call until None after any other verb and at ``next_deadline_ns``
    commit -> effects           exactly once for every batch
    expire -> effects           at ``next_deadline_ns``
    lose_instance / instance_restored
"""

from collections import Counter, OrderedDict
from dataclasses import replace

from server.batching.admission import check_audio
from server.batching.answer_order import AnswerOrder
from server.batching.batch_forming import FormedBatch, form_batch, rows_of, shape_of
from server.batching.dynamic_config import DynamicBatcherConfig, DynamicBatcherStats
from server.batching.flights import Flights, MayRun
from server.batching.request_queue import RequestQueue, Waiting
from server.batching.step_times import StepTimes
from server.effects import RequestCancelled, RequestCompleted, RequestEffect, RequestFailed
from server.errors import (
    BadTensor,
    InstanceFailed,
    MessageTooLarge,
    MoorageError,
    QueueFull,
    RequestTimeout,
    ServiceError,
    StepFailed,
)
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, BatchResult, Request, RequestBatch, Samples, Tensors

__all__ = ["DynamicBatcher", "DynamicBatcherConfig", "DynamicBatcherStats", "MayRun"]


class DynamicBatcher:
    """The pure scheduler of a stateless model."""

    def __init__(self, config: DynamicBatcherConfig) -> None:
        """Every instance is idle."""
        self._config = config
        self._limits = config.limits
        self._queue = RequestQueue(config.queue_levels, config.default_level, config.ageing_batches)
        self._early: OrderedDict[RequestId, Waiting] = OrderedDict()
        self._queued_samples = 0
        self._running: dict[RequestId, tuple[int, Waiting]] = {}
        """Live requests in flight, with the plan that holds them: the id of one that left may be used again."""
        self._flights = Flights(config.instances)
        self._abandoned: set[int] = set()
        """Plans in flight that should stop."""
        self._timed_out: dict[RequestId, RequestFailed] = {}
        """Out of the queue; ``expire`` tells them."""
        self._order = AnswerOrder()
        """Without anybody, unless answers come in order."""
        self._times = StepTimes()
        self._latest_ns = 0
        self._n_plans = 0
        self._n_places = 0
        self._n_accepted = 0
        self._n_stale = 0
        self._n_late = 0
        self._ended: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._batch_rows: Counter[int] = Counter()

    # The caller's side

    def offer(self, request: Request, now_ns: int) -> None:
        """Queue a request.

        Raises:
            BadAudio: not float32 [N], or not finite.
            BadTensor: more rows than a batch has, or inputs of other rows than the request says.
            MessageTooLarge: longer than a whole batch may be.
            QueueFull: too many of its level wait, or it is early and there is something else to do.
            ServiceError: the id is live.
        """
        now_ns = self._advance(now_ns)
        try:
            self._check(request)
            waiting = self._waiting(request, now_ns)
        except MoorageError as error:
            self._refused[error.code] += 1
            raise
        self._enqueue(waiting)
        self._queued_samples += _samples_of(waiting)
        self._n_accepted += 1
        if self._config.preserve_ordering:
            self._order.expect(request.request_id)

    def takes_early(self, samples: Samples) -> bool:
        """Whether an early request of these samples would be taken now: there is nothing else to do, and no order to
        keep.
        """
        return samples.size <= self._limits.max_batch_samples and self._has_nothing_to_do()

    def confirm(self, request_id: RequestId, now_ns: int) -> None:
        """An early request is wanted: from now on it is one like any other. Not live, or not early: nothing."""
        now_ns = self._advance(now_ns)
        if (queued := self._early.pop(request_id, None)) is not None:
            self._queue.add(self._waiting(replace(queued.request, is_early=False), now_ns))
        elif (running := self._running.get(request_id)) is not None and running[1].request.is_early:
            plan_id, early = running
            confirmed = self._waiting(replace(early.request, is_early=False), now_ns)
            self._running[request_id] = (
                plan_id,
                replace(confirmed, order=early.order, queued_at_ns=early.queued_at_ns),
            )

    def cancel(self, request_id: RequestId, now_ns: int) -> list[RequestEffect]:
        """The caller leaves; in flight, its result will be dropped. Answers that waited for its own alone come with it.
        Not live: nothing.
        """
        self._advance(now_ns)
        waiting = self._queue.remove(request_id) or self._early.pop(request_id, None)
        if waiting is not None:
            self._queued_samples -= _samples_of(waiting)
        elif not self._is_live(request_id):
            return []
        self._running.pop(request_id, None)
        self._timed_out.pop(request_id, None)
        self._ended["cancelled"] += 1
        return [RequestCancelled(request_id=request_id), *self._tell(self._order.leave(request_id))]

    # The driver's side

    def to_abandon(self, may_run: MayRun | None = None) -> list[RequestBatch]:
        """Batches in flight that should stop now, each told once: nobody wants them, or all of their requests are early
        and others wait for an instance. Call it after any other verb; ``commit`` follows for them too.
        """
        found = []
        n_needed = (
            0 if self._flights.next_idle(may_run) is not None else -(-self._queue.n_rows // self._limits.target_size)
        )
        n_needed -= sum(batch.plan_id in self._abandoned for batch in self._flights)
        for batch in self._flights:
            wanted = self._wanted(batch)
            may_wait = all(waiting.request.is_early for waiting in wanted)
            if batch.plan_id not in self._abandoned and may_wait and (not wanted or n_needed > 0):
                n_needed -= 1
                self._abandoned.add(batch.plan_id)
                found.append(batch)
        return found

    def plan(self, now_ns: int, may_run: MayRun | None = None) -> RequestBatch | None:
        """The next batch that is due, on the idle instance that was busy last: its caches are warm, and those that the
        load does not need stay idle.
        """
        now_ns = self._advance(now_ns)
        due_at_ns = self._due_at_ns()
        if due_at_ns is None or due_at_ns > now_ns:
            return None
        instance = self._flights.next_idle(may_run)
        if instance is None:
            return None
        self._n_plans += 1
        formed = self._front(now_ns)
        self._queue.take(formed.chosen)
        for waiting in formed.chosen:
            self._early.pop(waiting.request.request_id, None)
            self._queued_samples -= _samples_of(waiting)
            self._running[waiting.request.request_id] = (self._n_plans, waiting)
        self._batch_rows[formed.n_rows] += 1
        batch = RequestBatch(
            plan_id=self._n_plans,
            instance=instance,
            requests=tuple(waiting.request for waiting in formed.chosen),
            queued_at_ns=tuple(waiting.queued_at_ns for waiting in formed.chosen),
            planned_at_ns=now_ns,
        )
        self._flights.launch(batch)
        return batch

    def commit(self, batch: RequestBatch, result: BatchResult | BatchFailure, now_ns: int) -> list[RequestEffect]:
        """Give every caller its own result, in the order of the batch, or of the offers where that is preserved.
        ``result.rows`` is parallel to the requests.

        Raises:
            ServiceError: the batch is not in flight, or the result is not one of this batch; nothing has changed.
        """
        self._advance(now_ns)
        if not self._flights.land(batch, result):
            self._n_stale += len(batch.requests)
            return []
        self._abandoned.discard(batch.plan_id)
        if isinstance(result, BatchFailure) and result.is_abandoned:
            self._queue_again(batch)
            return []
        if isinstance(result, BatchResult) and result.step_ns:
            self._times.note(_cost_of(batch.requests), result.step_ns)
        return [effect for index in range(len(batch.requests)) for effect in self._finish(batch, index, result)]

    def expire(self, now_ns: int) -> list[RequestEffect]:
        """Requests whose timeout has come fail with RequestTimeout, or are delayed, as their level's policy says."""
        self._advance(now_ns)
        timed_out, self._timed_out = self._timed_out, {}
        told: list[RequestEffect] = []
        for request_id, effect in timed_out.items():
            self._ended[effect.error.code] += 1
            told += [effect, *self._tell(self._order.leave(request_id))]
        return told

    def lose_instance(self, instance: InstanceIndex, error: str, now_ns: int) -> list[RequestEffect]:
        """The instance died, in a batch or between batches: the requests in flight end with InstanceFailed and it takes
        nothing until ``instance_restored``. A result that its batch still brings is stale. Lost: nothing.
        """
        self._advance(now_ns)
        batch = self._flights.lose(instance)
        if batch is None:
            return []
        self._abandoned.discard(batch.plan_id)
        ids = [waiting.request.request_id for waiting in self._wanted(batch)]
        return [effect for each in ids for effect in self._answer(_failed(each, InstanceFailed(error)))]

    def instance_restored(self, instance: InstanceIndex, now_ns: int) -> None:
        """A lost instance runs again; the others, which are warm, go first.

        Raises:
            ServiceError: it was not lost.
        """
        self._advance(now_ns)
        self._flights.restore(instance)

    def next_deadline_ns(self, may_run: MayRun | None = None) -> int | None:
        """Earliest time at which ``plan`` or ``expire`` has something to do without other input; past: it would now."""
        timeout_ns = self._latest_ns if self._timed_out else self._queue.next_timeout_ns()
        due_at_ns = None if self._flights.next_idle(may_run) is None else self._due_at_ns()
        return min((at_ns for at_ns in (timeout_ns, due_at_ns) if at_ns is not None), default=None)

    def stats(self) -> DynamicBatcherStats:
        """A snapshot."""
        everyone = [*self._queue, *self._early.values()]
        return DynamicBatcherStats(
            queued=len(everyone),
            queued_samples=self._queued_samples,
            in_flight=len(self._running),
            accepted=self._n_accepted,
            ended=dict(self._ended),
            refused=dict(self._refused),
            stale_results=self._n_stale,
            instances_idle=self._flights.n_idle,
            instances_lost=self._flights.n_lost,
            queued_by_level=tuple(self._queue.n_queued(level) for level in range(1, self._queue.n_levels + 1)),
            held=self._order.n_held + len(self._timed_out),
            delayed=self._queue.n_delayed,
            late=self._n_late,
            oldest_queued_at_ns=min((waiting.queued_at_ns for waiting in everyone), default=None),
            batch_rows=dict(self._batch_rows),
        )

    # Within

    def _check(self, request: Request) -> None:
        if self._is_live(request.request_id):
            raise ServiceError(f"request {request.request_id} is live")
        if isinstance(request.payload, Tensors):
            if not 1 <= request.payload.n_rows <= self._limits.target_size:
                raise BadTensor(f"{request.payload.n_rows} rows: 1 to {self._limits.target_size} in one request")
        else:
            check_audio(request.samples)
            if request.samples.size > self._limits.max_batch_samples:
                most = self._limits.max_batch_samples
                raise MessageTooLarge(f"{request.samples.size} samples: at most {most} in one request")
        if request.is_early and not self._has_nothing_to_do():
            raise QueueFull("an early request is taken where there is nothing else to do")
        self._queue.check_room(request, n_besides=self._order.n_held)

    def _has_nothing_to_do(self) -> bool:
        is_idle = not self._queue and self._flights.n_idle > 0 and len(self._early) < self._limits.target_size
        return is_idle and not self._config.preserve_ordering

    def _is_live(self, request_id: RequestId) -> bool:
        places = (self._queue, self._early, self._running, self._timed_out, self._order)
        return any(request_id in each for each in places)

    def _waiting(self, request: Request, now_ns: int) -> Waiting:
        """The request as it waits from now on."""
        policy = self._queue.policy_of(request)
        timeout_ns = policy.timeout_of(request)
        deadline_at_ns = now_ns + policy.deadline_ns if policy.deadline_ns else None
        if request.deadline_ns is not None:
            # who asks for the past is as late as who asks for now, and comes behind those who did so before
            deadline_at_ns = max(now_ns, request.deadline_ns)
        self._n_places += 1
        return Waiting(
            request=request,
            order=self._n_places,
            queued_at_ns=now_ns,
            level=self._queue.level_of(request),
            n_rows=rows_of(request),
            shape=shape_of(request, self._limits.ragged),
            timeout_at_ns=None if timeout_ns is None else now_ns + timeout_ns,
            deadline_at_ns=deadline_at_ns,
        )

    def _enqueue(self, waiting: Waiting) -> None:
        if waiting.request.is_early:
            self._early[waiting.request.request_id] = waiting
        else:
            self._queue.add(waiting)

    def _front(self, now_ns: int) -> FormedBatch:
        """What would run now if it were due."""
        in_order = self._queue.in_order() if self._queue else self._early.values()
        formed = form_batch(in_order, self._limits, is_window_over=False)
        window_ns = self._config.window_ns
        if not self._queue or not window_ns or _oldest_ns(formed) + window_ns > now_ns:
            return formed
        return form_batch(self._queue.in_order(), self._limits, is_window_over=True)

    def _due_at_ns(self) -> int | None:
        """When the front should run, whether or not an instance is idle."""
        formed = self._front(self._latest_ns)
        if not formed.chosen:
            return None
        oldest_ns = _oldest_ns(formed)
        if formed.is_ready or not self._queue:
            return oldest_ns
        deadlines_ns = [each.deadline_at_ns for each in formed.chosen if each.deadline_at_ns is not None]
        expected_ns = self._times.expected_ns(_cost_of([each.request for each in formed.chosen])) or 0
        return min([oldest_ns + self._config.window_ns, *(each - expected_ns for each in deadlines_ns)])

    def _wanted(self, batch: RequestBatch) -> list[Waiting]:
        """The batch's requests whose callers have not left."""
        running = [self._running.get(each.request_id) for each in batch.requests]
        return [each[1] for each in running if each is not None and each[0] == batch.plan_id]

    def _queue_again(self, batch: RequestBatch) -> None:
        """The batch stopped: who still waits is where it was."""
        for waiting in reversed(self._wanted(batch)):
            del self._running[waiting.request.request_id]
            self._enqueue(waiting)
            if waiting.request.is_early:
                self._early.move_to_end(waiting.request.request_id, last=False)
            self._queued_samples += _samples_of(waiting)

    def _finish(self, batch: RequestBatch, index: int, result: BatchResult | BatchFailure) -> list[RequestEffect]:
        request_id = batch.requests[index].request_id
        plan_id, waiting = self._running.get(request_id, (None, None))
        if waiting is None or plan_id != batch.plan_id:
            self._n_stale += 1
            return []
        if isinstance(result, BatchFailure):
            return self._answer(
                _failed(request_id, (InstanceFailed if result.instance_lost else StepFailed)(result.error))
            )
        row = result.rows[index]
        if row.error is not None:
            return self._answer(_failed(request_id, StepFailed(row.error)))
        self._n_late += waiting.deadline_at_ns is not None and self._latest_ns > waiting.deadline_at_ns
        return self._answer(
            RequestCompleted(
                request_id=request_id,
                instance=batch.instance,
                output=row.output,
                batch_size=len(batch.requests),
                queue_ns=batch.planned_at_ns - batch.queued_at_ns[index],
                step_ns=result.step_ns,
            )
        )

    def _answer(self, effect: RequestEffect) -> list[RequestEffect]:
        """What is told now that a request has its answer."""
        del self._running[effect.request_id]
        return self._tell(self._order.answer(effect) if self._config.preserve_ordering else [effect])

    def _tell(self, effects: list[RequestEffect]) -> list[RequestEffect]:
        for effect in effects:
            self._ended[effect.error.code if isinstance(effect, RequestFailed) else "completed"] += 1
        return effects

    def _advance(self, now_ns: int) -> int:
        """The time, which never goes back, with nobody in the queue whose timeout has come."""
        self._latest_ns = max(self._latest_ns, now_ns)
        for waiting in self._queue.time_out(self._latest_ns):
            self._queued_samples -= _samples_of(waiting)
            waited_ms = (self._latest_ns - waiting.queued_at_ns) / 1e6
            error = RequestTimeout(f"no batch took the request in {waited_ms:g} ms")
            self._timed_out[waiting.request.request_id] = _failed(waiting.request.request_id, error)
        return self._latest_ns


def _failed(request_id: RequestId, error: MoorageError) -> RequestFailed:
    return RequestFailed(request_id=request_id, error=error)


def _samples_of(waiting: Waiting) -> int:
    return 0 if isinstance(waiting.request.payload, Tensors) else waiting.request.samples.size


def _oldest_ns(formed: FormedBatch) -> int:
    return min(waiting.queued_at_ns for waiting in formed.chosen)


def _cost_of(requests: tuple[Request, ...] | list[Request]) -> int:
    """Rows, or padded samples, in powers of two: what the time of a batch depends on."""
    longest = max((each.samples.size for each in requests if not isinstance(each.payload, Tensors)), default=0)
    return 1 << (longest * len(requests) or sum(rows_of(each) for each in requests)).bit_length()
