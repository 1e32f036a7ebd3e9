"""Variables: settings are found, misspelt ones refused, those that others make for us left alone."""

import pytest

from server.configuration.config import field_paths, load_config
from server.configuration.environment import settings_in, variable_name
from server.errors import ConfigError


def fault(name: str, text: str = "1") -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(environment={name: text})
    return str(caught.value)


def test_every_setting_has_a_variable_that_reaches_it() -> None:
    paths = field_paths()
    assert {"server.port", "live.options", "final.model", "log.format"} <= set(paths)
    environment = {variable_name(path.split(".")): "x" for path in paths}
    assert [".".join(path) for path in settings_in(environment, paths).values()] == sorted(paths, key=variable_key)


def variable_key(path: str) -> str:
    return variable_name(path.split("."))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MOORAGE_SERVER_PORT", "MOORAGE_SERVER__PORT"),
        ("MOORAGE_SERVER_HOST", "MOORAGE_SERVER__HOST"),
        ("MOORAGE_LIVE_MAX_BATCH", "MOORAGE_LIVE__MAX_BATCH"),
        ("MOORAGE_LOG_LEVL", "MOORAGE_LOG__LEVEL"),
        ("MOORAGE_MOONSHIN", "MOORAGE_MOONSHINE"),
    ],
)
def test_a_misspelt_setting_is_refused_with_what_was_meant(name: str, meant: str) -> None:
    assert fault(name) == f"{name}: not a setting (did you mean {meant}?)"


def test_what_resembles_nothing_is_refused_with_the_rule() -> None:
    assert fault("MOORAGE_XYZZY") == (
        "MOORAGE_XYZZY: not a setting; settings are named MOORAGE_SECTION__FIELD,"
        " with two underscores between section and field"
    )


def test_every_fault_has_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environment={"MOORAGE_A": "1", "MOORAGE_B": "1", "MOORAGE_SERVER__PORT": "1"})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["MOORAGE_A", "MOORAGE_B"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MOORAGE_SERVICE_HOST", "10.0.0.7"),
        ("MOORAGE_SERVICE_PORT", "8765"),
        ("MOORAGE_SERVICE_PORT_HTTP", "8765"),
        ("MOORAGE_PORT", "tcp://10.0.0.7:8765"),
        ("MOORAGE_PORT_8765_TCP", "tcp://10.0.0.7:8765"),
        ("MOORAGE_PORT_8765_TCP_ADDR", "10.0.0.7"),
        ("MOORAGE_PORT_8765_TCP_PORT", "8765"),
        ("MOORAGE_SERVER_PORT", "tcp://10.0.0.7:8765"),
        ("MOORAGE_EU_SERVICE_HOST", "10.0.0.7"),
        ("MOORAGE_SPEECH", "/speech"),
        ("MOORAGE_MOONSHINE", "/weights"),
        ("OTHER_SERVER_PORT", "1"),
    ],
)
def test_what_kubernetes_makes_for_a_service_called_moorage_is_left_alone(name: str, text: str) -> None:
    assert load_config(environment={name: text}) == load_config(environment={})


@pytest.mark.parametrize("name", ["MOORAGE_PORT", "MOORAGE_SERVER_PORT", "MOORAGE_REPORT"])
def test_a_port_by_itself_is_no_link(name: str) -> None:
    assert fault(name, "9000").startswith(f"{name}: not a setting")
