"""``moorage key``: what it prints is what the service takes."""

import re
import tomllib

import pytest
from typer.testing import CliRunner, Result

from server.access.access import AccessControl, Credentials
from server.access.keys import hash_of, new_key, toml_of
from server.cli import build_cli
from server.configuration.config import AccessKey, load_config
from server.errors import Unauthorized


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build_cli(), ["key", "new", *arguments])


class TestNew:
    def test_what_it_prints_opens_the_service(self) -> None:
        result = run("app team", "--max-streams", "3", "--max-audio-s-per-minute", "90.5")
        assert result.exit_code == 0
        before, _, toml = result.stdout.partition("for moorage.toml:")
        [key] = re.findall(r"^moorage_[0-9a-f]{48}$", before, re.MULTILINE)
        assert key not in toml
        config = load_config(environment={}, overrides=tomllib.loads(toml)).access
        [entry] = config.keys
        assert (entry.name, entry.max_streams, entry.max_audio_s_per_minute) == ("app team", 3, 90.5)
        access = AccessControl(config)
        assert access.admit(Credentials(authorization=f"Token {key}"), 1, 0).key_name == "app team"
        assert access.admit(Credentials(subprotocols=("token", key)), 1, 0).key_name == "app team"
        with pytest.raises(Unauthorized):
            access.admit(Credentials(authorization=f"Token {entry.sha256}"), 1, 0)

    @pytest.mark.parametrize("name", ["", '"', "a\nb", "-", " a", "ä", "x" * 65])
    def test_a_name_that_the_configuration_would_refuse(self, name: str) -> None:
        result = run("--", name)
        assert result.exit_code == 2
        assert "moorage_" not in result.output

    def test_a_limit_below_zero(self) -> None:
        assert run("a", "--max-streams", "-1").exit_code == 2


class TestKeys:
    def test_each_is_new(self) -> None:
        assert len({new_key() for _ in range(100)}) == 100

    def test_a_hash_is_sha256(self) -> None:
        assert hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    def test_defaults_are_left_out(self) -> None:
        assert toml_of(AccessKey(name="a", sha256="0" * 64)) == f'[[access.keys]]\nname = "a"\nsha256 = "{"0" * 64}"'
