"""Reference texts of audio files, from a TSV manifest with columns ``file`` and/or ``id``, and ``text``."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from server.errors import BadParameter

MANIFEST_NAME = "manifest.tsv"
LEVELS = 3
"""Folders that are looked at: a file's own and the two above it."""


class Manifest:
    """Texts by file.

    Raises:
        BadParameter: The manifest cannot be read or lacks a column.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.parent.resolve()
        self._by_path: dict[Path, str] = {}
        self._by_id: dict[str, str] = {}
        for row in _rows(path):
            text = row.get("text") or ""
            if row.get("file"):
                self._by_path[self._folder / row["file"]] = text
                self._by_id.setdefault(Path(row["file"]).name, text)
            if row.get("id"):
                self._by_id[row["id"]] = text

    def text_of(self, audio: Path) -> str | None:
        """The text of a file: by its path from the manifest's folder, else by name, else by id."""
        by_path = self._by_path.get(audio.resolve())
        if by_path is not None:
            return by_path
        return self._by_id.get(audio.name, self._by_id.get(audio.stem))


def references(audio: Sequence[Path], text: str | None, manifest: Path | None) -> Mapping[Path, str]:
    """The reference text of each file that has one.

    Args:
        audio: The files.
        text: The text of the only file.
        manifest: Where to look; without one, the nearest ``manifest.tsv`` in a file's folder or the two above it.

    Raises:
        BadParameter: ``text`` with several files, or a manifest that cannot be read.
    """
    if text is not None:
        if len(set(audio)) != 1:
            raise BadParameter("--text is the reference of one file; use --manifest for several")
        return {audio[0]: text}
    read: dict[Path, Manifest] = {}
    found: dict[Path, str] = {}
    for path in audio:
        source = manifest or _manifest_near(path)
        if source is None:
            continue
        if source not in read:
            read[source] = Manifest(source)
        reference = read[source].text_of(path)
        if reference is not None:
            found[path] = reference
    return found


def _manifest_near(audio: Path) -> Path | None:
    nearest = list(audio.resolve().parents)[:LEVELS]
    return next((folder / MANIFEST_NAME for folder in nearest if (folder / MANIFEST_NAME).is_file()), None)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            rows = list(table)
            columns = table.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadParameter(f"{path}: cannot be read as a manifest: {error}") from error
    if "text" not in columns or not {"file", "id"} & set(columns):
        raise BadParameter(f"{path}: needs the columns text and file or id, has: {', '.join(columns) or 'none'}")
    return rows
