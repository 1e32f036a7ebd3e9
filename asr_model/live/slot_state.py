"""What a slot of the live model remembers, declared. Some 30 MB a slot in float32.

Encoder: the convolutions' inputs, the running norm, a ring of keys and values per layer. Utterance: cross-attention
memory, the decoder's own cache, committed tokens, the draft with its votes. Nothing else is kept anywhere.
"""

import torch

from asr_model.contract import StateTensor
from asr_model.live.settings import LiveSettings
from asr_model.moonshine.dimensions import HEAD_DIM, HEADS, LAYERS, START, D

AUDIO_TAIL, STEM_TAIL = 63, 4
"""Samples and normalised stem frames that the next tick's convolutions need again."""

ENCODER_STATE = ("ticks", "audio_tail", "stem_tail", "column_tail", "norm", "ring_k", "ring_v")
"""What a flush must leave bit-equal (I8)."""


READING_STATE = (
    "is_open",
    "owes_endpoint",
    "silent_frames",
    "tail_frames",
    "stalled_ticks",
    "passage_frame",
    "passage_token",
    "memory_size",
    "heard",
    "token_count",
    "draft_size",
)
"""What a Finalize puts back, so that reading goes on as if there had been none. What it writes beyond these sizes is
overwritten before it is read."""


def declare(settings: LiveSettings) -> dict[str, StateTensor]:
    """The state of a slot. Shapes are fixed by the settings, so its memory is bounded."""
    f32, i64 = torch.float32, torch.int64
    ring = (LAYERS, HEADS, settings.ring_frames, HEAD_DIM)
    memory = (LAYERS, HEADS, settings.memory_frames, HEAD_DIM)
    own = (LAYERS, HEADS, settings.token_capacity, HEAD_DIM)
    tokens, draft = (settings.token_capacity,), (settings.draft_tokens,)
    return {
        "ticks": StateTensor(shape=(), dtype=i64),
        "audio_tail": StateTensor(shape=(AUDIO_TAIL,), dtype=f32),
        "stem_tail": StateTensor(shape=(D, STEM_TAIL), dtype=f32),
        "column_tail": StateTensor(shape=(2 * D,), dtype=f32),
        "norm": StateTensor(shape=(3,), dtype=f32),
        "ring_k": StateTensor(shape=ring, dtype=f32),
        "ring_v": StateTensor(shape=ring, dtype=f32),
        "endpoint_frames": StateTensor(shape=(), dtype=i64, initial=settings.endpoint_frames),
        "sentence_frames": StateTensor(shape=(), dtype=i64, initial=settings.sentence_frames),
        "is_open": StateTensor(shape=(), dtype=torch.bool),
        "owes_endpoint": StateTensor(shape=(), dtype=torch.bool),
        "silent_frames": StateTensor(shape=(), dtype=i64),
        "tail_frames": StateTensor(shape=(), dtype=i64),
        "stalled_ticks": StateTensor(shape=(), dtype=i64),
        "first_frame": StateTensor(shape=(), dtype=i64),
        "said_frame": StateTensor(shape=(), dtype=i64),
        "passage_frame": StateTensor(shape=(), dtype=i64),
        "passage_token": StateTensor(shape=(), dtype=i64),
        "memory_base": StateTensor(shape=(), dtype=i64),
        "memory_size": StateTensor(shape=(), dtype=i64),
        "memory_k": StateTensor(shape=memory, dtype=f32),
        "memory_v": StateTensor(shape=memory, dtype=f32),
        "memory_level": StateTensor(shape=(settings.memory_frames,), dtype=f32),
        "memory_speech": StateTensor(shape=(settings.memory_frames,), dtype=f32),
        "own_k": StateTensor(shape=own, dtype=f32),
        "own_v": StateTensor(shape=own, dtype=f32),
        "heard": StateTensor(shape=(), dtype=i64),
        "token_count": StateTensor(shape=(), dtype=i64, initial=1),
        "tokens": StateTensor(shape=tokens, dtype=i64, initial=START),
        "token_frames": StateTensor(shape=tokens, dtype=i64),
        "token_centres": StateTensor(shape=tokens, dtype=f32),
        "token_probabilities": StateTensor(shape=tokens, dtype=f32),
        "token_margins": StateTensor(shape=tokens, dtype=f32),
        "draft_size": StateTensor(shape=(), dtype=i64),
        "draft": StateTensor(shape=draft, dtype=i64),
        "draft_votes": StateTensor(shape=draft, dtype=i64),
        "draft_frames": StateTensor(shape=draft, dtype=i64),
        "draft_centres": StateTensor(shape=draft, dtype=f32),
        "draft_probabilities": StateTensor(shape=draft, dtype=f32),
        "draft_margins": StateTensor(shape=draft, dtype=f32),
    }
