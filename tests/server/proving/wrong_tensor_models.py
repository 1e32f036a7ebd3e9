"""Models that take tensors and are not what they say."""

from collections.abc import Mapping

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, State, StateTensor, TensorBatch
from asr_model.tensor_spec import TensorSpec

INPUTS = {"INPUT": TensorSpec(datatype="FP32", shape=(2,))}
OUTPUTS = {"OUTPUT": TensorSpec(datatype="FP32", shape=(2,))}


class Summing:
    """A TensorStreamingModel that adds up what a sequence sends: right."""

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(
            name="summing",
            scheduler=Scheduler.SEQUENCE,
            state={"sum": StateTensor(shape=(2,), dtype=torch.float32)},
            inputs=INPUTS,
            outputs=OUTPUTS,
        )

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        values = torch.as_tensor(batch.inputs["INPUT"])
        state["sum"].index_add_(0, batch.slots, values)
        return {"OUTPUT": state["sum"][batch.slots]}


class NeverWrites(Summing):
    """Reads its state and never writes it back: from the second turn on it is wrong, and no error is raised."""

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        return {"OUTPUT": state["sum"][batch.slots] + torch.as_tensor(batch.inputs["INPUT"])}


class ById(Summing):
    """Keeps the sums in an attribute, by correlation id."""

    def __init__(self) -> None:
        self._sums: dict[int | str, Tensor] = {}

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        values = torch.as_tensor(batch.inputs["INPUT"])
        outputs = []
        for row, correlation_id in enumerate(batch.correlation_ids):
            if batch.start[row]:
                self._sums[correlation_id] = torch.zeros(2)
            self._sums[correlation_id] = self._sums.get(correlation_id, torch.zeros(2)) + values[row]
            outputs.append(self._sums[correlation_id])
        return {"OUTPUT": torch.stack(outputs)}


class SwapsRows(Summing):
    """Answers each row with the sum of the one before it in the batch."""

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        return {"OUTPUT": super().step_tensors(batch, state)["OUTPUT"].roll(1, 0)}


class WritesMasked(Summing):
    """Adds to every slot of its batch, ready or not: right as long as rows are gathered."""

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        state["sum"].index_add_(0, batch.slots, 1.0 + torch.as_tensor(batch.inputs["INPUT"]))
        return {"OUTPUT": state["sum"][batch.slots]}


class Doubling:
    """A TensorModel: right."""

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec(name="doubling", scheduler=Scheduler.DYNAMIC, inputs=INPUTS, outputs=OUTPUTS)

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        return {"OUTPUT": 2 * torch.as_tensor(batch.inputs["INPUT"])}


class Centring(Doubling):
    """Takes the mean of the batch away."""

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        values = torch.as_tensor(batch.inputs["INPUT"])
        return {"OUTPUT": values - values.mean(0, keepdim=True)}


class Counting(Doubling):
    """Adds how often it was asked."""

    def __init__(self) -> None:
        self._n = 0

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        self._n += 1
        return {"OUTPUT": torch.as_tensor(batch.inputs["INPUT"]) + self._n}


class Picky(Doubling):
    """Takes nothing that a stranger would ask."""

    def run_tensors(self, batch: TensorBatch) -> Mapping[str, Tensor]:
        raise ValueError("not what I wanted")
