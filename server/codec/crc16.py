"""The checksum at the end of FLAC frames, quick without C: polynomial x^16 + x^15 + x^2 + 1, nothing inverted.

It is linear, so that a block's checksum is the exclusive or of a table's entries by position and byte.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL: Final = 0x8005
BLOCK_BYTES: Final = 256


def crc16(data: bytes, state: int = 0) -> int:
    """The checksum of what ``state`` is the checksum of, followed by ``data``."""
    table = _tables()
    for start in range(0, len(data), BLOCK_BYTES):
        block = np.frombuffer(data, np.uint8, min(BLOCK_BYTES, len(data) - start), start)
        n_bytes = len(block)
        checksum = int(np.bitwise_xor.reduce(table[np.arange(n_bytes - 1, -1, -1), block]))
        # the state before is as though it were in the first two bytes
        checksum ^= int(table[n_bytes - 1, state >> 8])
        state = checksum ^ (int(table[n_bytes - 2, state & 0xFF]) if n_bytes > 1 else (state & 0xFF) << 8)
    return state


@cache
def _tables() -> NDArray[np.uint16]:
    """uint16 [256 positions from the end, 256 bytes]."""
    byte = np.arange(256, dtype=np.uint32) << 8
    for _ in range(8):
        byte = np.where(byte & 0x8000, (byte << 1) ^ POLYNOMIAL, byte << 1) & 0xFFFF
    first = byte.astype(np.uint16)
    rows = [first]
    for _ in range(BLOCK_BYTES - 1):
        last = rows[-1]
        rows.append((last << 8) ^ first[last >> 8])
    return np.stack(rows)
