"""Tensors to and from what the protocol carries: numbers and texts in JSON, little-endian bytes in binary."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from server.errors import BadTensor
from server.wire.request_errors import shown

Array = NDArray[Any]

BYTES: Final = "BYTES"
BOOL: Final = "BOOL"
DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    BOOL: np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    BYTES: np.dtype(object),
}
"""By the protocol's word. BF16 is not among them: NumPy has no such type."""
MAX_AXES: Final = 16
MAX_AXIS: Final = 2**31 - 1
MAX_TEXTS: Final = 65_536
"""Texts of one tensor: each is taken apart on its own."""
MAX_JSON_VALUES: Final = 65_536
"""Values of an output that go as JSON."""
LENGTH: Final = struct.Struct("<I")


def checked_shape(value: object, name: str) -> tuple[int, ...]:
    """A shape out of JSON.

    Raises:
        BadTensor: It is no list of at most MAX_AXES integers from 0 to MAX_AXIS, or of more elements than there can be.
    """
    axes = value if isinstance(value, list) else []
    is_good = isinstance(value, list) and len(axes) <= MAX_AXES
    if not is_good or not all(type(axis) is int and 0 <= axis <= MAX_AXIS for axis in axes):
        allowed = f"a list of at most {MAX_AXES} integers from 0 to {MAX_AXIS}"
        raise BadTensor(f"{name}: shape is {shown(value)}; allowed: {allowed}")
    if math.prod(axis or 1 for axis in axes) > MAX_AXIS:
        raise BadTensor(f"{name}: shape {shown(value)} has too many elements; allowed: {MAX_AXIS} bytes in all")
    return tuple(axes)


def from_binary(data: memoryview, datatype: str, shape: tuple[int, ...], name: str) -> Array:
    """A tensor of its own memory out of binary data.

    Raises:
        BadTensor: The data are not as many as the shape says, or not of the type.
    """
    if datatype == BYTES:
        return text_array(_texts(data, math.prod(shape), name), shape)
    dtype = DTYPES[datatype]
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise BadTensor(f"{name}: {len(data)} bytes of data; {datatype} {list(shape)} has {expected}")
    if datatype == BOOL:
        flags = np.frombuffer(data, np.uint8)
        if flags.size and flags.max() > 1:
            raise BadTensor(f"{name}: a byte of BOOL is {flags.max()}; allowed: 0 or 1")
        return flags.astype(np.bool_).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape).copy()


def from_json(values: object, datatype: str, shape: tuple[int, ...], name: str) -> Array:
    """A tensor out of a list of JSON: flat in row-major order, or nested as the shape is.

    Raises:
        BadTensor: The values are not as many as the shape says, or not of the type.
    """
    flat = _flat(values, shape, name)
    if len(flat) != math.prod(shape):
        raise BadTensor(f"{name}: {len(flat)} values; shape {list(shape)} has {math.prod(shape)}")
    dtype = DTYPES[datatype]
    if datatype == BYTES:
        _check_types(flat, {str}, f"{name}: BYTES are texts")
        return text_array(_encoded(flat, name), shape)
    if datatype == BOOL:
        _check_types(flat, {bool}, f"{name}: BOOL is true or false")
    elif dtype.kind == "f":
        return _floats(flat, dtype, datatype, name).reshape(shape)
    else:
        _check_types(flat, {int}, f"{name}: {datatype} are integers")
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        outside = next((value for value in flat if not least <= value <= most), None)
        if outside is not None:
            raise BadTensor(f"{name}: {shown(outside)} is out of range; {datatype} is {least} to {most}")
    return np.array(flat, dtype).reshape(shape)


def to_binary(array: Array, datatype: str) -> bytes:
    """The bytes of a tensor, row-major."""
    if datatype == BYTES:
        return b"".join(part for text in array.ravel() for part in (LENGTH.pack(len(text)), text))
    return np.ascontiguousarray(array, DTYPES[datatype]).tobytes()


def to_json(array: Array, datatype: str, name: str) -> list[Any]:
    """The values of a tensor, flat, row-major.

    Raises:
        BadTensor: They are too many for JSON, or JSON cannot have them: NaN, infinite, texts that are not UTF-8.
    """
    if array.size > MAX_JSON_VALUES:
        raise BadTensor(f"output {name} has {array.size} values, above {MAX_JSON_VALUES}: ask for it as binary data")
    if datatype == BYTES:
        try:
            return [text.decode() for text in array.ravel()]
        except UnicodeDecodeError:
            raise BadTensor(f"output {name} has texts that are not UTF-8: ask for it as binary data") from None
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadTensor(f"output {name} has numbers that JSON has not (NaN, infinite): ask for it as binary data")
    values: list[Any] = array.astype(DTYPES[datatype], copy=False).ravel().tolist()
    return values


def _texts(data: memoryview, expected: int, name: str) -> list[bytes]:
    if expected > MAX_TEXTS:
        raise BadTensor(f"{name}: {expected} texts; allowed: {MAX_TEXTS} of a tensor")
    texts: list[bytes] = []
    at = 0
    while at < len(data) and len(texts) < expected:
        end = at + LENGTH.size
        if end > len(data):
            break
        at = end + LENGTH.unpack_from(data, at)[0]
        texts.append(bytes(data[end:at]))
    if at != len(data) or len(texts) != expected:
        raise BadTensor(
            f"{name}: {len(data)} bytes of data are not {expected} texts, each after its length as four bytes"
        )
    return texts


def text_array(texts: Sequence[bytes], shape: tuple[int, ...]) -> Array:
    """Texts as a tensor: objects, because NumPy's own texts lose zeros at their ends."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def _flat(values: object, shape: tuple[int, ...], name: str) -> list[Any]:
    """Raises: BadTensor: it is no list, or nested in another way than the shape."""
    if not isinstance(values, list):
        raise BadTensor(f"{name}: data is {shown(values)}; allowed: a list, flat or nested as the shape")
    flat: list[Any] = values
    axis = 0
    while flat and isinstance(flat[0], list) and axis < len(shape):
        below = shape[axis + 1] if axis + 1 < len(shape) else -1
        if len(flat) != math.prod(shape[: axis + 1]) or not all(type(e) is list and len(e) == below for e in flat):
            raise BadTensor(f"{name}: data is not nested as the shape {list(shape)}; allowed: that, or a flat list")
        flat = [value for each in flat for value in each]
        axis += 1
    return flat


def _check_types(flat: list[Any], allowed: set[type], what: str) -> None:
    if not set(map(type, flat)) <= allowed:
        wrong = next(value for value in flat if type(value) not in allowed)
        raise BadTensor(f"{what}, not {shown(wrong)}")


def _encoded(flat: list[str], name: str) -> list[bytes]:
    if len(flat) > MAX_TEXTS:
        raise BadTensor(f"{name}: {len(flat)} texts; allowed: {MAX_TEXTS} of a tensor")
    try:
        return [text.encode() for text in flat]
    except UnicodeEncodeError:
        raise BadTensor(f"{name}: a text has half of a surrogate pair, which no UTF-8 has") from None


def _floats(flat: list[Any], dtype: np.dtype[Any], datatype: str, name: str) -> Array:
    _check_types(flat, {int, float}, f"{name}: {datatype} are numbers")
    try:
        with np.errstate(over="ignore"):
            array = np.array([float(value) for value in flat]).astype(dtype)
    except OverflowError:
        raise BadTensor(f"{name}: a number is out of the range of {datatype}") from None
    if not np.isfinite(array).all():
        raise BadTensor(f"{name}: a number is out of the range of {datatype}")
    return array
