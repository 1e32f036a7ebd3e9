"""A service on loopback with models that take tensors, and requests to them without any help from ours."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from server.app import Service
from server.clock import SystemClock
from server.composition import engine_config, settings_of
from server.configuration.config import MoorageConfig, ServerConfig
from server.configuration.model_sections import TensorModelConfig
from server.engine.engine import Engine
from server.wire.messages import ModelCards
from tests.support.engines import live_only
from tests.support.wire import LIVE

ACCUMULATORS = (
    TensorModelConfig(name="simple_sequence", model="accumulator", device="cpu", threads=1, instances=2, slots=4),
    TensorModelConfig(
        name="simple_dyna_sequence", model="accumulator", device="cpu", threads=1, slots=4, options={"corrid": True}
    ),
)
MODELS = (
    *ACCUMULATORS,
    TensorModelConfig(name="mean", model="mean", device="cpu", threads=1),
    TensorModelConfig(name="echo", model="echo", device="cpu", threads=1),
)


@asynccontextmanager
async def serving_models(
    models: tuple[TensorModelConfig, ...] = MODELS, sections: Mapping[str, Any] | None = None, **server: Any
) -> AsyncIterator[Service]:
    """A started service on a free port, with its models in threads beside a live accumulator."""
    config = MoorageConfig(server=ServerConfig(port=0, **server), models=models, **(sections or {}))
    engine = replace(live_only(), models=engine_config(config).models)
    service = Service(config, Engine(engine, SystemClock(), settings_of(config)), ModelCards(live=LIVE, final=None))
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


@asynccontextmanager
async def http(service: Service, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, with these headers on every request."""
    address = f"http://127.0.0.1:{service.gateway.port}"
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=20.0, headers=headers) as client:
        yield client


def turn(value: int, sequence_id: int | str = 0, *, start: bool = False, end: bool = False) -> dict[str, Any]:
    """A request to an accumulator, as JSON."""
    request: dict[str, Any] = {"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value]}]}
    if sequence_id:
        request["parameters"] = {"sequence_id": sequence_id, "sequence_start": start, "sequence_end": end}
    return request


def output(answer: httpx.Response | str, name: str = "OUTPUT") -> Any:
    """The values of an output of an answer in JSON; fails where the answer is an error."""
    body = json.loads(answer) if isinstance(answer, str) else answer.json()
    assert "error" not in body, body
    return next(each["data"] for each in body["outputs"] if each["name"] == name)
