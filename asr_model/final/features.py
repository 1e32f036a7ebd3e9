"""Moonshine's encoder over whole utterances, padded into one batch.

The original looks at the whole file: its group norm averages over all samples and its attention sees every frame. Both
are masked here, so that neither padding nor company changes a row's features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr_model.contract import Samples
from asr_model.moonshine.dimensions import FRAME_SAMPLES, SAMPLE_RATE, encoder_frames, stem_frames
from asr_model.moonshine.layers import Encoder, angles

CLIP_SAMPLES: Final = SAMPLE_RATE
"""Audio below it is a clip, cut closer than the model was taught to hear."""
CLIP_TAIL_SAMPLES: Final = SAMPLE_RATE * 3 // 10
"""Silence put after a clip. With it, words cut out of sentences came out right 44 times in 116, without it 25 times and
42 times as a loop; silence before them made it worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Encoder output of a batch."""

    values: Tensor
    """float32 [B, T, D]; frames past a row's own mean nothing."""
    frames: tuple[int, ...]
    """Frames of each row, at least 1 and at most T."""
    heard: tuple[int, ...]
    """Those of them that lie in the row's audio, without the tail of a clip."""

    def mask(self) -> Tensor:
        """bool [B, T]: the frames that are a row's own."""
        return within(self.frames, self.values.shape[1], self.values.device)


def within(sizes: Sequence[int], width: int, device: torch.device) -> Tensor:
    """bool [B, width]: the positions before each row's size."""
    return torch.arange(width, device=device) < torch.tensor(sizes, device=device)[:, None]


def encode(encoder: Encoder, audio: Sequence[Samples], device: torch.device, pause: Callable[[], None]) -> Features:
    """One batch through the encoder.

    Args:
        encoder: on ``device``.
        audio: of each row, float32 [N]; at least ``WINDOW_SAMPLES``. A clip gets its tail here.
        device: where to compute.
        pause: called after the convolutions and after each layer.
    """
    whole = [_with_tail(row) for row in audio]
    frames = tuple(encoder_frames(len(row)) for row in whole)
    x = _stem(encoder, whole, device)
    mask = within(frames, x.shape[1], device)[:, None, None] if len(set(frames)) > 1 else None
    cos, sin = angles(torch.arange(x.shape[1], device=device))
    pause()
    for layer in encoder.layers:
        q, k, v = layer.project(x, cos, sin)
        x = layer.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        pause()
    heard = tuple(min(n, len(row) // FRAME_SAMPLES) for n, row in zip(frames, audio, strict=True))
    return Features(values=encoder.ln(x), frames=frames, heard=heard)


def _stem(encoder: Encoder, audio: Sequence[Samples], device: torch.device) -> Tensor:
    """The convolutions and the norm: [B, T, D]."""
    samples = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in audio], batch_first=True).to(device)
    h = torch.tanh(encoder.c1(samples[:, None]))
    h = masked_group_norm(h.float(), encoder.gn, tuple(stem_frames(len(row)) for row in audio))
    h = F.gelu(encoder.c3(F.gelu(encoder.c2(h))))
    return h.transpose(1, 2)


def masked_group_norm(h: Tensor, norm: nn.GroupNorm, sizes: Sequence[int]) -> Tensor:
    """Group norm with one group over the first ``sizes[row]`` positions of each row. h: [B, D, S], as the result."""
    valid = within(sizes, h.shape[2], h.device)[:, None]
    count = valid.sum(-1, keepdim=True) * h.shape[1]
    mean = torch.where(valid, h, 0).sum((1, 2), keepdim=True) / count
    centred = torch.where(valid, h - mean, 0)
    variance = (centred * centred).sum((1, 2), keepdim=True) / count
    return centred * torch.rsqrt(variance + norm.eps) * norm.weight[:, None] + norm.bias[:, None]


def _with_tail(audio: Samples) -> Samples:
    return audio if len(audio) >= CLIP_SAMPLES else np.pad(audio, (0, CLIP_TAIL_SAMPLES))


def joined_features(parts: Sequence[Features]) -> Features:
    """Several batches as one, its rows in the same order."""
    if len(parts) == 1:
        return parts[0]
    values = [row for part in parts for row in part.values]
    return Features(
        values=nn.utils.rnn.pad_sequence(values, batch_first=True),
        frames=tuple(n for part in parts for n in part.frames),
        heard=tuple(n for part in parts for n in part.heard),
    )
