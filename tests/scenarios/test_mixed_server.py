"""One process, two models: A keeps nothing, B keeps a sum of every sequence. In one short window come two requests to A
and turns 3 and 4 of sequence 77 to B. With each under its own scheduler all is right; with the schedulers swapped B
answers wrongly, and nothing reports an error.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from server.app import Service
from server.configuration.model_sections import TensorModelConfig
from server.engine.engine import Engine
from server.engine.engine_config import TensorSettings
from server.errors import ConfigError, MissingStart
from server.plan import Tensors
from tests.support.engines import further, integers, output, running, turn, with_models
from tests.support.models import http, serving_models
from tests.support.models import output as output_of
from tests.support.models import turn as request_of
from tests.support.raw_socket import RawSocket, raw_socket, request

FEELING = further("a", "sentiment", instances=2, max_batch=4, max_delay_ms=50.0)
ADDER = further("b", "accumulator", instances=2, max_batch=4)


def text(words: str) -> Tensors:
    array = np.empty((1, 1), dtype=object)
    array[0, 0] = words.encode()
    return Tensors(arrays={"TEXT": array})


async def window(engine: Engine) -> tuple[list[str], list[float]]:
    """Turns 1 and 2 of sequence 77; then, all at once, two requests to A and turns 3 and 4."""
    a, b = engine.repository.get("a"), engine.repository.get("b")
    sums = [
        output(await b.infer(integers(1), turn=turn(77, start=True))),
        output(await b.infer(integers(2), turn=turn(77))),
    ]
    good, third, bad, fourth = await asyncio.gather(
        a.infer(text("a wonderful, moving film")),
        b.infer(integers(3), turn=turn(77)),
        a.infer(text("dull, stupid and a waste of time")),
        b.infer(integers(4), turn=turn(77, end=True)),
    )
    labels = [each.arrays["LABEL"][0, 0].decode() for each in (good, bad)]
    return labels, [value for each in (*sums, output(third), output(fourth)) for value in each]


def allowed(models: Sequence[TensorSettings], *schedulers: str) -> list[TensorSettings]:
    return [
        replace(model, scheduler=scheduler, allow_wrong_scheduler=True)
        for model, scheduler in zip(models, schedulers, strict=True)
    ]


async def test_each_under_its_own_scheduler() -> None:
    async with running(with_models(FEELING, ADDER)) as engine:
        labels, sums = await window(engine)
        steps = engine.stats().further
    assert labels == ["positive", "negative"]
    assert sums == [1, 3, 6, 10]
    assert (steps["a"].batch_size.count, steps["a"].batch_size.total) == (1, 2), "one batch, one forward pass"
    assert len(steps["b"].busy_s) == 1, "every turn ran on the instance that took the first"
    assert (steps["b"].batch_size.count, steps["b"].batch_size.total) == (4, 4), "turns of a sequence run one by one"


async def test_swapped_the_wrong_answer_comes_without_an_error() -> None:
    models = allowed((FEELING, ADDER), "dynamic", "dynamic")
    async with running(with_models(*models)) as engine:
        labels, sums = await window(engine)
        stats = engine.stats()
    assert labels == ["positive", "negative"]
    assert len(sums) == 4
    assert sums == [1, 2, 3, 4], "each turn for itself"
    assert stats.further["b"].outcomes == {"completed": 4}, "nobody was told of an error"
    assert {model.role: model.is_wrong_scheduler for model in stats.models} == {"live": False, "a": False, "b": True}


async def test_a_model_without_state_under_the_sequence_batcher_has_no_place_for_a_lone_request() -> None:
    (feeling,) = allowed((FEELING,), "sequence")
    async with running(with_models(feeling)) as engine:
        a = engine.repository.get("a")
        with pytest.raises(MissingStart):
            await a.infer(text("a wonderful, moving film"))
        answer = await a.infer(text("a wonderful, moving film"), turn=turn(1, start=True, end=True))
    assert answer.arrays["LABEL"][0, 0] == b"positive"


async def test_the_swap_has_to_be_allowed_by_name() -> None:
    for model in (replace(ADDER, scheduler="dynamic"), replace(FEELING, scheduler="sequence")):
        with pytest.raises(ConfigError, match="scheduler"):
            async with running(with_models(model)):
                pass


GOOD, BAD = "a wonderful, moving film", "dull, stupid and a waste of time"
HTTP_MODELS = (
    TensorModelConfig(
        name="a", model="sentiment", device="cpu", threads=1, instances=2, max_batch=4, max_delay_ms=300.0
    ),
    TensorModelConfig(name="b", model="accumulator", device="cpu", threads=1, instances=2, slots=4),
)


def feels(words: str) -> dict[str, Any]:
    """A request to A."""
    return {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [words]}]}


def posted(value: int, *, end: bool) -> bytes:
    """A turn of sequence 77 as bytes on a socket."""
    body = json.dumps(request_of(value, 77, end=end)).encode()
    head = request("/v2/models/b/infer", "Host: x", f"Content-Length: {len(body)}", method="POST")
    return head + body


async def answers(socket: RawSocket, n: int) -> list[dict[str, Any]]:
    """So many answers of a connection that is kept."""
    found = []
    for _ in range(n):
        head = await socket.head()
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        found.append(json.loads(await socket.reader.readexactly(int(length[1]))))
    return found


async def http_window(service: Service) -> tuple[list[str], list[int]]:
    """As ``window``, from four requests on three connections, turns 3 and 4 one behind the other on the same."""
    async with http(service) as web, raw_socket(service.gateway.port) as socket:
        first = await web.post("/v2/models/b/infer", json=request_of(1, 77, start=True))
        second = await web.post("/v2/models/b/infer", json=request_of(2, 77))
        requests = [web.post("/v2/models/a/infer", json=feels(words)) for words in (GOOD, BAD)]
        feelings = asyncio.gather(*requests)
        await socket.send(posted(3, end=False) + posted(4, end=True))
        turns = await answers(socket, 2)
        labels = [output_of(each, "LABEL")[0] for each in await feelings]
    told: list[httpx.Response | str] = [first, second, *(json.dumps(each) for each in turns)]
    return labels, [output_of(each)[0] for each in told]


async def test_over_http_each_under_its_own_scheduler() -> None:
    async with serving_models(HTTP_MODELS) as service:
        labels, sums = await http_window(service)
        steps = service.engine.stats().further
    assert labels == ["positive", "negative"]
    assert sums == [1, 3, 6, 10]
    assert (steps["a"].batch_size.count, steps["a"].batch_size.total) == (1, 2), "one batch, one forward pass"
    assert len(steps["b"].busy_s) == 1, "every turn ran on the instance that took the first"


async def test_over_http_with_the_schedulers_swapped() -> None:
    swapped = [
        model.model_copy(update={"scheduler": "dynamic", "allow_wrong_scheduler": True}) for model in HTTP_MODELS
    ]
    async with serving_models(tuple(swapped)) as service:
        labels, sums = await http_window(service)
        stats = service.engine.stats()
    assert labels == ["positive", "negative"]
    assert sums == [1, 2, 3, 4], "each turn for itself"
    assert stats.further["b"].outcomes == {"completed": 4}, "nobody was told of an error"
