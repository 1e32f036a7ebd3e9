"""NVIDIA's own client of the KServe protocol, unchanged, against a service with models of ours."""

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

from server.configuration.config import HttpConfig
from tests.integration.test_access import KEY, keyed
from tests.support.models import serving_models

EXTRA = "of the extra clients: make test-clients installs it and runs this"
triton = pytest.importorskip("tritonclient.http", reason=EXTRA)
triton_aio = pytest.importorskip("tritonclient.http.aio", reason=EXTRA)
utils = pytest.importorskip("tritonclient.utils", reason=EXTRA)

T = TypeVar("T")
VALUES = (11, 7, 5, 3, 2, 0, 1)
"""What NVIDIA's example of sequences sends (simple_http_sequence_sync_infer_client.py)."""


async def using(work: Callable[[Any], T], sections: dict[str, Any] | None = None, **options: Any) -> T:
    """What ``work`` makes of a client, which blocks: so it has a thread of its own."""
    async with serving_models(sections=sections) as service:

        def run() -> T:
            with triton.InferenceServerClient(url=f"127.0.0.1:{service.gateway.port}", **options) as client:
                return work(client)

        return await asyncio.to_thread(run)


def tensor(name: str, array: Any, datatype: str, *, is_binary: bool = True) -> Any:
    """An input."""
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, binary_data=is_binary)


def integer(value: int) -> Any:
    """The accumulator's input."""
    return tensor("INPUT", np.full((1, 1), value, np.int32), "INT32")


def sync_send(client: Any, model: str, values: list[int], sequence_id: int | str) -> list[int]:
    """A sequence as the example sends it: one request after the other, START with the first, END with the last."""
    totals = []
    for at, value in enumerate(values):
        result = client.infer(
            model_name=model,
            inputs=[integer(value)],
            outputs=[triton.InferRequestedOutput("OUTPUT")],
            sequence_id=sequence_id,
            sequence_start=at == 0,
            sequence_end=at == len(values) - 1,
        )
        totals.append(int(result.as_numpy("OUTPUT")[0][0]))
    return totals


class TestSequences:
    async def test_the_example_of_sequences(self) -> None:
        """Two sequences of numbers and one with a text for its id, on the accumulator."""
        sequences: list[tuple[list[int], int | str]] = [
            ([0, *VALUES], 1000),
            ([100, *(-value for value in VALUES)], 1001),
            ([20, *(-value for value in VALUES)], str(uuid.uuid4())),
        ]

        def work(client: Any) -> list[list[int]]:
            return [sync_send(client, "simple_sequence", values, name) for values, name in sequences]

        assert await using(work) == [np.cumsum(values).tolist() for values, _ in sequences]

    async def test_the_example_with_the_correlation_id_in_the_last_answer(self) -> None:
        sequences: list[tuple[list[int], int | str]] = [
            ([0, *VALUES], 1000),
            ([100, *(-value for value in VALUES)], 1001),
            ([20, *(-value for value in VALUES)], "1002"),
        ]

        def work(client: Any) -> list[list[int]]:
            return [sync_send(client, "simple_dyna_sequence", values, name) for values, name in sequences]

        heard = await using(work)
        for (values, name), totals in zip(sequences, heard, strict=True):
            expected = np.cumsum(values)
            expected[-1] += int(name)
            assert totals == expected.tolist()

    async def test_requests_that_do_not_wait(self) -> None:
        def work(client: Any) -> list[int]:
            asked = [
                client.async_infer(
                    "simple_sequence",
                    [integer(at)],
                    sequence_id=5000 + at,
                    sequence_start=True,
                    sequence_end=True,
                    request_id=str(at),
                )
                for at in range(8)
            ]
            results = [each.get_result() for each in asked]
            assert [each.get_response()["id"] for each in results] == [str(at) for at in range(8)]
            return [int(each.as_numpy("OUTPUT")[0][0]) for each in results]

        assert await using(work, concurrency=4) == list(range(8))

    async def test_what_is_out_of_place_is_an_exception_with_the_reason(self) -> None:
        def work(client: Any) -> tuple[str, str]:
            with pytest.raises(utils.InferenceServerException) as caught:
                client.infer("simple_sequence", [integer(1)], sequence_id=9)
            return caught.value.status(), caught.value.message()

        status, message = await using(work)
        assert status == "400"
        assert "START" in message.upper()

    async def test_the_asynchronous_client(self) -> None:
        async with serving_models() as service:
            client = triton_aio.InferenceServerClient(url=f"127.0.0.1:{service.gateway.port}")
            try:
                assert await client.is_server_ready()
                totals = []
                for at, value in enumerate(VALUES):
                    result = await client.infer(
                        "simple_sequence",
                        [integer(value)],
                        sequence_id="aio",
                        sequence_start=at == 0,
                        sequence_end=at == len(VALUES) - 1,
                    )
                    totals.append(int(result.as_numpy("OUTPUT")[0][0]))
            finally:
                await client.close()
        assert totals == np.cumsum(VALUES).tolist()


class TestTensors:
    @pytest.mark.parametrize("is_binary", [True, False])
    @pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
    async def test_numbers_and_texts_come_back(self, is_binary: bool, packing: str | None) -> None:
        numbers = np.random.default_rng(3).standard_normal((3, 17)).astype(np.float32)
        texts = np.array([[b"a\xc3\xbc"], [b""], [b"b" * 1000]], np.object_)

        def work(client: Any) -> tuple[Any, Any]:
            result = client.infer(
                "echo",
                [
                    tensor("NUMBERS", numbers, "FP32", is_binary=is_binary),
                    tensor("TEXT", texts, "BYTES", is_binary=is_binary),
                ],
                outputs=[
                    triton.InferRequestedOutput("TEXT", binary_data=is_binary),
                    triton.InferRequestedOutput("NUMBERS", binary_data=is_binary),
                ],
                request_compression_algorithm=packing,
                response_compression_algorithm=packing,
            )
            return result.as_numpy("NUMBERS"), result.as_numpy("TEXT")

        heard_numbers, heard_texts = await using(work)
        np.testing.assert_array_equal(heard_numbers, numbers)
        said = [each if isinstance(each, bytes) else each.encode() for each in heard_texts.ravel()]
        assert said == texts.ravel().tolist()

    async def test_priority_timeout_and_all_outputs(self) -> None:
        values = np.array([[1.0, 2.0, 6.0]], np.float32)

        def work(client: Any) -> Any:
            return client.infer("mean", [tensor("INPUT", values, "FP32")], priority=1, timeout=5_000_000)

        assert (await using(work)).as_numpy("MEAN").tolist() == [[3.0]]

    async def test_parts_of_triton_that_are_not_served(self) -> None:
        def work(client: Any) -> list[str]:
            values = tensor("INPUT", np.zeros((1, 3), np.float32), "FP32")
            classes = [triton.InferRequestedOutput("MEAN", class_count=2)]
            statuses = []
            calls: tuple[Callable[[], Any], ...] = (
                lambda: client.infer("mean", [values], outputs=classes),
                client.get_system_shared_memory_status,
                lambda: client.get_trace_settings("mean"),
                client.get_log_settings,
            )
            for call in calls:
                with pytest.raises(utils.InferenceServerException) as caught:
                    call()
                statuses.append(caught.value.status())
            return statuses

        assert await using(work) == ["501"] * 4


class TestPages:
    async def test_what_it_asks_of_service_and_models(self) -> None:
        def work(client: Any) -> None:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("mean")
            assert client.is_model_ready("mean", "1")
            assert not client.is_model_ready("mean", "2")
            assert not client.is_model_ready("nope")
            assert client.get_server_metadata()["name"] == "moorage"
            metadata = client.get_model_metadata("simple_sequence")
            assert metadata["inputs"] == [{"name": "INPUT", "datatype": "INT32", "shape": [-1, 1]}]
            config = client.get_model_config("simple_sequence", "1")
            assert config["max_batch_size"] == 8
            assert {each["name"] for each in client.get_model_repository_index()} >= {"live", "mean", "echo"}
            client.infer("mean", [tensor("INPUT", np.ones((2, 3), np.float32), "FP32")])
            (stats,) = client.get_inference_statistics("mean")["model_stats"]
            assert stats["inference_stats"]["success"]["count"] == 1

        await using(work)

    async def test_models_are_loaded_replaced_and_unloaded(self) -> None:
        def work(client: Any) -> None:
            client.unload_model("mean")
            assert not client.is_model_ready("mean")
            client.load_model("mean")
            assert client.is_model_ready("mean")
            client.load_model("simple_sequence", config=json.dumps({"slots": 1, "instances": 1}))
            client.infer("simple_sequence", [integer(1)], sequence_id=1, sequence_start=True)
            with pytest.raises(utils.InferenceServerException) as caught:
                client.infer("simple_sequence", [integer(1)], sequence_id=2, sequence_start=True)
            assert caught.value.status() == "503"

        await using(work, {"http": HttpConfig(model_control=True)})

    async def test_keys(self) -> None:
        def work(client: Any) -> None:
            assert client.is_server_live()
            with pytest.raises(utils.InferenceServerException) as caught:
                client.infer("simple_sequence", [integer(1)], sequence_id=1, sequence_start=True)
            assert caught.value.status() == "401"
            client.infer(
                "simple_sequence",
                [integer(1)],
                sequence_id=1,
                sequence_start=True,
                headers={"Authorization": f"Bearer {KEY}"},
            )

        await using(work, keyed())
