"""The KServe protocol over real sockets, to models that any lost, doubled or misrouted request shows in."""

import asyncio
import json
import random
import struct
from typing import Any, Literal

import httpx
import numpy as np
import pytest

from server.configuration.config import HttpConfig
from server.configuration.model_sections import TensorModelConfig
from tests.integration.test_access import KEY, keyed
from tests.server.wire.kserve.test_infer import mutated
from tests.support.engines import until
from tests.support.models import ACCUMULATORS, MODELS, http, output, serving_models, turn

SEQUENCE = "/v2/models/simple_sequence/infer"
DYNA = "/v2/models/simple_dyna_sequence/infer"
LENGTH = "Inference-Header-Content-Length"
CONTROL = {"http": HttpConfig(model_control=True)}
WAITING = (
    TensorModelConfig(
        name="simple_sequence", model="accumulator", device="cpu", threads=1, slots=4, max_delay_ms=10_000.0
    ),
)
"""A turn waits ten seconds for the other live sequences."""


async def send(
    client: httpx.AsyncClient, value: int, sequence_id: int | str, *, start: bool = False, end: bool = False
) -> int:
    """A turn to the accumulator, and what it answers; fails on an error."""
    answer = await client.post(SEQUENCE, json=turn(value, sequence_id, start=start, end=end))
    (total,) = output(answer)
    assert isinstance(total, int)
    return total


async def whole(client: httpx.AsyncClient, sequence_id: int | str, values: list[int]) -> list[int]:
    """A sequence, turn by turn."""
    last = len(values) - 1
    return [await send(client, value, sequence_id, start=at == 0, end=at == last) for at, value in enumerate(values)]


async def refused(client: httpx.AsyncClient, path: str, body: object) -> tuple[int, str]:
    """Status and code of an answer that is an error."""
    answer = await client.post(path, json=body)
    return answer.status_code, answer.json()["code"]


class TestSequences:
    async def test_add_up_apart_from_each_other(self) -> None:
        chance = random.Random(4)
        values = {name: [chance.randrange(-50, 50) for _ in range(6)] for name in (42, "42", 7, "a", "ü")}
        async with serving_models() as service, http(service) as client:
            heard = await asyncio.gather(*(whole(client, name, each) for name, each in values.items()))
        assert heard == [np.cumsum(each).tolist() for each in values.values()]

    async def test_a_start_on_a_live_id_begins_again(self) -> None:
        async with serving_models() as service, http(service) as client:
            assert await send(client, 5, 9, start=True) == 5
            assert await send(client, 6, 9, start=True) == 6
            assert await send(client, 1, 9, end=True) == 7

    async def test_out_of_place(self) -> None:
        async with serving_models() as service, http(service) as client:
            assert await refused(client, SEQUENCE, turn(1, 9)) == (400, "missing_start")
            assert await refused(client, SEQUENCE, turn(1, 9, end=True)) == (400, "missing_start")
            assert await refused(client, SEQUENCE, turn(1)) == (400, "missing_start")
            assert await whole(client, 9, [3]) == [3]
            assert await refused(client, SEQUENCE, turn(1, 9)) == (400, "sequence_ended")
            assert (await client.post(SEQUENCE, json=turn(1, 9))).json()["error"] == "sequence 9 has ended"
            assert await refused(client, SEQUENCE, turn(1, "9")) == (400, "missing_start")
            mean = {"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
            assert await refused(client, "/v2/models/mean/infer", mean | {"parameters": {"sequence_id": 1}}) == (
                400,
                "bad_tensor",
            )

    async def test_what_would_not_be_honoured_is_refused(self) -> None:
        """And nothing is begun by it; 0, and the level that there is, mean nothing."""

        def asking(value: int, **asked: int) -> dict[str, Any]:
            request = turn(value, 9, start=True)
            request["parameters"] |= asked
            return request

        mean = {"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
        levels = MODELS[2].model_copy(update={"name": "levels", "priority_levels": 3})
        async with serving_models((*MODELS, levels)) as service, http(service) as client:
            for path, request, message in (
                (SEQUENCE, asking(1, timeout=5), "timeout is 5; allowed: 0, or none at all: models.simple_sequence"),
                (SEQUENCE, asking(1, priority=2), "priority is 2; allowed: 0 or 1: simple_sequence has one level"),
                ("/v2/models/mean/infer", mean | {"parameters": {"priority": 2}}, "priority is 2; allowed: 0 or 1"),
                ("/v2/models/levels/infer", mean | {"parameters": {"priority": 4}}, "priority is 4; allowed: 0 to 3"),
            ):
                answer = await client.post(path, json=request)
                assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
                assert message in answer.json()["error"]
            assert await refused(client, SEQUENCE, turn(1, 9)) == (400, "missing_start")
            assert output(await client.post(SEQUENCE, json=asking(4, timeout=0, priority=1))) == [4]
            asked = mean | {"parameters": {"priority": 3, "timeout": 5_000_000}}
            assert output(await client.post("/v2/models/levels/infer", json=asked), "MEAN") == [1.0]

    async def test_a_full_model_says_so(self) -> None:
        async with serving_models(ACCUMULATORS) as service, http(service) as client:
            for name in range(1, 9):
                await send(client, name, name, start=True)
            answer = await client.post(SEQUENCE, json=turn(1, 99, start=True))
            assert (answer.status_code, answer.json()["code"]) == (503, "capacity_exceeded")
            assert int(answer.headers["Retry-After"]) >= 1
            assert [await send(client, 1, name, end=True) for name in range(1, 9)] == list(range(2, 10))

    async def test_a_client_that_leaves_a_turn_unanswered_ends_its_sequence(self) -> None:
        async with serving_models(WAITING) as service, http(service) as client:
            await send(client, 1, "company that does not come", start=True)
            with pytest.raises(httpx.ReadTimeout):
                await client.post(SEQUENCE, json=turn(1, 9, start=True), timeout=0.3)
            await client.aclose()
            await until(lambda: service.engine.repository.get("simple_sequence").stats().failed.get("cancelled") == 1)
            async with http(service) as other:
                assert (await refused(other, SEQUENCE, turn(1, 9)))[1] in ("missing_start", "sequence_ended")


class TestBodies:
    async def test_binary_both_ways(self) -> None:
        numbers = np.random.default_rng(1).standard_normal((1, 50_000)).astype(np.float32)
        text = b"\xff\0 said"
        data = numbers.tobytes() + struct.pack("<I", len(text)) + text
        head = {
            "id": "r",
            "inputs": [
                {
                    "name": "NUMBERS",
                    "shape": [1, 50_000],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 200_000},
                },
                {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 11}},
            ],
            "parameters": {"binary_data_output": True},
        }
        sent = json.dumps(head).encode()
        async with serving_models() as service, http(service) as client:
            answer = await client.post("/v2/models/echo/infer", content=sent + data, headers={LENGTH: str(len(sent))})
        assert answer.headers["Content-Type"] == "application/octet-stream"
        at = int(answer.headers[LENGTH])
        said = json.loads(answer.content[:at])
        assert said["id"] == "r"
        assert [each["name"] for each in said["outputs"]] == ["NUMBERS", "TEXT"]
        assert answer.content[at:] == data

    async def test_a_raw_body(self) -> None:
        values = np.array([1.0, 2.0, 6.0], np.float32)
        async with serving_models() as service, http(service) as client:
            answer = await client.post("/v2/models/mean/infer", content=values.tobytes(), headers={LENGTH: "0"})
        assert np.frombuffer(answer.content[int(answer.headers[LENGTH]) :], np.float32).tolist() == [3.0]

    async def test_an_answer_that_json_has_not(self) -> None:
        nothing = {"inputs": [{"name": "INPUT", "shape": [1, 0], "datatype": "FP32", "data": []}]}
        async with serving_models() as service, http(service) as client:
            answer = await client.post("/v2/models/mean/infer", json=nothing)
            assert answer.status_code == 400
            assert "ask for it as binary data" in answer.json()["error"]
            binary = nothing | {"parameters": {"binary_data_output": True}}
            answer = await client.post("/v2/models/mean/infer", json=binary)
            assert np.isnan(np.frombuffer(answer.content[int(answer.headers[LENGTH]) :], np.float32)).all()

    async def test_no_body_however_damaged_fails_the_service(self, caplog: pytest.LogCaptureFixture) -> None:
        chance = random.Random(6)
        good = turn(5, 77, start=True) | {"outputs": [{"name": "OUTPUT"}], "id": "a"}
        statuses = set()
        async with serving_models() as service, http(service) as client:
            for _ in range(300):
                body = json.dumps(mutated(chance, good)).encode()
                length = chance.choice((None, None, None, "0", "5", str(len(body)), "-1", "x"))
                headers = {} if length is None else {LENGTH: length}
                answer = await client.post(SEQUENCE, content=body, headers=headers)
                assert answer.status_code == 200 or answer.json()["error"]
                statuses.add(answer.status_code)
            assert await whole(client, "after", [1, 2]) == [1, 3]
        assert statuses <= {200, 400, 501, 503}
        assert {200, 400} <= statuses
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


class TestPages:
    async def test_what_the_service_and_its_models_are(self) -> None:
        async with serving_models() as service, http(service) as client:
            said = (await client.get("/v2")).json()
            assert said["name"] == "moorage"
            assert {"sequence", "binary_tensor_data", "model_repository"} <= set(said["extensions"])
            for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/mean/ready", "/v2/models/mean/versions/1"):
                assert (await client.get(path)).status_code == 200
            config = (await client.get("/v2/models/simple_sequence/config")).json()
            assert config["instance_group"] == [{"name": "simple_sequence_0", "kind": "KIND_CPU", "count": 2}]
            assert config["sequence_batching"]["oldest"]["max_candidate_sequences"] == 4
            assert "dynamic_batching" in (await client.get("/v2/models/mean/config")).json()

    async def test_statistics(self) -> None:
        async with serving_models() as service, http(service) as client:
            await whole(client, 1, [1, 2, 3])
            await refused(client, SEQUENCE, turn(1, 1))
            (said,) = (await client.get("/v2/models/simple_sequence/stats")).json()["model_stats"]
            assert said["inference_stats"]["success"]["count"] == 3
            assert said["inference_stats"]["success"]["ns"] > 0
            assert said["inference_stats"]["fail"]["count"] == 1
            assert said["execution_count"] == 3
            route = "/v2/models/{model}/infer"
            answered = service.gateway.stats().http_answered
            assert (answered[route, 200], answered[route, 400]) == (3, 1)
            everything = (await client.get("/v2/models/stats")).json()["model_stats"]
            assert [each["name"] for each in everything] == ["simple_sequence", "simple_dyna_sequence", "mean", "echo"]

    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/v2/models/nope", 404, "unknown_model"),
            ("GET", "/v2/models/mean/versions/2", 404, "unknown_model"),
            ("GET", "/v2/models/mean/versions/2/ready", 404, "unknown_model"),
            ("POST", "/v2/models/mean/versions/2/infer", 404, "unknown_model"),
            ("GET", "/v2/models/live", 501, "not_supported"),
            ("GET", "/v2/nope", 404, "unknown_path"),
            ("GET", SEQUENCE, 405, "method_not_allowed"),
            ("DELETE", "/v2/models/mean", 405, "method_not_allowed"),
            ("POST", "/v2/systemsharedmemory/region/r/register", 501, "not_supported"),
            ("GET", "/v2/models/mean/trace/setting", 501, "not_supported"),
            ("GET", "/v2/models/mean/stream", 501, "not_supported"),
        ],
    )
    async def test_what_is_not_there(self, method: str, path: str, status: int, code: str) -> None:
        async with serving_models() as service, http(service) as client:
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (status, code)

    async def test_plain_pages_on_a_connection_that_is_kept(self) -> None:
        async with serving_models() as service, http(service) as client:
            assert (await client.get("/v2/health/live")).status_code == 200
            assert (await client.get("/healthz")).text == "ok\n"
            assert (await client.get("/v1/models")).json()["models"][0]["role"] == "live"
            assert (await client.get("/nope")).status_code == 404
            assert (await client.get("/v1/listen")).status_code == 426
            assert (await client.post("/healthz")).status_code == 405
            assert (await client.head("/healthz")).headers["Content-Length"] == "3"
            assert (await client.get("/readyz?strict")).status_code == 200
            assert (await client.head("/v2/health/live")).status_code == 200


class TestRepository:
    async def test_it_needs_permission(self) -> None:
        async with serving_models() as service, http(service) as client:
            assert await refused(client, "/v2/repository/models/mean/unload", {}) == (403, "not_permitted")
            assert await refused(client, "/v2/repository/models/mean/load", {}) == (403, "not_permitted")

    async def test_index_load_and_unload(self) -> None:
        async with serving_models(sections=CONTROL) as service, http(service) as client:
            assert (await client.post("/v2/repository/models/mean/unload", json={})).status_code == 200
            index = {each["name"]: each["state"] for each in (await client.post("/v2/repository/index")).json()}
            assert index["mean"] == "UNAVAILABLE"
            ready = (await client.post("/v2/repository/index", json={"ready": True})).json()
            assert "mean" not in [each["name"] for each in ready]
            assert (await client.get("/v2/models/mean/ready")).status_code == 503
            values = {"inputs": [{"name": "INPUT", "shape": [1, 2], "datatype": "FP32", "data": [1, 3]}]}
            assert await refused(client, "/v2/models/mean/infer", values) == (404, "unknown_model")
            assert (await client.post("/v2/repository/models/mean/load")).status_code == 200
            assert output(await client.post("/v2/models/mean/infer", json=values), "MEAN") == [2.0]

    async def test_a_live_sequence_outlives_the_replacement_of_its_model(self) -> None:
        async with serving_models(sections=CONTROL) as service, http(service) as client:
            assert await send(client, 5, 1, start=True) == 5
            changed = {"parameters": {"config": json.dumps({"slots": 1, "instances": 1})}}
            assert (await client.post("/v2/repository/models/simple_sequence/load", json=changed)).status_code == 200
            config = (await client.get("/v2/models/simple_sequence/config")).json()
            assert config["sequence_batching"]["oldest"]["max_candidate_sequences"] == 1
            assert config["instance_group"][0]["count"] == 1
            assert await send(client, 7, 2, start=True) == 7
            assert (await refused(client, SEQUENCE, turn(1, 3, start=True)))[1] == "capacity_exceeded"
            assert await send(client, 1, 1, end=True) == 6
            assert await send(client, 1, 2, end=True) == 8

    async def test_live_sequences_come_to_their_ends_while_their_model_is_unloaded(self) -> None:
        change = "/v2/repository/models/simple_sequence"
        async with serving_models(sections=CONTROL) as service, http(service) as client:
            for name in (1, 2):
                assert await send(client, 5, name, start=True) == 5
            unloading = asyncio.create_task(client.post(f"{change}/unload"))
            await until(lambda: not service.engine.repository.get("simple_sequence").scheduler)
            answer = await client.post(SEQUENCE, json=turn(1, 3, start=True))
            assert (answer.status_code, answer.json()["error"]) == (404, "simple_sequence is unloaded")
            assert (await refused(client, SEQUENCE, turn(1, 4))) == (404, "unknown_model")
            assert await send(client, 2, 1) == 7
            assert await send(client, 1, 1, end=True) == 8
            assert (await client.get("/v2/models/simple_sequence")).status_code == 404, "it takes nothing new"
            assert not unloading.done()
            assert (await client.post(f"{change}/load", timeout=10)).status_code == 200
            assert not unloading.done(), "a new copy comes up beside the one that is ending"
            assert await send(client, 9, 3, start=True) == 9
            assert await send(client, 3, 2, end=True) == 8
            assert (await asyncio.wait_for(unloading, 10)).status_code == 200
            assert await send(client, 1, 3, end=True) == 10

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("nope/load", {}, 404),
            ("mean/load", {"parameters": {"config": "nope"}}, 400),
            ("mean/load", {"parameters": {"config": '{"slotz": 3}'}}, 400),
            ("mean/load", {"parameters": {"config": '{"slots": -3}'}}, 400),
            ("mean/load", {"parameters": {"file:1/model.onnx": "AAAA"}}, 501),
            ("mean/load", {"parameters": {"warm": True}}, 400),
            ("mean/load", [], 400),
            ("mean/unload", {"parameters": {"force": True}}, 400),
            ("live/unload", {}, 400),
        ],
    )
    async def test_refusals_change_nothing(self, path: str, body: object, status: int) -> None:
        async with serving_models(sections=CONTROL) as service, http(service) as client:
            answer = await client.post(f"/v2/repository/models/{path}", json=body)
            assert (answer.status_code, bool(answer.json()["error"])) == (status, True)
            assert {each["state"] for each in (await client.post("/v2/repository/index")).json()} == {"READY"}


class TestAccess:
    async def test_models_need_a_key_where_there_are_keys(self) -> None:
        async with serving_models(sections=keyed()) as service:
            async with http(service) as client:
                for path in ("/v2/health/live", "/v2/health/ready"):
                    assert (await client.get(path)).status_code == 200
                for path in ("/v2", "/v2/models/mean", "/v2/models/stats"):
                    answer = await client.get(path)
                    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Token")
                assert await refused(client, SEQUENCE, turn(1, 1, start=True)) == (401, "invalid_auth")
                assert await refused(client, "/v2/repository/index", {}) == (401, "invalid_auth")
                assert (await client.get("/metrics")).status_code == 401
            for scheme in ("Token", "Bearer"):
                async with http(service, Authorization=f"{scheme} {KEY}") as client:
                    assert await whole(client, scheme, [1, 2]) == [1, 3]
                    assert (await client.get("/metrics")).status_code == 200

    async def test_pages_of_other_origins_may_not(self) -> None:
        async with serving_models() as service, http(service, Origin="https://evil.example") as client:
            assert await refused(client, SEQUENCE, turn(1, 1, start=True)) == (403, "origin_refused")
            assert (await client.get("/v2/models/mean")).status_code == 403


class TestMixedServer:
    """One service, a model of each kind: each gets what it needs, and the wrong one is wrong without an error."""

    async def test_requests_share_a_batch_while_turns_reach_their_instance(self) -> None:
        mean = TensorModelConfig(name="mean", model="mean", device="cpu", threads=1, max_batch=2, max_delay_ms=10_000.0)
        rows = [{"inputs": [{"name": "INPUT", "shape": [1, n], "datatype": "FP32", "data": [n] * n}]} for n in (2, 5)]
        async with serving_models((ACCUMULATORS[0], mean)) as service, http(service) as client:
            for other in range(3):
                await send(client, 1, f"other {other}", start=True)
            assert await send(client, 1, 77, start=True) == 1
            assert await send(client, 2, 77) == 3
            means, third, fourth = await asyncio.gather(
                asyncio.gather(*(client.post("/v2/models/mean/infer", json=row) for row in rows)),
                send(client, 3, 77),
                send(client, 4, 77),
            )
            assert [output(each, "MEAN") for each in means] == [[2.0], [5.0]]
            assert sorted((third, fourth)) in ([6, 10], [7, 10])
            (stats,) = (await client.get("/v2/models/mean/stats")).json()["model_stats"]
            assert (stats["inference_count"], stats["execution_count"]) == (2, 1)

    @pytest.mark.parametrize("scheduler", ["sequence", "dynamic"])
    async def test_the_wrong_scheduler_is_wrong_without_an_error(
        self, scheduler: Literal["sequence", "dynamic"]
    ) -> None:
        model = TensorModelConfig(
            name="simple_sequence",
            model="accumulator",
            scheduler=scheduler,
            allow_wrong_scheduler=scheduler == "dynamic",
            device="cpu",
            threads=1,
            instances=2,
            slots=8,
            max_batch=2,
        )
        values = {name: list(range(name, name + 12)) for name in range(1, 9)}
        async with serving_models((model,)) as service, http(service) as client:
            heard = await asyncio.gather(*(whole(client, name, each) for name, each in values.items()))
        are_right = heard == [np.cumsum(each).tolist() for each in values.values()]
        assert are_right == (scheduler == "sequence")
