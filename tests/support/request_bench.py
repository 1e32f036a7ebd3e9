"""A dynamic batcher with callers and instances around it, by names, and what must hold of it at any time."""

from typing import Any

from server.batching.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig
from server.effects import RequestCompleted, RequestEffect
from server.errors import MoorageError
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, Request, RequestBatch
from tests.support.requests import answers, make_request, make_tensor_request, right_answer


class RequestBench:
    """Callers and instances of one batcher."""

    def __init__(self, config: DynamicBatcherConfig) -> None:
        self.config = config
        self.batcher = DynamicBatcher(config)
        self.now_ns = 0
        self.blocked: set[int] = set()
        """Instances that may not run."""
        self.running: dict[int, RequestBatch] = {}
        self._orphans: dict[int, RequestBatch] = {}
        self._live: dict[str, Request] = {}
        self._names: dict[RequestId, str] = {}
        self._n_offered = 0
        self._n_told = 0

    def offer(self, name: str, *, n_samples: int | None = None, **fields: Any) -> str:
        """A request with tensors, or with audio if ``n_samples`` says so: ``ok``, or the code of the refusal."""
        number = self._n_offered + 1
        request = (
            make_request(number, n_samples, **fields)
            if n_samples is not None
            else make_tensor_request(number, **fields)
        )
        try:
            self.batcher.offer(request, self.now_ns)
        except MoorageError as error:
            return error.code
        self._n_offered += 1
        self._live[name] = request
        self._names[request.request_id] = name
        return "ok"

    def confirm(self, name: str) -> None:
        self.batcher.confirm(self._live[name].request_id, self.now_ns)

    def cancel(self, name: str) -> list[RequestEffect]:
        live = self._live.get(name)
        return self._told(self.batcher.cancel(live.request_id, self.now_ns)) if live is not None else []

    def plan(self) -> RequestBatch | None:
        batch = self.batcher.plan(self.now_ns, self._may_run)
        if batch is not None:
            assert batch.instance not in self.running
            assert self._may_run(batch.instance)
            self.running[batch.instance] = batch
        return batch

    def commit(self, instance: int, *, errors: tuple[str, ...] = (), failure: str | None = None) -> list[RequestEffect]:
        """``failure``: None, ``fail``, ``lost`` or ``abandoned``."""
        batch = self.running.pop(instance)
        if failure is not None:
            result = BatchFailure(
                plan_id=batch.plan_id,
                error="no step",
                instance_lost=failure == "lost",
                is_abandoned=failure == "abandoned",
            )
            return self._told(self.batcher.commit(batch, result, self.now_ns))
        places = tuple(self.names(batch).index(name) for name in errors)
        return self._told(self.batcher.commit(batch, answers(batch, errors=places), self.now_ns))

    def abandon(self) -> list[int]:
        """Instances whose batch should stop."""
        return [batch.instance for batch in self.batcher.to_abandon(self._may_run)]

    def expire(self) -> list[RequestEffect]:
        return self._told(self.batcher.expire(self.now_ns))

    def lose(self, instance: int) -> list[RequestEffect]:
        if instance in self.running:
            self._orphans[instance] = self.running.pop(instance)
        return self._told(self.batcher.lose_instance(InstanceIndex(instance), "died", self.now_ns))

    def late(self, instance: int) -> list[RequestEffect]:
        """The result of a batch whose instance is lost."""
        batch = self._orphans.pop(instance)
        return self._told(self.batcher.commit(batch, answers(batch), self.now_ns))

    def restore(self, instance: int) -> None:
        self.batcher.instance_restored(InstanceIndex(instance), self.now_ns)

    def deadline_ns(self) -> int | None:
        return self.batcher.next_deadline_ns(self._may_run)

    def name(self, request_id: RequestId) -> str:
        return self._names[request_id]

    def names(self, batch: RequestBatch) -> list[str]:
        return [self.name(request.request_id) for request in batch.requests]

    def check(self) -> None:
        """Every request that was taken is in one place, or has had its one terminal effect."""
        stats = self.batcher.stats()
        assert stats.accepted == self._n_offered
        assert sum(stats.ended.values()) == self._n_told
        assert len(self._live) == self._n_offered - self._n_told
        assert stats.queued + stats.in_flight + stats.held == len(self._live)
        assert sum(stats.batch_rows) <= self.config.target_size * max(1, len(stats.batch_rows))

    def _told(self, effects: list[RequestEffect]) -> list[RequestEffect]:
        for effect in effects:
            request = self._live.pop(self.name(effect.request_id))
            if isinstance(effect, RequestCompleted):
                assert effect.output == right_answer(request), "the answer of another"
        self._n_told += len(effects)
        return effects

    def _may_run(self, instance: InstanceIndex) -> bool:
        return instance not in self.blocked
