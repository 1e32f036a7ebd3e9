"""The bounds of a sequence batcher's configuration."""

from typing import Any

import pytest

from server.batching.sequence_config import DuplicateStart, Strategy
from server.errors import ConfigError
from server.ids import InstanceIndex
from tests.support.factories import FIRST_TICK, make_sequence_config

FIRST, SECOND = InstanceIndex(0), InstanceIndex(1)


@pytest.mark.parametrize(
    "name",
    [
        "instances",
        "slots",
        "tick_samples",
        "max_batch",
        "max_queued_marks",
        "max_queued_turns",
        "max_ticks",
        "backlog_levels",
        "scrub_retry_ns",
    ],
)
def test_at_least_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, not 0"):
        make_sequence_config(**{name: 0})
    make_sequence_config(**{name: 1})


@pytest.mark.parametrize(
    "name",
    [
        "lookahead_samples",
        "max_delay_ns",
        "deadline_ns",
        "flush_deadline_ns",
        "lead_ns",
        "backlog",
        "backlog_wait_ns",
        "idle_timeout_ns",
        "max_remembered_ids",
    ],
)
def test_not_negative(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must not be negative, but is -1"):
        make_sequence_config(**{name: -1})
    make_sequence_config(**{name: 0})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"max_queued_samples": FIRST_TICK - 1}, "max_queued_samples = 12 cannot hold the first tick"),
        ({"slots": (2, 0)}, "slots must be at least 1, not 0"),
        ({"slots": (2,)}, "slots has 1 entries for 2 instances"),
        ({"devices": ("cpu",) * 3}, "devices has 3 entries for 2 instances"),
        ({"preferred_sizes": (2, 5)}, "preferred_sizes must be 1 to max_batch = 4, not 5"),
        ({"preferred_sizes": (0,)}, "preferred_sizes must be 1 to max_batch = 4, not 0"),
        ({"min_slot_utilisation": 1.5}, "min_slot_utilisation must be 0 to 1, not 1.5"),
        ({"min_slot_utilisation": -0.5}, "min_slot_utilisation must be 0 to 1, not -0.5"),
        ({"min_slot_utilisation": 0.5}, 'min_slot_utilisation is for strategy "direct"'),
        ({"strategy": Strategy.DIRECT, "preferred_sizes": (2,)}, 'preferred_sizes are for strategy "oldest"'),
        ({"duplicate_start": DuplicateStart.RESTART}, 'duplicate_start = "restart" is for turns'),
    ],
)
def test_what_does_not_go(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_sequence_config(**overrides)


def test_the_smallest() -> None:
    make_sequence_config(instances=1, slots=1, max_batch=1, max_queued_samples=FIRST_TICK, max_remembered_ids=0)


def test_by_instance() -> None:
    config = make_sequence_config(slots=(2, 5), devices=("cuda:0", "cpu"))
    assert [config.slots_of(FIRST), config.slots_of(SECOND), config.n_slots] == [2, 5, 7]
    assert [config.device_of(FIRST), config.device_of(SECOND)] == ["cuda:0", "cpu"]
    config = make_sequence_config(slots=3)
    assert [config.slots_of(FIRST), config.slots_of(SECOND), config.n_slots] == [3, 3, 6]
    assert [config.device_of(FIRST), config.device_of(SECOND)] == ["", ""]


@pytest.mark.parametrize(
    ("overrides", "has_deadlines", "most_in_flight"),
    [
        ({}, False, 1),
        ({"deadline_ns": 1}, True, 1),
        ({"flush_deadline_ns": 1}, True, 1),
        ({"lead_ns": 1}, False, 2),
    ],
)
def test_what_follows(overrides: dict[str, Any], has_deadlines: bool, most_in_flight: int) -> None:
    config = make_sequence_config(**overrides)
    assert (config.has_deadlines, config.most_in_flight) == (has_deadlines, most_in_flight)
