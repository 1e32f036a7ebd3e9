"""The cross-attention memory of an utterance: keys and values of its frames, each projected once, appended in place.

Position p of a slot's memory holds frame ``memory_base + p`` of the sequence; positions before ``first_frame`` belong
to the utterance before and are masked. While no utterance is open the memory keeps the lead-in only.
"""

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live.settings import TICK_FRAMES
from asr_model.moonshine.layers import Decoder


def append(decoder: Decoder, features: Tensor, slots: Tensor, state: State) -> None:
    """Append one tick's features [B, TICK_FRAMES, D] to the memories of int64 [B] slots."""
    at = state["memory_size"][slots, None] + torch.arange(TICK_FRAMES, device=slots.device)
    index = slots[:, None], slice(None), at
    for i, layer in enumerate(decoder.layers):
        k, v = layer.memory(features)
        state["memory_k"][:, i][index] = k.transpose(1, 2)
        state["memory_v"][:, i][index] = v.transpose(1, 2)
    state["memory_size"][slots] += TICK_FRAMES


def drop_front(slots: Tensor, frames: Tensor, state: State) -> None:
    """Forget the first ``frames`` int64 [B] positions of the slots' memories; the rest moves to the front."""
    if not len(slots):
        return
    left = state["memory_size"][slots] - frames
    width = int(left.max())
    if width > 0:
        target = torch.arange(width, device=slots.device)[None]
        source = (frames[:, None] + target).clamp(max=state["memory_k"].shape[3] - 1)
        for name in ("memory_k", "memory_v"):
            memory = state[name]
            moved = memory[slots[:, None], :, :, source]
            memory[slots[:, None], :, :, target.expand_as(source)] = moved
    state["memory_size"][slots] = left
    state["memory_base"][slots] += frames


def begin_utterance(slots: Tensor, first_frame: Tensor, kept: Tensor, state: State) -> None:
    """Fresh decoder state; the slots' next utterances start at frames ``first_frame`` int64 [B] of their sequences.

    Of the memory the last ``kept`` int64 [B] frames stay.
    """
    drop_front(slots, state["memory_size"][slots] - kept, state)
    state["first_frame"][slots] = first_frame
    state["memory_base"][slots] = state["ticks"][slots] * TICK_FRAMES - kept
    for name in ("silent_frames", "stalled_ticks", "draft_size", "heard"):
        state[name][slots] = 0
    state["is_open"][slots] = False
    state["token_count"][slots] = 1
