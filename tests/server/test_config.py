"""Configuration: sources and their order, every field's manners, and what a fault says."""

from pathlib import Path

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from server.config import FinalConfig, LiveConfig, MoorageConfig, ServerConfig, load_config
from server.errors import ConfigError

UNITS = ("_s", "_ms", "_bytes", "_fraction")
COUNTS = frozenset(
    {
        "port",
        "max_connections",
        "max_queued_finals",
        "instances",
        "slots",
        "max_slots",
        "max_batch",
        "threads",
        "target_size",
        "max_queued",
    }
)
"""Numbers of things, which have no unit."""


def fields() -> list[tuple[str, FieldInfo]]:
    sections: dict[str, type[BaseModel]] = {"server": ServerConfig, "live": LiveConfig, "final": FinalConfig}
    named = [(f"{name}.{key}", field) for name, model in sections.items() for key, field in model.model_fields.items()]
    return named + list(MoorageConfig.model_fields.items())


def fault(tree: dict[str, object], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(environment=environment or {}, overrides=tree)
    return str(caught.value)


class TestFields:
    @pytest.mark.parametrize(("path", "field"), fields(), ids=lambda value: value if isinstance(value, str) else "")
    def test_each_has_default_and_docstring(self, path: str, field: FieldInfo) -> None:
        assert not field.is_required(), path
        assert field.description, path
        assert len(field.description) > 10, path

    @pytest.mark.parametrize(("path", "field"), fields(), ids=lambda value: value if isinstance(value, str) else "")
    def test_each_number_is_bounded_on_both_sides_and_names_its_unit(self, path: str, field: FieldInfo) -> None:
        if field.annotation not in (int, float):
            return
        assert any(isinstance(rule, Ge | Gt) for rule in field.metadata), path
        assert any(isinstance(rule, Le | Lt) for rule in field.metadata), path
        name = path.rpartition(".")[2]
        assert name in COUNTS or name.endswith(UNITS), path

    def test_the_number_check_has_something_to_check(self) -> None:
        assert sum(field.annotation in (int, float) for _, field in fields()) > 20

    def test_nothing_changes_after_loading(self) -> None:
        config = load_config(environment={})
        with pytest.raises(ValidationError):
            config.server.port = 1


class TestSources:
    def test_defaults(self) -> None:
        config = load_config(environment={})
        assert (config.server.host, config.server.port) == ("127.0.0.1", 8765)
        assert (config.live.model, config.final.model) == ("moonshine-live", "moonshine-base")
        assert config.final.enabled

    def test_each_source_wins_over_the_one_before(self, tmp_path: Path) -> None:
        path = tmp_path / "moorage.toml"
        path.write_text("[server]\nport = 1\nmax_connections = 5\n[live]\ninstances = 2\n[final]\nmodel = 'none'\n")
        config = load_config(
            path,
            environment={"MOORAGE_SERVER__PORT": "2", "MOORAGE_LIVE__INSTANCES": "3"},
            overrides={"server": {"port": 4}},
        )
        assert (config.server.port, config.live.instances, config.server.max_connections) == (4, 3, 5)
        assert not config.final.enabled

    def test_environment_values_have_the_type_of_their_field(self) -> None:
        config = load_config(
            environment={
                "MOORAGE_LIVE__MODEL": "12",
                "MOORAGE_LIVE__MAX_DELAY_MS": "2.5",
                "MOORAGE_LIVE__OPTIONS__THRESHOLD": "0.5",
                "MOORAGE_LIVE__OPTIONS__NAME": "a b",
                "MOORAGE_LIVE__OPTIONS__DETERMINISTIC": "true",
                "MOORAGE_SERVER__LOG_LEVEL": "debug",
            }
        )
        assert (config.live.model, config.live.max_delay_ms) == ("12", 2.5)
        assert config.live.options == {"threshold": 0.5, "name": "a b", "deterministic": True}
        assert config.server.log_level == "debug"

    def test_variables_without_a_section_are_not_settings(self) -> None:
        assert load_config(environment={"MOORAGE_SPEECH": "/speech", "MOORAGE": "x", "PORT": "1"}) == MoorageConfig()

    def test_an_option_beside_another(self) -> None:
        config = load_config(
            environment={"MOORAGE_FINAL__OPTIONS__A": "1"}, overrides={"final": {"options": {"b": False}}}
        )
        assert config.final.options == {"a": 1, "b": False}


class TestFaults:
    def test_out_of_bounds(self) -> None:
        assert fault({"server": {"port": 70_000}}) == "server.port: given 70000, allowed: an integer from 0 to 65535"
        assert (
            fault({"live": {"load_fraction": 0.0}})
            == "live.load_fraction: given 0.0, allowed: a number above 0.0 to 1.0"
        )

    def test_wrong_type(self) -> None:
        assert fault({"server": {"port": "80"}}) == "server.port: given '80', allowed: an integer from 0 to 65535"
        assert fault({"server": {"host": 3}}) == "server.host: given 3, allowed: a text that is not empty"
        assert fault({"live": 3}) == "live: given 3, allowed: a table"
        assert (
            fault({"live": {"options": {"a": [1]}}})
            == "live.options.a: given [1], allowed: a text, a number or a boolean"
        )
        assert fault({"live": {"options": 1}}).startswith("live.options: given 1, allowed: a table of ")

    def test_wrong_choice(self) -> None:
        assert (
            fault({"server": {"log_level": "loud"}})
            == "server.log_level: given 'loud', allowed: debug, info, warning, error"
        )
        assert fault({"live": {"device": "gpu"}}) == "live.device: given 'gpu', allowed: auto, cpu, cuda or cuda:N"

    @pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:3"])
    def test_devices(self, device: str) -> None:
        assert load_config(environment={}, overrides={"live": {"device": device}}).live.device == device

    def test_unknown_field_names_the_likely_one(self) -> None:
        said = fault({"server": {"prot": 1}})
        assert said.startswith("server.prot: unknown (did you mean port?), allowed: host, port, ")

    def test_unknown_section(self) -> None:
        assert fault({"sequencer": {}}) == "sequencer: unknown, allowed: server, live, final"

    def test_unknown_variable(self) -> None:
        assert fault({}, {"MOORAGE_SERVER__PROT": "1"}).startswith("server.prot: unknown")
        assert fault({}, {"MOORAGE_SERVER__PORT": "x"}) == (
            "server.port: given 'x', allowed: an integer from 0 to 65535"
        )

    def test_every_fault_has_a_line(self) -> None:
        said = fault({"server": {"port": -1}, "live": {"instances": 0}, "final": {"max_batch_s": 1.0}})
        assert [line.partition(":")[0] for line in said.splitlines()] == [
            "server.port",
            "live.instances",
            "final.max_batch_s",
        ]

    def test_slots_above_their_limit(self) -> None:
        assert fault({"live": {"slots": 9, "max_slots": 8}}) == (
            "live: slots is 9, allowed: at most max_slots, which is 8"
        )

    def test_not_a_number(self) -> None:
        assert fault({"server": {"idle_timeout_s": float("nan")}}).startswith("server.idle_timeout_s: given nan")

    def test_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
            load_config(tmp_path / "absent.toml", environment={})

    @pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe"])
    def test_file_that_is_not_toml(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "moorage.toml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"moorage\.toml: is not TOML: "):
            load_config(path, environment={})
