"""Triton's stress test of the sequence batcher (``L0_sequence_stress``) on the core and real state stores: its clients,
its kinds of sequences, its placements; seeded, without a thread or a sleep, every answer compared with the sum and with
the same sequence alone.
"""

from random import Random

import pytest

from server.batching.sequence_batcher import DuplicateStart, Strategy
from tests.support.crowd_bench import CrowdBench
from tests.support.factories import make_sequence_config


class StressClient:
    """One of the clients of Triton's stress test: two ids of its own that it uses most of the time and eight that it
    uses seldom, with its mix of sequences. Both of two sequences back to back are sent, where Triton's sends the second
    only.
    """

    def __init__(self, number: int, seed: int, bench: CrowdBench) -> None:
        self._random = Random(seed)
        self._bench = bench
        self._common = [f"{number}-{index}" for index in range(2)]
        self._rare = [f"{number}-rare-{index}" for index in range(8)]
        self._todo: list[tuple[str, bool, bool]] = []
        self.kinds: set[str] = set()

    def speak(self) -> None:
        """The next turn; a full queue or backlog is tried again later."""
        if not self._todo:
            self._choose()
        name, start, end = self._todo[0]
        told = self._bench.turn(name, self._random.randrange(1 << 20), start=start, end=end)
        if told in ("queue_full", "capacity_exceeded"):
            return
        assert told == "ok" or not start, told
        self._todo.pop(0)
        if told != "ok":
            self._todo = []  # its sequence was idle, or never began: the next one starts anew

    def _choose(self) -> None:
        choice = self._random.random()
        if self._random.random() < 0.1:
            name = self._random.choice(self._rare)
            kind = "no_end" if choice < 0.33 else "valid_no_end" if choice < 0.66 else "valid_valid"
        else:
            name = self._random.choice(self._common)
            limits = {"no_start": 0.06, "no_end": 0.12, "valid_no_end": 0.18, "valid_valid": 0.24}
            kind = next((kind for kind, limit in limits.items() if choice < limit), "valid")
        self.kinds.add(kind)
        if kind == "no_start":
            self._todo = [(name, False, False)]
            return
        self._todo = [
            step
            for is_last in ([False, True] if "_" in kind and kind != "no_end" else [True])
            for step in self._sequence(name, has_end=not (is_last and kind.endswith("no_end")))
        ]

    def _sequence(self, name: str, *, has_end: bool) -> list[tuple[str, bool, bool]]:
        length = max(1, round(self._random.gauss(8, 4)))
        return [(name, index == 0, has_end and index == length - 1) for index in range(length)]


@pytest.mark.parametrize("slots", [(4,), (2, 2), (1, 1, 1, 1)], ids=["1x4", "2x2", "4x1"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_sequence_stress(slots: tuple[int, ...], strategy: Strategy) -> None:
    config = make_sequence_config(
        instances=len(slots),
        slots=slots,
        strategy=strategy,
        takes_turns=True,
        duplicate_start=DuplicateStart.RESTART,
        max_queued_turns=8,
        backlog=12,
        idle_timeout_ns=60,
    )
    bench = CrowdBench(config)
    clients = [StressClient(number, 100 * len(slots) + number, bench) for number in range(8)]
    for _ in range(110):
        for client in clients:
            client.speak()
        while bench.plan() is not None:
            pass
        bench.now_ns += 3
        for instance in sorted(bench.in_flight):
            bench.commit(instance)
        bench.expire()
        bench.check()
    stats = bench.batcher.stats()
    assert set.union(*(client.kinds for client in clients)) == {
        "valid",
        "valid_valid",
        "valid_no_end",
        "no_start",
        "no_end",
    }
    assert min(stats.ended["end"], stats.ended["idle_timeout"], stats.restarts, stats.placed) > 0
    assert bench.differ_from_solo() == []
