"""The body of an inference request, taken apart: what is asked for, and the tensors as they came."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from asr_model.tensor_spec import TensorSpec
from server.errors import BadTensor
from server.plan import CorrelationId, Tensors
from server.wire.kserve.datatypes import BYTES, DTYPES, Array, checked_shape, from_binary, from_json, text_array
from server.wire.kserve.fields import Fields, parse_object
from server.wire.request_errors import BadRequest, BodyTooLarge, NotSupported, shown

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
"""Header with the length of the JSON part; 0: there is none, and the body is the model's only input."""
MAX_CORRELATION_CHARS: Final = 128
MAX_CORRELATION: Final = 2**64 - 1
MAX_TIMEOUT_US: Final = 3_600_000_000
MAX_PRIORITY: Final = 2**32 - 1
SHARED_MEMORY: Final = "shared_memory_"
CLASSIFICATION: Final = "classification"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlace:
    """Where a request stands in its sequence."""

    correlation_id: CorrelationId
    start: bool = False
    end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A tensor of a request."""

    datatype: str
    array: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """What one request asks for."""

    inputs: Mapping[str, Input]
    request_id: str = ""
    """The client's own; "": none."""
    outputs: Mapping[str, bool | None] = field(default_factory=dict)
    """The wanted ones in their order, each with whether it is wanted as binary; None: as ``binary_output`` says. Empty:
    all that the model has."""
    binary_output: bool = False
    sequence: SequencePlace | None = None
    priority: int = 0
    timeout_ns: int | None = None

    def is_binary(self, output: str) -> bool:
        """Whether an output is wanted as binary."""
        asked = self.outputs.get(output)
        return self.binary_output if asked is None else asked


def parse_request(body: bytes | bytearray, header_length: str | None, inputs: Mapping[str, TensorSpec]) -> InferRequest:
    """A request to a model with these inputs.

    Args:
        body: JSON, with binary data behind it where there is a ``header_length``.
        header_length: Value of the header HEADER_LENGTH; None: there is none.
        inputs: What the model declares; only a request without JSON is read by it.

    Raises:
        BadRequest: It is outside the protocol.
        BadTensor: A tensor contradicts itself.
        NotSupported: It asks for a part of the protocol that is not served here.
        BodyTooLarge: Its JSON is too long.
    """
    view = memoryview(body)
    if header_length is None:
        return _parse_json(view, memoryview(b""))
    if not (header_length.isascii() and header_length.isdigit()) or len(header_length) > 18:
        raise BadRequest(f"{HEADER_LENGTH} is {shown(header_length)}; allowed: an integer from 0 to the body's length")
    n_bytes = int(header_length)
    if n_bytes == 0:
        return _raw_request(view, inputs)
    if n_bytes > len(body):
        raise BadRequest(f"{HEADER_LENGTH} is {n_bytes}; allowed: at most the body's length, {len(body)}")
    return _parse_json(view[:n_bytes], view[n_bytes:])


def request_id_of(body: bytes) -> str:
    """The id of a request that may be no request at all; "": it has none."""
    try:
        return parse_object(body).text("id", "")
    except (BadRequest, BodyTooLarge):
        return ""


def to_tensors(request: InferRequest, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]) -> Tensors:
    """The request as the model's inputs.

    Raises:
        BadTensor: An input or wanted output is not what the model declares; the message says what is.
    """
    known = ", ".join(inputs)
    for name in request.inputs:
        if name not in inputs:
            raise BadTensor(f"unknown input {shown(name)}; allowed: {known}")
    for name in request.outputs:
        if name not in outputs:
            raise BadTensor(f"unknown output {shown(name)}; allowed: {', '.join(outputs)}")
    for name, spec in inputs.items():
        if name in request.inputs:
            _check_input(name, request.inputs[name], spec)
        elif not spec.optional:
            raise BadTensor(f"input {name} is missing; allowed: {known}")
    rows = {given.array.shape[0] for given in request.inputs.values()}
    if len(rows) != 1 or 0 in rows:
        raise BadTensor(f"first axes of the inputs are {sorted(rows)}; allowed: the same number of rows, 1 or more")
    n_rows = rows.pop()
    if request.sequence is not None and n_rows != 1:
        raise BadTensor(f"a request of a sequence has {n_rows} rows; allowed: 1")
    return Tensors(arrays={name: given.array for name, given in request.inputs.items()}, n_rows=n_rows)


def _check_input(name: str, given: Input, spec: TensorSpec) -> None:
    if given.datatype != spec.datatype:
        raise BadTensor(f"input {name}: datatype is {given.datatype}; allowed: {spec.datatype}")
    allowed, shape = (-1, *spec.shape), given.array.shape
    if len(shape) != len(allowed) or any(b not in (-1, a) for a, b in zip(shape, allowed, strict=True)):
        raise BadTensor(f"input {name}: shape is {list(shape)}; allowed: {list(allowed)}, where -1 is any length")


def _parse_json(head: memoryview, binary: memoryview) -> InferRequest:
    fields = parse_object(head)
    fields.take("model_name")  # of the address; Triton's documents have it here too
    fields.take("model_version")
    request_id = fields.text("id", "")
    asked = fields.below("parameters")
    binary_output = bool(asked.flag("binary_data_output", False))
    sequence = _sequence(asked)
    priority = asked.whole("priority", most=MAX_PRIORITY) or 0
    timeout_us = asked.whole("timeout", most=MAX_TIMEOUT_US) or 0
    asked.finish()
    inputs = _inputs(fields.items("inputs"), binary)
    outputs = _outputs(fields.items("outputs") or [])
    fields.finish()
    return InferRequest(
        inputs=inputs,
        request_id=request_id,
        outputs=outputs,
        binary_output=binary_output,
        sequence=sequence,
        priority=priority,
        timeout_ns=timeout_us * 1000 or None,
    )


def _sequence(asked: Fields) -> SequencePlace | None:
    """Raises: BadRequest: the id is none, or START or END come without one."""
    given = asked.take("sequence_id")
    start, end = bool(asked.flag("sequence_start", False)), bool(asked.flag("sequence_end", False))
    is_number = isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= MAX_CORRELATION
    is_text = isinstance(given, str) and len(given) <= MAX_CORRELATION_CHARS
    if given is not None and not is_number and not is_text:
        allowed = f"an integer from 1 to {MAX_CORRELATION}, or a text of 1 to {MAX_CORRELATION_CHARS} characters"
        asked.refuse("sequence_id", given, allowed)
    if given:
        assert isinstance(given, int | str)
        return SequencePlace(correlation_id=given, start=start, end=end)
    if start or end:
        word = "sequence_start" if start else "sequence_end"
        raise BadRequest(f"{asked.path}.{word} is true without a sequence_id, which must be neither 0 nor empty")
    return None


def _inputs(items: list[object] | None, binary: memoryview) -> dict[str, Input]:
    if not items:
        raise BadRequest("request.inputs is missing; allowed: a list of at least one input")
    inputs: dict[str, Input] = {}
    at = 0
    for index, item in enumerate(items):
        fields = Fields(item, f"request.inputs[{index}]")
        name = fields.text("name")
        if name in inputs:
            raise BadRequest(f"{fields.path}.name is {shown(name)}, as that of an input before it")
        inputs[name], at = _input(fields, f"input {shown(name)}", binary, at)
    if at != len(binary):
        raise BadRequest(f"{len(binary)} bytes follow the JSON; the inputs' binary_data_size add up to {at}")
    return inputs


def _input(fields: Fields, what: str, binary: memoryview, at: int) -> tuple[Input, int]:
    """One input, and where the binary data of the next one begins."""
    shape = checked_shape(fields.take("shape"), what)
    datatype = fields.text("datatype")
    if datatype not in DTYPES:
        raise BadTensor(f"{what}: datatype is {shown(datatype)}; allowed: {', '.join(DTYPES)}")
    size = _binary_size(fields.below("parameters"))
    values = fields.take("data")
    fields.finish()
    if size is None:
        return Input(datatype=datatype, array=from_json(values, datatype, shape, what)), at
    if values is not None:
        raise BadRequest(f"{fields.path} has both data and binary_data_size; allowed: one of them")
    if at + size > len(binary):
        raise BadRequest(
            f"{fields.path}.parameters.binary_data_size is {size}; only {len(binary) - at} bytes are left of the body. "
            f"The header {HEADER_LENGTH} says where they begin"
        )
    return Input(datatype=datatype, array=from_binary(binary[at : at + size], datatype, shape, what)), at + size


def _binary_size(asked: Fields) -> int | None:
    size = asked.whole("binary_data_size", most=2**40)
    _refuse_shared_memory(asked)
    asked.finish()
    return size


def _outputs(items: list[object]) -> dict[str, bool | None]:
    outputs: dict[str, bool | None] = {}
    for index, item in enumerate(items):
        fields = Fields(item, f"request.outputs[{index}]")
        name = fields.text("name")
        if name in outputs:
            raise BadRequest(f"{fields.path}.name is {shown(name)}, as that of an output before it")
        asked = fields.below("parameters")
        outputs[name] = asked.flag("binary_data", None)
        _refuse_shared_memory(asked)
        if asked.whole(CLASSIFICATION, most=MAX_PRIORITY):
            raise NotSupported(f"{asked.path}.{CLASSIFICATION} is not served here; take the output and sort it")
        asked.finish()
        fields.finish()
    return outputs


def _refuse_shared_memory(asked: Fields) -> None:
    for name in ("region", "byte_size", "offset"):
        if asked.take(SHARED_MEMORY + name) is not None:
            raise NotSupported(f"{asked.path}.{SHARED_MEMORY}{name}: there is no shared memory here; send binary data")


def _raw_request(body: memoryview, inputs: Mapping[str, TensorSpec]) -> InferRequest:
    """A body that is the only input of its model, one row of it.

    Raises:
        BadTensor: The model has several inputs, or the shape does not follow from the length.
    """
    if len(inputs) != 1:
        raise BadTensor(f"{HEADER_LENGTH} is 0, which needs a model of one input; this one has {', '.join(inputs)}")
    ((name, spec),) = inputs.items()
    what, shape = f"input {name}", spec.shape
    if spec.datatype == BYTES:
        if math.prod(shape) != 1:
            raise BadTensor(f"{what}: {HEADER_LENGTH} is 0, which needs an input of one text, not {list(shape)}")
        text = text_array([bytes(body)], (1, *shape))
        return InferRequest(inputs={name: Input(datatype=BYTES, array=text)}, binary_output=True)
    if shape.count(-1) > 1:
        raise BadTensor(f"{what}: {HEADER_LENGTH} is 0, but {list(shape)} has several free axes")
    row_bytes = math.prod(axis for axis in shape if axis != -1) * DTYPES[spec.datatype].itemsize
    free = len(body) // row_bytes if row_bytes else 0
    whole = (1, *(free if axis == -1 else axis for axis in shape))
    array = from_binary(body, spec.datatype, checked_shape(list(whole), what), what)
    return InferRequest(inputs={name: Input(datatype=spec.datatype, array=array)}, binary_output=True)
