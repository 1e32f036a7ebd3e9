"""The configuration shown and its reference."""

import tomllib
from pathlib import Path

import pytest

from server.configuration.config import MoorageConfig, field_paths, load_config
from server.configuration.report import config_text, reference

ROOT = Path(__file__).parents[3]
KEY: dict[str, object] = {"name": "call centre", "sha256": "ab" * 32, "max_streams": 3}


def test_what_is_shown_loads_to_the_same(tmp_path: Path) -> None:
    overrides: dict[str, object] = {
        "server": {"host": "::1", "port": 9},
        "live": {"options": {"agree": 3, "checkpoint": 'a "b" \\ ü', "guards": False, "odd name": 0.5}},
        "access": {"allowed_origins": ["https://a.example", "https://b.example:8"]},
    }
    path = tmp_path / "shown.toml"
    path.write_text(config_text(None, {}, overrides), encoding="utf-8")
    assert load_config(path, environment={}) == load_config(None, {}, overrides)


def test_every_field_is_shown() -> None:
    shown = tomllib.loads(config_text(None, {}))
    assert {f"{section}.{key}" for section, table in shown.items() for key in table} | {"access.keys"} == set(
        field_paths()
    )


def test_each_value_has_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "moorage.toml"
    path.write_text("[server]\nport = 1\nmax_connections = 5\n[live.options]\nagree = 3\n[live]\ninstances = 1\n")
    environment = {"MOORAGE_SERVER__PORT": "2", "MOORAGE_LIVE__OPTIONS__EXTEND": "1", "MOORAGE_LOG__LEVEL": "debug"}
    lines = config_text(path, environment, {"live": {"instances": 4}}).splitlines()
    for line in (
        "port = 2  # environment, MOORAGE_SERVER__PORT",
        f"max_connections = 5  # {path}",
        'host = "127.0.0.1"  # default',
        "instances = 4  # command line",
        f"agree = 3  # {path}",
        "extend = 1  # environment, MOORAGE_LIVE__OPTIONS__EXTEND",
        'level = "debug"  # environment, MOORAGE_LOG__LEVEL',
    ):
        assert line in lines


def test_secrets_are_hidden() -> None:
    text = config_text(None, {}, {"access": {"keys": [KEY, KEY | {"name": "b", "sha256": "cd" * 32}]}})
    assert "abab" not in text
    assert "cdcd" not in text
    keys = tomllib.loads(text)["access"]["keys"]
    assert [(key["name"], key["sha256"], key["max_streams"]) for key in keys] == [
        ("call centre", "(hidden)", 3),
        ("b", "(hidden)", 3),
    ]


def test_the_reference_names_every_field_with_default_and_bounds() -> None:
    text = reference()
    for path in field_paths():
        section, _, key = path.partition(".")
        assert f"`{key}`<br>`MOORAGE_{section.upper()}__{key.upper()}`" in text
    assert "| an integer from 0 to 65535 | `8765` |" in text
    assert "| true or false | `false` |" in text
    assert "a number above 0.0 to 120.0 (s)" in text
    assert "| `max_streams` | an integer from 0 to 1000000 | `0` |" in text
    assert "| `agree` | `2` | Times that a token must have been chosen" in text
    assert '| `dtype` | `"fp32"` | Number format' in text


@pytest.mark.parametrize("section", MoorageConfig.model_fields)
def test_every_section_has_a_heading(section: str) -> None:
    heading = f"[[{section}]]" if section == "models" else f"[{section}]"
    assert f"\n## `{heading}`\n" in reference()


def test_the_page_in_docs_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "docs/configuration.md is stale: moorage config reference > docs/configuration.md"
