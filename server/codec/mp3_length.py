"""How long an MP3 file is without the padding of its first and last frames, as its first frame may say. Pure.

FFmpeg takes the padding at the end away only where it can seek.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from server.plan import Samples

HAS_FRAMES, HAS_BYTES, HAS_TABLE, HAS_QUALITY = 1, 2, 4, 8
PADDING_OFFSET: Final = 21
"""Of the delay and padding, behind the name of the encoder."""


def declared_samples(head: bytes) -> int | None:
    """Samples per channel of the file that starts with ``head``; None where it does not say."""
    start = max(head.find(b"Xing", 0, 64), head.find(b"Info", 0, 64))
    if start < 0 or len(head) < 4:
        return None
    flags = int.from_bytes(head[start + 4 : start + 8], "big")
    if not flags & HAS_FRAMES:
        return None
    frames = int.from_bytes(head[start + 8 : start + 12], "big")
    encoder = start + 12 + 4 * bool(flags & HAS_BYTES) + 100 * bool(flags & HAS_TABLE) + 4 * bool(flags & HAS_QUALITY)
    packed = int.from_bytes(head[encoder + PADDING_OFFSET : encoder + PADDING_OFFSET + 3], "big")
    padding_samples = (packed >> 12) + (packed & 0xFFF)
    is_mpeg_1 = head[1] & 0x18 == 0x18
    samples = frames * (1152 if is_mpeg_1 else 576) - padding_samples
    return samples if padding_samples and samples > 0 else None


class Trim:
    """Holds back what is beyond the declared length, and lets it go if more follows after all."""

    def __init__(self, declared: int | None) -> None:
        self._left = declared
        self._held: Samples | None = None

    def push(self, samples: Samples) -> Iterator[Samples]:
        """float32 [C, N] to what is known to be heard."""
        if self._left is None:
            yield samples
            return
        if self._held is not None:
            yield np.concatenate([self._held, samples], axis=1)
            self._left, self._held = None, None  # it does not end where it said
            return
        kept = samples[:, : self._left]
        self._left -= kept.shape[1]
        if kept.shape[1] < samples.shape[1]:
            self._held = samples[:, kept.shape[1] :]
        if kept.shape[1]:
            yield kept
