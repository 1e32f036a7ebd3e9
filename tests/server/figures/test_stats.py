"""Histograms count every value once, in the bucket whose upper bound it does not exceed."""

import pytest

from server.figures.stats import SECONDS, Histogram


@pytest.mark.parametrize(
    ("value", "bucket"), [(-1.0, 0), (0.0, 0), (1.0, 0), (1.0001, 1), (2.0, 1), (2.5, 2), (1e9, 2)]
)
def test_a_value_counts_in_its_bucket(value: float, bucket: int) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.snapshot().counts == tuple(int(index == bucket) for index in range(3))


def test_a_snapshot_has_count_and_total_and_does_not_move() -> None:
    histogram = Histogram(SECONDS)
    for value in (0.1, 0.2, 30.0):
        histogram.observe(value)
    snapshot = histogram.snapshot()
    histogram.observe(1.0)
    assert snapshot.count == 3
    assert snapshot.total == pytest.approx(30.3)
    assert histogram.snapshot().count == 4
