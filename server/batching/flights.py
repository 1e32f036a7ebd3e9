"""Which instance of a stateless model runs which batch. Pure."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

from server.batching.admission import check_result
from server.errors import ServiceError
from server.ids import InstanceIndex
from server.plan import BatchFailure, BatchResult, RequestBatch

MayRun = Callable[[InstanceIndex], bool]
"""Whether an idle instance may run now; where it is None, all may."""

_REMEMBERED_BATCHES: Final = 64
"""Batches of lost instances whose late results are still told apart from a mistake of the driver."""


class Flights:
    """The instances, and the batch of each that runs one.

    Args:
        instances: How many there are, all idle.
    """

    def __init__(self, instances: int) -> None:
        self._idle = OrderedDict.fromkeys(InstanceIndex(index) for index in reversed(range(instances)))
        """The last is the one that was busy last."""
        self._in_flight: dict[InstanceIndex, RequestBatch] = {}
        self._lost: set[InstanceIndex] = set()
        self._orphaned_plans: deque[int] = deque(maxlen=_REMEMBERED_BATCHES)

    def __iter__(self) -> Iterator[RequestBatch]:
        return iter(self._in_flight.values())

    @property
    def n_idle(self) -> int:
        """Instances that could run a batch."""
        return len(self._idle)

    @property
    def n_lost(self) -> int:
        """Instances that are gone."""
        return len(self._lost)

    def next_idle(self, may_run: MayRun | None) -> InstanceIndex | None:
        """The idle instance that was busy last, of those that may run."""
        return next((each for each in reversed(self._idle) if may_run is None or may_run(each)), None)

    def launch(self, batch: RequestBatch) -> None:
        """Its instance, which is idle, runs a batch."""
        del self._idle[batch.instance]
        self._in_flight[batch.instance] = batch

    def land(self, batch: RequestBatch, result: BatchResult | BatchFailure) -> bool:
        """The batch has ended; False: its instance had been lost before, and nobody waits for it.

        Raises:
            ServiceError: the batch is not in flight, or the result is not one of this batch; nothing has changed.
        """
        is_orphan = batch.plan_id in self._orphaned_plans
        current = self._in_flight.get(batch.instance)
        if not is_orphan and (current is None or current.plan_id != batch.plan_id):
            raise ServiceError(f"batch {batch.plan_id} is not in flight")
        check_result(result, batch.plan_id, len(batch.requests))
        if is_orphan:
            self._orphaned_plans.remove(batch.plan_id)
            return False
        del self._in_flight[batch.instance]
        if isinstance(result, BatchFailure) and result.instance_lost:
            self._lost.add(batch.instance)
        else:
            self._idle[batch.instance] = None
        return True

    def lose(self, instance: InstanceIndex) -> RequestBatch | None:
        """The instance is gone; the batch that it ran, whose result may still come. Lost already: None."""
        self._lost.add(instance)
        self._idle.pop(instance, None)
        batch = self._in_flight.pop(instance, None)
        if batch is not None:
            self._orphaned_plans.append(batch.plan_id)
        return batch

    def restore(self, instance: InstanceIndex) -> None:
        """A lost instance is idle; the others, which are warm, go first.

        Raises:
            ServiceError: it was not lost.
        """
        if instance not in self._lost:
            raise ServiceError(f"instance {instance} was not lost")
        self._lost.remove(instance)
        self._idle[instance] = None
        self._idle.move_to_end(instance, last=False)
