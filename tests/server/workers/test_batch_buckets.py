"""Every batch size that a model may be given has a bucket that was warmed up."""

import pytest

from server.workers.batch_buckets import batch_buckets


@pytest.mark.parametrize(
    ("max_batch", "preferred", "buckets"),
    [
        (1, (), (1,)),
        (2, (), (1, 2)),
        (8, (), (1, 2, 4, 8)),
        (12, (), (1, 2, 4, 8, 12)),
        (12, (6, 3, 6), (1, 2, 3, 4, 6, 8, 12)),
        (4, (16, 0), (1, 2, 4)),
    ],
)
def test_powers_of_two_the_largest_and_the_preferred(
    max_batch: int, preferred: tuple[int, ...], buckets: tuple[int, ...]
) -> None:
    assert batch_buckets(max_batch, preferred) == buckets
