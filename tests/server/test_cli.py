"""The command line: what it prints and how it exits."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from server.cli import build_cli
from server.config import MoorageConfig, load_config


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build_cli(), list(arguments), env=dict(environment))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "moorage.toml"
    path.write_text("[server]\nport = 9000\n")
    return path


class TestConfigCheck:
    def test_ok(self, toml: Path) -> None:
        assert run("config", "check", str(toml)) == (0, f"{toml}: ok\n", "")

    def test_a_fault_in_the_file(self, toml: Path) -> None:
        toml.write_text("[server]\nport = 99999\n[live]\ndevise = 'cpu'\n")
        code, out, errors = run("config", "check", str(toml))
        assert (code, out) == (2, "")
        first, second = errors.splitlines()
        assert first == "server.port: given 99999, allowed: an integer from 0 to 65535"
        assert second.startswith("live.devise: unknown (did you mean device?), allowed: model, ")

    def test_a_fault_in_the_environment(self, toml: Path) -> None:
        code, _, errors = run("config", "check", str(toml), MOORAGE_LIVE__INSTANCES="0")
        assert (code, errors) == (2, "live.instances: given 0, allowed: an integer from 1 to 64\n")

    def test_a_model_that_is_not_there(self, toml: Path) -> None:
        toml.write_text("[live]\nmodel = 'whisper'\n")
        code, _, errors = run("config", "check", str(toml))
        assert code == 2
        assert errors.startswith("live.model: given 'whisper', allowed: ")

    def test_no_file(self, tmp_path: Path) -> None:
        code, _, errors = run("config", "check", str(tmp_path / "absent.toml"))
        assert (code, errors) == (2, f"{tmp_path}/absent.toml: cannot be read: No such file or directory\n")

    def test_the_example_is_good_and_complete(self) -> None:
        example = Path(__file__).parents[2] / "moorage.toml.example"
        assert run("config", "check", str(example))[0] == 0
        assert load_config(example, environment={}) == MoorageConfig()
        written = tomllib.loads(example.read_text())
        assert {(section, name) for section in written for name in written[section]} == {
            (section, name)
            for section, field in MoorageConfig.model_fields.items()
            for name in type(field.default).model_fields
        }


class TestServe:
    def test_a_bad_option_ends_before_anything_is_loaded(self) -> None:
        code, _, errors = run("serve", "--port", "99999")
        assert (code, errors) == (2, "server.port: given 99999, allowed: an integer from 0 to 65535\n")

    def test_a_device_that_cannot_be(self) -> None:
        code, _, errors = run("serve", "--device", "gpu")
        assert code == 2
        assert errors.splitlines() == [
            "live.device: given 'gpu', allowed: auto, cpu, cuda or cuda:N",
            "final.device: given 'gpu', allowed: auto, cpu, cuda or cuda:N",
        ]


def test_commands() -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(name in out for name in ("serve", "config", "transcribe", "replay"))
