"""Which slots a step reads, and how attention reads their caches without copying them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from asr_model.contract import SlotRange


@dataclass(frozen=True, slots=True)
class SlotRows:
    """The slots of a batch's rows.

    Attention over caches works on ``n_lanes`` lanes. Where the step runs over a range of slots, the lanes are those
    slots, seen as a view: nothing is copied, and lanes without a row compute garbage that nobody collects. Else the
    lanes are the rows, gathered, unless they lie side by side and are a view too.
    """

    slots: Tensor
    """int64 [B], ascending, distinct."""
    lanes: Tensor
    """int64 [B]: lane of each row."""
    n_lanes: int
    low: int
    is_range: bool
    is_direct: bool
    """Whether rows picked of these are a range too, whatever lies between them."""

    @classmethod
    def of(cls, slots: Tensor, span: SlotRange | None = None) -> "SlotRows":
        """Rows for int64 [B] ascending slots, B ≥ 1, in the span if there is one."""
        if span is not None:
            return cls(slots, slots - span.first, span.n_slots, span.first, True, True)
        low, n = int(slots[0]), len(slots)
        if int(slots[-1]) + 1 - low == n:
            return cls(slots, slots - low, n, low, True, False)
        return cls(slots, torch.arange(n, device=slots.device), n, 0, False, False)

    def __len__(self) -> int:
        return len(self.slots)

    def pick(self, rows: Tensor) -> "SlotRows":
        """The rows of ascending indices int64 [A], A ≥ 1."""
        slots = self.slots[rows]
        if not self.is_direct:
            return SlotRows.of(slots)
        low = int(slots[0])
        return SlotRows.of(slots, SlotRange(first=low, n_slots=int(slots[-1]) + 1 - low))

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
