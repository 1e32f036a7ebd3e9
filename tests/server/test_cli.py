"""The command line: what it prints and how it exits."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from server.cli import build_cli
from server.configuration.config import AccessKey, MoorageConfig, TensorModelConfig, load_config
from server.configuration.model_sections import INSTANCES_WORDS


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
        assert (code, errors) == (2, f"live.instances: given 0, allowed: {INSTANCES_WORDS}\n")

    def test_a_model_that_is_not_there(self, toml: Path) -> None:
        toml.write_text("[live]\nmodel = 'whisper'\n")
        code, _, errors = run("config", "check", str(toml))
        assert code == 2
        assert errors.startswith("live.model: given 'whisper', allowed: ")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("[live.options]\nnonsense = 1\n", "live.options: unknown live option nonsense: known are "),
            ("[live.options]\nagree = 99\n", "live.options: live option agree = 99: allowed is 1 to 8"),
            ("[final.options]\ndtype = 'int4'\n", "final.options: dtype must be one of fp32, bf16"),
            ("[live]\nmodel = 'moonshine-base'\n", "live.model: moonshine-base needs the dynamic batcher, live has "),
            (
                "[final]\nmodel = 'moonshine-live'\n",
                "final.model: moonshine-live needs the sequence batcher, final has ",
            ),
        ],
    )
    def test_what_a_model_would_refuse(self, toml: Path, content: str, said: str) -> None:
        toml.write_text(content)
        code, _, errors = run("config", "check", str(toml))
        assert code == 2
        assert errors.startswith(said)

    def test_every_fault_of_the_models_has_a_line(self, toml: Path) -> None:
        toml.write_text("[live.options]\nnonsense = 1\n[final]\nmodel = 'whisper'\n")
        assert [line.partition(":")[0] for line in run("config", "check", str(toml))[2].splitlines()] == [
            "live.options",
            "final.model",
        ]

    def test_a_misspelt_variable(self, toml: Path) -> None:
        code, _, errors = run("config", "check", str(toml), MOORAGE_SERVER_PORT="9000")
        assert (code, errors) == (2, "MOORAGE_SERVER_PORT: not a setting (did you mean MOORAGE_SERVER__PORT?)\n")

    def test_no_file(self, tmp_path: Path) -> None:
        code, _, errors = run("config", "check", str(tmp_path / "absent.toml"))
        assert (code, errors) == (2, f"{tmp_path}/absent.toml: cannot be read: No such file or directory\n")

    def test_the_example_is_good_and_complete(self) -> None:
        example = Path(__file__).parents[2] / "moorage.toml.example"
        assert run("config", "check", str(example))[0] == 0
        assert load_config(example, environment={}) == MoorageConfig()
        text = example.read_text()
        # an entry of a list is an example, not a default: it stands there as a comment
        entries = re.sub(r"^# (\[\[|\w+ = )", r"\1", text, flags=re.MULTILINE).replace('"…"', f'"{"0" * 64}"')
        written = tomllib.loads(entries)
        sections = {
            section: type(field.default)
            for section, field in MoorageConfig.model_fields.items()
            if isinstance(field.default, BaseModel)
        }
        assert {(section, name) for section in sections for name in written[section]} == {
            (section, name) for section, model in sections.items() for name in model.model_fields
        }
        assert set(written) == set(MoorageConfig.model_fields)
        assert set(written["access"]["keys"][0]) == set(AccessKey.model_fields)
        assert set(written["models"][0]) == set(TensorModelConfig.model_fields)
        MoorageConfig.model_validate(written)


class TestConfigShow:
    def test_a_file_and_the_environment(self, toml: Path) -> None:
        code, out, errors = run("config", "show", str(toml), MOORAGE_LOG__FORMAT="json")
        assert (code, errors) == (0, "")
        assert f"port = 9000  # {toml}\n" in out
        assert 'format = "json"  # environment, MOORAGE_LOG__FORMAT\n' in out

    def test_without_a_file(self) -> None:
        code, out, _ = run("config", "show")
        assert code == 0
        assert "port = 8765  # default\n" in out

    def test_a_fault(self, toml: Path) -> None:
        toml.write_text("[server]\nport = 'x'\n")
        code, out, errors = run("config", "show", str(toml))
        assert (code, out) == (2, "")
        assert errors.startswith("server.port: given 'x'")


def test_config_reference() -> None:
    code, out, _ = run("config", "reference")
    assert code == 0
    assert out.startswith("# Configuration\n")


class TestServe:
    def test_an_option_that_a_model_does_not_know_ends_before_anything_is_loaded(self) -> None:
        code, _, errors = run("serve", MOORAGE_LIVE__OPTIONS__NONSENSE="1")
        assert code == 2
        assert errors.startswith("live.options: unknown live option nonsense")

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


class TestHelp:
    def test_the_version(self) -> None:
        assert run("--version") == (0, f"moorage {version('moorage')}\n", "")

    def test_no_summary_is_cut(self) -> None:
        code, out, _ = run("--help", COLUMNS="80")
        assert code == 0
        assert " mic " in out
        assert "..." not in out.split("Commands:")[1]
