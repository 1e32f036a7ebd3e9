"""The live network's parameters: Moonshine's encoder, trained to see one tick and a left context, and a CTC head."""

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from asr_model.moonshine.dimensions import D
from asr_model.moonshine.layers import Encoder

SYMBOLS = "_ abcdefghijklmnopqrstuvwxyz'"
"""What the CTC head tells apart: 0 is the blank, 1 the space."""

PACKAGED_CHECKPOINT = Path(__file__).parent.parent / "weights" / "live.safetensors"


class LiveNetwork(nn.Module):
    """Encoder and CTC head. How a tick runs through them is ``streaming_encoder``'s and ``offline``'s affair."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(D, len(SYMBOLS))


def load_network(path: Path = PACKAGED_CHECKPOINT) -> LiveNetwork:
    """The network of a checkpoint (safetensors, fp16 or fp32), in fp32, for inference.

    Raises:
        ValueError: the file is missing, is no safetensors file or holds other tensors.
    """
    network = LiveNetwork()
    try:
        with safe_open(path, "pt") as file:
            network.load_state_dict({key: file.get_tensor(key).float() for key in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ValueError(f"live checkpoint {path}: {error}") from error
    return network.eval().requires_grad_(False)
