"""Timelines of which rows share a step, and when it runs. See ``tests.support.timeline`` for the notation."""

from typing import Any

import pytest

from server.batching.sequence_batcher import Strategy
from tests.support.factories import make_sequence_config
from tests.support.timeline import assert_timeline

ONE: dict[str, Any] = {"instances": 1, "slots": 4}
DIRECT: dict[str, Any] = {**ONE, "slots": 6, "strategy": Strategy.DIRECT}

SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "catch_up": (
        {**ONE, "max_ticks": 3},
        """
        0 offer a 53 start
        0 plan -> #0 a[0:33] start x3
        # told as if they had come one by one
        5 commit 0 -> a row, a row, a row
        5 offer b 13 start
        5 plan -> #0 a[33:53] x2, b[0:13] start
        9 commit 0 -> a row after 5, a row after 5, b row
        """,
    ),
    "catch_up_stops_at_a_mark": (
        {**ONE, "max_ticks": 8},
        """
        0 offer a 25 start finalize
        0 offer a 10 end
        0 plan -> #0 a[0:23] start x2
        0 commit 0 -> a row, a row
        0 plan -> #0 a[23:25] flush
        0 commit 0 -> a row
        0 plan -> #0 a[23:33]
        0 commit 0 -> a row
        0 plan -> #0 a[33:35] flush end
        0 commit 0 -> a row, a end
        """,
    ),
    "catch_up_counts_its_queue_time_from_each_tick": (
        {**ONE, "max_ticks": 8},
        """
        0 offer a 13 start
        10 offer a 10
        30 offer a 10
        35 plan -> #0 a[0:33] start x3
        40 commit 0 -> a row after 35, a row after 25, a row after 5
        """,
    ),
    "catch_up_fails_as_one": (
        {**ONE, "max_ticks": 8},
        """
        0 offer a 33 start
        0 offer b 13 start
        0 plan -> #0 a[0:33] start x3, b[0:13] start
        0 commit 0 error a -> a step_failed, b row
        0 plan -> #0 scrub 0
        """,
    ),
    "catch_up_cancelled_in_flight": (
        {**ONE, "max_ticks": 8},
        """
        0 offer a 33 start
        0 plan -> #0 a[0:33] start x3
        0 cancel a -> a cancelled
        0 commit 0
        0 free -> 4
        """,
    ),
    "direct_runs_over_slots_as_they_lie": (
        DIRECT,
        """
        0 offer a 0 start
        0 offer b 13 start
        0 offer c 0 start
        0 offer d 13 start
        0 plan -> #0 b[0:13] start, d[0:13] start, over 1-3
        0 commit 0 -> b row, d row
        0 offer d 10
        0 offer a 13
        0 plan -> #0 a[0:13] start, d[13:23], over 0-3
        0 commit 0 -> a row, d row
        """,
    ),
    "direct_a_short_last_chunk_is_in_the_next_step": (
        DIRECT,
        """
        0 offer a 13 start
        0 offer b 14 start end
        0 plan -> #0 a[0:13] start, b[0:13] start, over 0-1
        0 commit 0 -> a row, b row
        0 offer a 10
        0 plan -> #0 a[13:23], b[13:14] flush end, over 0-1
        0 commit 0 -> a row, b row, b end
        """,
    ),
    "direct_the_far_slot_goes_next": (
        {**DIRECT, "max_batch": 2},
        """
        0 offer a 23 start
        0 offer b 0 start
        0 offer c 0 start
        0 offer d 0 start
        0 offer e 13 start
        0 offer f 13 start
        0 plan -> #0 a[0:13] start, over 0-0
        0 commit 0 -> a row
        # e and f were ready before a's second tick
        0 plan -> #0 e[0:13] start, f[0:13] start, over 4-5
        0 commit 0 -> e row, f row
        0 plan -> #0 a[13:23], over 0-0
        0 commit 0 -> a row
        """,
    ),
    "direct_waits_for_its_share_of_the_slots": (
        {**DIRECT, "max_delay_ns": 50, "min_slot_utilisation": 0.5},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer c 0 start
        0 offer d 0 start
        0 plan
        0 deadline -> 50
        9 offer c 13
        9 plan -> #0 a[0:13] start, b[0:13] start, c[0:13] start, over 0-2
        9 commit 0 -> a row after 9, b row after 9, c row
        """,
    ),
    "preferred_sizes_go_at_once": (
        {**ONE, "slots": 8, "max_batch": 6, "preferred_sizes": (2, 4), "max_delay_ns": 50},
        """
        0 offer a 13 start
        0 offer z 0 start
        0 plan
        1 offer b 13 start
        1 plan -> #0 a[0:13] start, b[0:13] start
        2 commit 0 -> a row after 1, b row
        2 offer a 10
        2 offer b 10
        2 offer c 13 start
        # two go; the third waits for company
        2 plan -> #0 a[13:23], b[13:23]
        3 commit 0 -> a row, b row
        3 plan
        3 deadline -> 52
        52 plan -> #0 c[0:13] start
        53 commit 0 -> c row after 50
        """,
    ),
    "the_earliest_deadline_goes_first": (
        {**ONE, "max_batch": 1, "deadline_ns": 100, "flush_deadline_ns": 20},
        """
        0 offer a 13 start
        5 offer b 13 start
        9 offer c 4 start finalize
        # somebody waits for the end of what c has said
        9 plan -> #0 c[0:4] start flush
        12 commit 0 -> c row
        12 plan -> #0 a[0:13] start
        15 commit 0 -> a row after 12
        15 plan -> #0 b[0:13] start
        18 commit 0 -> b row after 10
        """,
    ),
    "flushes_of_others_do_not_starve_a_tick": (
        {**ONE, "slots": 2, "max_batch": 1, "flush_deadline_ns": 20},
        """
        0 offer a 13 start
        1 offer b 4 start finalize
        1 plan -> #0 b[0:4] start flush
        2 commit 0 -> b row
        2 offer b 0 finalize
        2 plan -> #0 b[0:4] flush
        3 commit 0 -> b row
        3 offer b 0 finalize
        # a was passed over for a round of two steps
        3 plan -> #0 a[0:13] start
        4 commit 0 -> a row after 3
        """,
    ),
    "the_instance_with_the_earliest_deadline_goes_first": (
        {"instances": 2, "slots": 2, "deadline_ns": 100, "flush_deadline_ns": 20},
        """
        0 offer a 13 start
        1 offer b 4 start finalize
        1 plan -> #1 b[0:4] start flush
        1 plan -> #0 a[0:13] start
        """,
    ),
    "a_deadline_ends_the_waiting_for_company": (
        {**ONE, "max_delay_ns": 100, "deadline_ns": 60},
        """
        0 offer a 13 start
        0 offer z 0 start
        # nothing is known of steps yet
        0 deadline -> 60
        60 plan -> #0 a[0:13] start
        100 commit 0 -> a row after 60
        200 offer a 10
        # a step took 40
        200 deadline -> 220
        220 plan -> #0 a[13:23]
        260 commit 0 -> a row after 20
        """,
    ),
    "the_next_step_is_formed_before_the_present_one_ends": (
        {**ONE, "lead_ns": 10},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        50 commit 0 -> a row
        50 offer a 10
        50 plan -> #0 a[13:23]
        55 offer b 13 start
        55 plan
        # it is expected to end at 100
        55 deadline -> 90
        90 plan -> #0 b[0:13] start
        95 offer c 13 start
        95 deadline
        100 commit 0 -> a row
        100 offer a 10
        # b's step has begun at 100
        100 deadline -> 140
        140 plan -> #0 c[0:13] start, a[23:33]
        150 commit 0 -> b row after 35
        199 commit 0 -> c row after 45, a row after 40
        """,
    ),
    "results_of_two_steps_in_any_order": (
        {**ONE, "lead_ns": 1000},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        10 commit 0 -> a row
        10 offer a 10
        10 offer b 0 start
        10 plan -> #0 a[13:23]
        11 offer b 13
        11 plan -> #0 b[0:13] start
        12 commit 0 newest -> b row
        13 commit 0 -> a row
        """,
    ),
    "both_steps_of_a_lost_instance_are_lost": (
        {**ONE, "lead_ns": 1000},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        10 commit 0 -> a row
        10 offer a 10
        10 offer b 13 start
        10 offer c 0 start
        10 plan -> #0 a[13:23], b[0:13] start
        11 offer c 13
        11 plan -> #0 c[0:13] start
        12 lose 0 -> a instance_failed, b instance_failed, c instance_failed
        12 late 0
        12 restore 0
        12 plan -> #0 scrub 0 1 2 3
        12 late 0
        13 commit 0
        13 free -> 4
        """,
    ),
    "cancelled_in_the_second_step_in_flight": (
        {**ONE, "lead_ns": 1000},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        10 commit 0 -> a row
        10 offer a 10
        10 plan -> #0 a[13:23]
        11 offer b 13 start
        11 plan -> #0 b[0:13] start
        12 cancel b -> b cancelled
        12 free -> 2
        13 commit 0 -> a row
        13 free -> 2
        14 commit 0
        14 free -> 3
        """,
    ),
    "a_slot_is_in_one_scrub_at_a_time": (
        {**ONE, "slots": 2, "lead_ns": 1000},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        10 commit 0 error a -> a step_failed
        10 plan -> #0 scrub 0
        11 offer b 13 start
        11 plan -> #0 b[0:13] start
        12 commit 0
        12 free -> 1
        13 commit 0 -> b row
        """,
    ),
    "solo_rows_have_their_own_steps": (
        {**ONE, "max_delay_ns": 50},
        """
        0 offer a 23 start
        0 offer audit 23 start solo
        0 offer b 23 start
        0 plan -> #0 a[0:13] start, b[0:13] start
        1 commit 0 -> a row, b row
        1 plan -> #0 audit[0:13] start
        2 commit 0 -> audit row after 1
        2 plan -> #0 a[13:23], b[13:23]
        3 commit 0 -> a row after 2, b row after 2
        3 plan -> #0 audit[13:23]
        4 commit 0 -> audit row after 3
        """,
    ),
    "instances_that_may_not_run": (
        {"instances": 2, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 plan without 0 1
        0 plan without 0 -> #1 b[0:13] start
        0 plan without 0
        0 deadline -> 0
        0 plan -> #0 a[0:13] start
        """,
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_timeline(name: str) -> None:
    overrides, timeline = SCENARIOS[name]
    assert_timeline(make_sequence_config(**overrides), timeline)


@pytest.mark.parametrize("max_ticks", [1, 2, 3, 7])
@pytest.mark.parametrize("position", [0, 5, 13, 20, 23, 30, 41, 43])
def test_catch_up_tells_the_same_as_one_by_one(max_ticks: int, position: int) -> None:
    """Whatever a row holds, the bench compares every tick and flush with the sequence served alone."""
    bench = assert_timeline(
        make_sequence_config(max_ticks=max_ticks),
        f"0 offer a {position} start finalize\n0 offer a {55 - position} finalize end",
    )
    while bench.live:
        assert bench.plan() is not None
        bench.commit(0)
        bench.check()
    assert bench.gone["a"].n_completed == 5 + 3
