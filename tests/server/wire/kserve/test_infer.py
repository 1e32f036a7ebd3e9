import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asr_model.tensor_spec import TensorSpec
from server.errors import BadTensor, PeerError
from server.plan import Tensors
from server.wire.kserve.datatypes import text_array, to_binary
from server.wire.kserve.fields import MAX_JSON_BYTES
from server.wire.kserve.infer_request import InferRequest, SequencePlace, parse_request, to_tensors
from server.wire.kserve.infer_response import InferBody, build_response
from server.wire.request_errors import BadRequest, BodyTooLarge, NotSupported, error_body, status_of
from tests.server.wire.kserve.test_datatypes import assert_same, tensors

INPUTS = {
    "INPUT": TensorSpec(datatype="INT32", shape=(1,)),
    "TEXT": TensorSpec(datatype="BYTES", shape=(1,), optional=True),
    "WAVE": TensorSpec(datatype="FP32", shape=(-1,), optional=True, ragged=True),
}
OUTPUTS = {
    "OUTPUT": TensorSpec(datatype="INT32", shape=(1,)),
    "SAID": TensorSpec(datatype="BYTES", shape=(1,)),
}
ONE = {"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [5]}
BINARY = {"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "parameters": {"binary_data_size": 4}}


def parse(request: Mapping[str, Any], binary: bytes | None = None) -> InferRequest:
    head = json.dumps(request).encode()
    if binary is None:
        return parse_request(head, None, INPUTS)
    return parse_request(head + binary, str(len(head)), INPUTS)


def asking(**fields: Any) -> dict[str, Any]:
    return {"inputs": [ONE], **fields}


class TestRequests:
    def test_of_a_sequence(self) -> None:
        request = parse(
            asking(
                id="a",
                parameters={
                    "sequence_id": 42,
                    "sequence_start": True,
                    "priority": 2,
                    "timeout": 1500,
                    "binary_data_output": True,
                },
                outputs=[{"name": "OUTPUT"}, {"name": "SAID", "parameters": {"binary_data": False}}],
                model_name="m",
            )
        )
        assert request.sequence == SequencePlace(correlation_id=42, start=True)
        assert (request.request_id, request.priority, request.timeout_ns) == ("a", 2, 1_500_000)
        assert (request.is_binary("OUTPUT"), request.is_binary("SAID")) == (True, False)
        assert to_tensors(request, INPUTS, OUTPUTS).arrays["INPUT"].tolist() == [[5]]

    @pytest.mark.parametrize("correlation_id", [1, 2**64 - 1, "a", "42", "x" * 128])
    def test_correlation_ids(self, correlation_id: int | str) -> None:
        place = parse(asking(parameters={"sequence_id": correlation_id, "sequence_end": True})).sequence
        assert place == SequencePlace(correlation_id=correlation_id, end=True)
        assert type(place.correlation_id) is type(correlation_id)

    @pytest.mark.parametrize("correlation_id", [0, "", None])
    def test_no_sequence(self, correlation_id: object) -> None:
        assert parse(asking(parameters={"sequence_id": correlation_id})).sequence is None
        for flag in ("sequence_start", "sequence_end"):
            with pytest.raises(BadRequest, match=f"{flag} is true without a sequence_id"):
                parse(asking(parameters={"sequence_id": correlation_id, flag: True}))

    @pytest.mark.parametrize("correlation_id", [-1, 2**64, 1.5, True, False, [], {}, "x" * 129])
    def test_no_correlation_ids(self, correlation_id: object) -> None:
        with pytest.raises(BadRequest, match=r"request.parameters.sequence_id is .*; allowed: an integer from 1 to"):
            parse(asking(parameters={"sequence_id": correlation_id}))

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"inputs": []}, "request.inputs is missing"),
            ({"inputs": {}}, "request.inputs is {}; allowed: a list"),
            ({"inputs": [5]}, "request.inputs\\[0\\] is 5; allowed: an object"),
            ({"inputs": [ONE, ONE]}, "as that of an input before it"),
            ({"inputs": [{**ONE, "name": 5}]}, "request.inputs\\[0\\].name is 5; allowed: a text"),
            ({"inputs": [{**ONE, "dtype": "INT32"}]}, 'unknown field "dtype"; allowed: name, shape, datatype'),
            ({"inputs": [{**ONE, **BINARY}]}, "both data and binary_data_size"),
            ({"input": [ONE]}, 'unknown field "input"; allowed: .*inputs, outputs'),
            ({"id": 5}, "request.id is 5; allowed: a text"),
            ({"outputs": [{"name": "OUTPUT"}] * 2}, "as that of an output before it"),
            ({"parameters": {"sequence_start": 1}}, "sequence_start is 1; allowed: true or false"),
            ({"parameters": {"priority": -1}}, "priority is -1; allowed: an integer from 0"),
            ({"parameters": {"timeout": 1.5}}, "timeout is 1.5; allowed: an integer from 0"),
            (
                {"parameters": {"temperature": 1}},
                'unknown field "temperature"; allowed: binary_data_output, sequence_id',
            ),
        ],
    )
    def test_outside_the_protocol(self, fields: dict[str, Any], says: str) -> None:
        with pytest.raises(BadRequest, match=says):
            parse(asking(**fields))

    @pytest.mark.parametrize(
        "body", [b"[]", b"{", b"nope", b"\xff", b'{"id": NaN}', b"[" * 100_000, b'{"a":' + b"1" * 5000]
    )
    def test_no_json_object(self, body: bytes) -> None:
        with pytest.raises(BadRequest, match=r"^request is"):
            parse_request(body, None, INPUTS)

    def test_an_empty_body_has_no_inputs(self) -> None:
        with pytest.raises(BadRequest, match=r"request\.inputs is missing"):
            parse_request(b"", None, INPUTS)

    @pytest.mark.parametrize("part", [{"shared_memory_region": "r"}, {"shared_memory_byte_size": 4}])
    def test_no_shared_memory(self, part: dict[str, Any]) -> None:
        bare = {name: value for name, value in ONE.items() if name != "data"}
        for fields in (
            {"inputs": [{**bare, "parameters": part}]},
            {"outputs": [{"name": "OUTPUT", "parameters": part}]},
        ):
            with pytest.raises(NotSupported, match="there is no shared memory here; send binary data"):
                parse(asking(**fields))

    def test_no_classification(self) -> None:
        with pytest.raises(NotSupported, match="classification is not served here"):
            parse(asking(outputs=[{"name": "OUTPUT", "parameters": {"classification": 3}}]))
        parse(asking(outputs=[{"name": "OUTPUT", "parameters": {"classification": 0}}]))

    def test_a_datatype_that_is_none(self) -> None:
        with pytest.raises(BadTensor, match=r'datatype is "BF16"; allowed: BOOL, UINT8'):
            parse(asking(inputs=[{**ONE, "datatype": "BF16"}]))

    def test_long_json(self) -> None:
        body = json.dumps(asking(id="x" * MAX_JSON_BYTES)).encode()
        with pytest.raises(BodyTooLarge, match="allowed: 262144, and tensors beside it as binary data"):
            parse_request(body, None, INPUTS)
        long = np.zeros(MAX_JSON_BYTES, np.float32).tobytes()
        wave = {"name": "WAVE", "shape": [1, MAX_JSON_BYTES], "datatype": "FP32"}
        request = parse(asking(inputs=[ONE, {**wave, "parameters": {"binary_data_size": len(long)}}]), long)
        assert to_tensors(request, INPUTS, OUTPUTS).arrays["WAVE"].shape == (1, MAX_JSON_BYTES)


class TestBinary:
    def test_json_and_binary_together_in_their_order(self) -> None:
        text = to_binary(text_array([b"\xff\0"], (1, 1)), "BYTES")
        said = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(text)}}
        wave = {"name": "WAVE", "shape": [1, 2], "datatype": "FP32", "data": [[0.5, 1]]}
        request = parse({"inputs": [said, wave, BINARY]}, text + b"\7\0\0\0")
        arrays = to_tensors(request, INPUTS, OUTPUTS).arrays
        assert arrays["TEXT"].tolist() == [[b"\xff\0"]]
        assert arrays["INPUT"].tolist() == [[7]]
        assert arrays["WAVE"].tolist() == [[0.5, 1.0]]

    @pytest.mark.parametrize(("binary", "says"), [(b"\0" * 3, "only 3 bytes are left"), (b"\0" * 5, "add up to 4")])
    def test_sizes_that_do_not_fit_the_body(self, binary: bytes, says: str) -> None:
        with pytest.raises(BadRequest, match=says):
            parse({"inputs": [BINARY]}, binary)

    @pytest.mark.parametrize("length", ["-1", "1.5", "x", "", "999999", "9" * 30, "٣"])
    def test_header_lengths_that_are_none(self, length: str) -> None:
        with pytest.raises(BadRequest, match="Inference-Header-Content-Length is"):
            parse_request(json.dumps(asking()).encode(), length, INPUTS)


class TestRawBodies:
    @pytest.mark.parametrize(
        ("spec", "body", "expected"),
        [
            (TensorSpec(datatype="INT32", shape=(1,)), b"\5\0\0\0", [[5]]),
            (TensorSpec(datatype="INT16", shape=(2, -1)), b"\1\0\2\0\3\0\4\0", [[[1, 2], [3, 4]]]),
            (TensorSpec(datatype="BYTES", shape=(1,)), b"hello\0", [[b"hello\0"]]),
        ],
    )
    def test_are_one_row_of_the_only_input(self, spec: TensorSpec, body: bytes, expected: list[Any]) -> None:
        request = parse_request(body, "0", {"X": spec})
        assert to_tensors(request, {"X": spec}, OUTPUTS).arrays["X"].tolist() == expected
        assert request.is_binary("OUTPUT")

    @pytest.mark.parametrize(
        ("specs", "says"),
        [
            (INPUTS, "needs a model of one input"),
            ({"X": TensorSpec(datatype="INT32", shape=(1,))}, "3 bytes of data"),
            ({"X": TensorSpec(datatype="INT32", shape=(-1,))}, "3 bytes of data"),
            ({"X": TensorSpec(datatype="INT8", shape=(-1, -1))}, "several free axes"),
            ({"X": TensorSpec(datatype="BYTES", shape=(2,))}, "an input of one text"),
        ],
    )
    def test_that_say_too_little(self, specs: dict[str, TensorSpec], says: str) -> None:
        with pytest.raises(BadTensor, match=says):
            parse_request(b"abc", "0", specs)


class TestAgainstTheDeclaration:
    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"inputs": [{**ONE, "name": "X"}]}, 'unknown input "X"; allowed: INPUT, TEXT, WAVE'),
            ({"inputs": [{**ONE, "name": "TEXT", "datatype": "BYTES", "data": ["a"]}]}, "input INPUT is missing"),
            ({"inputs": [{**ONE, "datatype": "INT64"}]}, "datatype is INT64; allowed: INT32"),
            ({"inputs": [{**ONE, "shape": [1]}]}, r"shape is \[1\]; allowed: \[-1, 1\]"),
            ({"inputs": [{**ONE, "shape": [1, 2], "data": [1, 2]}]}, r"shape is \[1, 2\]; allowed: \[-1, 1\]"),
            ({"inputs": [{**ONE, "shape": [0, 1], "data": []}]}, r"first axes of the inputs are \[0\]"),
            (
                {"inputs": [ONE, {"name": "WAVE", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]}]},
                r"first axes of the inputs are \[1, 2\]",
            ),
            ({"outputs": [{"name": "X"}]}, 'unknown output "X"; allowed: OUTPUT, SAID'),
            (
                {"inputs": [{**ONE, "shape": [2, 1], "data": [1, 2]}], "parameters": {"sequence_id": 1}},
                "a request of a sequence has 2 rows; allowed: 1",
            ),
        ],
    )
    def test_what_contradicts_it(self, fields: dict[str, Any], says: str) -> None:
        with pytest.raises(BadTensor, match=says):
            to_tensors(parse(asking(**fields)), INPUTS, OUTPUTS)

    def test_several_rows(self) -> None:
        request = parse(asking(inputs=[{**ONE, "shape": [3, 1], "data": [1, 2, 3]}]))
        assert to_tensors(request, INPUTS, OUTPUTS).n_rows == 3


def read(body: InferBody) -> tuple[dict[str, Any], bytes]:
    at = len(body.data) if body.header_length is None else body.header_length
    return json.loads(body.data[:at]), body.data[at:]


class TestResponses:
    ANSWER = Tensors(arrays={"OUTPUT": np.array([[7]], np.int32), "SAID": text_array([b"a"], (1, 1))})

    def response(self, **fields: Any) -> tuple[dict[str, Any], bytes]:
        body = build_response(parse(asking(**fields)), self.ANSWER, model="m", version="1", outputs=OUTPUTS)
        return read(body)

    def test_all_outputs_as_json(self) -> None:
        head, binary = self.response(id="r")
        assert head == {
            "model_name": "m",
            "model_version": "1",
            "id": "r",
            "outputs": [
                {"name": "OUTPUT", "datatype": "INT32", "shape": [1, 1], "data": [7]},
                {"name": "SAID", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]},
            ],
        }
        assert binary == b""

    def test_some_as_binary_in_the_order_asked_for(self) -> None:
        head, binary = self.response(
            parameters={"binary_data_output": True, "sequence_id": "s", "sequence_end": True},
            outputs=[{"name": "SAID"}, {"name": "OUTPUT"}],
        )
        assert [each["name"] for each in head["outputs"]] == ["SAID", "OUTPUT"]
        assert [each["parameters"]["binary_data_size"] for each in head["outputs"]] == [5, 4]
        assert binary == b"\1\0\0\0a\7\0\0\0"
        assert head["parameters"] == {"sequence_id": "s", "sequence_start": False, "sequence_end": True}

    @given(st.lists(tensors(is_json=False).filter(lambda each: each[1].ndim > 0), min_size=1, max_size=3))
    def test_what_is_sent_as_binary_can_be_sent_back(self, given: list[tuple[str, Any]]) -> None:
        outputs = {
            f"Y{index}": TensorSpec(datatype=datatype, shape=array.shape[1:])
            for index, (datatype, array) in enumerate(given)
        }
        answer = Tensors(arrays={name: array for name, (_, array) in zip(outputs, given, strict=True)})
        asked = parse(asking(parameters={"binary_data_output": True}))
        body = build_response(asked, answer, model="m", version="1", outputs=outputs)
        head, binary = read(body)
        again = parse({"inputs": head["outputs"]}, binary)
        for name, (_, array) in zip(outputs, given, strict=True):
            assert_same(again.inputs[name].array, array)


WHOLE = asking(
    id="a",
    inputs=[BINARY, {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}],
    parameters={"sequence_id": 42, "sequence_start": True, "sequence_end": False, "priority": 1, "timeout": 9},
    outputs=[{"name": "OUTPUT", "parameters": {"binary_data": True}}],
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x",
    [],
    {},
    [1],
    {"a": 1},
    [[1]],
    "BYTES",
    "INT32",
    1e308,
)


def mutated(chance: random.Random, value: Any) -> Any:
    """A value with one thing of it replaced, dropped or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        left = {key: each for key, each in value.items() if key != name}
        return left if chance.random() < 0.15 else {**left, name: mutated(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return value[:at] + value[at:] + [value[at]]
        return [*value[:at], mutated(chance, value[at]), *value[at + 1 :]]
    return chance.choice(VALUES)


class TestMutatedRequests:
    def answer(self, body: bytes, header_length: str | None) -> int:
        """The status that it gets."""
        try:
            request = parse_request(body, header_length, INPUTS)
            to_tensors(request, INPUTS, OUTPUTS)
            build_response(request, TestResponses.ANSWER, model="m", version="1", outputs=OUTPUTS)
        except PeerError as error:
            said = error_body(error)["error"]
            status = status_of(error).value
        else:
            return 200
        assert said
        assert len(said) < 700
        return status

    def test_of_other_values(self) -> None:
        chance = random.Random(11)
        statuses = set()
        for _ in range(4000):
            request = WHOLE
            for _ in range(chance.choice((1, 1, 2, 4))):
                request = mutated(chance, request)
            head = json.dumps(request).encode()
            length = chance.choice((str(len(head)), None, "0", str(chance.randrange(len(head) + 10))))
            statuses.add(self.answer(head + b"\5\0\0\0", length))
        assert statuses <= {200, 400, 501}
        assert {200, 400} <= statuses

    def test_of_other_bytes(self) -> None:
        chance = random.Random(12)
        head = json.dumps(WHOLE).encode()
        whole = head + b"\5\0\0\0"
        statuses = set()
        for _ in range(4000):
            damaged = bytearray(whole)
            for _ in range(chance.choice((1, 2, 8))):
                at = chance.randrange(len(damaged))
                damaged[at : at + chance.choice((0, 1, 1, 3))] = chance.randbytes(chance.choice((0, 1, 1, 4)))
            statuses.add(self.answer(bytes(damaged), str(len(head))))
        assert statuses <= {200, 400, 501}
        assert {200, 400} <= statuses
