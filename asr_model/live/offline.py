"""The live encoder as one pass over whole files, with the mask that streaming imposes: what ``streaming_encoder`` must
equal to 1e-4 in float32, and the form in which the network is trained."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from asr_model.live.network import LiveNetwork
from asr_model.live.settings import TICK_FRAMES
from asr_model.live.stem import FIRST_STEM_FRAMES, advance_norm, normalise
from asr_model.moonshine.layers import angles


def encode(network: LiveNetwork, audio: Tensor, left_frames: int = 166) -> tuple[Tensor, Tensor]:
    """Whole files at once.

    Args:
        network: parameters.
        audio: float32 [B, N].
        left_frames: frames before its tick that a frame sees.

    Returns:
        features float32 [B, T, D] and CTC logits [B, T, len(SYMBOLS)].
    """
    encoder = network.encoder
    h = torch.tanh(encoder.c1(audio[:, None]))
    norm, parts = h.new_zeros(len(h), 3), []
    edges = [0, *range(6 * TICK_FRAMES + FIRST_STEM_FRAMES, h.shape[2], 6 * TICK_FRAMES), h.shape[2]]
    for low, high in pairwise(edges):
        tick = h[:, :, low:high]
        norm = advance_norm(norm, tick, torch.ones(len(h), high - low, dtype=torch.bool, device=h.device))
        parts.append(normalise(encoder, tick, norm))
    x = F.gelu(encoder.c3(F.gelu(encoder.c2(torch.cat(parts, 2))))).transpose(1, 2)
    frame = torch.arange(x.shape[1], device=x.device)
    tick_start = frame // TICK_FRAMES * TICK_FRAMES
    mask = (frame < tick_start[:, None] + TICK_FRAMES) & (frame >= tick_start[:, None] - left_frames)
    cos, sin = angles(frame)
    for layer in encoder.layers:
        q, k, v = layer.project(x, cos, sin)
        x = layer.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    features = encoder.ln(x)
    return features, network.head(features)
