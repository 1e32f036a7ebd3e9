"""Requests over one websocket: each message is one, each answer is one, and who leaves ends what it began."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.app import Service
from tests.integration.test_access import KEY, keyed
from tests.integration.test_kserve import SEQUENCE, WAITING, refused, send
from tests.support.engines import until
from tests.support.models import ACCUMULATORS, http, output, serving_models, turn


@asynccontextmanager
async def stream(service: Service, model: str = "simple_sequence", **options: Any) -> AsyncIterator[ClientConnection]:
    """A connection to a model."""
    address = f"ws://127.0.0.1:{service.gateway.port}/v2/models/{model}/stream"
    async with connect(address, proxy=None, **options) as socket:
        yield socket


async def ask(socket: ClientConnection, request: dict[str, Any]) -> dict[str, Any]:
    """One request, and the next message."""
    await socket.send(json.dumps(request))
    async with asyncio.timeout(10):
        answer = json.loads(await socket.recv())
    assert isinstance(answer, dict)
    return answer


async def closed(socket: ClientConnection) -> int | None:
    """Waits for the service to close; its close code."""
    with pytest.raises(ConnectionClosed) as caught:
        await asyncio.wait_for(socket.recv(), 10)
    return None if caught.value.rcvd is None else caught.value.rcvd.code


async def total(socket: ClientConnection, value: int, name: int | str, **place: bool) -> Any:
    """What an accumulator answers to a turn."""
    return output(json.dumps(await ask(socket, turn(value, name, **place))))


async def test_sequences_add_up_and_answers_have_the_ids_of_their_requests() -> None:
    async with serving_models(ACCUMULATORS) as service, stream(service) as socket:
        assert await total(socket, 5, 1, start=True) == [5]
        assert await total(socket, 7, "1", start=True) == [7]
        assert await total(socket, 1, 1) == [6]
        answer = await ask(socket, {**turn(1, 1, end=True), "id": "last"})
        assert (answer["id"], answer["model_name"]) == ("last", "simple_sequence")
        assert await total(socket, 1, "1", end=True) == [8]


async def test_requests_need_not_wait_for_answers() -> None:
    """More than are in flight at once, in the order in which they were sent."""
    async with serving_models(ACCUMULATORS) as service, stream(service) as socket:
        for at in range(1, 301):
            padding = "x" * 100_000 if at % 40 == 0 else ""  # read aside, while those behind it wait
            await socket.send(json.dumps({**turn(1, 5, start=at == 1, end=at == 300), "id": f"{at}{padding}"}))
        async with asyncio.timeout(20):
            answers = [json.loads(await socket.recv()) for _ in range(300)]
        heard = {each["id"].rstrip("x"): output(json.dumps(each)) for each in answers}
        assert heard == {str(at): [at] for at in range(1, 301)}


async def test_a_bad_request_is_one_answer_and_no_more() -> None:
    async with serving_models(ACCUMULATORS) as service, stream(service) as socket:
        for request, code, name in (
            ("nope", "bad_request", ""),
            ("[]", "bad_request", ""),
            (json.dumps({**turn(1, 9), "id": "r"}), "missing_start", "r"),
            (json.dumps({"id": "s", "inputs": 5}), "bad_request", "s"),
            (json.dumps({**turn(1, 9, start=True), "outputs": [{"name": "X"}], "id": "t"}), "bad_tensor", "t"),
            (
                json.dumps({"inputs": turn(1)["inputs"], "parameters": {"binary_data_output": True}}),
                "not_supported",
                "",
            ),
            (b"\0\1", "not_supported", ""),
        ):
            await socket.send(request)
            async with asyncio.timeout(10):
                answer = json.loads(await socket.recv())
            assert (answer["code"], answer["id"]) == (code, name), answer
            assert answer["error"]
        assert await total(socket, 5, 1, start=True, end=True) == [5]


async def test_who_leaves_ends_the_sequences_that_it_began() -> None:
    async with serving_models(ACCUMULATORS) as service, http(service) as client:
        async with stream(service) as socket:
            assert await total(socket, 5, 1, start=True) == [5]
            assert await total(socket, 6, 2, start=True) == [6]
            assert await total(socket, 6, 2, end=True) == [12]
            assert await send(client, 3, 3, start=True) == 3
            assert await send(client, 3, 1) == 8
        async with asyncio.timeout(10):
            while (await client.post(SEQUENCE, json=turn(0, 1))).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await refused(client, SEQUENCE, turn(0, 1)))[1] in ("missing_start", "sequence_ended")
        assert await send(client, 1, 3, end=True) == 4


async def test_who_leaves_a_turn_unanswered_ends_its_sequence() -> None:
    async with serving_models(WAITING) as service, http(service) as client:
        await send(client, 1, "company", start=True)
        async with stream(service) as socket:
            await socket.send(json.dumps(turn(1, 9, start=True)))
            await asyncio.sleep(0.2)
            socket.transport.abort()
        await until(lambda: service.engine.repository.get("simple_sequence").stats().failed.get("cancelled") == 1)
        assert (await refused(client, SEQUENCE, turn(1, 9)))[0] == 400


async def test_one_that_is_open_ends_its_sequences_before_the_service_stops() -> None:
    async with (
        serving_models(ACCUMULATORS, drain_timeout_s=20.0) as service,
        stream(service) as idle,
        stream(service) as socket,
    ):
        assert await total(socket, 5, 1, start=True) == [5]
        draining = asyncio.create_task(service.drain())
        assert await closed(idle) == 1012
        assert (await ask(socket, turn(1, 2, start=True)))["code"] == "shutting_down"
        assert not draining.done()
        assert await total(socket, 5, 1, end=True) == [10]
        assert await closed(socket) == 1012
        await asyncio.wait_for(draining, 10)


async def test_one_that_stays_open_does_not_hold_up_the_stop() -> None:
    async with serving_models(ACCUMULATORS, drain_timeout_s=0.2) as service, stream(service) as socket:
        assert await total(socket, 5, 1, start=True) == [5]
        async with asyncio.timeout(10):
            await service.drain()
            await service.stop()
        assert await closed(socket) == 1012


async def test_it_needs_a_key_where_there_are_keys_and_browsers_have_theirs_as_a_subprotocol() -> None:
    async with serving_models(ACCUMULATORS, sections=keyed()) as service:
        with pytest.raises(InvalidStatus) as caught:
            async with stream(service):
                pass
        assert caught.value.response.status_code == 401
        async with stream(service, subprotocols=["token", KEY]) as socket:
            assert socket.subprotocol == "token"
            assert await total(socket, 5, 1, start=True, end=True) == [5]
        with pytest.raises(InvalidStatus) as caught:
            async with stream(service, origin="https://evil.example", subprotocols=["token", KEY]):
                pass
        assert caught.value.response.status_code == 403


async def test_a_message_too_long_closes() -> None:
    async with serving_models(ACCUMULATORS) as service, stream(service) as socket:
        await socket.send(json.dumps({"id": "x" * 300_000}))
        assert await closed(socket) == 1009
