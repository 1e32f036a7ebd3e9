"""Moonshine's decoder over the caches of the slots: one pass computes any number of positions of any rows.

Positions are packed: row lengths differ and nothing is padded outside attention, where queries go to lanes
(``slot_rows``) and caches are read in place.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from asr_model.contract import State
from asr_model.live.slot_rows import SlotRows
from asr_model.live.token_choice import TokenChoice
from asr_model.moonshine.alignment_heads import attended, attention_centre
from asr_model.moonshine.dimensions import HEAD_DIM, HEADS
from asr_model.moonshine.layers import Decoder, angles, rotate
from asr_model.moonshine.tokenizer import Tokenizer

MEMORY_BUCKET, OWN_BUCKET = 40, 16
"""Cache widths are rounded up to these, so that few shapes occur."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Positions to compute, packed over rows."""

    tokens: Tensor
    """int64 [P]."""
    row: Tensor
    """int64 [P]: index into the rows."""
    offset: Tensor
    """int64 [P]: 0, 1, … within the row."""
    position: Tensor
    """int64 [P]: token position in the passage; START has 0."""
    longest: int
    """Most positions of a row."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the decoder chooses after each of the packed positions."""

    tokens: Tensor
    """int64 [P]."""
    frames: Tensor
    """int64 [P]: memory position from which the chosen token was read: where the alignment heads attend most."""
    centres: Tensor
    """float32 [P]: centre of their attention, which tells the time better and the turning back worse."""
    probabilities: Tensor
    """float32 [P]."""
    margins: Tensor
    """float32 [P]: how far the logit of the chosen token is above that of the second best."""


@dataclass(frozen=True, slots=True)
class Bans:
    """What a pass may not choose. bool [B] each."""

    no_end: Tensor
    """The end token, anywhere in the row."""
    no_letters: Tensor
    """After the row's first position, a token that goes on with its word."""


class CachedDecoder:
    """Passes of the decoder over slot caches."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer) -> None:
        self._decoder = decoder
        self._choice = TokenChoice(decoder, tokenizer)

    def run(self, rows: SlotRows, packed: Packed, state: State, bans: Bans | None = None) -> Choice:
        """One pass.

        Args:
            rows: the slots.
            packed: the positions; their keys and values are written into the slots' own caches.
            state: of the slots.
            bans: what may not be chosen.
        """
        slots = rows.slots[packed.row]
        lane = rows.lanes[packed.row] * packed.longest + packed.offset
        memory_width = _bucket(int(state["memory_size"][rows.slots].max()), MEMORY_BUCKET, state["memory_k"].shape[3])
        own_width = _bucket(int(packed.position.max()) + 1, OWN_BUCKET, state["own_k"].shape[3])
        own_mask = self._own_mask(rows, packed, lane, own_width)
        memory_mask = self._memory_mask(rows, memory_width, state)
        cos, sin = (a[:, None] for a in angles(packed.position))
        x = self._decoder.embed(packed.tokens)
        watched = x.new_zeros(rows.n_lanes, packed.longest, memory_width)
        for i, layer in enumerate(self._decoder.layers):
            q, k, v = (_heads(a) for a in layer.project_own(x))
            own_k, own_v = state["own_k"][:, i], state["own_v"][:, i]
            own_k[slots, :, packed.position], own_v[slots, :, packed.position] = rotate(k, cos, sin), v
            q = _to_lanes(rotate(q, cos, sin), lane, rows.n_lanes, packed.longest)
            own = rows.cache(own_k, own_width), rows.cache(own_v, own_width)
            a = F.scaled_dot_product_attention(q, *own, attn_mask=own_mask)
            x, asked = layer.after_own(x, _from_lanes(a, lane))
            q = _to_lanes(_heads(asked), lane, rows.n_lanes, packed.longest)
            keys = rows.cache(state["memory_k"][:, i], memory_width)
            values = rows.cache(state["memory_v"][:, i], memory_width)
            a = F.scaled_dot_product_attention(q, keys, values, attn_mask=memory_mask)
            x = layer.finish(x, _from_lanes(a, lane))
            if (part := attended(i, q, keys, memory_mask)) is not None:
                watched += part
        if bans is None:
            tokens, probabilities, margins = self._choice.choose(x, None)
        else:
            no_letters = bans.no_letters[packed.row] & (packed.offset == 0)
            tokens, probabilities, margins = self._choice.choose(x, bans.no_end[packed.row], no_letters)
        attention = watched.flatten(0, 1).index_select(0, lane)
        return Choice(tokens, attention.argmax(-1), attention_centre(attention), probabilities, margins)

    @staticmethod
    def _own_mask(rows: SlotRows, packed: Packed, lane: Tensor, width: int) -> Tensor:
        """bool [lanes, 1, longest, width]: a position sees itself and those before it."""
        position = lane.new_zeros(rows.n_lanes * packed.longest).index_copy_(0, lane, packed.position)
        seen = torch.arange(width, device=lane.device) <= position[:, None]
        return seen.view(rows.n_lanes, 1, packed.longest, width)

    @staticmethod
    def _memory_mask(rows: SlotRows, width: int, state: State) -> Tensor:
        """bool [lanes, 1, 1, width]: the frames of the passage that is read."""
        first = (state["passage_frame"] - state["memory_base"])[rows.slots, None]
        size = state["memory_size"][rows.slots, None]
        place = torch.arange(width, device=rows.slots.device)
        return rows.spread((place >= first) & (place < size))[:, None, None]


def _heads(x: Tensor) -> Tensor:
    """[P, D] -> [P, H, E]."""
    return x.view(len(x), HEADS, HEAD_DIM)


def _to_lanes(x: Tensor, lane: Tensor, n_lanes: int, longest: int) -> Tensor:
    """Packed [P, H, E] -> [lanes, H, longest, E]."""
    padded = x.new_zeros(n_lanes * longest, *x.shape[1:]).index_copy_(0, lane, x)
    return padded.view(n_lanes, longest, *x.shape[1:]).transpose(1, 2)


def _from_lanes(x: Tensor, lane: Tensor) -> Tensor:
    """[lanes, H, longest, E] -> packed [P, D]."""
    return x.transpose(1, 2).flatten(0, 1).index_select(0, lane).flatten(1)


def _bucket(size: int, step: int, limit: int) -> int:
    return min(-(-size // step) * step, limit)
