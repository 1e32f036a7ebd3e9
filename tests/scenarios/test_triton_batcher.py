"""What Triton's tests of its dynamic batcher ask for, by their names, as timelines.

The scenarios of ``L0_batcher`` and ``L0_model_queue``, and those of ``L0_request_cancellation`` and ``L0_rate_limiter``
that are the dynamic batcher's. There a request is timed against sleeps, here time is a number. Left out: shared
memory, ensembles, and ``test_multi_*_output*``, in which requests ask for some of the outputs: a batch computes all of
them, and the wire leaves out what was not asked for. Where a timeline shows more than Triton's, it says so.
"""

from dataclasses import replace

import pytest

from server.batching.dynamic_batcher import DynamicBatcherConfig
from server.batching.request_queue import QueueLevel, TimeoutAction
from server.batching.resources import ResourceLedger
from tests.support.request_bench import RequestBench
from tests.support.request_timeline import assert_request_timeline

WINDOW = 1_000
PREFERRED = DynamicBatcherConfig(instances=1, target_size=8, preferred_sizes=(2, 6), window_ns=WINDOW)
"""What most of ``L0_batcher`` is configured with."""
PREFERRED_ONLY = replace(PREFERRED, preferred_sizes=(4, 6), window_ns=0)
QUEUE = DynamicBatcherConfig(instances=1, target_size=32, preferred_sizes=(4, 8), window_ns=10_000)
"""What ``L0_model_queue`` is configured with."""


class TestStaticBatches:
    """One request of several rows."""

    def test_static_batch_preferred(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a rows=2
            0 plan -> #0 a
            1 commit 0 -> a
            1 offer b rows=6
            1 plan -> #0 b
            """,
        )

    @pytest.mark.parametrize("rows", [1, 3])
    def test_static_batch_lt_any_preferred_and_not_preferred(self, rows: int) -> None:
        assert_request_timeline(
            PREFERRED,
            f"""
            5 offer a rows={rows}
            5 deadline -> 1005
            1004 plan
            1005 plan -> #0 a
            """,
        )

    def test_static_batch_gt_max_preferred(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a rows=7
            0 plan -> #0 a
            # more rows than a batch has: refused, not run alone
            1 offer b rows=9 -> bad_tensor
            """,
        )


class TestShapes:
    def test_multi_batch_different_shape_allow_ragged(self) -> None:
        assert_request_timeline(
            replace(PREFERRED, ragged=frozenset({"INPUT"})),
            """
            0 offer a length=16
            0 offer b length=8
            0 plan -> #0 a b
            """,
        )

    def test_multi_batch_different_shape(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a length=16
            100 plan
            100 offer b length=8
            100 plan -> #0 a
            110 commit 0 -> a after 100
            110 plan
            110 deadline -> 1100
            1100 plan -> #0 b
            """,
        )

    def test_multi_batch_not_preferred_different_shape(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a length=16
            0 offer b length=16 rows=3
            0 plan
            100 offer c length=8
            100 plan -> #0 a b
            110 commit 0 -> a after 100, b after 100
            1099 plan
            1100 plan -> #0 c
            """,
        )

    @pytest.mark.parametrize("is_delayed", [False, True])
    def test_multi_batch_preferred_different_shape_and_delayed(self, is_delayed: bool) -> None:
        assert_request_timeline(
            PREFERRED,
            f"""
            0 offer a length=16
            0 offer b length=16 rows=3
            {"# all are there before the first is looked at" if is_delayed else "0 plan"}
            100 offer c length=8
            100 offer d length=8 rows=5
            100 plan -> #0 a b
            110 commit 0 -> a after 100, b after 100
            110 plan -> #0 c d
            """,
        )

    def test_shapes_in_turns_fill_their_batches(self) -> None:
        """Triton ends a batch at the first other shape: here six batches of one."""
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a length=16
            0 offer b length=8
            0 offer c length=16
            0 offer d length=8
            0 offer e length=16
            0 offer f length=8
            0 plan -> #0 a c
            1 commit 0 -> a, c
            # e has been passed over by nobody: b came before it
            1 plan -> #0 b d
            2 commit 0 -> b after 1, d after 1
            2 plan -> #0 e
            3 commit 0 -> e after 2
            3 deadline -> 1000
            """,
        )


class TestManyRequests:
    def test_multi_batch_not_preferred(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a
            100 offer b rows=3
            100 deadline -> 1000
            999 plan
            1000 plan -> #0 a b
            1010 commit 0 -> a after 1000, b after 900
            """,
        )

    def test_multi_batch_gt_max_preferred(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a rows=3
            0 plan
            100 offer b rows=7
            100 plan -> #0 a
            110 commit 0 -> a after 100
            110 plan -> #0 b
            """,
        )

    @pytest.mark.parametrize("is_delayed", [False, True])
    def test_multi_batch_sum_gt_max_preferred_and_delayed(self, is_delayed: bool) -> None:
        assert_request_timeline(
            PREFERRED,
            f"""
            0 offer a rows=3
            {"# both are there before the first is looked at" if is_delayed else "0 plan"}
            100 offer b rows=4
            100 plan -> #0 a
            110 commit 0 -> a after 100
            110 plan
            1100 plan -> #0 b
            """,
        )

    def test_multi_batch_delayed_use_max_batch(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 block 0
            0 offer a rows=3
            0 offer b rows=4
            1000 admit 0
            # the window is over: nothing is held back for a preferred size
            1000 offer c
            1000 plan -> #0 a b c
            """,
        )

    def test_multi_batch_use_biggest_preferred(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a*6
            0 plan -> #0 a1 a2 a3 a4 a5 a6
            """,
        )

    def test_multi_batch_use_best_preferred(self) -> None:
        assert_request_timeline(
            PREFERRED,
            """
            0 offer a*2
            0 offer b
            0 plan -> #0 a1 a2
            1 commit 0 -> a1, a2
            1 plan
            1000 plan -> #0 b
            """,
        )

    def test_multi_batch_preserve_ordering(self) -> None:
        assert_request_timeline(
            replace(PREFERRED, instances=3, preferred_sizes=(4,), preserve_ordering=True),
            """
            0 offer a*12
            0 plan -> #0 a1 a2 a3 a4
            0 plan -> #1 a5 a6 a7 a8
            0 plan -> #2 a9 a10 a11 a12
            1 commit 2
            2 commit 1
            3 commit 0 -> a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12
            """,
        )


class TestPreferredOnly:
    """No window."""

    @pytest.mark.parametrize(
        ("n_requests", "batches"),
        [
            pytest.param(4, (4,), id="test_preferred_batch_only_aligned"),
            pytest.param(5, (4, 1), id="test_preferred_batch_only_unaligned"),
            pytest.param(7, (6, 1), id="test_preferred_batch_only_use_biggest_preferred"),
            pytest.param(3, (3,), id="test_preferred_batch_only_use_no_preferred_size"),
        ],
    )
    def test_preferred_batch_only(self, n_requests: int, batches: tuple[int, ...]) -> None:
        bench = assert_request_timeline(PREFERRED_ONLY, f"0 offer a*{n_requests}")
        sizes = []
        while (batch := bench.plan()) is not None:
            sizes.append(len(batch.requests))
            bench.commit(0)
        assert tuple(sizes) == batches


class TestWindowOnly:
    @pytest.mark.parametrize("window_ns", [WINDOW, 10], ids=["non_default", "default"])
    def test_max_queue_delay_only(self, window_ns: int) -> None:
        assert_request_timeline(
            replace(PREFERRED, preferred_sizes=(), window_ns=window_ns),
            f"""
            0 offer a*12
            0 plan -> #0 a1 a2 a3 a4 a5 a6 a7 a8
            1 commit 0 -> a1, a2, a3, a4, a5, a6, a7, a8
            1 deadline -> {window_ns}
            {window_ns} plan -> #0 a9 a10 a11 a12
            """,
        )


def policy(action: str, timeout_ns: int = 100) -> QueueLevel:
    return QueueLevel(timeout_ns=timeout_ns, timeout_action=TimeoutAction(action))


class TestQueuePolicies:
    def test_max_queue_size(self) -> None:
        assert_request_timeline(
            replace(QUEUE, max_queued=8, window_ns=0),
            """
            0 offer a rows=8
            0 plan -> #0 a
            500 offer b*10 -> b9 queue_full, b10 queue_full
            5000 commit 0 -> a
            5000 plan -> #0 b1 b2 b3 b4 b5 b6 b7 b8
            """,
        )

    def test_policy_delay(self) -> None:
        assert_request_timeline(
            replace(QUEUE, levels=(policy("delay"),)),
            """
            0 offer a
            0 deadline -> 100
            100 expire
            200 offer b rows=2
            200 plan
            200 offer c rows=2
            200 plan -> #0 b c
            210 commit 0 -> b, c
            210 deadline -> 10000
            10000 plan -> #0 a
            """,
        )

    def test_policy_reject(self) -> None:
        assert_request_timeline(
            replace(QUEUE, levels=(policy("reject"),)),
            """
            0 offer a
            0 deadline -> 100
            99 expire
            100 deadline -> 100
            100 expire -> a request_timeout
            100 deadline
            200 offer b rows=2
            200 offer c rows=2
            200 plan -> #0 b c
            210 commit 0 -> b, c
            """,
        )

    def test_timeout_override(self) -> None:
        assert_request_timeline(
            replace(QUEUE, levels=(policy("reject", 1_000),)),
            """
            0 offer a timeout=100
            100 expire -> a request_timeout
            # a longer one is not taken: the level's counts
            200 offer d timeout=10000
            400 offer e rows=2
            400 offer f rows=2
            400 plan
            1200 expire -> d request_timeout
            1200 plan -> #0 e f
            1210 commit 0 -> e after 800, f after 800
            # nor is there one without it
            2000 offer g
            3000 expire -> g request_timeout
            """,
        )

    def test_priority_levels(self) -> None:
        assert_request_timeline(
            replace(QUEUE, levels=(QueueLevel(), QueueLevel()), default_level=2),
            """
            0 offer a rows=2
            100 offer b
            300 offer c rows=2 level=1
            300 plan -> #0 c a
            310 commit 0 -> c, a after 300
            310 plan
            10100 plan -> #0 b
            """,
        )

    def test_max_priority_levels(self) -> None:
        """A level that does not exist counts as the default one."""
        assert_request_timeline(
            replace(QUEUE, levels=(QueueLevel(), QueueLevel()), default_level=2),
            """
            0 offer a rows=2
            100 offer b level=4294967296
            300 offer c rows=2 level=1
            300 plan -> #0 c a
            """,
        )

    def test_priority_with_policy(self) -> None:
        levels = (policy("delay", 11_000), policy("reject", 11_000))
        assert_request_timeline(
            replace(QUEUE, preferred_sizes=(4, 8, 32), levels=levels, default_level=2),
            """
            0 offer a rows=2 level=1
            200 offer b level=1 timeout=1000
            400 offer c rows=2 level=1
            600 offer d rows=2 level=2 timeout=2000
            800 offer e rows=3 level=2
            1000 offer f rows=6 level=2
            1000 plan
            1000 deadline -> 1200
            1200 plan -> #0 a c
            1210 commit 0 -> a after 1200, c after 800
            1210 deadline -> 2600
            2600 expire -> d request_timeout
            2600 plan -> #0 b e
            2610 commit 0 -> b after 2400, e after 1800
            2610 plan
            11000 plan -> #0 f
            """,
        )

    def test_default_queue_policy_timeout_prompt_response(self) -> None:
        """The model is busy: who waits hears of its timeout when it comes, not when there is an instance again."""
        assert_request_timeline(
            replace(QUEUE, levels=(policy("reject"),), target_size=8, window_ns=0),
            """
            0 offer a
            0 plan -> #0 a
            10 offer b
            10 deadline -> 110
            110 expire -> b request_timeout
            110 deadline
            5000 commit 0 -> a
            """,
        )


class TestCancellation:
    def test_dynamic_batch_scheduler_request_cancellation(self) -> None:
        assert_request_timeline(
            replace(PREFERRED, preferred_sizes=(), target_size=2, window_ns=0),
            """
            0 offer a*2
            0 plan -> #0 a1 a2
            10 offer b
            20 cancel b -> b cancelled
            20 cancel b
            # Triton: not noticed once it is handed on. Here the caller is told, and the model stops when nobody is left
            30 cancel a1 -> a1 cancelled
            30 abandon
            40 cancel a2 -> a2 cancelled
            40 abandon -> #0
            50 commit 0 abandoned
            50 plan
            """,
        )


class SharedModel:
    """A model of one instance that always has something to run, in batches of one."""

    def __init__(self, name: str, needs: dict[str, int], priority: int, ledger: ResourceLedger) -> None:
        self.bench = RequestBench(DynamicBatcherConfig(instances=1, target_size=1))
        self.name, self.needs, self.priority, self.ledger = name, needs, priority, ledger
        self.n_served = 0

    def begin(self, now_ns: int) -> None:
        self.bench.now_ns = now_ns
        if not self.bench.running:
            self.bench.offer(f"{self.name}{now_ns}")
        self.bench.blocked = set() if self.ledger.admits(self.name, self.needs) else {0}
        if self.bench.plan() is not None:
            self.ledger.take(self.name, self.needs, self.priority)
        elif not self.bench.running:
            self.ledger.wait(self.name, self.needs)

    def end(self, now_ns: int) -> None:
        self.bench.now_ns = now_ns
        if self.bench.running:
            self.n_served += len(self.bench.commit(0))
            self.ledger.give_back(self.name)
        self.bench.check()


def served(n_steps: int, total: int, *priorities: int) -> list[int]:
    """Batches of each model after so many steps, all of the same length."""
    ledger = ResourceLedger({"gpu": total})
    models = [SharedModel(f"model{index}", {"gpu": 1}, priority, ledger) for index, priority in enumerate(priorities)]
    for now_ns in range(n_steps):
        for model in models:
            model.begin(now_ns)
        for model in models:
            model.end(now_ns)
    return [model.n_served for model in models]


class TestRateLimit:
    def test_single_model(self) -> None:
        assert served(300, 1, 1) == [300]

    def test_cross_model_prioritization_limited_resource(self) -> None:
        """Triton asks for more than 1.8 to 1."""
        assert served(300, 1, 1, 2) == [200, 100]

    def test_cross_model_prioritization_plenty_resource(self) -> None:
        assert served(300, 2, 1, 2) == [300, 300]

    def test_single_model_dynamic_batching(self) -> None:
        """An instance without its resources runs nothing; the batch grows meanwhile, and another may run it."""
        assert_request_timeline(
            replace(PREFERRED, instances=2, preferred_sizes=(), target_size=4, window_ns=0),
            """
            0 block 0
            0 block 1
            0 offer a*3
            0 plan
            0 deadline
            100 offer b*5
            100 admit 1
            100 deadline -> 0
            100 plan -> #1 a1 a2 a3 b1
            100 plan
            200 commit 1 -> a1 after 100, a2 after 100, a3 after 100, b1
            200 plan -> #1 b2 b3 b4 b5
            """,
        )
