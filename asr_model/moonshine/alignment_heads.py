"""The heads of Moonshine's decoder that follow the speech: where in the audio a token is read."""

import torch
from torch import Tensor

from asr_model.moonshine.dimensions import ALIGNMENT_HEADS, HEAD_DIM


def attended(layer: int, asked: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor | None:
    """One layer's part of the alignment heads' mean attention; the parts of all layers add up to 1 over the frames.

    Args:
        layer: which of the decoder's layers.
        asked: its cross-attention's queries [B, H, L, E].
        keys: its keys [B, H, T, E].
        mask: bool, broadcastable to [B, H, L, T]: the frames that may be seen; all, if None.

    Returns:
        float32 [B, L, T], or None where the layer has no such head. Position i says where the token after i is read.
    """
    heads = [head for at, head in ALIGNMENT_HEADS if at == layer]
    if not heads:
        return None
    with torch.autocast(asked.device.type, enabled=False):
        scores = asked[:, heads].float() @ keys[:, heads].float().transpose(-1, -2) / HEAD_DIM**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        summed: Tensor = scores.softmax(-1).sum(1)
    return summed / len(ALIGNMENT_HEADS)


def attention_centre(attention: Tensor) -> Tensor:
    """Where half of the attention lies before and half after: float32 [..., T] -> [...], in frames, 0 to T.

    More telling than the greatest weight, which jumps between the frames of a word.
    """
    passed = attention.cumsum(-1)
    half = passed[..., -1:] / 2
    at = (passed < half).sum(-1, keepdim=True).clamp(max=attention.shape[-1] - 1)
    weight = attention.gather(-1, at)
    before = passed.gather(-1, at) - weight
    return (at + ((half - before) / weight.clamp(min=1e-9)).clamp(0, 1))[..., 0]
