"""Notices when a decoder has lost its place, by where in the audio it reads.

Moonshine's cross-attention has no positions: nothing keeps the decoder from reading a passage again and again. Counting
repeats alone would cut a speaker who says "no, no, no". A repeat that advances in the audio was said; a repeat that is
read from the same frames as before was not.
"""

from typing import Final

import torch
from torch import Tensor

LONGEST_PERIOD: Final = 40
"""Tokens of the longest passage whose repeat is noticed."""
ADVANCE_FRAMES: Final = 3
"""A token that repeats one this many frames or more further on in the audio has been said again."""
SHORT_RUN: Final = 8
"""Tokens that must repeat without advance, where the passage itself is shorter."""


class RunawayGuard:
    """Watches the tokens of a batch as they are said, all rows at the same position."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._tokens = torch.full((rows, LONGEST_PERIOD), -1, device=device)
        """int64 [B, P]: the last tokens, newest first."""
        self._frames = torch.zeros((rows, LONGEST_PERIOD), dtype=torch.long, device=device)
        self._repeated = torch.zeros((rows, LONGEST_PERIOD), dtype=torch.long, device=device)
        """Per period, how many tokens in a row have been said that many tokens ago, without advance since."""
        period = torch.arange(1, LONGEST_PERIOD + 1, device=device)
        self._enough = period.clamp(min=SHORT_RUN)

    def observe(self, tokens: Tensor, frames: Tensor) -> Tensor:
        """Takes the next token of each row.

        Args:
            tokens: int64 [B].
            frames: int64 [B], the frame that each was read from.

        Returns:
            int64 [B]: 0, or how many of the newest tokens are a repeat to be dropped; the row is then at its end.
        """
        again = (self._tokens == tokens[:, None]) & (frames[:, None] - self._frames < ADVANCE_FRAMES)
        self._repeated = torch.where(again, self._repeated + 1, 0)
        self._tokens = torch.cat((tokens[:, None], self._tokens[:, :-1]), 1)
        self._frames = torch.cat((frames[:, None], self._frames[:, :-1]), 1)
        return torch.where(self._repeated >= self._enough, self._repeated, 0).amax(1)

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows alone."""
        self._tokens, self._frames, self._repeated = self._tokens[rows], self._frames[rows], self._repeated[rows]
