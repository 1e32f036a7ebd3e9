"""Timelines named after the catalogue of Triton's sequence batcher tests, and those that it lacks.

Ticks are 10 samples and complete with 3 more. The bench behind every timeline checks each output against the sequence
served alone; the text shows what is run when. See ``tests.support.timeline`` for the notation.
"""

import pytest

from tests.support.factories import make_sequence_config
from tests.support.timeline import assert_timeline

ONE = {"instances": 1, "slots": 4}

SCENARIOS: dict[str, tuple[dict[str, int], str]] = {
    "simple": (
        ONE,
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        5 commit 0 -> a row
        6 offer a 10
        7 plan -> #0 a[13:23]
        9 commit 0 -> a row after 1
        9 offer a 4 end
        9 plan -> #0 a[23:27] flush end
        9 commit 0 -> a row, a end
        9 plan
        """,
    ),
    "length1": (
        ONE,
        """
        0 offer a 5 start end
        0 plan -> #0 a[0:5] start flush end
        0 commit 0 -> a row, a end
        0 free -> 4
        """,
    ),
    "end_without_audio": (
        ONE,
        """
        0 offer a 0 start end
        0 plan -> #0 a[0:0] start flush end
        0 commit 0 -> a row, a end
        """,
    ),
    "end_on_a_tick_boundary": (
        ONE,
        """
        0 offer a 13 start end
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        0 plan -> #0 a[13:13] flush end
        0 commit 0 -> a row, a end
        """,
    ),
    "short_last_chunk": (
        ONE,
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer b 1 end
        0 plan -> #0 a[0:13] start, b[0:13] start
        0 commit 0 -> a row, b row
        0 offer a 10
        # the short row shares a step with a whole tick: no shape waits for another
        0 plan -> #0 b[13:14] flush end, a[13:23]
        0 commit 0 -> b row, b end, a row
        """,
    ),
    "no_sequence_start": (
        ONE,
        """
        0 offer a 13 -> unknown_sequence
        0 offer a 13 end -> unknown_sequence
        0 touch a -> unknown_sequence
        0 room a -> unknown_sequence
        0 plan
        0 free -> 4
        """,
    ),
    "no_sequence_start2": (
        ONE,
        """
        0 offer a 5 start end
        0 offer a 5 -> sequence_ended
        0 plan -> #0 a[0:5] start flush end
        0 commit 0 -> a row, a end
        0 offer a 5 -> sequence_ended
        0 room a -> sequence_ended
        0 offer a 5 start
        0 room a -> 55
        """,
    ),
    "no_sequence_end": (
        ONE,
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        # Triton goes on in the old state here; a second START is an error of the peer
        0 offer a 13 start -> duplicate_sequence
        0 offer a 10
        0 plan -> #0 a[13:23]
        0 commit 0 -> a row
        """,
    ),
    "same_id_after_the_end": (
        ONE,
        """
        0 offer a 13 start end
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        0 offer a 5 start -> duplicate_sequence
        0 plan -> #0 a[13:13] flush end
        0 offer a 5 start -> duplicate_sequence
        0 commit 0 -> a row, a end
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        """,
    ),
    "same_id_after_cancel_in_flight": (
        ONE,
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 cancel a -> a cancelled
        0 free -> 3
        0 offer a 14 start
        0 commit 0
        0 free -> 3
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        """,
    ),
    "backlog_is_refused": (
        {"instances": 2, "slots": 1},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer c 13 start -> capacity_exceeded
        0 offer c 13 -> unknown_sequence
        0 plan -> #0 a[0:13] start
        0 plan -> #1 b[0:13] start
        0 plan
        0 commit 1 -> b row
        0 cancel b -> b cancelled
        0 offer c 13 start
        0 plan -> #1 c[0:13] start
        0 commit 0 -> a row
        0 commit 1 -> c row
        """,
    ),
    "placement_evens_out": (
        {"instances": 3, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer c 13 start
        0 offer d 13 start
        0 cancel b -> b cancelled
        0 offer e 13 start
        0 plan -> #0 a[0:13] start, d[0:13] start
        0 plan -> #1 e[0:13] start
        0 plan -> #2 c[0:13] start
        """,
    ),
    "half_batch": (
        {**ONE, "max_delay_ns": 100},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer c 0 start
        0 offer d 0 start
        0 plan
        0 deadline -> 100
        100 plan -> #0 a[0:13] start, b[0:13] start
        105 commit 0 -> a row after 100, b row after 100
        105 deadline
        """,
    ),
    "skip_batch": (
        ONE,
        """
        0 offer a 13 start
        0 offer b 13 start
        0 plan -> #0 a[0:13] start, b[0:13] start
        0 commit 0 -> a row, b row
        # a skips two steps: its state must be untouched when it comes back
        0 offer b 20
        0 plan -> #0 b[13:23]
        0 commit 0 -> b row
        0 plan -> #0 b[23:33]
        0 commit 0 -> b row
        0 offer a 10
        0 plan -> #0 a[13:23]
        0 commit 0 -> a row
        """,
    ),
    "full_batch": (
        {**ONE, "max_batch": 2, "max_delay_ns": 100},
        """
        0 offer a 13 start
        0 offer b 0 start
        0 offer c 0 start
        0 offer d 0 start
        0 plan
        7 offer c 13
        7 plan -> #0 a[0:13] start, c[0:13] start
        7 commit 0 -> a row after 7, c row
        """,
    ),
    "queue_delay_nobody_left_to_wait_for": (
        {**ONE, "max_delay_ns": 100},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        """,
    ),
    "queue_delay_counts_from_arrival_not_from_the_last_step": (
        {**ONE, "max_delay_ns": 100},
        """
        0 offer a 33 start
        0 offer b 0 start
        100 plan -> #0 a[0:13] start
        150 commit 0 -> a row after 100
        # b may still come, but a is late already
        150 deadline -> 100
        150 plan -> #0 a[13:23]
        150 commit 0 -> a row after 150
        """,
    ),
    "queue_delay_of_the_oldest_though_last_in_line": (
        {**ONE, "max_delay_ns": 100},
        """
        0 offer a 23 start
        0 offer b 0 start
        0 offer c 0 start
        100 plan -> #0 a[0:13] start
        110 offer b 13
        120 commit 0 -> a row after 100
        120 deadline -> 100
        120 plan -> #0 b[0:13] start, a[13:23]
        """,
    ),
    "queue_delay_cancel_of_the_others": (
        {**ONE, "max_delay_ns": 100},
        """
        0 offer a 13 start
        0 offer b 0 start
        3 plan
        3 cancel b -> b cancelled
        3 plan -> #0 a[0:13] start
        3 commit 0 -> a row after 3
        """,
    ),
    "more_ready_than_fit": (
        {**ONE, "max_batch": 2},
        """
        0 offer a 60 start
        1 offer b 60 start
        2 offer c 13 start
        2 plan -> #0 a[0:13] start, b[0:13] start
        3 commit 0 -> a row after 2, b row after 1
        # c came later than everything that a and b still have, and yet is next
        3 plan -> #0 c[0:13] start, a[13:23]
        4 commit 0 -> c row after 1, a row after 3
        4 offer c 10
        4 plan -> #0 b[13:23], a[23:33]
        5 commit 0 -> b row after 3, a row after 4
        5 plan -> #0 c[13:23], b[23:33]
        6 commit 0 -> c row after 1, b row after 4
        """,
    ),
    "sequence_idle_timeout": (
        {**ONE, "idle_timeout_ns": 100},
        """
        0 offer a 13 start
        10 offer b 5 start
        20 touch b
        50 plan -> #0 a[0:13] start
        # a's step is in flight for longer than the timeout: that is not idle
        119 expire
        120 expire -> b
        120 offer b 1 -> sequence_ended
        160 commit 0 -> a row after 50
        # what b has said is read to its end before it is told
        160 plan -> #0 b[0:5] start flush end
        160 commit 0 -> b row after 40, b idle_timeout
        160 deadline -> 260
        259 expire
        260 expire -> a
        260 plan -> #0 a[13:13] flush end
        260 commit 0 -> a row, a idle_timeout
        260 offer a 10 -> sequence_ended
        260 free -> 4
        260 deadline
        """,
    ),
    "idle_timeout_spares_what_is_queued": (
        {"instances": 1, "slots": 1, "idle_timeout_ns": 100},
        """
        0 offer a 0 start
        0 offer a 23
        99 expire
        100 expire
        100 plan -> #0 a[0:13] start
        500 expire
        500 commit 0 -> a row after 100
        900 expire
        900 plan -> #0 a[13:23]
        900 commit 0 -> a row after 900
        900 deadline -> 1000
        """,
    ),
    "idle_timeout_of_a_started_but_silent_sequence": (
        {**ONE, "idle_timeout_ns": 100},
        """
        0 offer a 0 start
        40 offer b 0 start
        50 offer a 1
        139 expire
        140 expire -> b
        150 expire -> a
        """,
    ),
    "idle_timeout_off": (
        ONE,
        """
        0 offer a 0 start
        0 deadline
        1000000000000 expire
        """,
    ),
    "cancel_queued": (
        ONE,
        """
        0 offer a 13 start
        0 offer b 13 start
        0 cancel a -> a cancelled
        0 cancel a
        0 plan -> #0 b[0:13] start
        0 commit 0 -> b row
        0 offer a 1 -> sequence_ended
        """,
    ),
    "cancel_in_flight": (
        ONE,
        """
        0 offer a 30 start
        0 offer b 13 start
        0 plan -> #0 a[0:13] start, b[0:13] start
        0 cancel a -> a cancelled
        0 free -> 2
        0 commit 0 -> b row
        0 free -> 3
        0 plan
        """,
    ),
    "cancel_in_flight_of_the_end_row": (
        ONE,
        """
        0 offer a 3 start end
        0 plan -> #0 a[0:3] start flush end
        0 cancel a -> a cancelled
        0 commit 0
        0 free -> 4
        """,
    ),
    "cancel_after_commit": (
        ONE,
        """
        0 offer a 3 start end
        0 plan -> #0 a[0:3] start flush end
        0 commit 0 -> a row, a end
        0 cancel a
        0 cancel nobody
        """,
    ),
    "cancel_waiting_for_audio": (
        ONE,
        """
        0 offer a 3 start
        0 cancel a -> a cancelled
        0 free -> 4
        """,
    ),
    "queue_full_takes_nothing": (
        ONE,
        """
        0 offer a 61 start -> queue_full
        0 free -> 4
        0 offer a 60 start
        0 room a -> 0
        0 offer a 1 end -> queue_full
        0 plan -> #0 a[0:13] start
        0 room a -> 13
        0 offer a 14 -> queue_full
        0 offer a 13 end
        0 commit 0 -> a row
        """,
    ),
    "marks_are_bounded_and_end_always_fits": (
        {**ONE, "max_queued_marks": 2},
        """
        0 offer a 1 start finalize
        0 offer a 0 finalize
        0 offer a 0 finalize -> queue_full
        0 offer a 0 finalize end -> queue_full
        0 offer a 0 end
        0 plan -> #0 a[0:1] start flush
        0 commit 0 -> a row
        0 plan -> #0 a[0:1] flush
        0 commit 0 -> a row
        0 plan -> #0 a[0:1] flush end
        0 commit 0 -> a row, a end
        """,
    ),
    "finalize_is_a_flush_whose_samples_come_again": (
        ONE,
        """
        0 offer a 17 start finalize
        0 offer a 6
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        0 plan -> #0 a[13:17] flush
        0 commit 0 -> a row
        0 plan -> #0 a[13:23]
        0 commit 0 -> a row
        """,
    ),
    "finalize_before_any_audio_starts_the_slot": (
        ONE,
        """
        0 offer a 0 start finalize
        0 plan -> #0 a[0:0] start flush
        0 commit 0 -> a row
        0 offer a 13
        0 plan -> #0 a[0:13]
        0 commit 0 -> a row
        """,
    ),
    "finalize_at_the_lookahead_counts_only_new_samples": (
        ONE,
        """
        0 offer a 11 start
        0 offer a 0 finalize
        0 offer a 2 finalize
        # the mark at 11 stands before the tick's last sample, the mark at 13 after it
        0 plan -> #0 a[0:11] start flush
        0 commit 0 -> a row
        0 plan -> #0 a[0:13]
        0 commit 0 -> a row
        0 plan -> #0 a[13:13] flush
        0 commit 0 -> a row
        """,
    ),
    "finalize_and_end_at_once": (
        ONE,
        """
        0 offer a 4 start finalize end
        0 plan -> #0 a[0:4] start flush
        0 commit 0 -> a row
        0 plan -> #0 a[0:4] flush end
        0 commit 0 -> a row, a end
        """,
    ),
    "slot_reuse_leaves_no_trace": (
        {"instances": 1, "slots": 1},
        """
        0 offer a 23 start
        0 plan -> #0 a[0:13] start
        0 commit 0 -> a row
        0 cancel a -> a cancelled
        0 offer b 13 start
        0 plan -> #0 b[0:13] start
        0 commit 0 -> b row
        """,
    ),
    "row_error_quarantines_its_slot_alone": (
        {"instances": 1, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 plan -> #0 a[0:13] start, b[0:13] start
        1 commit 0 error b -> a row, b step_failed
        1 free -> 0
        1 offer c 13 start -> capacity_exceeded
        1 deadline -> 1
        1 plan -> #0 scrub 1
        2 commit 0
        2 offer c 13 start
        2 plan -> #0 c[0:13] start
        2 commit 0 -> c row
        """,
    ),
    "step_failure_fails_its_own_rows": (
        {"instances": 2, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 13 start
        0 offer c 13 start
        0 offer d 0 start
        0 plan -> #0 a[0:13] start, c[0:13] start
        0 plan -> #1 b[0:13] start
        0 commit 0 fail -> a step_failed, c step_failed
        0 commit 1 -> b row
        0 offer d 13
        0 plan -> #0 scrub 0 1
        0 plan -> #1 d[0:13] start
        """,
    ),
    "scrub_that_fails_is_tried_again_later": (
        {"instances": 1, "slots": 2, "scrub_retry_ns": 100},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 commit 0 error a -> a step_failed
        0 plan -> #0 scrub 0
        5 commit 0 unscrubbed
        5 plan
        5 deadline -> 105
        5 offer b 13 start
        5 plan -> #0 b[0:13] start
        6 commit 0 -> b row
        105 plan -> #0 scrub 0
        106 commit 0 fail
        106 deadline -> 206
        206 offer b 10
        206 plan -> #0 b[13:23], scrub 0
        206 commit 0 -> b row
        206 free -> 1
        """,
    ),
    "cancelled_row_of_a_failed_step": (
        {"instances": 1, "slots": 2},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 cancel a -> a cancelled
        0 commit 0 fail
        0 free -> 1
        0 plan -> #0 scrub 0
        0 commit 0
        0 free -> 2
        """,
    ),
    "instance_lost_in_a_step": (
        {"instances": 2, "slots": 2},
        """
        0 offer a 0 start
        0 offer b 13 start
        0 offer c 13 start
        0 plan -> #0 c[0:13] start
        0 plan -> #1 b[0:13] start
        0 offer a 13
        0 commit 0 lost -> c instance_failed, a instance_failed
        0 free -> 1
        0 offer d 0 start
        0 offer e 0 start -> capacity_exceeded
        0 commit 1 -> b row
        0 restore 0
        0 free -> 0
        0 plan -> #0 scrub 0 1
        0 commit 0
        0 free -> 2
        """,
    ),
    "instance_lost_between_steps": (
        {"instances": 1, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 0 start
        0 lose 0 -> a instance_failed, b instance_failed
        0 lose 0
        0 plan
        0 deadline
        0 offer a 1 -> sequence_ended
        0 offer a 1 start -> capacity_exceeded
        """,
    ),
    "late_result_of_a_lost_instance_reaches_no_new_tenant": (
        {"instances": 1, "slots": 1},
        """
        0 offer a 13 start
        0 plan -> #0 a[0:13] start
        0 lose 0 -> a instance_failed
        0 restore 0
        0 plan -> #0 scrub 0
        0 commit 0
        0 offer b 13 start
        0 plan -> #0 b[0:13] start
        # same slot, same position in the step, another generation
        0 late 0
        0 commit 0 -> b row
        """,
    ),
    "cancelled_row_of_a_lost_instance": (
        {"instances": 1, "slots": 2},
        """
        0 offer a 13 start
        0 offer b 0 start
        0 plan -> #0 a[0:13] start
        0 cancel a -> a cancelled
        0 commit 0 lost -> b instance_failed
        """,
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_timeline(name: str) -> None:
    overrides, timeline = SCENARIOS[name]
    assert_timeline(make_sequence_config(**overrides), timeline)


@pytest.mark.parametrize("position", range(25))
def test_finalize_at_each_position(position: int) -> None:
    """Finalize at any sample gives one flush more and leaves every tick as it was."""
    timeline = f"0 offer a {position} start finalize\n0 offer a {36 - position} end\n"
    ticks = [(0, 13), (13, 23), (23, 33)]
    rows = [f"a[{first}:{end}]" for first, end in ticks]
    n_before = sum(end <= position for _, end in ticks)
    rows.insert(n_before, f"a[{ticks[n_before][0]}:{position}] flush")
    rows.append("a[33:36] flush end")
    for index, row in enumerate(rows):
        head, *flags = row.split()
        text = " ".join((head, *(["start"] if index == 0 else []), *flags))
        timeline += f"0 plan -> #0 {text}\n0 commit 0 -> a row{', a end' if 'end' in flags else ''}\n"
    assert_timeline(make_sequence_config(), timeline)


@pytest.mark.parametrize("chunk_samples", [1, 2, 3, 7, 9, 10, 11, 13, 29, 60])
def test_chunk_sizes_leave_no_trace(chunk_samples: int) -> None:
    """60 samples and END give the same rows, however they were cut (I7)."""
    sizes = [chunk_samples] * (60 // chunk_samples) + [60 % chunk_samples]
    offers = "".join(f"0 offer a {size}{' start' if not index else ''}\n" for index, size in enumerate(sizes))
    ends = [13, 23, 33, 43, 53]
    rows = [f"a[{first}:{end}]" for first, end in zip([0, *ends], ends, strict=False)]
    rows[0] += " start"
    steps = "".join(f"0 plan -> #0 {row}\n0 commit 0 -> a row\n" for row in rows)
    last = "0 plan -> #0 a[53:60] flush end\n0 commit 0 -> a row, a end\n"
    assert_timeline(make_sequence_config(), f"{offers}0 offer a 0 end\n{steps}{last}")
