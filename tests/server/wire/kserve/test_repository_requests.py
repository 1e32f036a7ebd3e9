import json

import pytest

from server.wire.kserve.repository_requests import parse_index, parse_load, parse_unload
from server.wire.request_errors import BadRequest, NotSupported


def body(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(("sent", "expected"), [(b"", False), (body({}), False), (body({"ready": True}), True)])
def test_index(sent: bytes, expected: bool) -> None:
    assert parse_index(sent) is expected


@pytest.mark.parametrize("sent", [body({"ready": 1}), body({"repository": "r"}), b"[]", b"\xff"])
def test_an_index_outside_the_protocol(sent: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_index(sent)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", {}),
        (body({"parameters": {}}), {}),
        (body({"parameters": {"config": json.dumps({"slots": 4})}}), {"slots": 4}),
    ],
)
def test_load(sent: bytes, expected: dict[str, object]) -> None:
    assert parse_load(sent) == expected


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ([], "an object with config"),
        ({"config": {"slots": 4}}, "a text, a JSON object in it"),
        ({"config": "[4]"}, "a text with a JSON object"),
        ({"config": "{" * 100_000}, "a text with a JSON object"),
        ({"warm": True}, 'unknown field "warm"; allowed: config'),
    ],
)
def test_a_load_outside_the_protocol(parameters: object, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        parse_load(body({"parameters": parameters}))


def test_files_are_not_taken() -> None:
    with pytest.raises(NotSupported, match="allowed: config"):
        parse_load(body({"parameters": {"config": "{}", "file:1/model.onnx": "AAAA"}}))


@pytest.mark.parametrize("sent", [b"", body({}), body({"parameters": {"unload_dependents": True}})])
def test_unload(sent: bytes) -> None:
    parse_unload(sent)


@pytest.mark.parametrize(
    "sent", [body({"parameters": {"force": True}}), body({"parameters": {"unload_dependents": 1}})]
)
def test_an_unload_outside_the_protocol(sent: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_unload(sent)
