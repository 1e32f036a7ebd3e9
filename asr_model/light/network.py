"""A four-layer LSTM with random weights, written out so that a step with few rows is quick.

``torch.nn.LSTM`` takes four times as long with few rows. Here each layer is one product for the inputs of all its steps
and, per step, one product and one evaluation of the gates.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

LAYERS: Final = 4
HIDDEN: Final = 512
INPUT: Final = 320
SYMBOLS: Final = 512
SEED: Final = 20
GAIN: Final = 4.0
"""Of all weights over torch's usual ones: with less the sounds hardly tell, with more the network never forgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer's weights, transposed; gates in the order input, forget, output, candidate."""

    from_input: Tensor
    """float32 [INPUT or HIDDEN, 4 * HIDDEN]."""
    from_hidden: Tensor
    """float32 [HIDDEN, 4 * HIDDEN]."""
    bias: Tensor
    """float32 [4 * HIDDEN]."""


class RandomLstm:
    """The network, the same on every machine.

    Args:
        device: where its weights live.
    """

    def __init__(self, device: torch.device) -> None:
        lstm, output = reference()
        self._layers = [_layer(lstm, index, device) for index in range(LAYERS)]
        self._output = output.weight.detach().t().contiguous().to(device)

    def __call__(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """T steps of B rows.

        Args:
            x: float32 [T, B, INPUT].
            h: float32 [LAYERS, B, HIDDEN], as ``c``.
            c: the cells.

        Returns:
            Logits float32 [T, B, SYMBOLS], and h and c after the last step.
        """
        steps, rows, _ = x.shape
        hidden, cells = [], []
        y = x.reshape(steps * rows, -1)
        for layer, h_layer, c_layer in zip(self._layers, h, c, strict=True):
            y, h_layer, c_layer = _run(layer, y.view(steps, rows, -1), h_layer, c_layer)
            hidden.append(h_layer)
            cells.append(c_layer)
        return (y @ self._output).view(steps, rows, SYMBOLS), torch.stack(hidden), torch.stack(cells)


def reference() -> tuple[nn.LSTM, nn.Linear]:
    """The same network as torch has it, with a generator of its own: copies may be built at the same time, and torch's
    generator is the process's."""
    generator = torch.Generator().manual_seed(SEED)
    bound = 1.0 / math.sqrt(HIDDEN)  # torch's own choice, for both
    with torch.no_grad():
        lstm = nn.LSTM(INPUT, HIDDEN, LAYERS, device="meta").to_empty(device="cpu")
        output = nn.Linear(HIDDEN, SYMBOLS, bias=False, device="meta").to_empty(device="cpu")
        for weights in (*lstm.parameters(), *output.parameters()):
            weights.uniform_(-bound, bound, generator=generator)
        for name, weights in lstm.named_parameters():
            if name.startswith("weight"):
                weights.mul_(GAIN)
    return lstm, output


def _layer(lstm: nn.LSTM, index: int, device: torch.device) -> Layer:
    weights = {name: getattr(lstm, f"{name}_l{index}").detach() for name in ("weight_ih", "weight_hh", "bias_ih")}
    bias = weights["bias_ih"] + getattr(lstm, f"bias_hh_l{index}").detach()
    return Layer(
        from_input=_ordered(weights["weight_ih"]).t().contiguous().to(device),
        from_hidden=_ordered(weights["weight_hh"]).t().contiguous().to(device),
        bias=_ordered(bias).to(device),
    )


def _ordered(gates: Tensor) -> Tensor:
    """torch has input, forget, candidate, output; with the sigmoids side by side one call evaluates all three."""
    i, f, g, o = gates.chunk(4)
    return torch.cat([i, f, o, g])


def _run(layer: Layer, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x [T, B, N], h and c [B, HIDDEN] → outputs [T * B, HIDDEN], h, c."""
    steps, rows, width = x.shape
    gates = torch.addmm(layer.bias, x.reshape(steps * rows, width), layer.from_input).view(steps, rows, 4 * HIDDEN)
    outputs = []
    for step in range(steps):
        a = torch.addmm(gates[step], h, layer.from_hidden)
        i, f, o = a[:, : 3 * HIDDEN].sigmoid().chunk(3, 1)
        c = f * c + i * a[:, 3 * HIDDEN :].tanh()
        h = o * c.tanh()
        outputs.append(h)
    return torch.cat(outputs), h, c
