"""Where transcripts go that do not go to stdout: checked before any work is done, written whole or not at all."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import ClassVar

from clients.transcribe.transcript_format import Format
from server.errors import BadParameter, MoorageError


class CannotWrite(MoorageError):
    """A transcript that could not be written."""

    code: ClassVar[str] = "cannot_write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What ``--format``, ``--output`` and ``--output-dir`` say; neither of the last two: stdout."""

    form: Format
    file: Path | None = None
    """One file for all transcripts."""
    folder: Path | None = None
    """A folder for one file each."""

    @property
    def is_stdout(self) -> bool:
        """Whether transcripts are printed."""
        return self.file is None and self.folder is None

    def paths(self, recordings: Sequence[Path]) -> Mapping[Path, Path]:
        """The file in the folder for each recording; none without a folder.

        Raises:
            BadParameter: Options or recordings that do not go together, or a place where nothing can be written.
        """
        if self.file is not None and self.folder is not None:
            raise BadParameter("--output and --output-dir: only one of them")
        if self.folder is None:
            if len(recordings) > 1 and not self.form.joins_files:
                raise BadParameter(f"{self.form.value} of {len(recordings)} files: --output-dir must say where to")
            if self.file is not None:
                _check_target(self.file, recordings)
            return {}
        targets: dict[Path, Path] = {}
        for recording in dict.fromkeys(recordings):
            target = self.folder / f"{recording.stem}.{self.form.value}"
            if target in targets.values():
                raise BadParameter(f"{target} would be the transcript of more than one file")
            _check_target(target, recordings)
            targets[recording] = target
        return targets

    def prepare(self) -> None:
        """Makes the folder.

        Raises:
            CannotWrite: It cannot be, or nothing can be written there.
        """
        folder = self.folder if self.file is None else self.file.parent
        if folder is None:
            return
        try:
            if self.folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise CannotWrite(f"{folder}: cannot be written to ({error.strerror})") from error


def write_whole(path: Path, text: str) -> None:
    """The file with that text, in place of what it was; if writing fails, what it was stays.

    Raises:
        CannotWrite: The disk is full, or the like.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf8", errors="replace", newline="\n")
        part.replace(path)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _check_target(target: Path, recordings: Sequence[Path]) -> None:
    if target.is_dir():
        raise BadParameter(f"{target}: is a directory")
    if any(target.resolve() == recording.resolve() for recording in recordings):
        raise BadParameter(f"{target}: is a file to be transcribed")
