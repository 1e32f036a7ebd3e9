"""The accumulator of Triton's sequence examples, as a model of ours: what a sequence has sent, added up.

Any turn that is lost, doubled, of another sequence or on another instance makes a wrong number.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from asr_model.contract import ModelSpec, Scheduler, State, StateTensor, TensorBatch
from asr_model.tensor.settings import ACCUMULATOR, AccumulatorSettings
from asr_model.tensor_spec import TensorSpec


class AccumulatorModel:
    """A TensorStreamingModel (``asr_model.contract``): INPUT in, OUTPUT the sum of the sequence's inputs so far."""

    def __init__(self, settings: AccumulatorSettings, device: torch.device) -> None:
        self._settings = settings
        self._device = device

    @property
    def spec(self) -> ModelSpec:
        """The declaration: the sum is the state."""
        return ModelSpec(
            name=ACCUMULATOR,
            scheduler=Scheduler.SEQUENCE,
            state={"sum": StateTensor(shape=(1,), dtype=torch.int32)},
            inputs={"INPUT": TensorSpec(datatype="INT32", shape=(1,))},
            outputs={"OUTPUT": TensorSpec(datatype="INT32", shape=(1,))},
        )

    def step_tensors(self, batch: TensorBatch, state: State) -> Mapping[str, Tensor]:
        """OUTPUT int32 [B, 1], modulo 2³². A slot that starts holds 0."""
        values = torch.as_tensor(batch.inputs["INPUT"])
        sums = state["sum"][batch.slots] + torch.where(batch.ready[:, None], values, 0)
        state["sum"].index_copy_(0, batch.slots, sums)
        if self._settings.corrid:
            numbers = torch.tensor([_number(name) for name in batch.correlation_ids], device=self._device)
            sums = sums + torch.where(batch.end, numbers, 0)[:, None].to(torch.int32)
        return {"OUTPUT": sums}


def build(options: Mapping[str, object], device: torch.device) -> AccumulatorModel:
    """The model; options: see ``AccumulatorSettings``.

    Raises:
        ValueError: an option is unknown or has no such value.
    """
    return AccumulatorModel(AccumulatorSettings.of(options), device)


def _number(correlation_id: int | str) -> int:
    """A correlation id as int32: the low 32 bits of a number, or of the number that a text spells; 0 of other texts."""
    text = str(correlation_id)
    number = int(text) if text.isascii() and text.isdecimal() else 0
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
