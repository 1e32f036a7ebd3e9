"""Triton's tests of the strategy ``oldest`` and of cancellation, by their names, as timelines on the pure core.

As in ``test_triton_sequence_batcher``: every answer is compared with the sum of what the sequence has sent since START.
"""

from typing import Any

import pytest

from server.batching.sequence_batcher import DuplicateStart, Strategy
from tests.support.factories import make_sequence_config
from tests.support.timeline import assert_timeline

TURNS: dict[str, Any] = {
    "instances": 1,
    "slots": 4,
    "takes_turns": True,
    "duplicate_start": DuplicateStart.RESTART,
    "backlog": 8,
}
DIRECT: dict[str, Any] = {**TURNS, "strategy": Strategy.DIRECT}
ONE_SLOT: dict[str, Any] = {**DIRECT, "slots": 1}

L0_DYNA_SEQUENCE_BATCHER: dict[str, tuple[dict[str, Any], str]] = {
    "simple_sequence": (
        TURNS,
        """
        0 turn a 1 start
        0 plan -> #0 a(1) start
        1 commit 0 -> a row
        1 turn a 2
        1 plan -> #0 a(2)
        2 commit 0 -> a row
        2 turn a 9 end
        2 plan -> #0 a(9) end
        3 commit 0 -> a row, a end
        """,
    ),
    "length1_sequence": (
        TURNS,
        """
        0 turn a 42 start end
        0 plan -> #0 a(42) start end
        0 commit 0 -> a row, a end
        """,
    ),
    "multi_sequence": (
        TURNS,
        """
        0 turn a 1 start end
        0 plan -> #0 a(1) start end
        0 commit 0 -> a row, a end
        0 turn b 2 start end
        0 plan -> #0 b(2) start end
        0 commit 0 -> b row, b end
        0 turn c 3 start end
        0 plan -> #0 c(3) start end
        0 commit 0 -> c row, c end
        0 turn d 4 start end
        0 plan -> #0 d(4) start end
        0 commit 0 -> d row, d end
        """,
    ),
    "multi_parallel_sequence": (
        {**TURNS, "instances": 2, "slots": 2},
        """
        0 turn a 1 start
        0 turn b 2 start
        0 turn c 3 start
        0 turn d 4 start
        # two at once on each of two instances
        0 plan -> #0 a(1) start, c(3) start
        0 plan -> #1 b(2) start, d(4) start
        0 turn a 11 end
        0 turn b 12 end
        1 commit 1 -> b row, d row
        1 commit 0 -> a row, c row
        1 turn c 13 end
        1 turn d 14 end
        1 plan -> #0 a(11) end, c(13) end
        1 plan -> #1 b(12) end, d(14) end
        2 commit 0 -> a row after 1, a end, c row, c end
        2 commit 1 -> b row after 1, b end, d row, d end
        """,
    ),
    "multi_sequence_different_shape": (
        TURNS,
        """
        0 turn a 1 start shape 1
        0 turn b 2 start shape 2
        0 turn c 3 start shape 3
        0 turn d 4 start shape 4
        0 plan -> #0 a(1) start
        0 commit 0 -> a row
        0 plan -> #0 b(2) start
        0 commit 0 -> b row
        0 plan -> #0 c(3) start
        0 commit 0 -> c row
        0 plan -> #0 d(4) start
        0 commit 0 -> d row
        """,
    ),
    "multi_sequence_different_shape_allow_ragged": (
        {**TURNS, "ragged": frozenset({"INPUT"})},
        """
        0 turn a 1 start shape 1
        0 turn b 2 start shape 2
        0 turn c 3 start shape 3
        0 turn d 4 start shape 4
        0 plan -> #0 a(1) start, b(2) start, c(3) start, d(4) start
        0 commit 0 -> a row, b row, c row, d row
        """,
    ),
    "backlog": (
        TURNS,
        """
        0 turn a 1 start end
        0 turn b 2 start
        0 turn c 3 start
        0 turn d 4 start
        0 turn e 5 start end
        0 plan -> #0 a(1) start end, b(2) start, c(3) start, d(4) start
        7 commit 0 -> a row, a end, b row, c row, d row, e placed on 0 after 7
        7 plan -> #0 e(5) start end
        8 commit 0 -> e row after 7, e end
        """,
    ),
    "backlog_fill": (
        TURNS,
        """
        0 turn a 1 start
        0 turn b 2 start end
        0 turn c 3 start end
        0 turn d 4 start
        0 turn e 5 start end
        0 turn f 6 start end
        0 plan -> #0 a(1) start, b(2) start end, c(3) start end, d(4) start
        5 turn a 11 end
        5 turn d 14 end
        5 commit 0 -> a row, b row, b end, c row, c end, d row, e placed on 0 after 5, f placed on 0 after 5
        5 plan -> #0 a(11) end, d(14) end, e(5) start end, f(6) start end
        6 commit 0 -> a row, a end, d row, d end, e row after 5, e end, f row after 5, f end
        """,
    ),
    "backlog_fill_no_end": (
        TURNS,
        """
        0 turn a 1 start
        0 turn b 2 start end
        0 turn c 3 start
        0 turn d 4 start
        0 turn e 5 start
        0 plan -> #0 a(1) start, b(2) start end, c(3) start, d(4) start
        5 commit 0 -> a row, b row, b end, c row, d row, e placed on 0 after 5
        5 plan -> #0 e(5) start
        6 commit 0 -> e row after 5
        6 turn e 6 end
        6 plan -> #0 e(6) end
        7 commit 0 -> e row, e end
        """,
    ),
    "backlog_sequence_timeout": (
        {**TURNS, "slots": 1, "idle_timeout_ns": 100},
        """
        0 turn a 1 start
        0 turn e 5 start end
        0 plan -> #0 a(1) start
        10 commit 0 -> a row
        110 expire -> a, a idle_timeout, e placed on 0 after 110
        110 turn a 2 -> sequence_ended
        110 plan -> #0 e(5) start end
        111 commit 0 -> e row after 110, e end
        """,
    ),
}

L0_REQUEST_CANCELLATION: dict[str, tuple[dict[str, Any], str]] = {
    "sequence_batch_scheduler_backlog_request_cancellation": (
        ONE_SLOT,
        """
        0 turn a 1 start
        0 turn b 2 start
        0 turn b 3
        0 turn c 4 start
        0 plan -> #0 a(1) start, over 0-0
        # at once, not when a slot becomes free; both requests, told once
        1 cancel b -> b cancelled, c waits at 1
        1 line b
        1 turn b 4 -> sequence_ended
        2 commit 0 -> a row
        2 plan
        """,
    ),
    "direct_sequence_batch_scheduler_request_cancellation": (
        DIRECT,
        """
        0 turn a 1 start
        0 plan -> #0 a(1) start, over 0-0
        0 turn a 2
        0 turn a 3
        # with the first in flight: its result is dropped, its slot comes free with the step, once
        1 cancel a -> a cancelled
        1 free -> 3
        1 cancel a
        2 commit 0
        2 free -> 4
        2 plan
        """,
    ),
    "oldest_sequence_batch_scheduler_request_cancellation": (
        TURNS,
        """
        0 turn a 1 start
        0 turn b 5 start
        0 plan -> #0 a(1) start, b(5) start
        0 turn a 2
        0 turn a 3
        2 commit 0 -> a row, b row
        # queued: no hole in the sequence, it ends as a whole
        2 cancel a -> a cancelled
        2 free -> 3
        2 plan
        """,
    ),
    "scheduler_streaming_request_cancellation": (
        {**TURNS, "max_queued_turns": 16},
        "\n".join(
            [
                *(f"0 turn {name} {value}{' start' * (not value)}" for name in "ab" for value in range(16)),
                "0 plan -> #0 a(0) start, b(0) start",
                "1 cancel a -> a cancelled",
                "1 cancel b -> b cancelled",
                "2 commit 0",
                "2 free -> 4",
                "2 plan",
                "2 deadline",
            ]
        ),
    ),
    "state_reset_after_cancel": (
        ONE_SLOT,
        """
        0 turn a 5 start
        0 plan -> #0 a(5) start, over 0-0
        0 cancel a -> a cancelled
        0 turn b 7 start
        0 line b -> waits at 1
        0 commit 0 -> b placed on 0 after 0
        0 plan -> #0 b(7) start, over 0-0
        # the bench knows the sum: 7, and nothing of the 5
        0 commit 0 -> b row
        """,
    ),
    "grpc_async_infer_cancellation_at_step_start": (
        TURNS,
        """
        0 turn a 1 start
        0 cancel a -> a cancelled
        0 plan
        0 free -> 4
        """,
    ),
    "grpc_async_infer_response_complete_during_cancellation": (
        TURNS,
        """
        0 turn a 1 start end
        0 plan -> #0 a(1) start end
        0 commit 0 -> a row, a end
        0 cancel a
        0 free -> 4
        """,
    ),
    "grpc_async_infer_cancellation_before_finish": (
        TURNS,
        """
        0 turn a 1 start
        0 plan -> #0 a(1) start
        0 cancel a -> a cancelled
        # the same id opens again while the step runs: another slot
        0 turn a 2 start
        0 commit 0
        0 plan -> #0 a(2) start
        0 commit 0 -> a row
        """,
    ),
}

CATALOGUE = {
    f"{suite}.{name}": scenario
    for suite, scenarios in (
        ("L0_dyna_sequence_batcher", L0_DYNA_SEQUENCE_BATCHER),
        ("L0_request_cancellation", L0_REQUEST_CANCELLATION),
    )
    for name, scenario in scenarios.items()
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_timeline(name: str) -> None:
    overrides, timeline = CATALOGUE[name]
    assert_timeline(make_sequence_config(**overrides), timeline)
