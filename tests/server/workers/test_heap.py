"""What is freed goes back to the operating system, and little by little nothing piles up."""

import subprocess
import sys

PROGRAM = """
import psutil, random, torch
from server.workers.heap import keep_flat
torch.set_num_threads(1)
if {flat}:
    keep_flat()
rss = lambda: psutil.Process().memory_info().rss / 2**20
rng, kept = random.Random(1), []
for _ in range(20):
    torch.zeros(2_000_000)
before = rss()
for i in range(400):  # batches of rare sizes, and small things that outlive them
    big = [torch.ones(rng.randint(300_000, 6_000_000)) for _ in range(4)]
    kept.append(torch.ones(2_000))
    del big
print(rss() - before)
"""


def growth_mb(*, flat: bool) -> float:
    """Growth of the memory of a process that frees everything but 3 MB."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(flat=flat)], capture_output=True, text=True, check=True, timeout=100
    )
    return float(done.stdout)


def test_memory_stays_flat_under_batches_of_rare_sizes() -> None:
    assert growth_mb(flat=True) < 8
