"""Figures: ranks, ratio, what counts as held."""

from dataclasses import replace

import pytest

from clients.bench.figures import Bare, CaseFigures, Spread, Trial, spread


def step(p99_ms: float) -> Spread:
    return Spread(count=9, p50_ms=1.0, p95_ms=2.0, p99_ms=p99_ms)


def case(bare: list[float], held: int | None) -> CaseFigures:
    trial = None if held is None else Trial(streams=held, step=step(1.0))
    trials = (Trial(streams=1, step=step(999.0)),)
    passes = tuple(Bare(points=(), finals=None, streams=streams) for streams in bare)
    return CaseFigures(
        name="x", title="x", tick_ms=240.0, instances=1, threads=1, bare=passes, trials=trials, held=trial
    )


def test_ranks_are_nearest() -> None:
    found = spread([float(value) for value in range(200, 0, -1)])
    assert found == Spread(count=200, p50_ms=100.0, p95_ms=190.0, p99_ms=198.0)
    assert spread([7.0]) == Spread(count=1, p50_ms=7.0, p95_ms=7.0, p99_ms=7.0)
    assert spread([]) is None


@pytest.mark.parametrize(
    ("trial", "held"),
    [
        (Trial(streams=1, step=step(239.9)), True),
        (Trial(streams=1, step=step(240.0)), False),
        (Trial(streams=1, step=step(1.0), failure="1 streams ended"), False),
        (Trial(streams=1, step=None), False),
    ],
)
def test_held_is_p99_under_one_tick_of_every_stream(trial: Trial, held: bool) -> None:
    assert trial.is_held(240.0) is held


def test_the_ratio_is_over_the_median_of_the_passes() -> None:
    assert case([10.0, 40.0, 20.0], 12).ratio == 0.6
    assert case([10.0, 20.0], 12).ratio == 0.8


def test_no_ratio_where_fewer_streams_might_be_held() -> None:
    assert replace(case([10.0], None), trials=(Trial(streams=4, step=step(999.0)),)).ratio is None


def test_no_stream_held_is_nought_and_no_bare_loop_is_no_ratio() -> None:
    assert case([10.0], None).ratio == 0.0
    assert case([], 5).ratio is None
    assert case([], 5).bare_streams is None
