"""The important ones of Triton's sequence tests again, over real sockets, to one real service."""

import asyncio
import random
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import pytest_asyncio

from server.app import Service
from server.batching.sequence_stats import BatcherStats
from server.configuration.model_sections import TensorModelConfig
from tests.support.engines import until
from tests.support.models import http, output, serving_models, turn

pytestmark = pytest.mark.asyncio(loop_scope="module")


def accumulator(name: str, **settings: object) -> TensorModelConfig:
    return TensorModelConfig.model_validate(
        {"name": name, "model": "accumulator", "device": "cpu", "threads": 1, "slots": 2, **settings}
    )


MODELS = (
    accumulator("pair", instances=2, slots=1),
    accumulator("shared", instances=2, backlog=4),
    accumulator("direct", strategy="direct", slots=4, backlog=2),
    accumulator("patient", max_delay_ms=10_000.0, backlog=2),
    accumulator("impatient", slots=1, idle_timeout_s=0.25, backlog=2),
    accumulator("queueing", slots=1, backlog=1, backlog_wait_s=0.25),
    accumulator("dyna", slots=4, options={"corrid": True}),
)
"""A turn to ``patient`` waits ten seconds for its live neighbour."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncIterator[Service]:
    async with serving_models(MODELS) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with http(service) as made:
        yield made


def path(model: str) -> str:
    return f"/v2/models/{model}/infer"


async def send(
    client: httpx.AsyncClient, model: str, value: int, name: int | str, *, start: bool = False, end: bool = False
) -> int:
    """A turn, and what it answers; fails on an error."""
    (total,) = output(await client.post(path(model), json=turn(value, name, start=start, end=end)))
    assert isinstance(total, int)
    return total


async def whole(client: httpx.AsyncClient, model: str, name: int | str, values: list[int]) -> list[int]:
    """A sequence, turn by turn."""
    last = len(values) - 1
    return [await send(client, model, value, name, start=not at, end=at == last) for at, value in enumerate(values)]


async def refused(client: httpx.AsyncClient, model: str, body: object) -> tuple[int, str, str]:
    """Status, code and words of an answer that is an error."""
    answer = await client.post(path(model), json=body)
    said = answer.json()
    return answer.status_code, said["code"], said["error"]


def figures(service: Service, model: str) -> BatcherStats:
    return service.engine.stats().sequence_batchers[model]


def held(service: Service, model: str) -> list[int]:
    """Slots in use of each instance."""
    return [instance.slots_held for instance in figures(service, model).instances]


class TestSequences:
    async def test_simple_sequence(self, client: httpx.AsyncClient) -> None:
        assert await whole(client, "shared", 5, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == [1, 3, 6, 10, 15, 21, 28, 36, 45]

    async def test_length1_sequence(self, service: Service, client: httpx.AsyncClient) -> None:
        assert await send(client, "shared", 42, 6, start=True, end=True) == 42
        assert held(service, "shared") == [0, 0]

    async def test_batch_size(self, client: httpx.AsyncClient) -> None:
        body = turn(1, 7, start=True)
        body["inputs"][0] |= {"shape": [2, 1], "data": [1, 2]}
        assert (await refused(client, "shared", body))[:2] == (400, "bad_tensor")

    async def test_no_correlation_id(self, client: httpx.AsyncClient) -> None:
        status, code, words = await refused(client, "shared", turn(1))
        assert (status, code) == (400, "missing_start")
        assert "sequence_id" in words
        for nothing in (0, ""):
            body = turn(1) | {"parameters": {"sequence_id": nothing, "sequence_start": True}}
            status, _, words = await refused(client, "shared", body)
            assert (status, "sequence_id" in words) == (400, True)

    async def test_no_sequence_start(self, client: httpx.AsyncClient) -> None:
        for end in (False, True):
            status, code, words = await refused(client, "shared", turn(1, 8, end=end))
            assert (status, code) == (400, "missing_start")
            assert "START" in words

    async def test_no_sequence_start2(self, client: httpx.AsyncClient) -> None:
        """A chunk after END."""
        assert await whole(client, "shared", 9, [1, 2]) == [1, 3]
        assert (await refused(client, "shared", turn(3, 9)))[:2] == (400, "sequence_ended")

    async def test_no_sequence_end(self, service: Service, client: httpx.AsyncClient) -> None:
        """A START on a live id starts it again in its slot, and is counted."""
        before = figures(service, "shared").restarts
        assert await send(client, "shared", 1, 10, start=True) == 1
        assert await send(client, "shared", 2, 10) == 3
        assert await send(client, "shared", 9, 10, start=True) == 9
        assert sum(held(service, "shared")) == 1
        assert await send(client, "shared", 8, 10, end=True) == 17
        assert figures(service, "shared").restarts == before + 1

    async def test_two_sequences_on_two_instances_at_once(self, service: Service, client: httpx.AsyncClient) -> None:
        for name in (1, 2):
            await send(client, "pair", 10 * name, name, start=True)
        assert held(service, "pair") == [1, 1]
        assert await asyncio.gather(*(send(client, "pair", 1, name) for name in (1, 2))) == [11, 21]
        (status, code, _) = await refused(client, "pair", turn(1, 3, start=True))
        assert (status, code) == (503, "capacity_exceeded")
        assert await asyncio.gather(*(send(client, "pair", 1, name, end=True) for name in (1, 2))) == [12, 22]
        busy = service.engine.repository.get("pair").stats().steps.busy_s
        assert sorted(busy) == [0, 1]
        assert min(busy.values()) > 0
        assert held(service, "pair") == [0, 0]

    async def test_ids_that_differ_in_kind_are_two(self, client: httpx.AsyncClient) -> None:
        """``L0_sequence_corrid_batcher.corrid_data_type``: Triton has one kind a model, here both are taken."""
        assert await send(client, "dyna", 1, 123, start=True) == 1
        assert await send(client, "dyna", 50, "123", start=True) == 50
        assert await send(client, "dyna", 1, 123, end=True) == 2 + 123
        assert await send(client, "dyna", 1, "123", end=True) == 51 + 123

    async def test_skip_batch(self, service: Service, client: httpx.AsyncClient) -> None:
        """``L0_sequence_corrid_batcher.skip_batch``: two short ones among long ones."""
        values = {1001: [1, 3], 1002: [11, 12, 13, 14], 1003: [111, 113], 1004: [1111, 1112, 1113, 1114]}
        heard = await asyncio.gather(*(whole(client, "dyna", name, each) for name, each in values.items()))
        expected = [np.cumsum(each).tolist() for each in values.values()]
        for name, each in zip(values, expected, strict=True):
            each[-1] += name
        assert heard == expected

    async def test_multi_parallel_sequence(self, client: httpx.AsyncClient) -> None:
        """More sequences than slots, on both strategies, all at once: those that find no place come again."""
        chance = random.Random(8)

        async def insist(model: str, name: str, values: list[int]) -> list[int]:
            for _ in range(5_000):
                answer = await client.post(path(model), json=turn(values[0], name, start=True))
                if answer.status_code == 200:
                    break
                assert answer.json()["code"] == "capacity_exceeded"
                await asyncio.sleep(0.002)
            last = len(values) - 1
            rest = [await send(client, model, value, name, end=at == last) for at, value in enumerate(values) if at]
            return [*output(answer), *rest]

        for model in ("shared", "direct"):
            values = {
                f"{model} {n}": [chance.randrange(1000) for _ in range(chance.randrange(2, 9))] for n in range(20)
            }
            heard = await asyncio.gather(*(insist(model, name, each) for name, each in values.items()))
            assert heard == [np.cumsum(each).tolist() for each in values.values()]


class TestBacklog:
    async def test_backlog(self, service: Service, client: httpx.AsyncClient) -> None:
        """A fifth and a sixth sequence wait for a slot of four, with their turns; who came first is first."""
        for name in range(4):
            await send(client, "direct", name, f"a{name}", start=True)
        waiting = [asyncio.create_task(send(client, "direct", 7, "late", start=True))]
        await until(lambda: figures(service, "direct").backlog == 1)
        waiting.append(asyncio.create_task(send(client, "direct", 8, "late", end=True)))
        await until(lambda: figures(service, "direct").queued_turns == 2)
        last = asyncio.create_task(send(client, "direct", 9, "later", start=True))
        await until(lambda: figures(service, "direct").backlog == 2)
        assert not any(each.done() for each in (*waiting, last))
        assert await send(client, "direct", 1, "a2", end=True) == 3
        assert await waiting[0] == 7
        assert [await waiting[1], await last] == [15, 9], "the second gets the slot that the first gives back"
        ends = [asyncio.create_task(send(client, "direct", 1, name, end=True)) for name in ("a0", "a1", "a3", "later")]
        assert await asyncio.gather(*ends) == [1, 2, 4, 10]
        assert held(service, "direct") == [0]

    async def test_backlog_request_timeout(self, service: Service, client: httpx.AsyncClient) -> None:
        """Who waits too long for a slot is told; Triton looks at that only where a request says it."""
        await send(client, "queueing", 1, "holder", start=True)
        assert (await refused(client, "queueing", turn(2, "waiter", start=True)))[:2] == (503, "backlog_timeout")
        assert (await refused(client, "queueing", turn(2, "waiter")))[1] == "sequence_ended"
        assert await send(client, "queueing", 1, "holder", end=True) == 2
        assert figures(service, "queueing").ended["backlog_timeout"] == 1

    async def test_backlog_sequence_timeout(self, service: Service, client: httpx.AsyncClient) -> None:
        """An idle holder is ended, whoever waits for its slot gets it, and the former holder is told when it comes."""
        await send(client, "impatient", 5, "silent", start=True)
        assert await send(client, "impatient", 6, "next", start=True, end=True) == 6
        assert (await refused(client, "impatient", turn(1, "silent")))[:2] == (400, "sequence_ended")
        assert await send(client, "impatient", 1, "silent", start=True, end=True) == 1
        assert figures(service, "impatient").ended["idle_timeout"] == 1


class TestCancellation:
    """A client that leaves a turn unanswered ends its sequence; its slot is free once, for one other."""

    async def leave(self, service: Service, name: str) -> None:
        async with http(service) as leaving:
            with pytest.raises(httpx.ReadTimeout):
                await leaving.post(path("patient"), json=turn(1, name, start=True), timeout=0.3)

    async def test_http_infer_client_disconnect(self, service: Service, client: httpx.AsyncClient) -> None:
        await send(client, "patient", 1, "company", start=True)
        assert held(service, "patient") == [1]
        for number in range(2):
            cancelled = figures(service, "patient").ended.get("cancelled", 0)
            await self.leave(service, f"left {number}")
            await until(lambda: figures(service, "patient").ended.get("cancelled", 0) == cancelled + 1)  # noqa: B023
            assert held(service, "patient") == [1]
            assert (await refused(client, "patient", turn(1, f"left {number}")))[1] == "sequence_ended"
        assert await send(client, "patient", 1, "company", end=True) == 2
        assert held(service, "patient") == [0]
        assert figures(service, "patient").instances[0].slots_quarantined == 0

    async def test_backlog_request_cancellation(self, service: Service, client: httpx.AsyncClient) -> None:
        """Cancelled while it waits for a slot: nobody's slot comes free, and the next in line moves up."""
        assert await send(client, "patient", 0, "one", start=True) == 0
        two = asyncio.create_task(send(client, "patient", 1, "two", start=True))
        await until(lambda: held(service, "patient") == [2])
        assert [await send(client, "patient", 1, "one"), await two] == [1, 1]
        await self.leave(service, "left in line")
        await until(lambda: figures(service, "patient").backlog == 0)
        assert held(service, "patient") == [2]
        last = asyncio.create_task(send(client, "patient", 4, "last", start=True))
        await until(lambda: figures(service, "patient").backlog == 1)
        ends = [asyncio.create_task(send(client, "patient", 1, name, end=True)) for name in ("one", "two")]
        assert await asyncio.gather(*ends) == [2, 2]
        assert await last == 4
        assert await send(client, "patient", 1, "last", end=True) == 5

    async def test_http_infer_client_connected(self, service: Service, client: httpx.AsyncClient) -> None:
        """Nobody who stays is cancelled, on a connection that is used again and again."""
        before = dict(figures(service, "shared").ended)
        assert await whole(client, "shared", "stays", [1] * 20) == list(range(1, 21))
        after = dict(figures(service, "shared").ended)
        assert after == before | {"end": before.get("end", 0) + 1}


class TestImplicitState:
    async def test_request_output_not_allowed(self, client: httpx.AsyncClient) -> None:
        body = turn(1, 11, start=True, end=True) | {"outputs": [{"name": "sum"}]}
        status, code, words = await refused(client, "shared", body)
        assert (status, code) == (400, "bad_tensor")
        assert words == 'unknown output "sum"; allowed: OUTPUT'

    async def test_state_reset_after_cancel(self, service: Service, client: httpx.AsyncClient) -> None:
        await send(client, "pair", 1, "stays", start=True)
        await send(client, "pair", 1_000, "leaves", start=True)
        service.engine.repository.get("pair").leave("leaves")
        await until(lambda: sum(held(service, "pair")) == 1)
        assert await whole(client, "pair", "follows", [2, 3]) == [2, 5]
        assert await send(client, "pair", 1, "stays", end=True) == 2
