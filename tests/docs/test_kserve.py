"""The page of the KServe protocol: its programs run, and it knows every address and every code."""

import asyncio
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
import torch

from asr_model.declared import DECLARED
from asr_model.registry import build_model
from asr_model.tensor_spec import TensorSpec
from server.wire.kserve.datatypes import DTYPES, MAX_JSON_VALUES, MAX_TEXTS
from server.wire.kserve.fields import MAX_JSON_BYTES
from server.wire.request_errors import STATUSES
from tests.support.fixtures import ROOT
from tests.support.models import serving_models

PAGE = (ROOT / "docs" / "kserve.md").read_text()


def block(language: str) -> str:
    """The first fenced block of a language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


async def output_of(*command: str) -> str:
    """What a program says; fails if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


@pytest.mark.skipif(which("curl") is None, reason="curl is not installed here")
async def test_the_requests_with_curl_are_answered() -> None:
    script = "\n".join(line for line in block("sh").splitlines() if not line.startswith("#"))
    async with serving_models() as service:
        address = f"curl -sS 127.0.0.1:{service.gateway.port}"
        said = await output_of("sh", "-ec", script.replace("curl localhost:8765", address))
    assert re.findall(r'"data": (\[.*?\])', said) == ["[5]", "[3.0]"]


@pytest.mark.skipif(
    find_spec("tritonclient") is None, reason="needs the extra clients: make test-clients installs it and runs this"
)
async def test_the_program_with_tritons_client_adds_up(tmp_path: Path) -> None:
    program = tmp_path / "sequence.py"
    program.write_text(block("python"))
    async with serving_models() as service:
        said = await output_of(sys.executable, str(program), f"127.0.0.1:{service.gateway.port}")
    assert said.split() == ["11", "18", "23", "26"]


def test_every_model_is_there_with_its_tensors() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (sequence|dynamic) \| ([^|]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    table = {name: (batcher, inputs, outputs) for name, batcher, inputs, outputs in rows}
    told = {}
    for name, declared in DECLARED.items():
        if not declared.listens:
            spec = build_model(name, {}, torch.device("cpu")).spec
            told[name] = (declared.scheduler, _tensors(spec.inputs), _tensors(spec.outputs))
    assert table == told


def _tensors(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f"`{name}` {spec.datatype}" for name, spec in specs.items())


async def test_every_address_is_there() -> None:
    async with serving_models() as service:
        paths = [route.path.replace("{model}", "M") for route in service.rest.routes]
    for path in paths:
        if path.startswith("/v2") and "{version}" not in path:
            assert path in PAGE, path


def test_the_bounds_are_those_of_the_code() -> None:
    for bound in (f"| {MAX_JSON_BYTES:,} bytes", f"| {MAX_JSON_VALUES:,} values |", f"| {MAX_TEXTS:,} |"):
        assert bound in PAGE, bound


def test_every_datatype_and_every_status_is_there() -> None:
    for datatype in DTYPES:
        assert f"`{datatype}`" in PAGE
    for kind, status in STATUSES.items():
        assert re.search(rf"^\| .*{status.value}.* \|", PAGE, re.MULTILINE), kind
        if kind.code != "error":
            assert f"`{kind.code}`" in PAGE, kind
