"""The quick start: its programs run, its commands exist."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner

from server.cli import build_cli
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG
from tests.support.fixtures import ROOT
from tests.support.service import serving

PAGE = (ROOT / "docs" / "quickstart.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, ...]]:
    """Every call of ``moorage`` in a shell block: subcommand and options."""
    lines = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    calls = [found[1].split() for line in lines if (found := re.search(r"(?:^|\s)moorage ([a-z].*)$", line))]
    return sorted({(call[0], *(word for word in call if word.startswith("--"))) for call in calls})


@pytest.mark.parametrize("call", commands(), ids=" ".join)
def test_commands_and_their_options_exist(call: tuple[str, ...]) -> None:
    command, *options = call
    result = CliRunner().invoke(build_cli(), [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for option in options:
        assert f"{option} " in result.stdout


async def test_the_python_client_hears_the_service(tmp_path: Path) -> None:
    program = next(block for block in blocks("python") if "websockets" in block)
    assert len(program.splitlines()) <= 26
    (tmp_path / "listen.py").write_text(program)
    samples = exact_audio(5, 4_000)
    soundfile.write(tmp_path / "a.wav", samples, 16_000, subtype="PCM_16")
    async with serving(CONFIG) as service:
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            str(tmp_path / "listen.py"),
            str(tmp_path / "a.wav"),
            f"ws://127.0.0.1:{service.gateway.port}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await client.communicate()
    assert errors == b""
    lines = out.decode().splitlines()
    assert lines[-1] == f"final   {summary(samples)}"
    assert any(line.startswith("interim ") for line in lines)


def test_links_lead_somewhere_within_the_documentation() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []
