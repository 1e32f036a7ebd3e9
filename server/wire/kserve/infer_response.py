"""The answer to an inference request: JSON, with the outputs that were asked for as binary behind it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asr_model.tensor_spec import TensorSpec
from server.plan import Tensors
from server.wire.kserve.datatypes import to_binary, to_json
from server.wire.kserve.infer_request import InferRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class InferBody:
    """What is sent."""

    data: bytes
    header_length: int | None
    """Bytes of ``data`` that are JSON; None: all of them."""


def build_response(
    request: InferRequest, answer: Tensors, *, model: str, version: str, outputs: Mapping[str, TensorSpec]
) -> InferBody:
    """The wanted outputs out of what the model answered.

    Raises:
        BadTensor: One that was wanted as JSON cannot be JSON.
    """
    entries: list[dict[str, Any]] = []
    blocks: list[bytes] = []
    for name in request.outputs or outputs:
        if name not in answer.arrays:
            continue  # an optional output that this answer has not
        datatype, array = outputs[name].datatype, answer.arrays[name]
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if request.is_binary(name):
            blocks.append(to_binary(array, datatype))
            entry["parameters"] = {"binary_data_size": len(blocks[-1])}
        else:
            entry["data"] = to_json(array, datatype, name)
        entries.append(entry)
    head = json.dumps(_head(request, model, version) | {"outputs": entries}, allow_nan=False).encode()
    return InferBody(data=b"".join((head, *blocks)), header_length=len(head) if blocks else None)


def _head(request: InferRequest, model: str, version: str) -> dict[str, Any]:
    head: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.request_id:
        head["id"] = request.request_id
    if request.sequence is not None:
        place = request.sequence
        head["parameters"] = {
            "sequence_id": place.correlation_id,
            "sequence_start": place.start,
            "sequence_end": place.end,
        }
    return head
