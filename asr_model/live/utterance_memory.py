"""The cross-attention memory of an utterance: keys and values of its frames, each projected once, appended in place.

Position p of a slot's memory holds frame ``memory_base + p`` of the sequence; positions before ``first_frame`` belong
to the utterance before. While no utterance is open the memory keeps the lead-in only. The decoder reads an utterance in
passages, mostly in one: where it will not go on, it starts afresh and sees frames from ``passage_frame`` on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from asr_model.contract import State
from asr_model.live.settings import TICK_FRAMES
from asr_model.moonshine.dimensions import START
from asr_model.moonshine.layers import Decoder

DRAFT_OF = {
    "tokens": "draft",
    "token_frames": "draft_frames",
    "token_centres": "draft_centres",
    "token_probabilities": "draft_probabilities",
    "token_margins": "draft_margins",
}
"""What is kept of committed tokens, and the same of the draft's."""


@dataclass(frozen=True, slots=True)
class Sounds:
    """Ticks as memories keep them."""

    keys: list[Tensor]
    """Of each layer: float32 [U, H, TICK_FRAMES, E], as the values."""
    values: list[Tensor]
    level: Tensor
    """float32 [U, TICK_FRAMES]: see ``sound``."""
    speech: Tensor
    """float32 [U, TICK_FRAMES]: how probably frames are speech."""

    @classmethod
    def of(cls, decoder: Decoder, features: Tensor, level: Tensor, speech: Tensor) -> "Sounds":
        """Project the features float32 [U, TICK_FRAMES, D] of ticks for the decoder whose memory it is."""
        projected = [layer.memory(features) for layer in decoder.layers]
        return cls([k for k, _ in projected], [v for _, v in projected], level, speech)


def append(sounds: Sounds, ticks: Tensor, slots: Tensor, state: State) -> None:
    """Append a tick to each of the memories.

    Args:
        sounds: of the step.
        ticks: int64 [B]: which of them.
        slots: int64 [B].
        state: of the slots.
    """
    at = state["memory_size"][slots, None] + torch.arange(TICK_FRAMES, device=slots.device)
    index = slots[:, None], slice(None), at
    for i, (k, v) in enumerate(zip(sounds.keys, sounds.values, strict=True)):
        state["memory_k"][:, i][index] = k[ticks].transpose(1, 2)
        state["memory_v"][:, i][index] = v[ticks].transpose(1, 2)
    state["memory_level"][slots[:, None], at] = sounds.level[ticks]
    state["memory_speech"][slots[:, None], at] = sounds.speech[ticks]
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
        for name in ("memory_level", "memory_speech"):
            state[name][slots[:, None], target.expand_as(source)] = state[name][slots[:, None], source]
    state["memory_size"][slots] = left
    state["memory_base"][slots] += frames


def carry_over(slots: Tensor, first_token: Tensor, votes: int, state: State) -> None:
    """Take back the committed tokens from place ``first_token`` int64 [B] on: they come first in the draft.

    Args:
        slots: int64 [B].
        first_token: their count where none is to be taken back.
        votes: how often they count as chosen.
        state: of the slots.
    """
    width, capacity = state["draft"].shape[1], state["tokens"].shape[1]
    place = torch.arange(width, device=slots.device)[None]
    moved = (state["token_count"][slots] - first_token)[:, None]
    taken = (first_token[:, None] + place).clamp(max=capacity - 1)
    kept = (place - moved).clamp(min=0)
    is_taken = place < moved
    for committed, draft in DRAFT_OF.items():
        values = state[committed][slots].gather(1, taken), state[draft][slots].gather(1, kept)
        state[draft][slots] = torch.where(is_taken, *values)
    state["draft_votes"][slots] = torch.where(is_taken, votes, state["draft_votes"][slots].gather(1, kept))
    state["draft_size"][slots] = (state["draft_size"][slots] + moved[:, 0]).clamp(max=width)
    state["token_count"][slots] = first_token


def begin_utterance(slots: Tensor, first_frame: Tensor, kept: Tensor, state: State) -> None:
    """Fresh decoder state; the slots' next utterances start at frames ``first_frame`` int64 [B] of their sequences.

    Of the memory the last ``kept`` int64 [B] frames stay.
    """
    drop_front(slots, state["memory_size"][slots] - kept, state)
    start_reading(slots, first_frame, state)
    state["memory_base"][slots] = state["ticks"][slots] * TICK_FRAMES - kept
    for name in ("silent_frames", "tail_frames", "draft_size"):
        state[name][slots] = 0
    state["is_open"][slots] = False


def start_reading(slots: Tensor, first_frame: Tensor, state: State) -> None:
    """An utterance that begins at frames ``first_frame`` int64 [B] of its sequence, and of which nothing is read."""
    state["first_frame"][slots] = state["passage_frame"][slots] = first_frame
    for name in ("passage_token", "stalled_ticks", "heard"):
        state[name][slots] = 0
    state["token_count"][slots] = 1


def begin_passage(slots: Tensor, heard: Tensor, state: State) -> None:
    """Go on reading utterances afresh behind what was read of them: the draft stands, and the decoder forgets it all.

    Args:
        slots: int64 [B].
        heard: int64 [B]: the last memory position that is not read again.
        state: of the slots.
    """
    count, size = state["token_count"][slots], state["draft_size"][slots]
    place = torch.arange(state["draft"].shape[1], device=slots.device)
    row, offset = (place < size[:, None]).nonzero().unbind(1)
    at = slots[row], count[row] + offset
    for committed, draft in DRAFT_OF.items():
        state[committed][at] = state[draft][slots[row], offset]
    last = count + size
    state["tokens"][slots, last] = START
    state["token_frames"][slots, last], state["token_centres"][slots, last] = heard, heard.float()
    state["token_count"][slots], state["draft_size"][slots] = last + 1, 0
    state["passage_token"][slots], state["passage_frame"][slots] = last, state["memory_base"][slots] + heard + 1
    state["heard"][slots], state["stalled_ticks"][slots] = heard, 0
