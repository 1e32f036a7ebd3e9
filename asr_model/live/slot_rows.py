"""Which slots a step reads, and how attention reads their caches without copying them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SlotRows:
    """The slots of a batch's rows.

    Attention over caches works on ``n_lanes`` lanes. Where the slots lie close together, the lanes are a range of
    slots, seen as a view: nothing is copied, and lanes without a row compute garbage that nobody collects. Where they
    lie far apart, the lanes are the rows, gathered.
    """

    slots: Tensor
    """int64 [B], ascending, distinct."""
    lanes: Tensor
    """int64 [B]: lane of each row."""
    n_lanes: int
    low: int
    is_range: bool

    @classmethod
    def of(cls, slots: Tensor) -> "SlotRows":
        """Rows for int64 [B] ascending slots, B ≥ 1."""
        low, high = int(slots[0]), int(slots[-1]) + 1
        if high - low <= 2 * len(slots):
            return cls(slots, slots - low, high - low, low, True)
        return cls(slots, torch.arange(len(slots), device=slots.device), len(slots), 0, False)

    def __len__(self) -> int:
        return len(self.slots)

    def pick(self, rows: Tensor) -> "SlotRows":
        """The rows of ascending indices int64 [A]."""
        return SlotRows.of(self.slots[rows])

    def cache(self, cache: Tensor, width: int) -> Tensor:
        """Per-lane part [n_lanes, H, width, E] of one layer's cache [S, H, W, E]."""
        if self.is_range:
            return cache[self.low : self.low + self.n_lanes, :, :width]
        return cache[:, :, :width].index_select(0, self.slots)

    def spread(self, x: Tensor) -> Tensor:
        """[B, ...] -> [n_lanes, ...], zeros in lanes without a row."""
        if self.n_lanes == len(self.slots):
            return x
        return x.new_zeros(self.n_lanes, *x.shape[1:]).index_copy_(0, self.lanes, x)

    def collect(self, x: Tensor) -> Tensor:
        """[n_lanes, ...] -> [B, ...]."""
        return x if self.n_lanes == len(self.slots) else x.index_select(0, self.lanes)
