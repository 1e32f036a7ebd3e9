"""The two configurations: one line apart, and both are what the service takes."""

from pathlib import Path

import pytest

from clients.demo.outcome import SchedulerName
from clients.demo.settings import DemoConfig, demo_config
from server.composition import check_models, engine_config
from server.configuration.config import load_config
from server.errors import ConfigError

WRONG, RIGHT = demo_config(SchedulerName.DYNAMIC), demo_config(SchedulerName.SEQUENCE)


def test_they_are_one_line_apart() -> None:
    pairs = zip(WRONG.text.splitlines(), RIGHT.text.splitlines(), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == [(WRONG.line, RIGHT.line)]
    assert (WRONG.setting, RIGHT.setting) == ('scheduler = "dynamic"', 'scheduler = "sequence"')


@pytest.mark.parametrize("demo", [WRONG, RIGHT], ids=["dynamic", "sequence"])
def test_who_copies_one_has_the_protection_on(demo: DemoConfig, tmp_path: Path) -> None:
    path = tmp_path / demo.file_name
    path.write_text(demo.text)
    assert "allow_wrong_scheduler" not in demo.text
    copied = load_config(path, environment={})
    assert not copied.live.allow_wrong_scheduler
    if demo is RIGHT:
        check_models(copied)
        return
    with pytest.raises(ConfigError, match=r"live\.scheduler: moonshine-live needs the sequence batcher"):
        check_models(copied)
    assert "`moorage serve` refuses this file; MOORAGE_LIVE__ALLOW_WRONG_SCHEDULER=true overrules it" in demo.text
    check_models(load_config(path, environment={"MOORAGE_LIVE__ALLOW_WRONG_SCHEDULER": "true"}))


def test_the_right_one_is_played_without_the_switch() -> None:
    assert WRONG.load(None).live.allow_wrong_scheduler
    assert not RIGHT.load(None).live.allow_wrong_scheduler


@pytest.mark.parametrize("demo", [WRONG, RIGHT], ids=["dynamic", "sequence"])
def test_the_service_takes_them(demo: DemoConfig, tmp_path: Path) -> None:
    path = tmp_path / demo.file_name
    path.write_text(demo.text)
    for config in (demo.load(None), demo.load(path)):
        check_models(config)
        settings = engine_config(config)
        assert settings.live.scheduler == demo.scheduler.value
        assert settings.final is None
        assert config.live.n_instances == 2


def test_without_the_switch_the_wrong_one_is_refused() -> None:
    config = WRONG.load(None)
    live = config.live.model_copy(update={"allow_wrong_scheduler": False})
    with pytest.raises(ConfigError, match=r"live\.scheduler: moonshine-live needs the sequence batcher"):
        check_models(config.model_copy(update={"live": live}))


def test_it_lies_over_a_configuration_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[live]\nscheduler = "sequence"\ninstances = 3\n[live.options]\nagree = 2\n')
    config = WRONG.load(path)
    assert (config.live.scheduler, config.live.n_instances, config.live.options) == ("dynamic", 2, {"agree": 2})
