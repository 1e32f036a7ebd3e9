"""``moorage transcribe`` around the engine: options, and what is printed when and where."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console
from typer.testing import CliRunner

from clients.transcribe import Format, Show, sized
from clients.transcript import FileRecord, SegmentRecord
from server.cli import build_cli
from server.config import load_config


def record(file: str, *texts: str, error: str | None = None) -> FileRecord:
    segments: list[SegmentRecord] = [
        {"start": 0.0, "end": 1.0, "text": text, "live_text": text, "words": []} for text in texts
    ]
    made: FileRecord = {
        "file": file,
        "seconds": 1.0,
        "text": " ".join(filter(None, texts)),
        "live_text": "",
        "segments": segments,
    }
    if error is not None:
        made["error"] = error
    return made


def shown(files: list[Path], output: Format, *records: FileRecord, terminal: bool = False) -> str:
    """What went to stderr."""
    stderr = io.StringIO()
    with Show(files, output, Console(file=stderr, force_terminal=terminal, width=80)) as show:
        show.begin()
        for index, each in enumerate(records):
            show.advance(1.0)
            show.keep(index, each)
        assert show.records() == list(records)
    return stderr.getvalue()


def test_one_file_is_a_line_per_utterance(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown([Path("a")], Format.TEXT, record("a", "One.", "", "Two.")) == ""
    assert capsys.readouterr().out == "One.\nTwo.\n"


def test_several_files_are_a_line_each_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    files = [Path("a"), Path("b"), Path("c"), Path("d")]
    stderr = shown(
        files,
        Format.TEXT,
        record("a", "One.", "Two."),
        record("b", error="no such file"),
        record("c"),
        record("d", "Four.", error="is truncated"),
    )
    assert capsys.readouterr().out == "a\tOne. Two.\nc\t\nd\tFour.\n"
    assert stderr == "b: no such file\nd: is truncated\n"


def test_files_that_are_done_early_wait_for_those_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show([Path("a"), Path("b"), Path("c")], Format.TEXT, Console(file=io.StringIO()))
    show.keep(1, record("b", "Two."))
    show.keep(2, record("c", "Three."))
    assert capsys.readouterr().out == ""
    show.keep(0, record("a", "One."))
    assert capsys.readouterr().out == "a\tOne.\nb\tTwo.\nc\tThree.\n"


def test_json_leaves_stdout_to_the_array(capsys: pytest.CaptureFixture[str]) -> None:
    stderr = shown([Path("a")], Format.JSON, record("a", "One.", error="[bold]is[/bold] odd"))
    assert capsys.readouterr().out == ""
    assert stderr == "a: [bold]is[/bold] odd\n"


@pytest.mark.parametrize(("seconds", "has_bar"), [(29, False), (31, True)])
def test_a_terminal_has_a_bar_for_much_audio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: int, has_bar: bool
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(seconds * 8_000, np.float32), 8_000)
    stderr = shown([path], Format.TEXT, record("a.wav", "Text."), terminal=True)
    assert ("transcribing" in stderr) is has_bar
    assert (f"1 of {seconds} s" in stderr) is has_bar
    assert capsys.readouterr().out == "Text.\n"  # not where the bar is
    assert shown([path], Format.TEXT, record("a.wav", "Text.")) == ""  # no terminal, no bar


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
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_its_field(options: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(build_cli(), ["transcribe", "a.wav", *options])
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


def test_files_are_required() -> None:
    result = CliRunner().invoke(build_cli(), ["transcribe"])
    assert result.exit_code == 2
    assert "FILE" in result.stderr
