import json
import math
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BadTensor
from server.wire.kserve.datatypes import (
    BOOL,
    BYTES,
    DTYPES,
    MAX_JSON_VALUES,
    MAX_TEXTS,
    Array,
    checked_shape,
    from_binary,
    from_json,
    text_array,
    to_binary,
    to_json,
)

NUMBERS = tuple(datatype for datatype in DTYPES if datatype not in (BYTES, BOOL))
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def text_arrays(texts: st.SearchStrategy[bytes]) -> st.SearchStrategy[Array]:
    def of_shape(shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
        size = math.prod(shape)
        return st.lists(texts, min_size=size, max_size=size).map(lambda each: text_array(each, shape))

    return SHAPES.flatmap(of_shape)


def tensors(*, is_json: bool) -> st.SearchStrategy[tuple[str, Array]]:
    """Any tensor that JSON, or binary data, can carry."""

    def of_type(datatype: str) -> st.SearchStrategy[tuple[str, Array]]:
        if datatype == BYTES:
            texts = st.text(st.characters(codec="utf-8")).map(str.encode) if is_json else st.binary(max_size=9)
            return st.tuples(st.just(datatype), text_arrays(texts))
        dtype = DTYPES[datatype]
        limits: dict[str, Any] = {"allow_nan": False, "allow_infinity": False}
        elements = arrays.from_dtype(dtype, **(limits if is_json and dtype.kind == "f" else {}))
        return st.tuples(st.just(datatype), arrays.arrays(dtype, SHAPES, elements=elements))

    return st.sampled_from(list(DTYPES)).flatmap(of_type)


def assert_same(one: Array, other: Array) -> None:
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    assert one.tolist() == other.tolist() or to_same_bits(one) == to_same_bits(other)


def to_same_bits(array: Array) -> bytes:
    return b"" if array.dtype == object else np.ascontiguousarray(array).tobytes()


def nested(flat: list[Any], shape: tuple[int, ...]) -> list[Any]:
    if len(shape) <= 1:
        return flat
    step = math.prod(shape[1:])
    return [nested(flat[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]


class TestRoundTrips:
    @given(tensors(is_json=False))
    def test_binary(self, tensor: tuple[str, Array]) -> None:
        datatype, array = tensor
        back = from_binary(memoryview(to_binary(array, datatype)), datatype, array.shape, "x")
        assert_same(back, array)
        assert back.flags.writeable
        assert back.flags.owndata or back.base is not None

    @given(tensors(is_json=True), st.booleans())
    def test_json(self, tensor: tuple[str, Array], is_nested: bool) -> None:
        datatype, array = tensor
        values = json.loads(json.dumps(to_json(array, datatype, "x"), allow_nan=False))
        given = nested(values, array.shape) if is_nested else values
        assert_same(from_json(given, datatype, array.shape, "x"), array)

    def test_texts_keep_zeros_at_their_ends(self) -> None:
        data = to_binary(text_array([b"a\0", b"\0\0"], (2,)), BYTES)
        assert from_binary(memoryview(data), BYTES, (2,), "x").tolist() == [b"a\0", b"\0\0"]

    def test_a_tensor_does_not_keep_the_body_alive(self) -> None:
        body = bytearray(b"\1\0\0\0")
        tensor = from_binary(memoryview(body), "INT32", (1,), "x")
        body[0] = 9
        assert tensor.tolist() == [1]


class TestShapes:
    @pytest.mark.parametrize("value", [[], [0], [3, 4], [1] * 16])
    def test_good(self, value: list[int]) -> None:
        assert checked_shape(value, "x") == tuple(value)

    @pytest.mark.parametrize(
        "value", [None, 3, "3", [1.0], [True], [-1], [2**31], [1] * 17, [[1]], {"0": 1}, [None], [2**16, 2**16]]
    )
    def test_bad(self, value: object) -> None:
        with pytest.raises(BadTensor, match="x: shape"):
            checked_shape(value, "x")

    def test_of_no_elements_it_is_still_bounded(self) -> None:
        with pytest.raises(BadTensor, match="too many elements"):
            checked_shape([0, 2**30, 2**30], "x")


class TestBinary:
    @pytest.mark.parametrize("n_bytes", [0, 7, 9])
    def test_as_many_bytes_as_the_shape_says(self, n_bytes: int) -> None:
        with pytest.raises(BadTensor, match=rf"{n_bytes} bytes of data; INT32 \[2\] has 8"):
            from_binary(memoryview(bytes(n_bytes)), "INT32", (2,), "x")

    def test_booleans_are_0_or_1(self) -> None:
        with pytest.raises(BadTensor, match="a byte of BOOL is 2"):
            from_binary(memoryview(b"\1\2"), BOOL, (2,), "x")

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\1\0\0",
            b"\2\0\0\0a",
            b"\xff\xff\xff\xffa",
            b"\1\0\0\0a",
            b"\1\0\0\0a\1\0\0\0",
            b"\1\0\0\0a\0\0\0\0\0",
            b"\1\0\0\0a\0\0\0\0\0\0\0\0",
        ],
    )
    def test_texts_fill_their_data(self, data: bytes) -> None:
        with pytest.raises(BadTensor, match="are not 2 texts"):
            from_binary(memoryview(data), BYTES, (2,), "x")

    def test_texts_are_bounded(self) -> None:
        with pytest.raises(BadTensor, match="texts; allowed"):
            from_binary(memoryview(bytes(4)), BYTES, (MAX_TEXTS + 1,), "x")


class TestJson:
    @pytest.mark.parametrize(
        ("values", "datatype"),
        [
            ([1.0], "INT32"),
            ([True], "INT32"),
            (["1"], "INT32"),
            ([None], "INT32"),
            ([2**31], "INT32"),
            ([-1], "UINT8"),
            ([2**64], "UINT64"),
            ([1], BOOL),
            ([1], BYTES),
            (["\ud800"], BYTES),
            ([True], "FP32"),
            (["nan"], "FP32"),
            ([1e39], "FP32"),
            ([1e5], "FP16"),
            ([10**400], "FP64"),
            ([math.inf], "FP64"),
            ([[1]], "INT32"),
            ([{}], "INT32"),
            ([1, 2], "INT32"),
            ([], "INT32"),
            (1, "INT32"),
            (None, "INT32"),
            ({"0": 1}, "INT32"),
        ],
    )
    def test_what_is_not_of_the_type(self, values: object, datatype: str) -> None:
        with pytest.raises(BadTensor, match=r"^x: "):
            from_json(values, datatype, (1,), "x")

    @pytest.mark.parametrize(
        "values",
        [[[1, 2], [3]], [[1], [2], [3], [4]], [[[1, 2], [3, 4]]], [1, [2, 3], 4], [[1, 2], 3, 4], [[1, 2, 3, 4]]],
    )
    def test_nested_otherwise_than_its_shape(self, values: list[Any]) -> None:
        with pytest.raises(BadTensor, match=r"^x: "):
            from_json(values, "INT32", (2, 2), "x")

    def test_what_an_output_cannot_be(self) -> None:
        for array, datatype in (
            (np.array([math.nan], np.float32), "FP32"),
            (text_array([b"\xff"], (1,)), BYTES),
            (np.zeros(MAX_JSON_VALUES + 1, np.uint8), "UINT8"),
        ):
            with pytest.raises(BadTensor, match="ask for it as binary data"):
                to_json(array, datatype, "y")
