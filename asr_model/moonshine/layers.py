"""Encoder and decoder layers of Moonshine, without their attention. Axes as in ``asr_model``."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr_model.moonshine.dimensions import HEAD_DIM, HEADS, LAYERS, ROTARY, VOCABULARY, D


def split_heads(x: Tensor) -> Tensor:
    """[..., L, D] -> [..., H, L, E]."""
    return x.reshape(*x.shape[:-1], HEADS, HEAD_DIM).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """[..., H, L, E] -> [..., L, D]."""
    return x.transpose(-3, -2).flatten(-2)


def angles(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary angles of integer positions [...]: cos and sin, float32 [..., ROTARY / 2].

    Computed in float64, so that the difference of two positions stays exact after days of audio.
    """
    exponents = torch.arange(0, ROTARY, 2, device=positions.device, dtype=torch.float64) / ROTARY
    angle = positions[..., None].double() / 10_000**exponents
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position on the first ROTARY features, interleaved pairs.

    Args:
        x: [..., E].
        cos, sin: broadcastable to [..., ROTARY / 2].
    """
    turned, rest = x[..., :ROTARY], x[..., ROTARY:]
    a, b = turned[..., 0::2], turned[..., 1::2]
    return torch.cat((torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2), rest), -1)


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and GELU feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D, bias=False), nn.LayerNorm(D, bias=False)
        self.att = nn.ModuleDict({name: nn.Linear(D, D, bias=False) for name in "qkvo"})
        self.fc1, self.fc2 = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> q, k (rotated), v, each [B, H, T, E]. cos, sin: [B or 1, 1, T, ROTARY / 2]."""
        h = self.n1(x)
        q, k, v = (split_heads(self.att[name](h)) for name in "qkv")
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """x [B, T, D] and the attention's result [B, H, T, E] -> the layer's output [B, T, D]."""
        x = x + self.att["o"](join_heads(attended))
        y: Tensor = x + self.fc2(F.gelu(self.fc1(self.n2(x))))
        return y


class Encoder(nn.Module):
    """The encoder's parameters: three convolutions with a group norm after the first, layers, final norm."""

    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Conv1d(1, D, 127, 64, bias=False)
        self.gn = nn.GroupNorm(1, D, eps=1e-5)
        self.c2, self.c3 = nn.Conv1d(D, 2 * D, 7, 3), nn.Conv1d(2 * D, D, 3, 2)
        self.layers = cast(Sequence[EncoderLayer], nn.ModuleList(EncoderLayer() for _ in range(LAYERS)))
        self.ln = nn.LayerNorm(D, bias=False)


class DecoderLayer(nn.Module):
    """Pre-norm self-attention, cross-attention and gated feed-forward. Works on any leading axes: [..., D]."""

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2, self.n3 = (nn.LayerNorm(D, bias=False) for _ in range(3))
        self.own = nn.ModuleDict({name: nn.Linear(D, D, bias=False) for name in "qkvo"})
        self.cross = nn.ModuleDict({name: nn.Linear(D, D, bias=False) for name in "qkvo"})
        self.up, self.down = nn.Linear(D, 8 * D), nn.Linear(4 * D, D)

    def project_own(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., D] -> q, k, v of the self-attention, each [..., D], not yet split or rotated."""
        h = self.n1(x)
        return self.own["q"](h), self.own["k"](h), self.own["v"](h)

    def after_own(self, x: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        """x and the self-attention's result, both [..., D] -> x and the cross-attention's query, both [..., D]."""
        x = x + self.own["o"](attended)
        return x, self.cross["q"](self.n2(x))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """x and the cross-attention's result, both [..., D] -> the layer's output [..., D]."""
        x = x + self.cross["o"](attended)
        h, gate = self.up(self.n3(x)).chunk(2, -1)
        y: Tensor = x + self.down(F.silu(gate) * h)
        return y

    def memory(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Encoder features [..., T, D] -> cross-attention keys and values, each [..., H, T, E], without positions."""
        return split_heads(self.cross["k"](features)), split_heads(self.cross["v"](features))


class Decoder(nn.Module):
    """The decoder's parameters. The embedding is the output projection too."""

    def __init__(self) -> None:
        super().__init__()
        # Random initial values would cost a second and are never used.
        self.embed = nn.Embedding(VOCABULARY, D, _weight=torch.empty(VOCABULARY, D))
        self.layers = cast(Sequence[DecoderLayer], nn.ModuleList(DecoderLayer() for _ in range(LAYERS)))
        self.ln = nn.LayerNorm(D, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        """The last layer's output [..., D] -> [..., V]."""
        normed: Tensor = self.ln(x)
        return normed @ self.embed.weight.T
