"""The command as it is installed, also where the installation is not complete."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
sys.argv = ["moorage", *{arguments!r}]
from server.__main__ import main
main()
"""


def run(arguments: list[str], missing: list[str]) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(arguments=arguments, missing=missing)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_it_runs() -> None:
    done = run(["config", "show"], [])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "name",
    ["soundfile", *(pytest.param(name, marks=pytest.mark.slow) for name in ("soxr", "jiwer", "websockets"))],
)
def test_the_doctor_comes_where_a_package_is_missing(name: str) -> None:
    done = run(["doctor"], [name])
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    assert f"{name} cannot be loaded" in done.stdout


@pytest.mark.parametrize("arguments", [["serve"], ["doctor"], []])
def test_without_the_most_needed_there_are_words(arguments: list[str]) -> None:
    done = run(arguments, ["pydantic"])
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "pydantic" in done.stderr
    assert "pip install moorage" in done.stderr
