"""Sizes of Moonshine base, English, and of its audio grid."""

from typing import Final

SAMPLE_RATE: Final = 16_000
D: Final = 416
HEADS: Final = 8
HEAD_DIM: Final = 52
ROTARY: Final = 32
"""Leading features of a head that carry the rotary position."""
LAYERS: Final = 8
VOCABULARY: Final = 32_768
START: Final = 1
END: Final = 2

FRAME_SAMPLES: Final = 384
"""Samples from one encoder frame to the next: 24 ms."""
STEM_SAMPLES: Final = 64
"""Samples from one stem frame (first convolution) to the next."""
WINDOW_SAMPLES: Final = 895
"""Samples that the first encoder frame sees."""

ALIGNMENT_HEADS: Final = ((2, 6), (3, 5), (4, 6), (5, 5), (5, 6), (6, 0), (6, 1), (6, 4))
"""(decoder layer, head) whose cross-attention follows the speech frame by frame."""


def stem_frames(n_samples: int) -> int:
    """Frames of the first convolution over that many samples."""
    return max(0, (n_samples - 127) // STEM_SAMPLES + 1)


def encoder_frames(n_samples: int) -> int:
    """Encoder frames over that many samples."""
    return max(0, ((stem_frames(n_samples) - 7) // 3 + 1 - 3) // 2 + 1)
