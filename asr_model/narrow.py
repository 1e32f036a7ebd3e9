"""Matrix products in fewer bits: the same layers, quicker where memory or multiplication is what takes the time.

A row's result depends on no other row: scales are of a row and of a column of weights, never of a batch (I6). What goes
in and comes out is float32, so that states and everything between the products stay as they are.
"""

from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr_model.optimize_names import NAMES, ON_CUDA

INT8_MOST: Final = 127
LOW_STEPS: Final = 2.0 * INT8_MOST
"""Steps of an input's lower eight bits in one of its upper ones."""


class Bf16Linear(nn.Module):
    """A linear layer with weights and inputs in bfloat16."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().bfloat16(), requires_grad=False)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """float32 [..., I] -> float32 [..., O]."""
        y = F.linear(x.bfloat16(), self.weight).float()
        return y if self.bias is None else y + self.bias


class Int8Linear(nn.Module):
    """A linear layer with weights in eight bits, a scale for each output, and inputs in twice eight bits, a scale for
    each row. Sums are exact integers, the same in any batch.

    With inputs in eight bits alone, noise of the last float32 bit decides which way a value is rounded, and that moves
    logits by up to one: what a sequence hears would depend on its company.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp(min=1e-12) / INT8_MOST
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8).t().contiguous())
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """float32 [..., I] -> float32 [..., O]."""
        rows = x.reshape(-1, x.shape[-1])
        n = len(rows)
        scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / INT8_MOST
        rows = rows / scale
        high = rows.round()
        low = ((rows - high) * LOW_STEPS).round()
        sums = torch._int_mm(torch.cat((high, low)).to(torch.int8), self.weight).float()
        y = torch.add(sums[:n], sums[n:], alpha=1 / LOW_STEPS) * (scale * self.scale)
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], -1)


def optimizations(device: torch.device) -> tuple[str, ...]:
    """What ``optimize`` may be on a device."""
    return NAMES if device.type == "cpu" else ON_CUDA


def optimize(modules: Sequence[nn.Module], name: str, device: torch.device) -> None:
    """Replaces all linear layers inside the modules, or none of them.

    Raises:
        ValueError: the device does not take that.
    """
    if name not in optimizations(device):
        allowed = ", ".join(optimizations(device))
        raise ValueError(f"optimize = {name!r}: on {device.type} it may be {allowed}")
    if name != "none":
        for module in modules:
            _replace_linears(module, Bf16Linear if name == "bf16" else Int8Linear)


def _replace_linears(module: nn.Module, kind: type[Bf16Linear] | type[Int8Linear]) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            module.add_module(name, kind(child))
        else:
            _replace_linears(child, kind)
