"""Any order of everything that may happen to a dynamic batcher, against a plain reference."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.batching.dynamic_batcher import DynamicBatcher
from server.effects import RequestCancelled, RequestCompleted, RequestEffect, RequestFailed
from server.errors import InstanceFailed, QueueFull, StepFailed
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, BatchResult, Request, RequestBatch, RowResult
from tests.properties.profiles import machine_settings
from tests.support.factories import DYNAMIC_CONFIG, make_dynamic_batcher, make_request

INSTANCES = st.integers(0, 1)
WINDOW_NS = 30


def total(request: Request) -> float:
    return float(request.samples.sum())


class DynamicBatcherMachine(RuleBasedStateMachine):
    """Requests have numbers of their own, and their sums are their own too: a swap is a wrong number."""

    @initialize(window_ns=st.sampled_from((0, WINDOW_NS)))
    def create(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self.batcher: DynamicBatcher = make_dynamic_batcher(window_ns=window_ns)
        self.now_ns = 0
        self.n_requests = 0
        self.queue: list[tuple[Request, int]] = []
        self.early_queue: list[tuple[Request, int]] = []
        self.early_running: set[RequestId] = set()
        self.abandoned: set[int] = set()
        self.running: dict[int, tuple[RequestBatch, set[RequestId]]] = {}
        self.orphans: list[RequestBatch] = []
        self.lost: set[int] = set()
        self.idle = [0, 1]
        self.n_ended = 0

    @rule(n_samples=st.integers(0, 60))
    def offer(self, n_samples: int) -> None:
        request = make_request(self.n_requests + 1, n_samples)
        try:
            self.batcher.offer(request, self.now_ns)
        except QueueFull:
            assert len(self.queue) == DYNAMIC_CONFIG.max_queued
            return
        self.n_requests += 1
        self.queue.append((request, self.now_ns))

    @rule(n_samples=st.integers(0, 60))
    def offer_early(self, n_samples: int) -> None:
        request = replace(make_request(self.n_requests + 1, n_samples), is_early=True)
        is_taken = not self.queue and bool(self.idle) and len(self.early_queue) < DYNAMIC_CONFIG.target_size
        assert self.batcher.takes_early(request.samples) == is_taken
        try:
            self.batcher.offer(request, self.now_ns)
        except QueueFull:
            assert not is_taken
            return
        assert is_taken
        self.n_requests += 1
        self.early_queue.append((request, self.now_ns))

    @precondition(lambda self: self.n_requests)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        number = RequestId(data.draw(st.integers(max(1, self.n_requests - 9), self.n_requests)))
        self.batcher.confirm(number, self.now_ns)
        self.early_running.discard(number)
        confirmed = [item for item in self.early_queue if item[0].request_id == number]
        self.early_queue = [item for item in self.early_queue if item not in confirmed]
        self.queue += [(replace(request, is_early=False), self.now_ns) for request, _ in confirmed]

    @rule()
    def abandon(self) -> None:
        n_needed = 0 if self.idle else -(-len(self.queue) // DYNAMIC_CONFIG.target_size)
        n_needed -= len(self.abandoned & {batch.plan_id for batch, _ in self.running.values()})
        told = self.batcher.to_abandon()
        for batch in told:
            _, live = self.running[batch.instance]
            assert batch.plan_id not in self.abandoned
            assert live <= self.early_running
            self.abandoned.add(batch.plan_id)
        assert sum(bool(self.running[batch.instance][1]) for batch in told) <= max(0, n_needed)
        may_stop = [
            batch
            for batch, live in self.running.values()
            if batch.plan_id not in self.abandoned and live <= self.early_running
        ]
        assert all(self.running[batch.instance][1] for batch in may_stop), "one that nobody wants goes on"
        assert not may_stop or len(told) >= n_needed, "one that may wait keeps others waiting"

    @precondition(lambda self: self.n_requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = RequestId(data.draw(st.integers(max(1, self.n_requests - 9), self.n_requests)))
        is_queued = number in [request.request_id for request, _ in self.queue + self.early_queue]
        holders = [live for _, live in self.running.values() if number in live]
        effects = self.batcher.cancel(number, self.now_ns)
        assert effects == [RequestCancelled(request_id=number)] * (is_queued or bool(holders))
        self.n_ended += len(effects)
        self.queue = [item for item in self.queue if item[0].request_id != number]
        self.early_queue = [item for item in self.early_queue if item[0].request_id != number]
        self.early_running.discard(number)
        for live in holders:
            live.remove(number)

    @rule(elapsed_ns=st.sampled_from((1, 10, WINDOW_NS)))
    def advance(self, elapsed_ns: int) -> None:
        self.now_ns += elapsed_ns

    @rule()
    def advance_to_the_deadline(self) -> None:
        deadline_ns = self.batcher.next_deadline_ns()
        if deadline_ns is not None:
            self.now_ns = max(self.now_ns, deadline_ns)
            assert self.plan() is not None, "a deadline for nothing"

    @rule()
    def plan_once(self) -> None:
        self.plan()

    def plan(self) -> RequestBatch | None:
        deadline_ns = self.batcher.next_deadline_ns()
        front = self.front()
        is_full = len(front) == DYNAMIC_CONFIG.target_size or len(front) < len(self.queue) or not self.queue
        is_due = bool(self.idle and front) and (is_full or self.now_ns - front[0][1] >= self.window_ns)
        batch = self.batcher.plan(self.now_ns)
        assert (batch is not None) == is_due
        assert (deadline_ns is not None and deadline_ns <= self.now_ns) == is_due
        if batch is not None:
            assert list(zip(batch.requests, batch.queued_at_ns, strict=True)) == front
            assert batch.instance == self.idle.pop(0), "not the instance that was idle longest"
            del (self.queue or self.early_queue)[: len(front)]
            self.early_running |= {request.request_id for request in batch.requests if request.is_early}
            self.running[batch.instance] = (batch, {request.request_id for request in batch.requests})
        return batch

    def front(self) -> list[tuple[Request, int]]:
        """The longest prefix that fits in one batch."""
        queue = self.queue or self.early_queue
        for size in range(DYNAMIC_CONFIG.target_size, 0, -1):
            longest = max((request.samples.size for request, _ in queue[:size]), default=0)
            if len(queue) >= size and longest * size <= DYNAMIC_CONFIG.max_batch_samples:
                return queue[:size]
        return []

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(("ok", "ok", "rows", "fail", "lost")))
    def commit(self, data: st.DataObject, outcome: str) -> None:
        instance = data.draw(st.sampled_from(sorted(self.running)))
        batch, live = self.running.pop(instance)
        result: BatchResult | BatchFailure
        if outcome in ("fail", "lost"):
            result = BatchFailure(plan_id=batch.plan_id, error="no step", instance_lost=outcome == "lost")
        else:
            rows = [RowResult(output=total(request)) for request in batch.requests]
            if outcome == "rows":
                rows[0] = RowResult(error="bad row")
            result = BatchResult(plan_id=batch.plan_id, rows=tuple(rows))
        effects = self.batcher.commit(batch, result, self.now_ns)
        self.n_ended += len(effects)
        self.early_running -= live
        assert [effect.request_id for effect in effects] == [
            request.request_id for request in batch.requests if request.request_id in live
        ]
        for effect in effects:
            self.check_effect(effect, batch, outcome)
        if outcome == "lost":
            self.lost.add(instance)
        else:
            self.idle.append(instance)

    @precondition(lambda self: any(batch.plan_id in self.abandoned for batch, _ in self.running.values()))
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        """A batch that was told to stop has stopped: who still waits is first in line."""
        told = sorted(at for at, (batch, _) in self.running.items() if batch.plan_id in self.abandoned)
        batch, live = self.running.pop(data.draw(st.sampled_from(told)))
        failure = BatchFailure(plan_id=batch.plan_id, error="abandoned", is_abandoned=True)
        assert self.batcher.commit(batch, failure, self.now_ns) == []
        self.idle.append(batch.instance)
        waiting = [
            (replace(request, is_early=request.request_id in self.early_running), at_ns)
            for request, at_ns in zip(batch.requests, batch.queued_at_ns, strict=True)
            if request.request_id in live
        ]
        self.early_queue = [item for item in waiting if item[0].is_early] + self.early_queue
        self.queue = [item for item in waiting if not item[0].is_early] + self.queue
        self.early_running -= live

    def check_effect(self, effect: RequestEffect, batch: RequestBatch, outcome: str) -> None:
        if isinstance(effect, RequestCompleted):
            own = next(request for request in batch.requests if request.request_id == effect.request_id)
            assert effect.output == total(own)
            assert outcome in ("ok", "rows")
        else:
            assert isinstance(effect, RequestFailed)
            assert isinstance(effect.error, InstanceFailed if outcome == "lost" else StepFailed)
            assert outcome != "ok"

    @rule(instance=INSTANCES)
    def lose_or_restore(self, instance: int) -> None:
        if instance in self.lost:
            self.batcher.instance_restored(InstanceIndex(instance), self.now_ns)
            self.lost.remove(instance)
            self.idle.append(instance)
            return
        effects = self.batcher.lose_instance(InstanceIndex(instance), "died", self.now_ns)
        self.n_ended += len(effects)
        self.lost.add(instance)
        if instance in self.idle:
            self.idle.remove(instance)
            assert not effects
        else:
            batch, live = self.running.pop(instance)
            self.orphans.append(batch)
            self.early_running -= live
            assert {effect.request_id for effect in effects} == live

    @precondition(lambda self: self.orphans)
    @rule()
    def late_result(self) -> None:
        batch = self.orphans.pop()
        rows = tuple(RowResult(output=total(request)) for request in batch.requests)
        assert self.batcher.commit(batch, BatchResult(plan_id=batch.plan_id, rows=rows), self.now_ns) == []

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "batcher"):
            return
        stats = self.batcher.stats()
        queued = self.queue + self.early_queue
        assert stats.queued == len(queued)
        assert stats.queued_samples == sum(request.samples.size for request, _ in queued)
        assert stats.in_flight == sum(len(live) for _, live in self.running.values())
        assert stats.accepted == self.n_requests
        assert sum(stats.ended.values()) == self.n_ended == self.n_requests - stats.queued - stats.in_flight
        assert (stats.instances_idle, stats.instances_lost) == (len(self.idle), len(self.lost))


# finding the shortest way to a fault takes minutes
TestDynamicBatcherMachine = pytest.mark.timeout(900)(DynamicBatcherMachine.TestCase)
TestDynamicBatcherMachine.settings = machine_settings()
