"""Where a new sequence goes."""

from typing import Any

from server.batching.lane import Lane
from server.batching.placement import choose_lane
from server.batching.sample_queue import QueueLimits, SampleQueue
from server.batching.sequence import Sequence
from server.ids import InstanceIndex, SequenceId
from tests.support.factories import make_samples, make_sequence_config

LIMITS = QueueLimits(tick_samples=10, lookahead_samples=3, max_samples=60, max_marks=4)


def make_lanes(*slots: int, **overrides: Any) -> list[Lane]:
    config = make_sequence_config(instances=len(slots), slots=slots, **overrides)
    return [Lane(InstanceIndex(index), config) for index in range(len(slots))]


def place(lanes: list[Lane], n_samples: int = 0) -> int:
    """One more sequence; the instance that it goes to."""
    lane = choose_lane(lanes)
    assert lane is not None
    queue = SampleQueue(LIMITS)
    queue.push(make_samples(n_samples), 0)
    sequence = Sequence(sequence_id=SequenceId("a"), queue=queue)
    lane.seat(sequence, 0)
    if n_samples >= 13:
        lane.line_up(sequence)
    return lane.instance


def test_by_the_share_of_free_slots() -> None:
    lanes = make_lanes(2, 4)
    assert [place(lanes) for _ in range(6)] == [0, 1, 1, 0, 1, 1]
    assert choose_lane(lanes) is None


def test_devices_before_instances_of_one() -> None:
    lanes = make_lanes(4, 4, 4, devices=("cuda:0", "cuda:0", "cuda:1"))
    assert [place(lanes) for _ in range(3)] == [0, 2, 1]


def test_not_where_slots_are_in_doubt() -> None:
    lanes = make_lanes(2, 2)
    lanes[0].slots.quarantine(lanes[0].slots.acquire(), 0)
    assert [place(lanes) for _ in range(2)] == [1, 0]


def test_not_on_a_lost_instance() -> None:
    lanes = make_lanes(2, 2)
    lanes[0].lose((), 0)
    assert [place(lanes) for _ in range(2)] == [1, 1]
    assert choose_lane(lanes) is None


def test_of_equals_the_one_with_least_work_ahead() -> None:
    lanes = make_lanes(4, 4)
    assert [place(lanes, 13), place(lanes, 13)] == [0, 1]
    for lane, step_ns in zip(lanes, (90, 50), strict=True):
        lane.finish(lane.form(1, 0), step_ns, has_run=True)
    assert [place(lanes, 13), place(lanes, 13)] == [0, 1]
    # one row is ready on each: the second instance is faster
    assert place(lanes) == 1
