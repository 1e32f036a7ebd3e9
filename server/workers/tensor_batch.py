"""Requests into the tensors of one batch, and a model's answer back into what each request asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from asr_model.contract import TensorBatch
from asr_model.tensor_check import NUMPY_TYPES, array_fault
from asr_model.tensor_spec import TensorSpec
from server.plan import CorrelationId, Tensors
from server.workers.slot_step import WrongAnswer

NO_CORRELATION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowControls:
    """What a stateful model is told of a row, beside its inputs."""

    start: bool
    end: bool
    correlation_id: CorrelationId


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLanes:
    """Where the rows of a step lie in its batch: one after the other, or each at its slot in a range of them."""

    slots: tuple[int, ...]
    """Of each place in the batch."""
    places: tuple[int, ...]
    """Of each row."""

    @classmethod
    def gathered(cls, slots: Sequence[int]) -> "SlotLanes":
        """A place for each row and no others."""
        return cls(slots=tuple(slots), places=tuple(range(len(slots))))

    @classmethod
    def in_range(cls, slots: Sequence[int]) -> "SlotLanes":
        """A place for each slot from the first row's to the last row's; ``slots`` ascend."""
        return cls(slots=tuple(range(slots[0], slots[-1] + 1)), places=tuple(slot - slots[0] for slot in slots))


def stateless_batch(requests: Sequence[Tensors], specs: Mapping[str, TensorSpec], device: torch.device) -> TensorBatch:
    """The rows of all requests, one after the other.

    Args:
        requests: each as the model declares its inputs, all with the same names, with equal shapes where not ragged.
        specs: of the model's inputs.
        device: the model's.
    """
    n_rows = sum(request.n_rows for request in requests)
    inputs, lengths = _inputs(requests, specs)
    every = torch.ones(n_rows, dtype=torch.bool, device=device)
    return TensorBatch(
        inputs=_on_device(inputs, device),
        lengths=_lengths_on_device(lengths, device),
        slots=torch.empty(0, dtype=torch.long, device=device),
        start=every,
        end=every,
        ready=every,
        correlation_ids=(),
    )


def slot_batch(
    turns: Sequence[Tensors],
    controls: Sequence[RowControls],
    lanes: SlotLanes,
    specs: Mapping[str, TensorSpec],
    device: torch.device,
) -> TensorBatch:
    """One row of each turn at its place; places without one are not ready, their inputs zeros and empty texts.

    Args:
        turns: of one row each, else as of ``stateless_batch``.
        controls: of each turn.
        lanes: where the rows lie.
        specs: of the model's inputs.
        device: the model's.
    """
    inputs, lengths = _inputs(turns, specs)
    size, places = len(lanes.slots), list(lanes.places)
    ids: list[CorrelationId] = [NO_CORRELATION] * size
    for place, control in zip(places, controls, strict=True):
        ids[place] = control.correlation_id
    return TensorBatch(
        inputs=_on_device({name: _spread(array, places, size) for name, array in inputs.items()}, device),
        lengths=_lengths_on_device({name: _spread(array, places, size) for name, array in lengths.items()}, device),
        slots=torch.tensor(lanes.slots, dtype=torch.long, device=device),
        start=_flags([control.start for control in controls], places, size, device),
        end=_flags([control.end for control in controls], places, size, device),
        ready=_flags([True] * len(places), places, size, device),
        correlation_ids=tuple(ids),
    )


def split_outputs(
    outputs: Mapping[str, Tensor | NDArray[Any]],
    specs: Mapping[str, TensorSpec],
    batch: TensorBatch,
    rows: Sequence[Sequence[int]],
) -> list[Tensors]:
    """Each request's part of a model's answer, as copies.

    Args:
        outputs: by name, [B, …].
        specs: of the model's outputs. A ragged one is cut to the lengths of the batch's ragged input.
        batch: what was asked.
        rows: places in the batch of each request's rows.

    Raises:
        WrongAnswer: It is not what the model declares.
    """
    if outputs.keys() != specs.keys():
        raise WrongAnswer("the model answered other outputs than it declares")
    size = len(batch.ready)
    arrays = {name: _on_host(output) for name, output in outputs.items()}
    for name, array in arrays.items():
        if fault := array_fault(array, specs[name], size):
            raise WrongAnswer(f"output {name} of the model {fault}")
    lengths = [each.tolist() for each in batch.lengths.values()]
    return [
        Tensors(
            arrays={
                name: array[list(places), : lengths[0][places[0]]]
                if specs[name].ragged and lengths
                else array[list(places)]
                for name, array in arrays.items()
            },
            n_rows=len(places),
        )
        for places in rows
    ]


def _inputs(
    requests: Sequence[Tensors], specs: Mapping[str, TensorSpec]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int64]]]:
    names = requests[0].arrays.keys()
    assert all(request.arrays.keys() == names for request in requests), "requests of a batch have the same inputs"
    inputs: dict[str, NDArray[Any]] = {}
    lengths: dict[str, NDArray[np.int64]] = {}
    for name in names:
        arrays = [request.arrays[name] for request in requests]
        if specs[name].ragged:
            longest = max(array.shape[1] for array in arrays)
            lengths[name] = np.concatenate([np.full(len(array), array.shape[1], np.int64) for array in arrays])
            arrays = [_padded(array, longest) for array in arrays]
        inputs[name] = np.concatenate(arrays)
    return inputs, lengths


def _padded(array: NDArray[Any], length: int) -> NDArray[Any]:
    padded = _nothing((len(array), length, *array.shape[2:]), array.dtype)
    padded[:, : array.shape[1]] = array
    return padded


def _spread(array: NDArray[Any], places: list[int], size: int) -> NDArray[Any]:
    if len(places) == size:
        return array
    spread = _nothing((size, *array.shape[1:]), array.dtype)
    spread[places] = array
    return spread


def _nothing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.full(shape, b"", dtype) if dtype == NUMPY_TYPES["BYTES"] else np.zeros(shape, dtype)


def _on_device(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor | NDArray[Any]]:
    return {
        name: array if array.dtype == NUMPY_TYPES["BYTES"] else torch.from_numpy(array).to(device)
        for name, array in arrays.items()
    }


def _lengths_on_device(lengths: Mapping[str, NDArray[np.int64]], device: torch.device) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array).to(device) for name, array in lengths.items()}


def _flags(values: list[bool], places: list[int], size: int, device: torch.device) -> Tensor:
    flags = torch.zeros(size, dtype=torch.bool)
    flags[places] = torch.tensor(values)
    return flags.to(device)


def _on_host(output: Tensor | NDArray[Any]) -> NDArray[Any]:
    return output.detach().cpu().numpy() if isinstance(output, Tensor) else output
