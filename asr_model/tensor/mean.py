"""The mean of a row of numbers: a model without state whose rows may differ in length."""

from collections.abc import Mapping

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, TensorBatch
from asr_model.tensor_spec import TensorSpec


class MeanModel:
    """A TensorModel (``asr_model.contract``): INPUT of any length in; MEAN of it out, NaN of nothing."""

    @property
    def spec(self) -> ModelSpec:
        """The declaration: no state, any batch."""
        return ModelSpec(
            name="mean",
            scheduler=Scheduler.DYNAMIC,
            inputs={"INPUT": TensorSpec(datatype="FP32", shape=(-1,), ragged=True)},
            outputs={"MEAN": TensorSpec(datatype="FP32", shape=(1,))},
        )

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        """MEAN float32 [B, 1]. Behind a row's own values are zeros, which add nothing."""
        values = torch.as_tensor(batch.inputs["INPUT"]).double()
        return {"MEAN": (values.sum(1) / batch.lengths["INPUT"]).float()[:, None]}


def build(options: Mapping[str, object], device: torch.device) -> MeanModel:
    """The model; it has no options.

    Raises:
        ValueError: it is given some.
    """
    if options:
        raise ValueError(f"mean has no option {', '.join(sorted(options))}")
    return MeanModel()
