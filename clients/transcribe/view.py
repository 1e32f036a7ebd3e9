"""What ``moorage transcribe`` shows and writes while it works."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from clients.transcribe.audio_file import AudioFile
from clients.transcribe.transcript import FileRecord
from clients.transcribe.transcript_files import CannotWrite, Destination, write_whole
from clients.transcribe.transcript_format import Format, file_text, joined_json, joined_line
from server.errors import BadAudio

LONG_S = 30.0
"""Audio from which on a progress bar is worth its line."""


class Show:
    """Text and errors in the order of the files, as they come; on a terminal a bar if there is much audio.

    Raises:
        BadParameter: Files and destination do not go together.
    """

    def __init__(self, files: Sequence[Path], destination: Destination, errors: Console) -> None:
        self._records: dict[int, FileRecord] = {}
        self._n_told = 0
        self._files = files
        self._destination = destination
        self._target_of = destination.paths(files)
        self._errors = errors
        self._unwritten = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._progress.stop()

    def begin(self) -> None:
        """The models are loaded."""
        total_s = sum(map(_seconds, self._files))
        if total_s >= LONG_S and self._errors.is_terminal:
            self._task = self._progress.add_task("transcribing", total=total_s)
            self._progress.start()

    def advance(self, seconds: float) -> None:
        """So much more audio is read."""
        if self._task is not None:
            self._progress.advance(self._task, seconds)

    def keep(self, index: int, record: FileRecord) -> None:
        """A file is done; it is told once all before it are."""
        self._records[index] = record
        while self._n_told in self._records:
            self._tell(self._records[self._n_told])
            self._n_told += 1

    def records(self) -> list[FileRecord]:
        """Of all files, in the order given; all must be done."""
        return [self._records[index] for index in range(len(self._files))]

    def finish(self) -> None:
        """Everything is done: what can only be written whole is written now.

        Raises:
            CannotWrite: as ``write_whole``.
        """
        if self._target_of:
            return
        form = self._destination.form
        if self._destination.file is not None:
            if form is not Format.JSON and not any(map(_says_something, self._records.values())):
                return  # every file has failed: what the file held is worth more
            write_whole(self._destination.file, self._whole(form))
        elif form is not Format.TXT:
            self._print(self._whole(form))

    @property
    def has_failures(self) -> bool:
        """Whether a file could not be transcribed to its end, or its transcript not be written."""
        return self._unwritten > 0 or any("error" in record for record in self._records.values())

    def _whole(self, form: Format) -> str:
        records = self.records()
        if form is Format.JSON:
            return joined_json(records)
        if len(records) == 1:
            return file_text(records[0], form)
        return "".join(joined_line(record) for record in records if _says_something(record))

    def _tell(self, record: FileRecord) -> None:
        if _says_something(record):
            self._tell_text(record)
        if "error" in record:
            self._tell_error(f"{record['file']}: {record['error']}")

    def _tell_text(self, record: FileRecord) -> None:
        """One file: a line per utterance. Several: a line per file, with its name."""
        target = self._target_of.get(Path(record["file"]))
        if target is not None:
            try:
                write_whole(target, file_text(record, self._destination.form))
            except CannotWrite as error:
                self._unwritten += 1
                self._tell_error(str(error))
        elif self._destination.is_stdout and self._destination.form is Format.TXT:
            self._print(joined_line(record) if len(self._files) > 1 else file_text(record, Format.TXT))

    def _print(self, text: str) -> None:
        if self._task is not None:
            self._progress.stop()  # while it runs, rich sends stdout where the bar is
        print(text, end="", flush=True)
        if self._task is not None:
            self._progress.start()

    def _tell_error(self, text: str) -> None:
        self._errors.print(text, style="red", soft_wrap=True, markup=False)


def _says_something(record: FileRecord) -> bool:
    """Of a file that failed before anything was said there is no transcript."""
    return bool(record["text"]) or "error" not in record


def _seconds(path: Path) -> float:
    """Length by the header; 0 of what cannot be read."""
    try:
        with AudioFile(path) as file:
            return file.seconds
    except BadAudio:
        return 0.0
