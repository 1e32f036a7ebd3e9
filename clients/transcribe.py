"""``moorage transcribe``: files to text in this process, as fast as it goes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from clients.audio_file import AudioFile
from clients.transcript import FileRecord
from clients.transcription import Transcription
from server.clock import SystemClock
from server.composition import engine_config
from server.config import MoorageConfig, Tree, load_config
from server.engine import Engine
from server.errors import BadAudio, ConfigError, MoorageError
from server.worker import WorkerKind

LONG_S = 30.0
"""Audio from which on a progress bar is worth its line."""
DEFAULT_AT_ONCE = 16
"""Files side by side, all instances together, where the configuration gives no number of slots."""
EXIT_FAULT, EXIT_CONFIG = 1, 2


class Format(Enum):
    """How text is printed."""

    TEXT = "text"
    JSON = "json"


def command(  # noqa: PLR0913  # the options of a command are its parameters
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="WAV, FLAC, MP3, Ogg/Opus; any rate.")],
    output: Annotated[Format, typer.Option("--format", help="Lines of text, or one JSON array.")] = Format.TEXT,
    config: Annotated[Path | None, typer.Option(help="Configuration (TOML).")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N, for both models.")] = None,
    live_instances: Annotated[int | None, typer.Option(help="Copies of the live model.")] = None,
    live_slots: Annotated[
        int | None, typer.Option(min=1, help="Files side by side on each copy; they share batches.")
    ] = None,
    final_model: Annotated[str | None, typer.Option(help="Model of the second pass; none: no second pass.")] = None,
    final_instances: Annotated[int | None, typer.Option(help="Copies of the final model.")] = None,
) -> None:
    """Transcribe files with the same engine as the service, without a server."""
    errors = Console(stderr=True, highlight=False)
    overrides: Tree = {
        "live": _given(instances=live_instances, slots=live_slots, device=device),
        "final": _given(instances=final_instances, model=final_model, device=device),
    }
    try:
        loaded = sized(load_config(config, overrides=overrides), len(files))
        with Show(files, output, errors) as show:
            asyncio.run(transcribe_files(files, loaded, show))
    except MoorageError as error:
        errors.print(str(error), style="red", soft_wrap=True, markup=False)
        raise typer.Exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAULT) from error
    if output is Format.JSON:
        json.dump(show.records(), sys.stdout, ensure_ascii=False, indent=2)
        sys.stdout.write("\n")
    if any("error" in record for record in show.records()):
        raise typer.Exit(EXIT_FAULT)


def sized(config: MoorageConfig, n_files: int) -> MoorageConfig:
    """The configuration with a slot for each file that is read side by side; what a measurement would say is how many
    keep up with real time, which no file has to."""
    live = config.live
    slots = live.slots or -(-min(DEFAULT_AT_ONCE, n_files) // live.instances)
    return config.model_copy(update={"live": live.model_copy(update={"slots": min(slots, live.max_slots)})})


def _given(**options: str | int | None) -> Tree:
    return {name: value for name, value in options.items() if value is not None}


@asynccontextmanager
async def embedded_engine(config: MoorageConfig) -> AsyncIterator[Engine]:
    """The engine of the service, its models in threads of this process, with no client to time out."""
    settings = replace(engine_config(config, WorkerKind.THREAD), idle_timeout_s=0.0)
    engine = Engine(settings, SystemClock())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def transcribe_files(files: Sequence[Path], config: MoorageConfig, show: "Show") -> None:
    """Transcribe all files; ``show`` is told of progress and records.

    Args:
        files: What to transcribe.
        config: The engine's; its slots are how many files are open at once.
        show: Has the records afterwards.

    Raises:
        ConfigError: The models refuse their settings.
        InstanceFailed: A model cannot be loaded.
    """
    async with embedded_engine(config) as engine:
        show.begin()
        at_once = config.live.slots * config.live.instances
        await Transcription(engine=engine, at_once=at_once, on_progress=show.advance, on_record=show.keep).run(files)


class Show:
    """Text and errors in the order of the files, as they come; on a terminal a bar if there is much audio."""

    def __init__(self, files: Sequence[Path], output: Format, errors: Console) -> None:
        self._records: dict[int, FileRecord] = {}
        self._n_told = 0
        self._files = files
        self._prints_text = output is Format.TEXT
        self._errors = errors
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

    def _tell(self, record: FileRecord) -> None:
        if self._prints_text and (record["text"] or "error" not in record):
            self._tell_text(record)
        if "error" in record:
            self._errors.print(f"{record['file']}: {record['error']}", style="red", soft_wrap=True, markup=False)

    def _tell_text(self, record: FileRecord) -> None:
        """One file: a line per utterance. Several: a line per file, with its name."""
        if len(self._files) > 1:
            lines = [f"{record['file']}\t{record['text']}"]
        else:
            lines = [segment["text"] for segment in record["segments"] if segment["text"]]
        if self._task is not None:
            self._progress.stop()  # while it runs, rich sends stdout where the bar is
        for line in lines:
            print(line, flush=True)
        if self._task is not None:
            self._progress.start()


def _seconds(path: Path) -> float:
    """Length by the header; 0 of what cannot be read."""
    try:
        with AudioFile(path) as file:
            return file.seconds
    except BadAudio:
        return 0.0
