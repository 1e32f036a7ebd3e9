"""Inputs and outputs of models that take tensors, declared. Free of torch: the service's own process knows them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of a model that does not listen."""

    datatype: str
    """In the words of the KServe protocol: BOOL, UINT8 … UINT64, INT8 … INT64, FP16, FP32, FP64, BYTES."""
    shape: tuple[int, ...]
    """Without the batch axis; -1 is any length."""
    optional: bool = False
    ragged: bool = False
    """Rows of several lengths share a batch: padded with zeros, their lengths beside them."""
