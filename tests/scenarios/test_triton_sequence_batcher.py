"""The catalogue of Triton's sequence batcher tests, by their names, as timelines on the pure core, without a sleep.

Its models add up what a sequence has sent since START; the bench behind every timeline checks each answer against that
sum. What is said here of Triton is what its tests, or its code, say of it. What does not apply, with the reason: a
correlation id of 0 or "" and two types of ids are refused or told apart before the batcher sees them (``tests.server.
rest``); ensembles and the kinds of tensors are no matter of a scheduler; ``single_buffer`` and ``growable_memory`` are
the state store's; instances that come and go while the service runs are the model repository's. The strategy ``oldest``
and cancellation: ``test_triton_oldest_and_cancellation``.
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
HALVES: dict[str, Any] = {**DIRECT, "instances": 2, "slots": 2}

L0_SEQUENCE_BATCHER: dict[str, tuple[dict[str, Any], str]] = {
    "simple_sequence": (
        DIRECT,
        """
        0 turn a 1 start
        0 plan -> #0 a(1) start, over 0-0
        1 commit 0 -> a row
        1 turn a 2
        1 turn a 3
        1 plan -> #0 a(2), over 0-0
        2 commit 0 -> a row
        2 plan -> #0 a(3), over 0-0
        3 commit 0 -> a row after 1
        3 turn a 9 end
        3 plan -> #0 a(9) end, over 0-0
        4 commit 0 -> a row, a end
        4 free -> 4
        """,
    ),
    "length1_sequence": (
        DIRECT,
        """
        0 turn a 42 start end
        0 plan -> #0 a(42) start end, over 0-0
        0 commit 0 -> a row, a end
        0 free -> 4
        """,
    ),
    "batch_size": (
        DIRECT,
        """
        0 turn a 1 start rows 2 -> bad_tensor
        0 free -> 4
        0 turn a 1 start
        0 turn a 2 rows 2 -> bad_tensor
        0 plan -> #0 a(1) start, over 0-0
        0 commit 0 -> a row
        0 plan
        """,
    ),
    "no_sequence_start": (
        DIRECT,
        """
        0 turn a 1 -> missing_start
        0 turn a 1 end -> missing_start
        0 plan
        0 free -> 4
        """,
    ),
    "no_sequence_start2": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn a 2 end
        0 turn a 3 -> sequence_ended
        0 plan -> #0 a(1) start, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(2) end, over 0-0
        0 commit 0 -> a row, a end
        0 turn a 3 -> sequence_ended
        """,
    ),
    "no_sequence_end": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn a 2
        # the first is answered, then the second starts in the same slot; counted, where Triton only warns
        0 turn a 9 start
        0 turn a 8 end
        0 plan -> #0 a(1) start, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(2), over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(9) start, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(8) end, over 0-0
        0 commit 0 -> a row, a end
        """,
    ),
    "half_batch": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn a 2 end
        0 turn b 1 start
        0 turn b 2 end
        0 plan -> #0 a(1) start, b(1) start, over 0-1
        0 commit 0 -> a row, b row
        0 plan -> #0 a(2) end, b(2) end, over 0-1
        0 commit 0 -> a row, a end, b row, b end
        """,
    ),
    "skip_batch": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn a 3 end
        0 turn b 11 start
        0 turn b 12
        0 turn b 13
        0 turn b 14 end
        0 turn c 111 start
        0 turn c 113 end
        0 turn d 1111 start
        0 turn d 1112
        0 turn d 1113 end
        0 plan -> #0 a(1) start, b(11) start, c(111) start, d(1111) start, over 0-3
        0 commit 0 -> a row, b row, c row, d row
        0 plan -> #0 a(3) end, b(12), c(113) end, d(1112), over 0-3
        0 commit 0 -> a row, a end, b row, c row, c end, d row
        # a and c are gone: their slots are masked, or left out at the edges, where Triton pads from slot 0 on
        0 plan -> #0 b(13), d(1113) end, over 1-3
        0 commit 0 -> b row, d row, d end
        0 plan -> #0 b(14) end, over 1-1
        0 commit 0 -> b row, b end
        """,
    ),
    "full_batch": (
        DIRECT,
        """
        0 turn a 1 start end
        0 turn b 2 start end
        0 turn c 3 start end
        0 turn d 4 start end
        0 plan -> #0 a(1) start end, b(2) start end, c(3) start end, d(4) start end, over 0-3
        0 commit 0 -> a row, a end, b row, b end, c row, c end, d row, d end
        """,
    ),
    "ragged_batch": (
        DIRECT,
        """
        0 turn a 1 start shape 2
        0 turn b 2 start shape 1
        0 turn c 3 start shape 2
        0 turn d 4 start shape 3
        # the oldest decides; in Triton the lowest slot does, so that the others may wait without bound
        0 plan -> #0 a(1) start, c(3) start, over 0-2
        0 turn a 5 shape 2
        0 commit 0 -> a row, c row
        0 plan -> #0 b(2) start, over 1-1
        0 commit 0 -> b row
        0 plan -> #0 d(4) start, over 3-3
        0 commit 0 -> d row
        0 plan -> #0 a(5), over 0-0
        0 commit 0 -> a row
        """,
    ),
    "ragged_batch_allowed": (
        {**DIRECT, "ragged": frozenset({"INPUT"})},
        """
        0 turn a 1 start shape 2
        0 turn b 2 start shape 1
        0 turn c 3 start shape 2
        0 turn d 4 start shape 3
        0 plan -> #0 a(1) start, b(2) start, c(3) start, d(4) start, over 0-3
        0 commit 0 -> a row, b row, c row, d row
        """,
    ),
    "backlog": (
        DIRECT,
        """
        0 turn a 1 start end
        0 turn b 2 start end
        0 turn c 3 start end
        0 turn d 4 start end
        0 turn e 5 start
        0 turn e 6 end
        0 line e -> waits at 1
        0 plan -> #0 a(1) start end, b(2) start end, c(3) start end, d(4) start end, over 0-3
        7 commit 0 -> a row, a end, b row, b end, c row, c end, d row, d end, e placed on 0 after 7
        7 plan -> #0 e(5) start, over 0-0
        8 commit 0 -> e row after 7
        8 plan -> #0 e(6) end, over 0-0
        9 commit 0 -> e row after 8, e end
        """,
    ),
    "backlog_fill": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn b 2 start end
        0 turn c 3 start end
        0 turn d 4 start
        0 turn e 5 start end
        0 turn f 6 start end
        0 line f -> waits at 2
        0 plan -> #0 a(1) start, b(2) start end, c(3) start end, d(4) start, over 0-3
        5 commit 0 -> a row, b row, b end, c row, c end, d row, e placed on 0 after 5, f placed on 0 after 5
        5 turn a 11 end
        5 turn d 14 end
        5 plan -> #0 a(11) end, e(5) start end, f(6) start end, d(14) end, over 0-3
        6 commit 0 -> a row, a end, e row after 5, e end, f row after 5, f end, d row, d end
        """,
    ),
    "backlog_fill_no_end": (
        {**DIRECT, "idle_timeout_ns": 100},
        """
        0 turn a 1 start
        0 turn b 2 start end
        0 turn c 3 start end
        0 turn d 4 start
        0 turn e 5 start
        0 turn f 6 start end
        0 plan -> #0 a(1) start, b(2) start end, c(3) start end, d(4) start, over 0-3
        5 commit 0 -> a row, b row, b end, c row, c end, d row, e placed on 0 after 5, f placed on 0 after 5
        5 plan -> #0 e(5) start, f(6) start end, over 1-2
        6 commit 0 -> e row after 5, f row after 5, f end
        # e holds its slot until it ends
        60 turn e 7 end
        60 plan -> #0 e(7) end, over 1-1
        60 commit 0 -> e row, e end
        """,
    ),
    "backlog_same_correlation_id": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn a 2 end
        0 turn b 3 start
        0 turn c 4 start
        0 turn d 5 start
        # a second a behind the END of the first: it needs no second slot, since nobody else waits
        0 turn a 9 start
        0 turn a 8 end
        0 line a
        0 plan -> #0 a(1) start, b(3) start, c(4) start, d(5) start, over 0-3
        0 commit 0 -> a row, b row, c row, d row
        0 plan -> #0 a(2) end, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(9) start, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(8) end, over 0-0
        0 commit 0 -> a row, a end
        """,
    ),
    "backlog_same_correlation_id_while_others_wait": (
        {**DIRECT, "slots": 1},
        """
        0 turn a 1 start end
        0 turn e 5 start end
        0 turn a 9 start
        0 turn a 8 end
        0 plan -> #0 a(1) start end, over 0-0
        # the second a goes to the end of the line, or a client that never stops would keep its slot for ever
        3 commit 0 -> a row, e placed on 0 after 3, a waits at 1 for 3
        3 turn a 7 -> sequence_ended
        3 plan -> #0 e(5) start end, over 0-0
        4 commit 0 -> e row after 3, e end, a placed on 0 after 1
        4 plan -> #0 a(9) start, over 0-0
        5 commit 0 -> a row after 4
        5 plan -> #0 a(8) end, over 0-0
        6 commit 0 -> a row after 5, a end
        """,
    ),
    "backlog_same_correlation_id_no_end": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn b 3 start
        0 turn c 4 start
        0 turn d 5 start
        0 plan -> #0 a(1) start, b(3) start, c(4) start, d(5) start, over 0-3
        0 turn a 9 start end
        0 commit 0 -> a row, b row, c row, d row
        0 plan -> #0 a(9) start end, over 0-0
        0 commit 0 -> a row, a end
        """,
    ),
    "backlog_sequence_timeout": (
        {**DIRECT, "idle_timeout_ns": 100},
        """
        0 turn a 1 start
        0 turn b 2 start
        0 turn c 3 start
        0 turn d 4 start
        0 turn e 5 start
        0 plan -> #0 a(1) start, b(2) start, c(3) start, d(4) start, over 0-3
        10 commit 0 -> a row, b row, c row, d row
        50 turn b 22
        50 plan -> #0 b(22), over 1-1
        50 turn c 33
        50 turn d 44
        51 commit 0 -> b row
        51 plan -> #0 c(33), d(44), over 2-3
        52 commit 0 -> c row after 1, d row after 1
        109 expire
        # a is told; e has waited for longer than the timeout, and is not idle: its clock starts with its slot
        110 expire -> a, a idle_timeout, e placed on 0 after 110
        110 turn a 11 -> sequence_ended
        110 plan -> #0 e(5) start, over 0-0
        111 commit 0 -> e row after 110
        """,
    ),
    "queue_delay_no_min_util": (
        {**DIRECT, "max_delay_ns": 0},
        """
        0 turn a 1 start
        0 turn b 2 start
        0 turn b 3 end
        0 plan -> #0 a(1) start, b(2) start, over 0-1
        1 commit 0 -> a row, b row
        1 plan -> #0 b(3) end, over 1-1
        2 commit 0 -> b row after 1, b end
        """,
    ),
    "queue_delay_half_min_util": (
        {**DIRECT, "max_delay_ns": 100, "min_slot_utilisation": 0.5},
        """
        0 turn a 1 start
        0 turn b 2 start
        0 turn c 0 start
        0 plan -> #0 a(1) start, b(2) start, c(0) start, over 0-2
        1 commit 0 -> a row, b row, c row
        1 turn a 3
        1 plan
        1 deadline -> 101
        2 turn c 4
        # two of four slots
        2 plan -> #0 a(3), c(4), over 0-2
        3 commit 0 -> a row after 1, c row
        3 turn b 5 end
        102 plan
        103 plan -> #0 b(5) end, over 1-1
        103 commit 0 -> b row after 100, b end
        """,
    ),
    "queue_delay_full_min_util": (
        {**DIRECT, "max_delay_ns": 100, "min_slot_utilisation": 1.0},
        """
        0 turn a 1 start
        0 turn b 2 start
        # everybody is there: waiting would bring nobody, where Triton waits
        0 plan -> #0 a(1) start, b(2) start, over 0-1
        1 commit 0 -> a row, b row
        1 turn b 3 end
        1 plan
        100 plan
        101 plan -> #0 b(3) end, over 1-1
        101 commit 0 -> b row after 100, b end
        """,
    ),
    "request_timeout": (
        {**ONE_SLOT, "backlog_wait_ns": 3000},
        """
        0 turn a 1 start
        0 turn b 2 start
        1 turn a 3
        1 turn b 4
        1 plan -> #0 a(1) start, over 0-0
        2999 expire
        3000 expire -> b backlog_timeout
        # a has its slot, and nothing times it out
        5000 commit 0 -> a row after 1
        5000 plan -> #0 a(3), over 0-0
        9000 commit 0 -> a row after 4999
        """,
    ),
    "send_request_after_timeout": (
        {**ONE_SLOT, "backlog_wait_ns": 3000},
        """
        0 turn a 1 start
        0 turn b 2 start
        0 deadline -> 0
        0 plan -> #0 a(1) start, over 0-0
        0 deadline -> 3000
        3000 expire -> b backlog_timeout
        3001 turn b 4 -> sequence_ended
        """,
    ),
    "sequence_without_preserve_ordering": (
        {**TURNS, "max_batch": 2},
        """
        0 turn a 1 start
        0 turn a 2
        0 turn b 10 start
        0 turn c 100 start
        # no two turns of one sequence share a step, and each sequence is answered in its order
        0 plan -> #0 a(1) start, b(10) start
        0 commit 0 -> a row, b row
        0 turn b 20 end
        0 plan -> #0 c(100) start, a(2)
        0 commit 0 -> c row, a row
        0 plan -> #0 b(20) end
        0 commit 0 -> b row, b end
        """,
    ),
    "sequence_with_preserve_ordering": (
        # among the sequences of an instance too: its steps take turns in the order in which they came, one at a time
        {**TURNS, "max_batch": 1},
        """
        0 turn a 1 start
        0 turn b 10 start
        0 turn c 100 start
        0 plan -> #0 a(1) start
        0 commit 0 -> a row
        0 turn a 2 end
        0 plan -> #0 b(10) start
        0 commit 0 -> b row
        0 plan -> #0 c(100) start
        0 commit 0 -> c row
        0 plan -> #0 a(2) end
        0 commit 0 -> a row, a end
        """,
    ),
}

L0_SEQUENCE_CORRID_BATCHER: dict[str, tuple[dict[str, Any], str]] = {
    "skip_batch": (
        HALVES,
        """
        0 turn a 1 start
        0 turn b 2 start
        0 turn c 3 start
        0 turn d 4 start
        0 plan -> #0 a(1) start, c(3) start, over 0-1
        0 plan -> #1 b(2) start, d(4) start, over 0-1
        0 commit 0 -> a row, c row
        0 commit 1 -> b row, d row
        0 turn c 5 end
        0 turn b 6 end
        0 plan -> #0 c(5) end, over 1-1
        0 plan -> #1 b(6) end, over 0-0
        0 commit 0 -> c row, c end
        0 commit 1 -> b row, b end
        """,
    ),
}

L0_SEQUENCE_STRESS: dict[str, tuple[dict[str, Any], str]] = {
    "valid_valid": (
        DIRECT,
        """
        0 turn a 1 start
        0 turn a 2 end
        0 turn a 3 start
        0 turn a 4
        0 turn a 5 end
        0 plan -> #0 a(1) start, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(2) end, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(3) start, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(4), over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(5) end, over 0-0
        0 commit 0 -> a row, a end
        """,
    ),
    "valid_no_end": (
        {**DIRECT, "idle_timeout_ns": 100},
        """
        0 turn a 1 start end
        0 turn a 3 start
        0 plan -> #0 a(1) start end, over 0-0
        0 commit 0 -> a row
        0 plan -> #0 a(3) start, over 0-0
        0 commit 0 -> a row
        100 expire -> a, a idle_timeout
        100 free -> 4
        """,
    ),
    "no_start": (
        DIRECT,
        """
        0 turn a 1 -> missing_start
        """,
    ),
    "no_end": (
        {**ONE_SLOT, "idle_timeout_ns": 100},
        """
        0 turn a 1 start
        0 turn b 2 start end
        0 plan -> #0 a(1) start, over 0-0
        0 commit 0 -> a row
        100 expire -> a, a idle_timeout, b placed on 0 after 100
        100 plan -> #0 b(2) start end, over 0-0
        100 commit 0 -> b row after 100, b end
        """,
    ),
}

L0_LIFECYCLE: dict[str, tuple[dict[str, Any], str]] = {
    "shutdown_sequence": (
        # the batcher's part of it: what is live goes on to its end
        TURNS,
        """
        0 turn a 1 start
        0 turn b 2 start
        0 plan -> #0 a(1) start, b(2) start
        1 commit 0 -> a row, b row
        1 turn a 3 end
        1 turn b 4 end
        1 plan -> #0 a(3) end, b(4) end
        2 commit 0 -> a row, a end, b row, b end
        2 free -> 4
        2 deadline
        """,
    ),
}

CATALOGUE = {
    f"{suite}.{name}": scenario
    for suite, scenarios in (
        ("L0_sequence_batcher", L0_SEQUENCE_BATCHER),
        ("L0_sequence_corrid_batcher", L0_SEQUENCE_CORRID_BATCHER),
        ("L0_sequence_stress", L0_SEQUENCE_STRESS),
        ("L0_lifecycle", L0_LIFECYCLE),
    )
    for name, scenario in scenarios.items()
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_timeline(name: str) -> None:
    overrides, timeline = CATALOGUE[name]
    assert_timeline(make_sequence_config(**overrides), timeline)


@pytest.mark.parametrize("slots", [(4,), (2, 2), (1, 1, 1, 1)], ids=["1x4", "2x2", "4x1"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_sequence_valid(slots: tuple[int, ...], strategy: Strategy) -> None:
    """Four sequences side by side, on the placements of Triton's stress test: each stays in its place."""
    overrides = {**TURNS, "instances": len(slots), "slots": slots, "strategy": strategy}
    offers = "\n".join(
        f"0 turn {name} {value}{' start' * (not value)}{' end' * (value == 4)}" for name in "abcd" for value in range(5)
    )
    bench = assert_timeline(make_sequence_config(**overrides), offers)
    while bench.live:
        while bench.plan() is not None:
            pass
        for instance in sorted(bench.in_flight):
            bench.commit(instance)
        bench.check()
    assert bench.n_steps == 5 * len(slots)
    assert bench.n_rows == 20
