"""Which batch sizes a model is warmed up with, so that no client is the first to meet one. Pure."""

from collections.abc import Iterable


def batch_buckets(max_batch: int, preferred: Iterable[int] = ()) -> tuple[int, ...]:
    """Powers of two up to ``max_batch``, it itself, and the preferred sizes up to it; ascending, each once."""
    powers = (1 << power for power in range(max_batch.bit_length()))
    return tuple(sorted({size for size in (*powers, max_batch, *preferred) if 1 <= size <= max_batch}))
