"""The instances of a model without state."""

import pytest

from server.batching.flights import Flights
from server.errors import ServiceError
from server.ids import InstanceIndex
from server.plan import BatchFailure, RequestBatch
from tests.support.requests import answers, make_request


def launched(flights: Flights, plan_id: int, instance: int) -> RequestBatch:
    batch = RequestBatch(
        plan_id=plan_id, instance=InstanceIndex(instance), requests=(make_request(plan_id),), queued_at_ns=(0,)
    )
    flights.launch(batch)
    return batch


def test_the_idle_instance_that_was_busy_last_is_next_of_those_that_may_run() -> None:
    flights = Flights(3)
    assert flights.next_idle(None) == 0
    batches = [launched(flights, instance + 1, instance) for instance in range(3)]
    assert (flights.next_idle(None), flights.n_idle, len(list(flights))) == (None, 0, 3)
    for instance in (1, 2, 0):
        assert flights.land(batches[instance], answers(batches[instance]))
    assert flights.next_idle(None) == 0
    assert flights.next_idle(lambda instance: instance != 0) == 2
    assert flights.next_idle(lambda _: False) is None


def test_a_lost_instance_runs_nothing_and_comes_back_as_the_last_choice() -> None:
    flights = Flights(2)
    assert flights.lose(InstanceIndex(0)) is None
    assert (flights.n_idle, flights.n_lost, flights.next_idle(None)) == (1, 1, 1)
    with pytest.raises(ServiceError, match="instance 1 was not lost"):
        flights.restore(InstanceIndex(1))
    flights.restore(InstanceIndex(0))
    assert (flights.n_lost, flights.next_idle(None)) == (0, 1)


def test_a_result_lands_once_and_late_ones_are_told_apart() -> None:
    flights = Flights(1)
    first = launched(flights, 1, 0)
    assert flights.lose(InstanceIndex(0)) is first
    flights.restore(InstanceIndex(0))
    second = launched(flights, 2, 0)
    assert not flights.land(first, answers(first))
    with pytest.raises(ServiceError, match="batch 1 is not in flight"):
        flights.land(first, answers(first))
    assert flights.land(second, BatchFailure(plan_id=2, error="gone", instance_lost=True))
    assert (flights.n_idle, flights.n_lost) == (0, 1)
