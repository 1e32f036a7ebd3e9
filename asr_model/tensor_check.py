"""Whether arrays are what a model's inputs or outputs are declared to be. Pure, free of torch."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asr_model.tensor_spec import TensorSpec

NUMPY_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
"""By the words of the KServe protocol. Texts are object arrays of ``bytes``."""


def datatype_of(array: NDArray[Any]) -> str:
    """The protocol's word for an array's type, or NumPy's own for a type that it does not know."""
    for datatype, dtype in NUMPY_TYPES.items():
        if array.dtype == dtype:
            return datatype
    return str(array.dtype)


def inputs_fault(arrays: Mapping[str, NDArray[Any]], specs: Mapping[str, TensorSpec], n_rows: int) -> str | None:
    """What is wrong with the inputs of one request, in words for whoever sent them; None: nothing.

    Args:
        arrays: by name, each [n_rows, …].
        specs: of the model's inputs.
        n_rows: of the request.
    """
    for name in arrays:
        if name not in specs:
            return f"the model has no input {name}; it has {', '.join(sorted(specs))}"
    for name, spec in specs.items():
        array = arrays.get(name)
        if array is None:
            if not spec.optional:
                return f"input {name} is missing"
        elif fault := array_fault(array, spec, n_rows):
            return f"input {name} {fault}"
    return None


def array_fault(array: NDArray[Any], spec: TensorSpec, n_rows: int) -> str | None:
    """What is wrong with one array, to be said after its name; None: nothing."""
    if array.dtype != NUMPY_TYPES[spec.datatype]:
        return f"is {datatype_of(array)}, it must be {spec.datatype}"
    wanted = (n_rows, *spec.shape)
    fits = array.ndim == len(wanted) and all(
        size in (-1, given) for size, given in zip(wanted, array.shape, strict=True)
    )
    if not fits:
        return f"has shape {list(array.shape)}, it must be {list(wanted)}"
    if spec.datatype == "BYTES" and not all(isinstance(value, bytes) for value in array.flat):
        return "must be texts"
    return None
