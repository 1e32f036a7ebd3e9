"""From samples to the input of the encoder's layers: three convolutions and the running norm, tick by tick.

Every tick computes on 4,351 samples, as the first one needs: 67 stem frames (4 ms), 21 columns, 10 frames. For a later
tick the first 448 samples do not exist; what they would give is replaced by what there was of the tick before:
4 normalised stem frames and 1 column. The tick before is in the same step or in what the slot kept.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from asr_model.contract import State
from asr_model.live.settings import TICK_FRAMES
from asr_model.live.slot_state import AUDIO_TAIL, STEM_TAIL
from asr_model.moonshine.dimensions import FRAME_SAMPLES, STEM_SAMPLES
from asr_model.moonshine.layers import Encoder

TICK_SAMPLES = TICK_FRAMES * FRAME_SAMPLES
LOOKAHEAD_SAMPLES = 511
"""Tick k = 1, 2, … is complete with sample ``TICK_SAMPLES * k + LOOKAHEAD_SAMPLES``."""
FIRST_TICK_SAMPLES = TICK_SAMPLES + LOOKAHEAD_SAMPLES
FIRST_STEM_FRAMES = LOOKAHEAD_SAMPLES // STEM_SAMPLES
"""Stem frames that only a first tick has: 7."""

GATE = 0.01
"""A stem frame this far below the level is silence (levels are mean squares)."""
JUMP = 4.0
"""A tick this far above the level sets it anew."""
MEMORY = 3750.0
"""Longest memory of the level, in stem frames: 15 s."""
FADE = 1 / 2500
"""Share of level and memory that a silent stem frame takes away."""
LEAST = 1e-6
"""The lowest level."""


def advance_norm(norm: Tensor, h: Tensor, valid: Tensor) -> Tensor:
    """The running norm after one tick. A plain running mean would raise the gain without end in silence.

    Args:
        norm: float32 [B, 3]: mean, mean square and weight of the past.
        h: float32 [B, D, F]: stem frames.
        valid: bool [B, F]: the frames that belong to this tick.

    Returns:
        float32 [B, 3]: moved by the frames that are no silence; set anew by a tick far louder than the past; faded by a
        tick of silence.
    """
    mean, square = h.mean(1), (h * h).mean(1)
    m, s, n = norm.unbind(1)
    loudest = square.masked_fill(~valid, -torch.inf).amax(1)
    heard = ((square > GATE * torch.maximum(s, loudest)[:, None]) & valid).float()
    k = heard.sum(1)
    x, y = (mean * heard).sum(1) / k.clamp(min=1), (square * heard).sum(1) / k.clamp(min=1)
    share = k / (n + k).clamp(1, MEMORY)
    average = s + share * (y - s)
    jump = y > JUMP * average
    kept = 1 - valid.sum(1) * FADE
    speaks = k > 0
    m = torch.where(speaks, m + share * (x - m), m * kept)
    s = torch.where(speaks, torch.where(jump, y / 2, average), s * kept).clamp(min=LEAST)
    n = torch.where(speaks, torch.where(jump, k, (n + k).clamp(max=MEMORY)), n * kept)
    return torch.stack((m, s, n), 1)


def normalise(encoder: Encoder, h: Tensor, norm: Tensor) -> Tensor:
    """Stem frames [B, D, F] by the norm [B, 3], then the layer's gain and offset."""
    m, s = norm[:, 0, None, None], norm[:, 1, None, None]
    h = (h - m) * torch.rsqrt((s - m * m).clamp(min=0) + 1e-5)
    return h * encoder.gn.weight[:, None] + encoder.gn.bias[:, None]


def tick_audio(audio: Tensor, is_first: Tensor, tail: Tensor) -> Tensor:
    """The 4,351 samples a tick computes on.

    Args:
        audio: float32 [B, 4351]: new samples from the left, zeros after them.
        is_first: bool [B].
        tail: float32 [B, 63]: the last samples of the tick before.
    """
    gap = LOOKAHEAD_SAMPLES - AUDIO_TAIL
    later = torch.cat((audio.new_zeros(len(audio), gap), tail, audio[:, :TICK_SAMPLES]), 1)
    return torch.where(is_first[:, None], audio, later)


@dataclass(frozen=True, slots=True)
class Ticks:
    """The ticks of a step: those of a row lie side by side, in order."""

    row: Tensor
    """int64 [U], ascending: whose they are, as an index into the step's rows."""
    offset: Tensor
    """int64 [U]: 0, 1, … within the row."""
    of_row: Tensor
    """int64 [U]: ticks of the row."""
    most: int
    """Most ticks of a row."""

    @classmethod
    def of(cls, counts: list[int], device: torch.device) -> "Ticks":
        """So many ticks of each row."""
        row = [i for i, n in enumerate(counts) for _ in range(n)]
        offset = [at for n in counts for at in range(n)]
        of_row = [n for n in counts for _ in range(n)]
        rows, offsets, sizes = (torch.tensor(x, device=device) for x in (row, offset, of_row))
        return cls(rows, offsets, sizes, max(counts))

    def __len__(self) -> int:
        return len(self.row)

    def is_last(self) -> Tensor:
        """bool [U]: the last ticks of their rows."""
        return self.offset == self.of_row - 1

    def after(self, kept: Tensor, now: Tensor) -> Tensor:
        """What each tick finds of the tick before it.

        Args:
            kept: [B, …], of the rows' slots: what their last step left.
            now: [U, …], what each tick of this step leaves.

        Returns:
            [U, …].
        """
        if self.most == 1:
            return kept[self.row]
        is_first = (self.offset == 0).view(-1, *[1] * (now.dim() - 1))
        return torch.where(is_first, kept[self.row], now.roll(1, 0))


def stem_step(encoder: Encoder, audio: Tensor, ticks: Ticks, slots: Tensor, keep: Tensor, state: State) -> Tensor:
    """The ticks of a step through the convolutions.

    Args:
        encoder: parameters.
        audio: float32 [U, 4351]: new samples from the left, zeros after them.
        ticks: whose they are.
        slots: int64 [B], of the rows.
        keep: int64 [K]: the ticks whose slots move on to behind them; flushes leave their slots as they were.
        state: of the slots.

    Returns:
        float32 [U, TICK_FRAMES, D].
    """
    is_first = (state["ticks"][slots][ticks.row] + ticks.offset) == 0
    last_samples = torch.where(is_first[:, None], audio[:, -AUDIO_TAIL:], audio[:, :TICK_SAMPLES][:, -AUDIO_TAIL:])
    audio = tick_audio(audio, is_first, ticks.after(state["audio_tail"][slots], last_samples))
    h = torch.tanh(encoder.c1(audio[:, None]))
    valid = is_first[:, None] | (torch.arange(h.shape[2], device=h.device) >= FIRST_STEM_FRAMES)
    norm = _norms(h, valid, ticks, state["norm"][slots])
    h = normalise(encoder, h, norm)
    old = ticks.after(state["stem_tail"][slots], h[:, :, -STEM_TAIL:])
    edge = FIRST_STEM_FRAMES
    h[:, :, edge - STEM_TAIL : edge] = torch.where(is_first[:, None, None], h[:, :, edge - STEM_TAIL : edge], old)
    columns = F.gelu(encoder.c2(h))
    old = ticks.after(state["column_tail"][slots], columns[:, :, -1])
    columns[:, :, 0] = torch.where(is_first[:, None], columns[:, :, 0], old)
    kept_slots = slots[ticks.row[keep]]
    state["audio_tail"][kept_slots] = audio[keep, -AUDIO_TAIL:]
    state["norm"][kept_slots] = norm[keep]
    state["stem_tail"][kept_slots] = h[keep, :, -STEM_TAIL:]
    state["column_tail"][kept_slots] = columns[keep, :, -1]
    return F.gelu(encoder.c3(columns)).transpose(1, 2)


def _norms(h: Tensor, valid: Tensor, ticks: Ticks, before: Tensor) -> Tensor:
    """The running norm float32 [U, 3] after each tick. ``before``: float32 [B, 3] of the rows."""
    if ticks.most == 1:
        return advance_norm(before[ticks.row], h, valid)
    norm = h.new_zeros(len(ticks), 3)
    for offset in range(ticks.most):
        at = (ticks.offset == offset).nonzero()[:, 0]
        norm[at] = advance_norm(norm[at - 1] if offset else before[ticks.row[at]], h[at], valid[at])
    return norm
