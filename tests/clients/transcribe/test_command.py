"""``moorage transcribe`` around the engine: its options."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from clients.transcribe.command import sized
from server.cli import build_cli
from server.configuration.config import load_config


@pytest.mark.parametrize(
    ("instances", "slots", "max_slots", "n_files", "expected"),
    [
        (1, 0, 1024, 3, 3),
        (1, 0, 1024, 100, 16),
        (2, 0, 1024, 100, 8),
        (2, 0, 1024, 3, 2),
        (2, 5, 1024, 3, 5),
        (1, 0, 4, 100, 4),
    ],
)
def test_slots_are_for_the_files_side_by_side(
    instances: int, slots: int, max_slots: int, n_files: int, expected: int
) -> None:
    live: dict[str, object] = {"instances": instances, "slots": slots, "max_slots": max_slots}
    assert sized(load_config(environment={}, overrides={"live": live}), n_files).live.slots == expected


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--live-instances", "0"], 2, "live.instances: given 0, allowed: an integer from 1 to 64"),
        (["--final-model", "whisper"], 2, "final.model: given 'whisper'"),
        (["--device", "tpu"], 2, "live.device: given 'tpu'"),
        (["--config", "nowhere.toml"], 2, "nowhere.toml: cannot be read"),
        (["b.wav", "--format", "srt"], 2, "srt of 2 files: --output-dir must say where to"),
        (["--output", "a.wav", "--format", "txt"], 2, "a.wav: is a file to be transcribed"),
        (["--output", "x.pdf"], 2, "x.pdf: the ending is of no format; known: .txt .json .srt .vtt, or say --format"),
        (["--output", "nowhere/a.srt"], 1, "nowhere: cannot be written to (No such file or directory)"),
    ],
)
def test_options_that_cannot_be_are_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(build_cli(), ["transcribe", "a.wav", *options])
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


def test_files_are_required() -> None:
    result = CliRunner().invoke(build_cli(), ["transcribe"])
    assert result.exit_code == 2
    assert "FILE" in result.stderr
