"""Says what it was told: a model without state that shows what a wire does to values and texts."""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, TensorBatch
from asr_model.tensor_spec import TensorSpec


class EchoModel:
    """A TensorModel (``asr_model.contract``): NUMBERS of any length and one TEXT in, the same out."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration: no state, any batch."""
        tensors = {
            "NUMBERS": TensorSpec(datatype="FP32", shape=(-1,), ragged=True),
            "TEXT": TensorSpec(datatype="BYTES", shape=(1,)),
        }
        return ModelSpec(name="echo", scheduler=Scheduler.DYNAMIC, inputs=tensors, outputs=tensors)

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor | NDArray[Any]]:
        """NUMBERS and TEXT, as they came."""
        return dict(batch.inputs)


def build(options: Mapping[str, object], device: torch.device) -> EchoModel:
    """The model; it has no options.

    Raises:
        ValueError: it is given some.
    """
    if options:
        raise ValueError(f"echo has no option {', '.join(sorted(options))}")
    return EchoModel()
