"""A dynamic batcher and the instances it plans for: the only caller of its plan and commit. Runs on the event loop."""

import logging
from collections.abc import Callable

from server.batching.dynamic_batcher import DynamicBatcher
from server.batching.dynamic_config import DynamicBatcherStats
from server.effects import RequestCancelled, RequestEffect, RequestFailed
from server.engine.idle_notice import IdleNotice
from server.engine.sequence_driver import DriverParts
from server.errors import InstanceFailed, MoorageError
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, Request, RequestBatch, Samples
from server.workers.orders import BatchOutcome

OnRequest = Callable[[RequestEffect], None]
"""Called once with what became of a request, unless it is cancelled."""

logger = logging.getLogger(__name__)


class RequestDriver:
    """One copy of a model without state at work. With no instance left nobody knows when the next batch will run: those
    who wait then fail.

    Args:
        batcher: Its scheduler; nobody else calls it.
        parts: What it works with.
    """

    def __init__(self, batcher: DynamicBatcher, parts: DriverParts) -> None:
        self._batcher = batcher
        self._pool = parts.pool
        self._clock = parts.clock
        self._pump = parts.pump
        self._share = parts.share
        self._recorder = parts.recorder
        self._waiting: dict[RequestId, OnRequest] = {}
        self._idle = IdleNotice(lambda: self._is_stopped or not self._waiting)
        self._is_stopped = False

    # For the owners of requests

    @property
    def n_ready(self) -> int:
        """Instances that take batches."""
        return self._pool.n_ready

    @property
    def n_waiting(self) -> int:
        """Requests that are not answered."""
        return len(self._waiting)

    def offer(self, request: Request, on_request: OnRequest) -> None:
        """Takes a request, or raises what the batcher says; ``run`` of the pump must follow.

        Raises:
            InstanceFailed: No instance is left.
        """
        if not self._pool.n_ready:
            raise InstanceFailed(f"no instance of {self._pool.role} is left; they are being replaced")
        self._batcher.offer(request, self._clock.now_ns())
        self._waiting[request.request_id] = on_request
        self._give_way()

    def takes_early(self, samples: Samples) -> bool:
        """Whether there is nothing better to do than to read this early."""
        return self._pool.n_ready > 0 and self._batcher.takes_early(samples)

    def confirm(self, request_id: RequestId) -> None:
        """An early request is wanted now."""
        self._batcher.confirm(request_id, self._clock.now_ns())
        self._give_way()

    def cancel(self, request_id: RequestId) -> None:
        """The caller left: it is told nothing more. Not live: nothing."""
        self._waiting.pop(request_id, None)
        self._deal(self._batcher.cancel(request_id, self._clock.now_ns()))
        self._give_way()

    def fail_all(self, error: MoorageError | None = None) -> None:
        """Whoever waits fails, with InstanceFailed unless another error is given."""
        error = error or InstanceFailed(f"no instance of {self._pool.role} is left")
        while self._waiting:
            request_id = next(iter(self._waiting))
            on_request = self._waiting.pop(request_id)
            effects = self._batcher.cancel(request_id, self._clock.now_ns())
            self._deal([effect for effect in effects if effect.request_id != request_id])
            self._recorder.answered(error.code)
            on_request(RequestFailed(request_id=request_id, error=error))
        self._idle.look()

    def run(self) -> None:
        """After requests were offered, confirmed or cancelled: submits what is due."""
        self._pump.run()

    def stats(self) -> DynamicBatcherStats:
        """The batcher's."""
        return self._batcher.stats()

    async def drained(self) -> None:
        """Returns when it has no request any more, or is stopped; its owner offers none meanwhile."""
        await self._idle.wait()

    def stop(self) -> None:
        """Outcomes that still come are dropped."""
        self._is_stopped = True
        self._share.close()
        self._pump.remove(self)
        self._idle.look()

    # For the pump

    def next_deadline_ns(self) -> int | None:
        """When ``pump`` has something to do without other input."""
        return self._batcher.next_deadline_ns(self._share.may_run)

    def pump(self, now_ns: int) -> None:
        """Submits every batch that is due, and tells those who have waited for too long."""
        self._deal(self._batcher.expire(now_ns))
        while (batch := self._batcher.plan(now_ns, self._share.asks_to_run)) is not None:
            self._share.take(batch.instance)
            self._recorder.planned([now_ns - at_ns for at_ns in batch.queued_at_ns])
            self._pool.submit(batch, lambda outcome, batch=batch: self._commit(batch, outcome))  # type: ignore[misc]
        due_at_ns = self._batcher.next_deadline_ns()
        self._share.settle(is_due=due_at_ns is not None and due_at_ns <= now_ns)
        self._deal(self._batcher.expire(now_ns))

    # For the pool

    def lose_instance(self, instance: InstanceIndex) -> None:
        """An instance died between batches."""
        if self._is_stopped:
            return
        self._share.give_back(instance, is_lost=True)
        self._deal(self._batcher.lose_instance(instance, "the instance died", self._clock.now_ns()))
        self._give_up_if_alone()
        self._give_way()
        self._pump.run()

    def restore_instance(self, instance: InstanceIndex) -> None:
        """A lost instance takes batches again."""
        if not self._is_stopped:
            self._batcher.instance_restored(instance, self._clock.now_ns())
            self._pump.run()

    def _commit(self, batch: RequestBatch, outcome: BatchOutcome) -> None:
        if self._is_stopped:
            return
        loss = outcome if isinstance(outcome, BatchFailure) and outcome.instance_lost else None
        self._share.give_back(batch.instance, is_lost=loss is not None)
        if not (isinstance(outcome, BatchFailure) and outcome.is_abandoned):
            self._recorder.finished(outcome, batch.instance)
        effects = self._batcher.commit(batch, outcome, self._clock.now_ns())
        if loss is not None:
            logger.error("%s instance %d was lost in a batch: %s", self._pool.role, batch.instance, loss.error)
            self._pool.replace(batch.instance)
        self._deal(effects)
        self._give_up_if_alone()
        self._give_way()
        self._pump.run()

    def _give_way(self) -> None:
        """Stops batches that nobody wants, and early ones that others wait for."""
        for batch in self._batcher.to_abandon(self._share.may_run):
            self._pool.abandon(batch)

    def _give_up_if_alone(self) -> None:
        if not self._pool.n_ready:
            self.fail_all()

    def _deal(self, effects: list[RequestEffect]) -> None:
        for effect in effects:
            self._recorder.answered(_outcome(effect))
            if (on_request := self._waiting.pop(effect.request_id, None)) is not None:
                on_request(effect)
        self._idle.look()


def _outcome(effect: RequestEffect) -> str:
    if isinstance(effect, RequestFailed):
        return effect.error.code
    return "cancelled" if isinstance(effect, RequestCancelled) else "completed"
