"""What models find on this machine: torch, devices and weights, looked at without serving anything."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from asr_model.live.network import PACKAGED_CHECKPOINT, load_network
from asr_model.live.settings import LiveSettings
from asr_model.live.slot_state import declare
from asr_model.moonshine.weights import load_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """One GPU."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """The installed torch."""

    version: str
    cuda_build: str | None
    """CUDA that it is built for; None: a build for the CPU alone."""
    devices: tuple[CudaDevice, ...]
    """GPUs that it can use."""
    threads: int
    """CPU threads that it takes unless it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFacts:
    """Weights that loaded."""

    source: Path
    parameters: int


def torch_facts() -> TorchFacts:
    """What torch is and sees."""
    indices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    return TorchFacts(
        version=str(torch.__version__),
        cuda_build=torch.version.cuda,
        devices=tuple(_device(index) for index in indices),
        threads=torch.get_num_threads(),
    )


def moonshine_facts(source: str = "") -> WeightsFacts:
    """Loads Moonshine's weights as the models do.

    Raises:
        asr_model.moonshine.weights.WeightsError: They are missing or damaged; the message says what to do.
    """
    weights = load_weights(Path(source) if source else None)
    parameters = sum(packed.values.numel() for packed in weights.packed.values())
    weights.decoder()
    return WeightsFacts(source=weights.source, parameters=parameters)


def checkpoint_facts(checkpoint: str = "") -> WeightsFacts:
    """Loads the live model's checkpoint.

    Raises:
        ValueError: It is missing, damaged, of another network, or holds values that are no numbers.
    """
    path = Path(checkpoint) if checkpoint else PACKAGED_CHECKPOINT
    network = load_network(path)
    parameters = list(network.parameters())
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise ValueError(f"live checkpoint {path}: it holds values that are no numbers")
    return WeightsFacts(source=path, parameters=sum(parameter.numel() for parameter in parameters))


def live_slot_bytes(settings: LiveSettings) -> int:
    """Memory of one slot of the live model."""
    return sum(tensor.dtype.itemsize * int(torch.Size(tensor.shape).numel()) for tensor in declare(settings).values())


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device(index: int) -> CudaDevice:
    free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    return CudaDevice(name=torch.cuda.get_device_name(index), total_bytes=total_bytes, free_bytes=free_bytes)
