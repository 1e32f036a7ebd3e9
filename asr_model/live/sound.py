"""How loud it is, frame by frame, and where it is quietest: between words, if the words' times are about right.

A level is told in dB of full scale. Level p of a memory is that of the 384 samples that end 447 samples after frame p
began, the latest that a tick has for its last frame. So what sounds around the start of frame p is level p - 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live.settings import TICK_FRAMES
from asr_model.live.stem import LOOKAHEAD_SAMPLES, TICK_SAMPLES
from asr_model.moonshine.dimensions import FRAME_SAMPLES

SILENCE_DB = -100.0
"""The lowest level, that of digital silence."""
DELAY_FRAMES = 2
"""How many frames after its level a frame starts."""


def levels(audio: Tensor, is_first: Tensor) -> Tensor:
    """Levels float32 [B, TICK_FRAMES] of a tick.

    Args:
        audio: float32 [B, 4351]: new samples from the left, zeros after them.
        is_first: bool [B]: the sequence's first tick, which has all 4,351.
    """
    later, first = audio[:, :TICK_SAMPLES], audio[:, LOOKAHEAD_SAMPLES:]
    blocks = torch.where(is_first[:, None], first, later).view(len(audio), TICK_FRAMES, FRAME_SAMPLES)
    return (10 * blocks.square().mean(2).clamp(min=1e-10).log10()).clamp(min=SILENCE_DB)


@dataclass(frozen=True, slots=True)
class Search:
    """How far a quiet place is looked for, and how long it must be."""

    span: int
    """Frames looked at."""
    reach: int
    """Frames before and after a place that count for how loud it is there."""


def quietest(slots: Tensor, low: Tensor, high: Tensor, search: Search, state: State) -> tuple[Tensor, Tensor]:
    """Where in their memories it is quietest, and how loud there.

    Args:
        slots: int64 [B].
        low: int64 [B, C]: first memory positions to look at.
        high: int64 [B, C]: last ones, within the span and the memory.
        search: how to look.
        state: of the slots.

    Returns:
        int64 [B, C] positions, the first of the quietest; float32 [B, C] mean levels around them.
    """
    place = low[..., None] + torch.arange(search.span, device=slots.device)
    allowed = place <= torch.minimum(high, state["memory_size"][slots, None])[..., None]
    level = state["memory_level"][slots]
    reach = range(-search.reach, search.reach + 1)
    around = torch.stack([_at(level, place - DELAY_FRAMES + near) for near in reach]).mean(0)
    least, offset = around.masked_fill(~allowed, torch.inf).min(-1)
    return low + offset, least


def _at(level: Tensor, place: Tensor) -> Tensor:
    """level [B, W] at int64 [B, C, K] -> [B, C, K]."""
    found: Tensor = level.gather(1, place.clamp(0, level.shape[1] - 1).flatten(1)).view(place.shape)
    return found


def speech_level(slots: Tensor, threshold: float, state: State) -> Tensor:
    """Mean level float32 [B] of the frames in the memories that are speech; infinite without any."""
    place = torch.arange(state["memory_level"].shape[1], device=slots.device)
    spoken = (state["memory_speech"][slots] > threshold) & (place < state["memory_size"][slots, None])
    total = torch.where(spoken, state["memory_level"][slots], 0.0).sum(1)
    return total / spoken.sum(1)


def background_level(slots: Tensor, state: State) -> Tensor:
    """The lowest level float32 [B] in the memories."""
    place = torch.arange(state["memory_level"].shape[1], device=slots.device)
    held = place < state["memory_size"][slots, None]
    return state["memory_level"][slots].masked_fill(~held, 0.0).amin(1)
