"""Any order of everything that may happen to a dynamic batcher, against a plain reference."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from server.batching.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig
from server.batching.request_queue import QueueLevel, TimeoutAction
from server.effects import RequestCancelled, RequestCompleted, RequestEffect
from server.errors import QueueFull
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, BatchResult, Request, RequestBatch
from tests.properties.profiles import machine_settings
from tests.support.reference_queue import Item, ReferenceQueue
from tests.support.requests import abandoned, answers, make_request, make_tensor_request, right_answer

INSTANCES = st.integers(0, 1)
LENGTHS = st.sampled_from((10, 20, 0, 5, 19, 30, 60))
WINDOW_NS = 30
NOBODY = RequestId(0)
FAILURES: Final = {"fail": "step_failed", "lost": "instance_failed"}
PLAIN = DynamicBatcherConfig(instances=2, target_size=3, max_queued=8, max_batch_samples=60)
TWO_LEVELS = (
    QueueLevel(max_queued=4, timeout_ns=40, deadline_ns=25),
    QueueLevel(max_queued=5, timeout_ns=20, timeout_action=TimeoutAction.DELAY),
)
CONFIGS: Final = {
    "no window": replace(PLAIN, levels=(QueueLevel(max_queued=8),) * 2, default_level=2, ageing_batches=1),
    "a window": replace(PLAIN, window_ns=WINDOW_NS),
    "levels": replace(PLAIN, window_ns=WINDOW_NS, levels=TWO_LEVELS, default_level=2, ageing_batches=2),
    "preferred sizes": replace(PLAIN, window_ns=WINDOW_NS, target_size=5, preferred_sizes=(2, 4)),
    "preferred sizes alone": replace(PLAIN, target_size=5, preferred_sizes=(2, 4), ragged=frozenset({"INPUT"})),
    "in order": replace(PLAIN, preserve_ordering=True, levels=(QueueLevel(max_queued=6, timeout_ns=35),)),
}


class DynamicBatcherMachine(RuleBasedStateMachine):
    """Requests have numbers of their own, and their sums are their own too: a swap is a wrong number."""

    config: DynamicBatcherConfig

    def __init__(self) -> None:
        super().__init__()
        self.takes_tensors = False
        self.batcher = DynamicBatcher(self.config)
        self.queue = ReferenceQueue(self.config)
        self.now_ns = 0
        self.n_offered = self.n_places = self.n_ended = 0
        self.running: dict[int, tuple[RequestBatch, list[Item]]] = {}
        """By instance; with the requests whose callers have not left."""
        self.abandoned: set[int] = set()
        self.orphans: list[RequestBatch] = []
        self.lost: set[int] = set()
        self.blocked: set[int] = set()
        self.idle = [1, 0]
        self.timed_out: list[Item] = []
        self.unanswered: list[RequestId] = []
        """In the order of the offers, where that is kept."""
        self.held: dict[RequestId, str] = {}

    @initialize(takes_tensors=st.booleans())
    def choose_kind(self, takes_tensors: bool) -> None:
        self.takes_tensors = takes_tensors

    # Callers

    @rule(data=st.data(), n_requests=st.integers(1, 4))
    def offer(self, data: st.DataObject, n_requests: int) -> None:
        for _ in range(n_requests):
            self.offer_one(self.draw_request(data))

    def offer_one(self, request: Request) -> None:
        level = self.queue.item(request, 0, 0).level
        is_full = self.queue.is_full(level, len(self.held))
        try:
            self.batcher.offer(request, self.now_ns)
        except QueueFull:
            assert is_full
            return
        assert not is_full
        self.n_offered += 1
        self.queue.items.append(self.placed(request))
        if self.config.preserve_ordering:
            self.unanswered.append(request.request_id)

    def draw_request(self, data: st.DataObject) -> Request:
        number = self.n_offered + 1
        own: dict[str, Any] = {
            "priority": data.draw(st.integers(0, 3)),
            "timeout_ns": data.draw(st.sampled_from((None, None, 15, 60))),
            "deadline_ns": data.draw(st.sampled_from((None, None, 0, self.now_ns + 10, self.now_ns + 50))),
        }
        if not self.takes_tensors:
            return make_request(number, data.draw(LENGTHS), **own)
        n_rows = data.draw(st.integers(1, self.config.target_size))
        return make_tensor_request(number, n_rows, data.draw(st.integers(1, 2)), **own)

    def placed(self, request: Request) -> Item:
        self.n_places += 1
        return self.queue.item(request, self.n_places, self.now_ns)

    @precondition(lambda self: not self.takes_tensors)
    @rule(n_samples=LENGTHS)
    def offer_early(self, n_samples: int) -> None:
        request = make_request(self.n_offered + 1, n_samples, is_early=True)
        is_taken = not self.queue.items and bool(self.idle) and len(self.queue.early) < self.config.target_size
        is_taken = is_taken and not self.config.preserve_ordering
        assert self.batcher.takes_early(request.samples) == is_taken
        try:
            self.batcher.offer(request, self.now_ns)
        except QueueFull:
            assert not is_taken
            return
        assert is_taken
        self.n_offered += 1
        self.queue.early.append(self.placed(request))

    @precondition(lambda self: self.n_offered)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        number = self.draw_number(data)
        self.batcher.confirm(number, self.now_ns)
        for item in [item for item in self.queue.early if item.number == number]:
            self.queue.drop([item])
            self.queue.items.append(self.placed(replace(item.request, is_early=False)))
        for _, live in self.running.values():
            for place, item in enumerate(live):
                if item.number == number and item.request.is_early:
                    confirmed = self.placed(replace(item.request, is_early=False))
                    confirmed.order, confirmed.queued_at_ns = item.order, item.queued_at_ns
                    live[place] = confirmed

    @precondition(lambda self: self.n_offered)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = self.draw_number(data)
        waiting = [item for item in self.queue.items + self.queue.early if item.number == number]
        runners = [live for _, live in self.running.values() if number in [item.number for item in live]]
        is_out = number in self.held or number in [item.number for item in self.timed_out]
        self.queue.drop(waiting)
        for live in runners:
            live[:] = [item for item in live if item.number != number]
        self.timed_out = [item for item in self.timed_out if item.number != number]
        is_live = bool(waiting or runners or is_out)
        expected = [(number, "cancelled"), *self.leave(number)] if is_live else []
        assert self.told(self.batcher.cancel(number, self.now_ns)) == expected

    def draw_number(self, data: st.DataObject) -> RequestId:
        return RequestId(data.draw(st.integers(max(1, self.n_offered - 9), self.n_offered)))

    # Time

    @rule(elapsed_ns=st.sampled_from((1, 10, WINDOW_NS)))
    def advance(self, elapsed_ns: int) -> None:
        self.advance_to(self.now_ns + elapsed_ns)

    @rule()
    def advance_to_the_deadline(self) -> None:
        deadline_ns = self.next_deadline_ns()
        if deadline_ns is None:
            return
        n_delayed = self.batcher.stats().delayed
        self.advance_to(max(self.now_ns, deadline_ns))
        is_something = self.batcher.stats().delayed > n_delayed
        is_something = bool(self.expire()) or is_something
        is_something = self.plan() is not None or is_something
        assert is_something, "a deadline for nothing"

    def advance_to(self, now_ns: int) -> None:
        """The batcher hears of the time with the next verb, whichever it is."""
        self.now_ns = now_ns
        self.batcher.confirm(NOBODY, now_ns)
        self.timed_out += self.queue.time_out(now_ns)

    @rule()
    def expire_once(self) -> None:
        self.expire()

    def expire(self) -> list[tuple[RequestId, str]]:
        expected: list[tuple[RequestId, str]] = []
        for item in self.timed_out:
            expected += [(item.number, "request_timeout"), *self.leave(item.number)]
        self.timed_out = []
        assert self.told(self.batcher.expire(self.now_ns)) == expected
        return expected

    def next_deadline_ns(self) -> int | None:
        deadline_ns = self.batcher.next_deadline_ns(self.may_run)
        _, due_ns = self.queue.front(self.now_ns)
        expected: list[float] = [self.queue.next_timeout_ns()]
        if self.may_start() is not None:
            expected.append(due_ns)
        if self.timed_out:
            assert deadline_ns is not None
            assert deadline_ns <= self.now_ns
        else:
            assert (inf if deadline_ns is None else deadline_ns) == min(expected)
        return deadline_ns

    # Instances

    def may_run(self, instance: InstanceIndex) -> bool:
        return instance not in self.blocked

    def may_start(self) -> int | None:
        """The idle instance that was busy last."""
        return next((instance for instance in reversed(self.idle) if instance not in self.blocked), None)

    @rule(blocked=st.sets(INSTANCES))
    def plan_once(self, blocked: set[int]) -> None:
        self.blocked = blocked
        self.plan()
        self.blocked = set()

    @rule(n_rounds=st.integers(1, 5))
    def serve(self, n_rounds: int) -> None:
        """Everything that is due runs, and ends well."""
        for _ in range(n_rounds):
            while self.plan() is not None:
                pass
            for instance in sorted(self.running):
                self.end(instance, "ok")

    def plan(self) -> RequestBatch | None:
        front, due_ns = self.queue.front(self.now_ns)
        instance = self.may_start()
        self.next_deadline_ns()
        batch = self.batcher.plan(self.now_ns, self.may_run)
        assert (batch is not None) == (instance is not None and due_ns <= self.now_ns)
        if batch is None:
            return None
        assert batch.requests == tuple(item.request for item in front)
        assert batch.queued_at_ns == tuple(item.queued_at_ns for item in front)
        assert batch.instance == instance
        self.idle.remove(batch.instance)
        self.queue.take(front)
        self.running[batch.instance] = (batch, front)
        return batch

    @rule()
    def abandon(self) -> None:
        n_rows = sum(item.n_rows for item in self.queue.items)
        n_needed = 0 if self.may_start() is not None else -(-n_rows // self.config.target_size)
        n_needed -= len(self.abandoned & {batch.plan_id for batch, _ in self.running.values()})
        told = self.batcher.to_abandon(self.may_run)
        may_stop = [
            (batch, live)
            for batch, live in self.running.values()
            if batch.plan_id not in self.abandoned and all(item.request.is_early for item in live)
        ]
        unwanted = [batch for batch, live in may_stop if not live]
        assert all(batch in [each for each, _ in may_stop] for batch in told)
        assert all(batch in told for batch in unwanted), "one that nobody wants goes on"
        n_wanted = len(told) - len(unwanted)
        assert n_wanted <= max(0, n_needed)
        assert n_wanted == len(may_stop) - len(unwanted) or len(told) >= n_needed, "others are kept waiting"
        self.abandoned |= {batch.plan_id for batch in told}

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(("ok", "ok", "rows", "fail", "lost")))
    def commit(self, data: st.DataObject, outcome: str) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.running))), outcome)

    def end(self, instance: int, outcome: str) -> None:
        batch, live = self.running.pop(instance)
        result: BatchResult | BatchFailure = answers(batch, step_ns=0, errors=(0,) if outcome == "rows" else ())
        if outcome in FAILURES:
            result = BatchFailure(plan_id=batch.plan_id, error="no step", instance_lost=outcome == "lost")
        kinds = {item.number: FAILURES.get(outcome, "completed") for item in live}
        if outcome == "rows" and batch.requests[0].request_id in kinds:
            kinds[batch.requests[0].request_id] = "step_failed"
        expected = self.answered(kinds.items())
        assert self.told(self.batcher.commit(batch, result, self.now_ns), batch) == expected
        if outcome == "lost":
            self.lost.add(batch.instance)
        else:
            self.idle.append(batch.instance)

    @precondition(lambda self: any(batch.plan_id in self.abandoned for batch, _ in self.running.values()))
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        """A batch that was told to stop has stopped: who still waits is where it was."""
        told = sorted(at for at, (batch, _) in self.running.items() if batch.plan_id in self.abandoned)
        batch, live = self.running.pop(data.draw(st.sampled_from(told)))
        assert self.batcher.commit(batch, abandoned(batch), self.now_ns) == []
        self.idle.append(batch.instance)
        self.queue.early[:0] = [item for item in live if item.request.is_early]
        self.queue.items += [item for item in live if not item.request.is_early]
        self.advance_to(self.now_ns)

    @precondition(lambda self: not self.lost)
    @rule(instance=INSTANCES)
    def lose(self, instance: int) -> None:
        self.lost.add(instance)
        expected = []
        if instance in self.idle:
            self.idle.remove(instance)
        else:
            batch, live = self.running.pop(instance)
            self.orphans.append(batch)
            expected = self.answered((item.number, "instance_failed") for item in live)
        assert self.told(self.batcher.lose_instance(InstanceIndex(instance), "died", self.now_ns)) == expected

    @precondition(lambda self: self.lost)
    @rule()
    def restore(self) -> None:
        for instance in sorted(self.lost):
            self.batcher.instance_restored(InstanceIndex(instance), self.now_ns)
            self.idle.insert(0, instance)
        self.lost = set()

    @precondition(lambda self: self.orphans)
    @rule()
    def late_result(self) -> None:
        batch = self.orphans.pop()
        assert self.batcher.commit(batch, answers(batch), self.now_ns) == []

    # What is told

    def answered(self, kinds: Iterable[tuple[RequestId, str]]) -> list[tuple[RequestId, str]]:
        """What is told now that these have answers."""
        if not self.config.preserve_ordering:
            return list(kinds)
        self.held |= dict(kinds)
        return self.released()

    def leave(self, number: RequestId) -> list[tuple[RequestId, str]]:
        """A request ends out of order: those that may be told for it."""
        self.held.pop(number, None)
        self.unanswered = [each for each in self.unanswered if each != number]
        return self.released()

    def released(self) -> list[tuple[RequestId, str]]:
        told = []
        while self.unanswered and self.unanswered[0] in self.held:
            number = self.unanswered.pop(0)
            told.append((number, self.held.pop(number)))
        return told

    def told(self, effects: list[RequestEffect], batch: RequestBatch | None = None) -> list[tuple[RequestId, str]]:
        own = {request.request_id: right_answer(request) for request in batch.requests} if batch else {}
        self.n_ended += len(effects)
        kinds = []
        for effect in effects:
            if isinstance(effect, RequestCompleted):
                assert effect.output == own.get(effect.request_id, effect.output)
                kinds.append((effect.request_id, "completed"))
            else:
                kind = "cancelled" if isinstance(effect, RequestCancelled) else effect.error.code
                kinds.append((effect.request_id, kind))
        return kinds

    @invariant()
    def consistent(self) -> None:
        stats = self.batcher.stats()
        waiting = self.queue.items + self.queue.early
        assert stats.queued == len(waiting)
        assert stats.queued_samples == sum(item.n_samples for item in waiting)
        assert stats.queued_by_level == tuple(
            len([item for item in self.queue.items if item.level == level + 1])
            for level in range(len(self.config.queue_levels))
        )
        assert stats.delayed == len([item for item in waiting if item.is_delayed])
        assert stats.in_flight == sum(len(live) for _, live in self.running.values())
        assert stats.held == len(self.held) + len(self.timed_out)
        assert stats.accepted == self.n_offered
        assert sum(stats.ended.values()) == self.n_ended
        assert self.n_offered == self.n_ended + stats.queued + stats.in_flight + stats.held
        assert (stats.instances_idle, stats.instances_lost) == (len(self.idle), len(self.lost))
        assert max(stats.batch_rows, default=0) <= self.config.target_size

    @invariant()
    def nobody_starves(self) -> None:
        """While batches run, a level in which somebody waits is served within its bound."""
        n_lines = 2 * len(self.config.queue_levels)
        assert max(self.queue.unserved.values(), default=0) <= self.config.ageing_batches + n_lines


@pytest.mark.timeout(900)  # finding the shortest way to a fault takes minutes
@pytest.mark.parametrize("name", CONFIGS)
def test_any_order_of_everything(name: str) -> None:
    share = settings(machine_settings(), max_examples=machine_settings().max_examples // 8)
    machine = type("Machine", (DynamicBatcherMachine,), {"config": CONFIGS[name]})
    run_state_machine_as_test(machine, settings=share)
