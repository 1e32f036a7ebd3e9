"""The loader of test speech fails loudly where silence would leave tests out."""

from pathlib import Path

import pytest

from tests.support.fixtures import SPEECH_VARIABLE, fixture, fixtures, shared_rows, shared_speech

HEADER = "id\tspeaker\tseconds\trate\tfile\ttext\tsource\tlicence\n"


def collection(folder: Path) -> Path:
    (folder / "real").mkdir()
    line = 'a-1\tsomebody\t1.50\t16000\tclean/a-1.flac\tSHE SAID "YES"\tls-test-clean\tCC BY 4.0\n'
    (folder / "real" / "manifest.tsv").write_text(HEADER + line, encoding="utf8")
    return folder


def test_a_kind_selects() -> None:
    assert {found.kind for found in fixtures("word")} == {"word"}
    assert len(fixtures()) > len(fixtures("word")) > 0


def test_an_unknown_kind_or_name_is_an_error() -> None:
    with pytest.raises(LookupError, match="no fixture of kind 'wrod'"):
        fixtures("wrod")
    with pytest.raises(LookupError, match="no fixture is called 'nothing'"):
        fixture("nothing")


def test_the_variable_names_the_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPEECH_VARIABLE, str(collection(tmp_path)))
    assert shared_speech() == tmp_path
    (row,) = shared_rows("clean")
    assert (row.id, row.speaker, row.seconds, row.text) == ("a-1", "somebody", 1.5, 'SHE SAID "YES"')
    assert row.path == tmp_path / "real" / "clean" / "a-1.flac"
    with pytest.raises(LookupError, match="no part 'other'"):
        shared_rows("other")


def test_a_wrong_variable_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPEECH_VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=SPEECH_VARIABLE):
        shared_speech()


def test_where_there_is_none_there_are_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPEECH_VARIABLE, raising=False)
    monkeypatch.setattr("tests.support.fixtures.ROOT", tmp_path / "repository")
    assert shared_speech() is None
    assert shared_rows("clean") == []
