"""Configuration: sources and their order, every field's manners, and what a fault says."""

from pathlib import Path

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from server.configuration.config import AccessKey, MoorageConfig, TensorModelConfig, is_loopback, load_config
from server.configuration.model_sections import InstanceGroup
from server.errors import ConfigError

UNITS = ("_s", "_ms", "_bytes", "_fraction", "_s_per_minute")
REQUIRED = frozenset({"access.keys.name", "access.keys.sha256", "models.name", "models.model"})
COUNTS = frozenset(
    {
        "port",
        "max_connections",
        "max_handshakes",
        "max_queued_finals",
        "instances",
        "slots",
        "max_slots",
        "max_batch",
        "threads",
        "target_size",
        "max_queued",
        "max_streams",
        "max_processes",
        "streams_per_process",
        "count",
        "backlog",
        "max_ticks",
        "max_queued_turns",
        "recordings_max_queued",
        "max_requests",
        "resource_priority",
        "priority",
        "priority_levels",
        "default_priority_level",
        "min_slot_utilisation",
        "share",
    }
)
"""Numbers and parts of things, which have no unit."""


def fields() -> list[tuple[str, FieldInfo]]:
    sections: dict[str, type[BaseModel]] = {
        "access.keys": AccessKey,
        "models": TensorModelConfig,
        "live.instances": InstanceGroup,
    }
    for name, field in MoorageConfig.model_fields.items():
        if isinstance(field.default, BaseModel):
            sections[name] = type(field.default)
    named = [(f"{name}.{key}", field) for name, model in sections.items() for key, field in model.model_fields.items()]
    return named + list(MoorageConfig.model_fields.items())


def fault(tree: dict[str, object], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(environment=environment or {}, overrides=tree)
    return str(caught.value)


class TestFields:
    @pytest.mark.parametrize(("path", "field"), fields(), ids=lambda value: value if isinstance(value, str) else "")
    def test_each_has_default_and_docstring(self, path: str, field: FieldInfo) -> None:
        assert field.is_required() == (path in REQUIRED), path
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
                "MOORAGE_LOG__LEVEL": "debug",
            }
        )
        assert (config.live.model, config.live.max_delay_ms) == ("12", 2.5)
        assert config.live.options == {"threshold": 0.5, "name": "a b", "deterministic": True}
        assert config.log.level == "debug"

    def test_variables_without_a_section_are_not_settings(self) -> None:
        others = {"MOORAGE_SPEECH": "/speech", "MOORAGE_MOONSHINE": "m", "MOORAGE": "x", "PORT": "1"}
        assert load_config(environment=others) == MoorageConfig()

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
        assert fault({"log": {"level": "loud"}}) == "log.level: given 'loud', allowed: debug, info, warning, error"
        assert fault({"live": {"device": "gpu"}}) == "live.device: given 'gpu', allowed: auto, cpu, cuda or cuda:N"

    @pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:3"])
    def test_devices(self, device: str) -> None:
        assert load_config(environment={}, overrides={"live": {"device": device}}).live.device == device

    def test_unknown_field_names_the_likely_one(self) -> None:
        said = fault({"server": {"prot": 1}})
        assert said.startswith("server.prot: unknown (did you mean port?), allowed: host, port, ")

    def test_unknown_section(self) -> None:
        known = "server, log, access, tls, codec, live, final, models, resources, http, audit"
        assert fault({"sequencer": {}}) == f"sequencer: unknown, allowed: {known}"

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


HASH, OTHER_HASH = "a" * 64, "b" * 64
BOUNDS = "access.keys.0.sha256: given something else, allowed: 64 hexadecimal digits in lower case, as moorage key new "


def with_keys(*keys: dict[str, object], **fields: object) -> dict[str, object]:
    return {"access": {"keys": list(keys), **fields}}


class TestAccess:
    def test_keys_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "moorage.toml"
        path.write_text(
            f"[access]\nallowed_origins = ['https://a.example']\n[[access.keys]]\nname = 'a b'\nsha256 = '{HASH}'\n"
            f"max_streams = 4\n[[access.keys]]\nname = 'c'\nsha256 = '{OTHER_HASH}'\n"
        )
        access = load_config(path, environment={}).access
        assert [(key.name, key.sha256, key.max_streams) for key in access.keys] == [
            ("a b", HASH, 4),
            ("c", OTHER_HASH, 0),
        ]
        assert access.allowed_origins == ("https://a.example",)

    def test_keys_from_the_environment(self) -> None:
        config = load_config(environment={"MOORAGE_ACCESS__KEYS": f'[{{name = "a", sha256 = "{HASH}"}}]'})
        assert [key.name for key in config.access.keys] == ["a"]

    def test_a_key_in_place_of_its_hash_is_not_shown(self) -> None:
        said = fault(with_keys({"name": "a", "sha256": "moorage_secret"}))
        assert said.startswith(BOUNDS)
        assert "secret" not in said

    def test_what_a_key_lacks_or_has_too_much(self) -> None:
        assert fault(with_keys({"sha256": HASH})) == "access.keys.0.name: missing"
        assert fault(with_keys({"name": "a", "sha256": HASH, "max_stream": 1})).startswith(
            "access.keys.0.max_stream: unknown (did you mean max_streams?), allowed: name, sha256, "
        )
        assert fault(with_keys({"name": "a", "sha256": HASH, "max_streams": -1})) == (
            "access.keys.0.max_streams: given -1, allowed: an integer from 0 to 1000000"
        )
        assert fault(with_keys({"name": "\n", "sha256": HASH})).startswith(
            "access.keys.0.name: given '\\n', allowed: 1 "
        )

    def test_lists_that_are_none(self) -> None:
        assert fault({"access": {"keys": 3}}) == "access.keys: given 3, allowed: a list of tables, at most 1000"
        assert fault({"access": {"keys": [3]}}) == "access.keys.0: given 3, allowed: a table"
        assert fault({"access": {"allowed_origins": "x"}}) == (
            "access.allowed_origins: given 'x', allowed: a list of texts, at most 1000"
        )
        assert fault({"access": {"allowed_origins": [3]}}) == "access.allowed_origins.0: given 3, allowed: a text"

    def test_two_keys_are_two(self) -> None:
        one: dict[str, object] = {"name": "a", "sha256": HASH}
        other: dict[str, object] = {"name": "b", "sha256": OTHER_HASH}
        assert fault(with_keys(one, other | {"name": "a"})) == "access: keys: 2 have the name a"
        assert "have the sha256" in fault(with_keys(one, other | {"sha256": HASH}))
        load_config(environment={}, overrides=with_keys(one, other))

    def test_anonymous_beside_keys_would_make_the_keys_pointless(self) -> None:
        said = fault(with_keys({"name": "a", "sha256": HASH}, allow_anonymous=True))
        assert said == "access: allow_anonymous is true, but there are keys; allowed: one or the other"

    @pytest.mark.parametrize("origin", ["https://a.example", "http://a:80", "http://[::1]:8765", "*"])
    def test_origins(self, origin: str) -> None:
        load_config(environment={}, overrides={"access": {"allowed_origins": [origin]}})

    @pytest.mark.parametrize("origin", ["", "a.example", "https://a/", "https://*.a", "null", "ws://a", "https://a b"])
    def test_what_is_no_origin(self, origin: str) -> None:
        assert fault({"access": {"allowed_origins": [origin]}}).startswith(
            f"access: allowed_origins: given {origin!r}, allowed: https://host, "
        )


class TestOpenToTheNetwork:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST."])
    def test_loopback(self, host: str) -> None:
        assert is_loopback(host)
        load_config(environment={}, overrides={"server": {"host": host}})

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "moorage.example", "localhost.example", "1"])
    def test_only_on_purpose(self, host: str) -> None:
        assert not is_loopback(host)
        assert fault({"server": {"host": host}}) == (
            f"server.host: {host} is open to the network, and there are no API keys; either add [[access.keys]] "
            "(moorage key new NAME makes one) or set access.allow_anonymous = true"
        )
        server: dict[str, object] = {"server": {"host": host}}
        load_config(environment={}, overrides=server | {"access": {"allow_anonymous": True}})
        load_config(environment={}, overrides=server | with_keys({"name": "a", "sha256": HASH}))


class TestTls:
    def test_off_by_default(self) -> None:
        assert not load_config(environment={}).tls.enabled

    def test_both_files_or_none(self) -> None:
        assert fault({"tls": {"certificate": "a"}}) == (
            "tls: certificate is set, but private_key is not; allowed: both or neither"
        )
        assert fault({"tls": {"private_key": "a"}}).startswith("tls: private_key is set, but certificate is not")
        assert fault({"tls": {"private_key": 3}}) == "tls.private_key: given 3, allowed: a text"
        assert load_config(environment={}, overrides={"tls": {"certificate": "a", "private_key": "b"}}).tls.enabled
