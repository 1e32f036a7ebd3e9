"""The page of recordings: its programs run."""

import asyncio
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
import soundfile

from tests.docs.test_kserve import output_of
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG
from tests.support.fixtures import ROOT
from tests.support.service import serving

PAGE = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
AUDIO = exact_audio(1, 8_000)


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """The file that the page names."""
    path = tmp_path / "speech.wav"
    soundfile.write(path, AUDIO, 16_000, subtype="PCM_16")
    return path


@pytest.mark.skipif(which("curl") is None, reason="curl is not installed here")
async def test_the_requests_with_curl_are_answered(speech: Path) -> None:
    (script,) = blocks("sh")
    commands = script.replace("@speech.wav", f"@{speech}").splitlines()
    async with serving(CONFIG) as service:
        here = f"127.0.0.1:{service.gateway.port}"
        said = await asyncio.gather(
            *(output_of("sh", "-ec", command.replace("localhost:8765", here)) for command in commands)
        )
    assert len(said) == 4
    assert all(summary(AUDIO) in each for each in said)


@pytest.mark.parametrize(("at", "package"), [(0, "openai"), (1, "deepgram")])
async def test_the_programs_print_the_text(at: int, package: str, speech: Path, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {package}, of the extra clients: make test-clients installs it and runs this")
    program = tmp_path / "program.py"
    program.write_text(blocks("python")[at], encoding="utf-8")
    async with serving(CONFIG) as service:
        said = await output_of(sys.executable, str(program), f"127.0.0.1:{service.gateway.port}", str(speech))
    assert said.splitlines()[0] == summary(AUDIO)
