"""The doctor asks each model which scheduler it needs, and refuses a swapped configuration with what it saw."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from server.cli import build_cli
from server.configuration.config import MoorageConfig, Tree, load_config
from server.configuration.model_sections import LiveConfig
from server.doctor import schedulers
from server.doctor.finding import Finding, Severity
from server.doctor.schedulers import check_schedulers
from server.workers.orders import ModelSource

LIGHT: Tree = {"model": "light-lstm", "device": "cpu"}
NO_FINAL: Tree = {"model": "none"}


def config(live: Tree, final: Tree = NO_FINAL, models: list[Tree] | None = None) -> MoorageConfig:
    sections: Tree = {"live": LIGHT | live, "final": final, "models": models or []}
    return load_config(environment={}, overrides=sections)


def findings(live: Tree, final: Tree = NO_FINAL, models: list[Tree] | None = None) -> dict[str, Finding]:
    return {each.check: each for each in check_schedulers(config(live, final, models))}


def asked(monkeypatch: pytest.MonkeyPatch, factory: str, live: Tree) -> Finding:
    """What is found of a model that is in no registry."""

    def source(name: str, options: object) -> ModelSource:
        return ModelSource(name=name, factory=f"tests.server.proving.wrong_models:{factory}")

    monkeypatch.setattr(schedulers, "ModelSource", source)
    return findings(live)["live scheduler"]


def told(toml: Path) -> tuple[int, dict[str, tuple[str, str, str]]]:
    """Exit code, and of each check its status, text and advice."""
    result = CliRunner().invoke(build_cli(), ["doctor", "--config", str(toml), "--format", "json"])
    rows = json.loads(result.stdout)["findings"]
    return result.exit_code, {row["check"]: (row["status"], row["text"], row["advice"]) for row in rows}


class TestSwapped:
    def test_each_is_refused_with_the_evidence(self, tmp_path: Path) -> None:
        toml = tmp_path / "moorage.toml"
        toml.write_text(
            "[server]\nport = 0\n"
            '[live]\nmodel = "light-lstm"\nscheduler = "dynamic"\n'
            '[final]\nscheduler = "sequence"\ndevice = "cpu"\n'
        )
        code, found = told(toml)
        assert code == 1
        status, text, advice = found["live scheduler"]
        assert status == "fault"
        assert text.startswith("live.scheduler: the configuration says dynamic (the model declares sequence), but ")
        assert "light-lstm is stateful and needs the sequence batcher: tick" in text
        assert "after the ticks before it" in text
        assert advice == 'remove scheduler = "dynamic": the model declares the right one'
        status, text, advice = found["final scheduler"]
        assert status == "fault"
        assert "moonshine-base is stateless and needs the dynamic batcher: the second part of an utterance" in text
        assert advice == 'remove scheduler = "sequence": the model declares the right one'

    @pytest.mark.slow
    def test_the_live_model_too(self, tmp_path: Path) -> None:
        toml = tmp_path / "moorage.toml"
        toml.write_text('[server]\nport = 0\n[live]\nscheduler = "dynamic"\ndevice = "cpu"\n[final]\nmodel = "none"\n')
        code, found = told(toml)
        assert code == 1
        assert found["live scheduler"][0] == "fault"
        assert "moonshine-live is stateful and needs the sequence batcher: tick" in found["live scheduler"][1]

    def test_allowed_by_name_it_is_a_warning_that_says_so(self) -> None:
        found = findings({"scheduler": "dynamic", "allow_wrong_scheduler": True})["live scheduler"]
        assert found.severity is Severity.WARNING
        assert found.text.startswith("WRONG, and allowed: live.scheduler: the configuration says dynamic")


class TestRight:
    def test_all_models_that_are_configured(self) -> None:
        models: list[Tree] = [{"name": "adder", "model": "accumulator"}, {"name": "mirror", "model": "echo"}]
        found = findings({"scheduler": "sequence"}, models=models)
        assert set(found) == {"live scheduler", "adder scheduler", "mirror scheduler"}
        assert all(each.severity is Severity.OK for each in found.values()), found
        assert found["adder scheduler"].text.startswith("accumulator is stateful, sequence batcher: turn")
        assert found["mirror scheduler"].text.startswith("echo is stateless, dynamic batcher: ")


class TestOddModels:
    def test_no_setting_makes_a_leaky_model_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for allowed in (False, True):
            found = asked(monkeypatch, "make_own_memory", {"allow_wrong_scheduler": allowed})
            assert found.severity is Severity.FAULT
            assert "is right under no scheduler (the model declares sequence)" in found.text
            assert "something is remembered outside of the slots" in found.text
            assert found.advice.startswith("no setting makes it right")

    @pytest.mark.parametrize(("factory", "needed"), [("make_forgetful", "dynamic"), ("make_remembers", "sequence")])
    def test_a_model_that_declares_the_wrong_one(
        self, monkeypatch: pytest.MonkeyPatch, factory: str, needed: str
    ) -> None:
        found = asked(monkeypatch, factory, {})
        assert found.severity is Severity.FAULT
        assert f"needs the {needed} batcher" in found.text
        assert found.advice == f'set scheduler = "{needed}"; better, let the model declare it'

    def test_one_that_says_nothing_is_served_as_it_declares(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = asked(monkeypatch, "make_mute", {})
        assert (found.severity, "cannot be proved" in found.text) == (Severity.WARNING, True)

    def test_nobody_says_which(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = asked(monkeypatch, "make_undeclared", {})
        assert found.severity is Severity.FAULT
        assert found.text.startswith("light-lstm does not say which scheduler it needs")
        assert found.advice == "set its scheduler; the probe found sequence"

    def test_one_that_cannot_be_loaded(self) -> None:
        sections = LiveConfig.model_construct(**(config({}).live.model_dump() | {"options": {"nonsense": 1}}))
        broken = config({}).model_copy(update={"live": sections})
        (found,) = check_schedulers(broken)
        assert found.severity is Severity.FAULT
        assert found.text == "light-lstm could not be asked: light-lstm has no option nonsense"
