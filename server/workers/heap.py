"""Keeps a worker's memory flat: what a batch of a rare size took goes back to the operating system.

glibc raises the size from which blocks are mapped on their own up to 32 MB as such blocks are freed, and then keeps
them in a heap that batches of ever different sizes fragment: some 100 MB in eight minutes of final passes.
"""

import ctypes
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
RETURNED_BYTES: Final = 1 << 20
"""Blocks from this size on are given back when they are freed."""


def keep_flat() -> None:
    """Fixes both thresholds for this process. Does nothing where the C library is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(parameter, RETURNED_BYTES)
