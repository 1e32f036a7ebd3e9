"""What ``moorage transcribe`` prints and writes: when, where and in which order."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console

from clients.transcribe.transcript import FileRecord, SegmentRecord, WordRecord
from clients.transcribe.transcript_files import Destination
from clients.transcribe.transcript_format import Format
from clients.transcribe.view import Show

TXT, JSON = Destination(form=Format.TXT), Destination(form=Format.JSON)


def words_of(text: str) -> list[WordRecord]:
    return [{"word": word, "start": 0.0, "end": 1.0, "confidence": 1.0} for word in text.split()]


def record(file: str, *texts: str, error: str | None = None) -> FileRecord:
    segments: list[SegmentRecord] = [
        {"start": 0.0, "end": 1.0, "text": text, "live_text": text, "words": words_of(text)} for text in texts
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


def shown(files: list[Path], destination: Destination, *records: FileRecord, terminal: bool = False) -> str:
    """What went to stderr."""
    stderr = io.StringIO()
    with Show(files, destination, Console(file=stderr, force_terminal=terminal, width=80)) as show:
        show.begin()
        for index, each in enumerate(records):
            show.advance(1.0)
            show.keep(index, each)
        assert show.records() == list(records)
        show.finish()
        assert show.has_failures == any("error" in each for each in records)
    return stderr.getvalue()


def test_one_file_is_a_line_per_utterance(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown([Path("a")], TXT, record("a", "One.", "", "Two.")) == ""
    assert capsys.readouterr().out == "One.\nTwo.\n"


def test_several_files_are_a_line_each_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    files = [Path("a"), Path("b"), Path("c"), Path("d")]
    stderr = shown(
        files,
        TXT,
        record("a", "One.", "Two."),
        record("b", error="no such file"),
        record("c"),
        record("d", "Four.", error="is truncated"),
    )
    assert capsys.readouterr().out == "a\tOne. Two.\nc\t\nd\tFour.\n"
    assert stderr == "b: no such file\nd: is truncated\n"


def test_files_that_are_done_early_wait_for_those_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show([Path("a"), Path("b"), Path("c")], TXT, Console(file=io.StringIO()))
    show.keep(1, record("b", "Two."))
    show.keep(2, record("c", "Three."))
    assert capsys.readouterr().out == ""
    show.keep(0, record("a", "One."))
    assert capsys.readouterr().out == "a\tOne.\nb\tTwo.\nc\tThree.\n"


def test_json_is_one_array_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    bad = record("a", "One.", error="[bold]is[/bold] odd")
    stderr = shown([Path("a")], JSON, bad)
    assert json.loads(capsys.readouterr().out) == [bad]
    assert stderr == "a: [bold]is[/bold] odd\n"


def test_subtitles_of_one_file_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown([Path("a")], Destination(form=Format.VTT), record("a", "One.")) == ""
    assert capsys.readouterr().out == "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nOne.\n"


def test_a_folder_has_a_file_for_each_as_soon_as_it_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [Path("x/a.wav"), Path("b.flac"), Path("c.wav")]
    destination = Destination(form=Format.SRT, folder=tmp_path)
    stderr = io.StringIO()
    show = Show(files, destination, Console(file=stderr, width=80))
    show.keep(0, record("x/a.wav", "One."))
    assert [path.name for path in tmp_path.iterdir()] == ["a.srt"]
    show.keep(1, record("b.flac", error="no such file"))
    show.keep(2, record("c.wav"))
    show.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.srt", "c.srt"]
    assert (tmp_path / "a.srt").read_text() == "1\n00:00:00,000 --> 00:00:01,000\nOne.\n"
    assert (tmp_path / "c.srt").read_text() == ""
    assert (capsys.readouterr().out, stderr.getvalue()) == ("", "b.flac: no such file\n")


def test_a_file_has_what_stdout_would_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.txt"
    destination = Destination(form=Format.TXT, file=path)
    records = (record("a", "One.", "Two."), record("b", error="no such file"))
    shown([Path("a"), Path("b")], destination, *records)
    assert path.read_text() == "a\tOne. Two.\n"
    assert capsys.readouterr().out == ""
    shown([Path("b")], destination, record("b", error="no such file"))
    assert path.read_text() == "a\tOne. Two.\n"  # nothing was transcribed: nothing is lost


def test_a_transcript_that_cannot_be_written_is_a_failure_and_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    stderr = io.StringIO()
    show = Show([Path("b.wav"), Path("c.wav")], Destination(form=Format.TXT, folder=tmp_path), Console(file=stderr))
    (tmp_path / "b.txt").mkdir()  # after the check
    show.keep(0, record("b.wav", "One."))
    show.keep(1, record("c.wav", "Two."))
    assert show.has_failures
    assert "b.txt: cannot be written (Is a directory)" in " ".join(stderr.getvalue().split())
    assert (tmp_path / "c.txt").read_text() == "Two.\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(("seconds", "has_bar"), [(29, False), (31, True)])
def test_a_terminal_has_a_bar_for_much_audio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: int, has_bar: bool
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(seconds * 8_000, np.float32), 8_000)
    stderr = shown([path], TXT, record("a.wav", "Text."), terminal=True)
    assert ("transcribing" in stderr) is has_bar
    assert (f"1 of {seconds} s" in stderr) is has_bar
    assert capsys.readouterr().out == "Text.\n"  # not where the bar is
    assert shown([path], TXT, record("a.wav", "Text.")) == ""  # no terminal, no bar
