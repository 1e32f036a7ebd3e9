"""Timelines of sequences that wait for a slot. See ``tests.support.timeline`` for the notation."""

from typing import Any

import pytest

from tests.support.factories import make_sequence_config
from tests.support.timeline import assert_timeline

ONE: dict[str, Any] = {"instances": 1, "slots": 1, "backlog": 3}

SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "waits_for_the_first_slot_that_is_free": (
        ONE,
        """
        0 offer a 5 start end
        0 offer b 0 start
        0 offer c 0 start
        0 line b -> waits at 1
        0 line c -> waits at 2
        0 line a
        0 free -> 0
        0 plan -> #0 a[0:5] start flush end
        8 commit 0 -> a row, a end, b placed on 0 after 8, c waits at 1 for 8
        8 offer b 13
        8 plan -> #0 b[0:13] start
        9 commit 0 -> b row
        """,
    ),
    "takes_audio_while_it_waits": (
        ONE,
        """
        0 offer a 0 start
        0 offer b 13 start
        0 room b -> 47
        0 offer b 48 -> queue_full
        3 offer b 12 end
        3 offer b 1 -> sequence_ended
        3 touch b
        3 plan
        5 cancel a -> a cancelled, b placed on 0 after 5
        5 plan -> #0 b[0:13] start
        6 commit 0 -> b row after 5
        6 plan -> #0 b[13:23]
        7 commit 0 -> b row after 3
        7 plan -> #0 b[23:25] flush end
        8 commit 0 -> b row after 4, b end
        """,
    ),
    "a_full_backlog_refuses": (
        {**ONE, "backlog": 1},
        """
        0 offer a 0 start
        0 offer b 0 start
        0 offer c 0 start -> capacity_exceeded
        0 cancel b -> b cancelled
        0 offer c 0 start
        0 line c -> waits at 1
        """,
    ),
    "no_backlog_no_wait": (
        {**ONE, "backlog": 0},
        """
        0 offer a 0 start
        0 offer b 0 start -> capacity_exceeded
        0 offer b 0 -> unknown_sequence
        """,
    ),
    "cancel_in_the_backlog": (
        ONE,
        """
        0 offer a 0 start
        0 offer b 13 start
        0 offer c 13 start
        0 offer d 13 start
        2 cancel c -> c cancelled, d waits at 2
        2 cancel c
        2 offer c 1 -> sequence_ended
        3 cancel a -> a cancelled, b placed on 0 after 3, d waits at 1 for 3
        """,
    ),
    "cancel_in_flight_places_the_next_with_the_commit": (
        ONE,
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 offer b 13 start
        2 cancel a -> a cancelled
        2 line b -> waits at 1
        5 commit 0 -> b placed on 0 after 5
        5 plan -> #0 b[0:13] start
        5 commit 0 -> b row after 5
        """,
    ),
    "levels": (
        {**ONE, "backlog": 8, "backlog_levels": 3},
        """
        0 offer a 0 start
        0 offer low 0 start
        0 offer mid 0 start level 2
        0 offer high 0 start level 1
        0 line high -> waits at 1
        0 line mid -> waits at 2
        0 line low -> waits at 3
        # low came as the first and was overtaken: it hears of that now; mid is where it was told that it is
        2 cancel a -> a cancelled, high placed on 0 after 2, low waits at 2 for 4
        3 cancel high -> high cancelled, mid placed on 0 after 3, low waits at 1 for 2
        """,
    ),
    "a_low_level_is_not_starved": (
        {**ONE, "backlog": 8, "backlog_levels": 2},
        """
        0 offer a 0 start
        0 offer low 0 start
        0 offer b 0 start level 1
        0 offer c 0 start level 1
        0 offer d 0 start level 1
        0 offer e 0 start level 1
        0 offer f 0 start level 1
        0 cancel a -> a cancelled, b placed on 0 after 0, c waits at 1 for 0, d waits at 2 for 0, e waits at 3 for 0, \
low waits at 4 for 0, f waits at 5 for 0
        0 cancel b -> b cancelled, c placed on 0 after 0, d waits at 1 for 0, e waits at 2 for 0, \
low waits at 3 for 0, f waits at 4 for 0
        0 cancel c -> c cancelled, d placed on 0 after 0, e waits at 1 for 0, low waits at 2 for 0, f waits at 3 for 0
        0 cancel d -> d cancelled, e placed on 0 after 0, low waits at 1 for 0, f waits at 2 for 0
        0 cancel e -> e cancelled, low placed on 0 after 0, f waits at 1 for 0
        """,
    ),
    "waits_too_long": (
        {**ONE, "backlog_wait_ns": 100},
        """
        0 offer a 0 start
        10 offer b 13 start
        20 offer c 13 start
        20 deadline -> 110
        109 expire
        110 expire -> b backlog_timeout, c waits at 1
        110 offer b 1 -> sequence_ended
        115 cancel a -> a cancelled, c placed on 0 after 95
        115 deadline -> 20
        115 plan -> #0 c[0:13] start
        115 deadline
        """,
    ),
    "longer_than_the_idle_timeout": (
        {**ONE, "idle_timeout_ns": 100},
        """
        0 offer a 13 start
        0 offer b 5 start
        0 plan -> #0 a[0:13] start
        500 expire
        500 commit 0 -> a row
        600 expire -> a
        600 plan -> #0 a[13:13] flush end
        601 commit 0 -> a row, a idle_timeout, b placed on 0 after 601
        # its idle clock starts with its slot, not with its last audio
        700 expire
        701 expire -> b
        """,
    ),
    "slots_in_doubt_bring_the_next_when_they_are_clean": (
        {**ONE, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer c 13 start
        0 plan -> #0 a[0:13] start, b[0:13] start
        1 commit 0 error a -> a step_failed, b row
        1 line c -> waits at 1 for 0
        1 plan -> #0 scrub 0
        2 commit 0 -> c placed on 0 after 2
        2 plan -> #0 c[0:13] start
        3 commit 0 -> c row after 2
        """,
    ),
    "outlives_the_loss_of_every_instance": (
        {**ONE, "backlog_wait_ns": 1000},
        """
        0 offer a 13 start
        0 offer b 13 start
        5 lose 0 -> a instance_failed
        5 line b -> waits at 1
        5 offer c 0 start
        9 restore 0
        9 plan -> #0 scrub 0
        9 commit 0 -> b placed on 0 after 9, c waits at 1
        9 plan -> #0 b[0:13] start
        9 commit 0 -> b row after 9
        """,
    ),
    "goes_to_whichever_instance_has_a_slot": (
        {**ONE, "instances": 2, "backlog": 2},
        """
        0 offer a 0 start
        0 offer b 5 start end
        0 offer c 0 start
        0 plan -> #1 b[0:5] start flush end
        6 commit 1 -> b row, b end, c placed on 1 after 6
        6 offer c 13
        6 plan -> #1 c[0:13] start
        """,
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_timeline(name: str) -> None:
    overrides, timeline = SCENARIOS[name]
    assert_timeline(make_sequence_config(**overrides), timeline)
