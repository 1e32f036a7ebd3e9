"""Where transcripts go: what is refused, and files that are whole or not there."""

from pathlib import Path

import pytest

from clients.transcribe.transcript_files import CannotWrite, Destination, write_whole
from clients.transcribe.transcript_format import Format
from server.errors import BadParameter

A, B = Path("x/a.wav"), Path("y/b.mp3")


def test_a_folder_has_a_file_for_each_recording() -> None:
    destination = Destination(form=Format.VTT, folder=Path("out"))
    assert destination.paths([A, B, A]) == {A: Path("out/a.vtt"), B: Path("out/b.vtt")}
    assert not destination.is_stdout


@pytest.mark.parametrize("form", [Format.TXT, Format.JSON])
def test_text_and_json_of_several_files_stand_in_one(form: Format) -> None:
    assert Destination(form=form).paths([A, B]) == {}
    assert Destination(form=form).is_stdout
    assert Destination(form=form, file=Path("all")).paths([A, B]) == {}


@pytest.mark.parametrize(
    ("destination", "recordings", "message"),
    [
        (Destination(form=Format.SRT), [A, B], "srt of 2 files: --output-dir must say where to"),
        (Destination(form=Format.VTT, file=Path("o.vtt")), [A, B], "vtt of 2 files"),
        (Destination(form=Format.TXT, file=Path("o"), folder=Path("d")), [A], "only one of them"),
        (Destination(form=Format.TXT, folder=Path("d")), [A, Path("z/a.flac")], "d/a.txt would be the transcript of"),
        (Destination(form=Format.TXT, file=Path("q/../x/a.wav")), [A], "is a file to be transcribed"),
        (Destination(form=Format.TXT, folder=Path("x")), [Path("x/a.txt")], "is a file to be transcribed"),
        (Destination(form=Format.TXT, file=Path("/")), [A], "is a directory"),
    ],
)
def test_what_does_not_go_together_is_refused(destination: Destination, recordings: list[Path], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        destination.paths(recordings)


def test_the_folder_is_made_and_must_be_writable(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    Destination(form=Format.TXT, folder=folder).prepare()
    assert list(folder.iterdir()) == []
    Destination(form=Format.TXT).prepare()
    Destination(form=Format.TXT, file=folder / "x").prepare()
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match="file: cannot be written to"):
        Destination(form=Format.TXT, folder=tmp_path / "file").prepare()
    with pytest.raises(CannotWrite, match="nowhere: cannot be written to"):
        Destination(form=Format.TXT, file=tmp_path / "nowhere" / "x").prepare()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    write_whole(path, "nåw\n")
    assert path.read_bytes() == "nåw\n".encode()
    write_whole(path, "no character: \ud800")
    assert path.read_text() == "no character: ?"
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(CannotWrite, match=r"b\.txt: cannot be written"):
        write_whole(tmp_path / "b.txt", "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt", "b.txt"]
