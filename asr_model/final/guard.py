"""Notices when a decoder has lost its place, by where in the audio it reads.

Moonshine's cross-attention has no positions: nothing keeps the decoder from reading a passage again and again. Counting
repeats alone would cut a speaker who says "no, no, no". A repeat that advances in the audio was said; one that is read
from the same frames as before was not. Nor was what is read from long before the furthest place.
"""

from typing import Final

import torch
from torch import Tensor

LONGEST_PERIOD: Final = 40
"""Tokens of the longest passage whose repeat is noticed."""
ADVANCE_FRAMES: Final = 4.0
"""A token that repeats one this far or further on in the audio (96 ms) has been said again."""
BACK_FRAMES: Final = 12.0
"""How far before the furthest place a token may be read: commas and the like look back."""
BACK_TOKENS: Final = 3
"""Tokens in a row read from further back than that: the decoder has turned back."""


class RunawayGuard:
    """Watches the tokens of a batch as they are said, all rows at the same position."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._tokens = torch.full((rows, LONGEST_PERIOD), -1, device=device)
        """int64 [B, P]: the last tokens, newest first."""
        self._frames = torch.zeros((rows, LONGEST_PERIOD), device=device)
        """float32 [B, P]: where they were read."""
        self._repeated = torch.zeros((rows, LONGEST_PERIOD), dtype=torch.long, device=device)
        """int64 [B, P]: per period, how many tokens in a row repeat those of a period before without advance."""
        self._furthest = torch.zeros(rows, device=device)
        """float32 [B]: the furthest place that two tokens in a row have reached; a single one may stray."""
        self._behind = torch.zeros(rows, dtype=torch.long, device=device)
        """int64 [B]: tokens in a row read from further back than allowed."""
        self._period = torch.arange(1, LONGEST_PERIOD + 1, device=device)

    def observe(self, tokens: Tensor, frames: Tensor) -> Tensor:
        """Takes the next token of each row.

        Args:
            tokens: int64 [B].
            frames: float32 [B], the frame that each was read from.

        Returns:
            int64 [B]: 0, or how many of the newest tokens were not said and are to be dropped; the row then ends.
        """
        again = (self._tokens == tokens[:, None]) & (frames[:, None] - self._frames < ADVANCE_FRAMES)
        self._repeated = torch.where(again, self._repeated + 1, 0)
        repeats = torch.where(self._repeated >= self._period.clamp(min=2), self._repeated, 0).amax(1)
        self._behind = torch.where(frames < self._furthest - BACK_FRAMES, self._behind + 1, 0)
        self._furthest = torch.maximum(self._furthest, torch.minimum(frames, self._frames[:, 0]))
        self._tokens = torch.cat((tokens[:, None], self._tokens[:, :-1]), 1)
        self._frames = torch.cat((frames[:, None], self._frames[:, :-1]), 1)
        return torch.maximum(repeats, torch.where(self._behind >= BACK_TOKENS, self._behind, 0))

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows alone."""
        self._tokens, self._frames, self._repeated = self._tokens[rows], self._frames[rows], self._repeated[rows]
        self._furthest, self._behind = self._furthest[rows], self._behind[rows]
