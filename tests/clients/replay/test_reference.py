"""Reference texts: which file gets which text."""

from pathlib import Path

import pytest

from clients.replay.reference import references
from server.errors import BadParameter


def tsv(path: Path, *rows: tuple[str, ...]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_nearest_manifest_is_found(tmp_path: Path) -> None:
    tsv(tmp_path / "manifest.tsv", ("id", "file", "text"), ("a1", "clean/a1.flac", "ABOVE"), ("d", "x/y/d.wav", "FAR"))
    tsv(tmp_path / "other" / "manifest.tsv", ("file", "text"), ("b.wav", 'say "BESIDE"'))
    above, beside = tmp_path / "clean" / "a1.flac", tmp_path / "other" / "b.wav"
    unknown, far, too_far = tmp_path / "clean" / "u.flac", tmp_path / "x" / "y" / "d.wav", tmp_path / "1/2/3/a1.flac"
    found = references([above, beside, unknown, far, too_far], None, None)
    assert found == {above: "ABOVE", beside: 'say "BESIDE"', far: "FAR"}


def test_a_path_wins_over_a_name_and_a_name_over_an_id(tmp_path: Path) -> None:
    manifest = tsv(
        tmp_path / "texts.tsv",
        ("id", "file", "text"),
        ("1", "x/a.wav", "in x"),
        ("2", "y/a.wav", "in y"),
        ("b.wav", "", "by id that is a name"),
        ("c", "", "by stem"),
    )
    files = [tmp_path / "y" / "a.wav", tmp_path / "z" / "a.wav", Path("b.wav"), Path("elsewhere/c.opus")]
    assert list(references(files, None, manifest).values()) == ["in y", "in x", "by id that is a name", "by stem"]


def test_text_is_the_reference_of_the_only_file(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    assert references([path], "one two", None) == {path: "one two"}
    with pytest.raises(BadParameter, match="--text"):
        references([path, tmp_path / "b.wav"], "one two", None)


def test_no_manifest_is_no_reference(tmp_path: Path) -> None:
    assert references([tmp_path / "a" / "b" / "c" / "a.wav"], None, None) == {}


@pytest.mark.parametrize(
    ("header", "reason"), [(("file", "words"), "needs the columns"), (("speaker", "text"), "needs the columns")]
)
def test_manifest_without_its_columns_is_refused(tmp_path: Path, header: tuple[str, ...], reason: str) -> None:
    with pytest.raises(BadParameter, match=reason):
        references([tmp_path / "a.wav"], None, tsv(tmp_path / "m.tsv", header, ("a", "b")))


def test_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="cannot be read"):
        references([tmp_path / "a.wav"], None, tmp_path / "none.tsv")
