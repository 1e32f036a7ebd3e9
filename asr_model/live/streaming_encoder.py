"""The encoder, one tick of every row at a time: each frame sees its own tick and the left context before that tick.

Equal to ``offline.encode`` over the whole file, whatever the chunks the audio came in. Keys and values are written in
place into a ring per slot; a flush puts back what it overwrote.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from asr_model.contract import State
from asr_model.live.network import LiveNetwork
from asr_model.live.settings import TICK_FRAMES, LiveSettings
from asr_model.live.slot_rows import SlotRows
from asr_model.live.stem import stem_step
from asr_model.moonshine.layers import angles


class StreamingEncoder:
    """Runs ticks through the network's layers over the rings of the slots."""

    def __init__(self, network: LiveNetwork, settings: LiveSettings) -> None:
        self._network, self._left, self._ring = network, settings.left_frames, settings.ring_frames

    def step(self, rows: SlotRows, audio: Tensor, is_flush: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """One tick.

        Args:
            rows: the slots.
            audio: float32 [B, 4351]: a first tick's samples, or 3,840 and zeros; a flush is padded with zeros.
            is_flush: bool [B]: compute, but leave the slot's encoder state as it was.
            state: of the slots; changed in place.

        Returns:
            features float32 [B, TICK_FRAMES, D] and the probability [B, TICK_FRAMES] that a frame's CTC symbol is no
            blank.
        """
        encoder, slots = self._network.encoder, rows.slots
        keep, undo = (~is_flush).nonzero()[:, 0], is_flush.nonzero()[:, 0]
        ticks = state["ticks"][slots]
        x = stem_step(encoder, audio, slots, keep, state)
        position = ticks[:, None] * TICK_FRAMES + torch.arange(TICK_FRAMES, device=x.device)
        cos, sin = (a[:, None] for a in angles(position))
        at = position % self._ring
        mask = rows.spread(self._visible(ticks))[:, None, None]
        for i, layer in enumerate(encoder.layers):
            q, k, v = layer.project(x, cos, sin)
            ring_k, ring_v = state["ring_k"][:, i], state["ring_v"][:, i]
            index = slots[:, None], slice(None), at
            back = slots[undo, None], slice(None), at[undo]
            old = (ring_k[back], ring_v[back]) if len(undo) else None
            ring_k[index], ring_v[index] = k.transpose(1, 2), v.transpose(1, 2)
            attended = F.scaled_dot_product_attention(
                rows.spread(q), rows.cache(ring_k, self._ring), rows.cache(ring_v, self._ring), attn_mask=mask
            )
            if old is not None:
                ring_k[back], ring_v[back] = old
            x = layer.finish(x, rows.collect(attended))
        state["ticks"][slots[keep]] += 1
        features = encoder.ln(x)
        return features, 1 - self._network.head(features).softmax(-1)[..., 0]

    def _visible(self, ticks: Tensor) -> Tensor:
        """Ring positions that frames of tick number ``ticks`` [B] (from 0) see: bool [B, ring]."""
        n = self._ring // TICK_FRAMES
        place = torch.arange(n, device=ticks.device)
        held = ticks[:, None] - (ticks[:, None] - place) % n
        frame = held[..., None] * TICK_FRAMES + torch.arange(TICK_FRAMES, device=ticks.device)
        first = (ticks * TICK_FRAMES - self._left).clamp(min=0)
        return (frame >= first[:, None, None]).flatten(1)
