"""Greedy decoding of a batch of utterances, with preallocated caches and a guard against runaways.

All rows are at the same position, so that a pass writes one column of every cache. Finished rows stay, masked, until
enough of them have finished that copying the rest pays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from asr_model.final.features import Features, within
from asr_model.final.guard import RunawayGuard
from asr_model.moonshine.alignment_heads import attended, attention_centre
from asr_model.moonshine.dimensions import (
    END,
    FRAME_SAMPLES,
    HEAD_DIM,
    HEADS,
    LAYERS,
    SAMPLE_RATE,
    START,
)
from asr_model.moonshine.layers import Decoder, angles, join_heads, rotate, split_heads

TOKENS_PER_SECOND: Final = 6.5
SPARE_TOKENS: Final = 8
COMPACT_BELOW: Final = 0.75
"""Share of rows still going on below which the others are left behind."""


class Caches:
    """Keys and values of every layer: the tokens' own, and those of the frames they attend to."""

    def __init__(self, decoder: Decoder, features: Features, positions: int) -> None:
        rows, device = len(features.frames), features.values.device
        memories = [layer.memory(features.values) for layer in decoder.layers]
        self.memory_keys = [keys for keys, _ in memories]
        self.memory_values = [values for _, values in memories]
        self.mask = features.mask()[:, None, None]
        """bool [B, 1, 1, T]: the frames that a row attends to."""
        self.heard = within(features.heard, features.values.shape[1], device)
        """bool [B, T]: those of them that may be where a token is read."""
        shape = (rows, HEADS, positions, HEAD_DIM)
        kind = self.memory_keys[0].dtype
        self.keys = [torch.zeros(shape, device=device, dtype=kind) for _ in range(LAYERS)]
        self.values = [torch.zeros(shape, device=device, dtype=kind) for _ in range(LAYERS)]

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows alone, and with as many frames as they need."""
        self.mask = self.mask[rows]
        frames = int(self.mask.sum(-1).max())
        self.mask = self.mask[..., :frames]
        self.heard = self.heard[rows, :frames]
        self.memory_keys = [x[rows, :, :frames] for x in self.memory_keys]
        self.memory_values = [x[rows, :, :frames] for x in self.memory_values]
        self.keys = [x[rows] for x in self.keys]
        self.values = [x[rows] for x in self.values]


def advance(decoder: Decoder, caches: Caches, tokens: Tensor, position: int) -> tuple[Tensor, Tensor]:
    """One pass: the token at ``position`` of each row is read, the next one is said.

    Args:
        tokens: int64 [B].

    Returns:
        Logits [B, V] and the attention [B, T] of the alignment heads, averaged: where the next token is read from.
    """
    cos, sin = angles(torch.tensor([position], device=tokens.device))
    x = decoder.embed(tokens[:, None])
    attention = torch.zeros((), device=x.device)
    for i, layer in enumerate(decoder.layers):
        q, k, v = (split_heads(part) for part in layer.project_own(x))
        caches.keys[i][:, :, position : position + 1] = rotate(k, cos, sin)
        caches.values[i][:, :, position : position + 1] = v
        own = F.scaled_dot_product_attention(
            rotate(q, cos, sin), caches.keys[i][:, :, : position + 1], caches.values[i][:, :, : position + 1]
        )
        x, asked = layer.after_own(x, join_heads(own))
        asked = split_heads(asked)
        read = F.scaled_dot_product_attention(
            asked, caches.memory_keys[i], caches.memory_values[i], attn_mask=caches.mask
        )
        x = layer.finish(x, join_heads(read))
        if (part := attended(i, asked, caches.memory_keys[i], caches.mask)) is not None:
            attention = attention + part[:, 0]
    return decoder.logits(x)[:, 0].float(), attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """What was said in one row, token by token, without START and END."""

    tokens: tuple[int, ...]
    frames: tuple[float, ...]
    """The frame that each token was read from, as the centre of the attention."""
    probabilities: tuple[float, ...]
    dropped: tuple[int, ...]
    """Tokens that followed and were taken back, where the decoder had lost its place."""


class _Record:
    """The tokens of all rows of a batch, written as they come."""

    def __init__(self, rows: int, positions: int, device: torch.device) -> None:
        self._tokens = torch.zeros((rows, positions), dtype=torch.long, device=device)
        self._frames = torch.zeros((rows, positions), device=device)
        self._probabilities = torch.zeros((rows, positions), device=device)
        self._lengths = torch.zeros((rows, 2), dtype=torch.long, device=device)
        """Per row, tokens that stand and tokens that were dropped after them."""

    def write(self, rows: Tensor, position: int, said: "Said") -> None:
        self._tokens[rows, position] = said.tokens
        self._frames[rows, position] = said.frames
        self._probabilities[rows, position] = said.probabilities

    def end(self, rows: Tensor, lengths: Tensor, dropped: Tensor) -> None:
        self._lengths[rows] = torch.stack((lengths, dropped), 1)

    def hypotheses(self) -> list[Hypothesis]:
        columns = (self._lengths, self._tokens, self._frames, self._probabilities)
        return [
            Hypothesis(
                tokens=tuple(tokens[:n]),
                frames=tuple(frames[:n]),
                probabilities=tuple(probabilities[:n]),
                dropped=tuple(tokens[n : n + dropped]),
            )
            for (n, dropped), tokens, frames, probabilities in zip(*(c.tolist() for c in columns), strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The next token of each row: [B] each."""

    tokens: Tensor
    frames: Tensor
    probabilities: Tensor


def greedy(decoder: Decoder, features: Features, pause: Callable[[], None]) -> list[Hypothesis]:
    """The decoder's own choice, token by token, until END, the limit of the audio's length or a runaway.

    Args:
        decoder: on the features' device.
        features: of the batch.
        pause: called after each pass.
    """
    device = features.values.device
    limits = torch.tensor([_limit(frames) for frames in features.frames], device=device)
    longest = int(limits.max())
    rows = torch.arange(len(features.frames), device=device)
    caches, guard = Caches(decoder, features, longest), RunawayGuard(len(rows), device)
    record = _Record(len(rows), longest, device)
    tokens, alive = torch.full_like(rows, START), torch.ones_like(rows, dtype=torch.bool)
    for position in range(longest):
        logits, attention = advance(decoder, caches, tokens, position)
        said = _said(logits, torch.where(caches.heard, attention, 0))
        tokens = said.tokens
        record.write(rows, position, said)
        dropped = guard.observe(tokens, said.frames)
        stops = (tokens == END) | ~said.probabilities.isfinite()
        ends = stops | (dropped > 0) | (position + 1 >= limits)
        dropped = torch.where(stops, 0, dropped)
        lengths = position + (~stops).long() - dropped
        now = alive & ends
        record.end(rows[now], lengths[now], dropped[now])
        alive &= ~ends
        pause()
        left = int(alive.sum())
        if left == 0:
            break
        if left <= COMPACT_BELOW * len(rows):
            rows, tokens, limits = rows[alive], tokens[alive], limits[alive]
            caches.keep(alive)
            guard.keep(alive)
            alive = alive[alive]
    return record.hypotheses()


def _said(logits: Tensor, attention: Tensor) -> Said:
    best, tokens = logits.max(-1)
    return Said(tokens=tokens, frames=attention_centre(attention), probabilities=(best - logits.logsumexp(-1)).exp())


def _limit(frames: int) -> int:
    return int(frames * FRAME_SAMPLES / SAMPLE_RATE * TOKENS_PER_SECOND) + SPARE_TOKENS
