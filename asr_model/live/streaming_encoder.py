"""The encoder, a tick or some of every row at a time: each frame sees its own tick and the left context before it.

Equal to ``offline.encode`` over the whole file, whatever the chunks the audio came in and however many ticks went
together. Keys and values are written in place into a ring per slot; a flush puts back what it overwrote.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from asr_model.contract import State
from asr_model.live.network import LiveNetwork
from asr_model.live.settings import TICK_FRAMES, LiveSettings
from asr_model.live.slot_rows import SlotRows
from asr_model.live.stem import Ticks, stem_step
from asr_model.moonshine.layers import angles


class StreamingEncoder:
    """Runs ticks through the network's layers over the rings of the slots."""

    def __init__(self, network: LiveNetwork, settings: LiveSettings) -> None:
        self._network, self._left, self._ring = network, settings.left_frames, settings.ring_frames

    def step(
        self, rows: SlotRows, audio: Tensor, ticks: Ticks, is_flush: Tensor, state: State
    ) -> tuple[Tensor, Tensor]:
        """The next ticks of each row, at most ``MAX_TICKS``. Slots stay at the tick they are at: see ``advance``.

        Args:
            rows: the slots.
            audio: float32 [U, 4351]: a first tick's samples, or 3,840 and zeros; a flush is padded with zeros.
            ticks: whose the U ticks are; at least one of each row.
            is_flush: bool [B]: compute, but leave the slot's encoder state as it was. One tick.
            state: of the slots; changed in place.

        Returns:
            features float32 [U, TICK_FRAMES, D] and the probability [U, TICK_FRAMES] that a frame's CTC symbol is no
            blank.
        """
        encoder, slots = self._network.encoder, rows.slots[ticks.row]
        flushes = is_flush[ticks.row]
        keep, undo = (~flushes & ticks.is_last()).nonzero()[:, 0], flushes.nonzero()[:, 0]
        number = state["ticks"][slots] + ticks.offset
        x = stem_step(encoder, audio, ticks, rows.slots, keep, state)
        position = number[:, None] * TICK_FRAMES + torch.arange(TICK_FRAMES, device=x.device)
        cos, sin = (a[:, None] for a in angles(position))
        at = position % self._ring
        lanes = _Lanes(rows, ticks, self._visible(number, state["ticks"][slots], ticks))
        for i, layer in enumerate(encoder.layers):
            q, k, v = layer.project(x, cos, sin)
            ring_k, ring_v = state["ring_k"][:, i], state["ring_v"][:, i]
            index = slots[:, None], slice(None), at
            back = slots[undo, None], slice(None), at[undo]
            old = (ring_k[back], ring_v[back]) if len(undo) else None
            ring_k[index], ring_v[index] = k.transpose(1, 2), v.transpose(1, 2)
            attended = lanes.attend(q, rows.cache(ring_k, self._ring), rows.cache(ring_v, self._ring))
            if old is not None:
                ring_k[back], ring_v[back] = old
            x = layer.finish(x, attended)
        features = encoder.ln(x)
        return features, 1 - self._network.head(features).softmax(-1)[..., 0]

    def _visible(self, number: Tensor, done: Tensor, ticks: Ticks) -> Tensor:
        """Ring positions that the frames of each tick see: bool [U, ring].

        Args:
            number: int64 [U]: which tick of its sequence each is, from 0.
            done: int64 [U]: ticks of the sequence before this step.
            ticks: of the step.
        """
        n = self._ring // TICK_FRAMES
        newest = (done + ticks.of_row - 1)[:, None]
        held = newest - (newest - torch.arange(n, device=number.device)) % n
        frame = held[..., None] * TICK_FRAMES + torch.arange(TICK_FRAMES, device=number.device)
        first = (number * TICK_FRAMES - self._left).clamp(min=0)
        return ((frame >= first[:, None, None]) & (held <= number[:, None])[..., None]).flatten(1)


def advance(slots: Tensor, state: State) -> None:
    """The distinct slots int64 [B] are past one more tick."""
    state["ticks"][slots] += 1


class _Lanes:
    """Queries of a step's ticks, laid out for attention over the lanes of its rows."""

    def __init__(self, rows: SlotRows, ticks: Ticks, visible: Tensor) -> None:
        self._rows, self._ticks = rows, ticks
        if ticks.most == 1:
            self._mask = rows.spread(visible)[:, None, None]
            return
        self._place = rows.lanes[ticks.row] * ticks.most + ticks.offset
        mask = self._padded(visible[:, None].expand(-1, TICK_FRAMES, -1))
        self._mask = mask.view(rows.n_lanes, 1, ticks.most * TICK_FRAMES, -1)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention [U, H, TICK_FRAMES, E] of q [U, H, TICK_FRAMES, E] over its lane's [n_lanes, H, W, E]."""
        rows, ticks = self._rows, self._ticks
        if ticks.most == 1:
            return rows.collect(F.scaled_dot_product_attention(rows.spread(q), keys, values, attn_mask=self._mask))
        _, heads, frames, width = q.shape
        padded = self._padded(q.transpose(1, 2)).view(rows.n_lanes, ticks.most * frames, heads, width)
        found = F.scaled_dot_product_attention(padded.transpose(1, 2), keys, values, attn_mask=self._mask)
        found = found.transpose(1, 2).reshape(-1, frames, heads, width)
        return found.index_select(0, self._place).transpose(1, 2)

    def _padded(self, x: Tensor) -> Tensor:
        """[U, ...] -> [n_lanes * most, ...], zeros where a lane has no such tick."""
        padded = x.new_zeros(self._rows.n_lanes * self._ticks.most, *x.shape[1:])
        return padded.index_copy_(0, self._place, x)
