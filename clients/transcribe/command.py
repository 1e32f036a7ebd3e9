"""``moorage transcribe``: files to text in this process, as fast as it goes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clients.transcribe.transcript_files import Destination
from clients.transcribe.transcript_format import Format, format_named
from clients.transcribe.transcription import Transcription
from clients.transcribe.view import Show
from server.audit.auditor import AuditSettings
from server.clock import SystemClock
from server.composition import engine_config
from server.configuration.config import MoorageConfig, Tree, load_config
from server.engine.engine import Engine
from server.errors import BadParameter, ConfigError, MoorageError
from server.workers.worker import WorkerKind

DEFAULT_AT_ONCE = 16
"""Files side by side, all instances together, where the configuration gives no number of slots."""
EXIT_FAULT, EXIT_CONFIG = 1, 2


def command(  # noqa: PLR0913  # the options of a command are its parameters
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="WAV, FLAC, MP3, Ogg/Opus; any rate.")],
    form: Annotated[
        Format | None,
        typer.Option("--format", help="txt: lines; json: one array; srt, vtt: subtitles. Else as --output ends."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file, not to stdout.")] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="Write a file for each: NAME.txt, NAME.srt …; made if it is not there.")
    ] = None,
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
        destination = Destination(form=form or format_named(output), file=output, folder=output_dir)
        show = Show(files, destination, errors)
        loaded = sized(load_config(config, overrides=overrides), len(files))
        destination.prepare()
        with show:
            asyncio.run(transcribe_files(files, loaded, show))
        show.finish()
    except BadParameter as error:
        raise typer.BadParameter(str(error)) from error
    except MoorageError as error:
        errors.print(str(error), style="red", soft_wrap=True, markup=False)
        raise typer.Exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAULT) from error
    if show.has_failures:
        raise typer.Exit(EXIT_FAULT)


def sized(config: MoorageConfig, n_files: int) -> MoorageConfig:
    """The configuration with a slot for each file that is read side by side; what a measurement would say is how many
    keep up with real time, which no file has to."""
    live = config.live
    slots = live.slots or -(-min(DEFAULT_AT_ONCE, n_files) // live.n_instances)
    return config.model_copy(update={"live": live.model_copy(update={"slots": min(slots, live.max_slots)})})


def _given(**options: str | int | None) -> Tree:
    return {name: value for name, value in options.items() if value is not None}


@asynccontextmanager
async def embedded_engine(config: MoorageConfig) -> AsyncIterator[Engine]:
    """The engine of the service, its models in threads of this process, with no client to time out, and without what
    serves other clients alone: further models and audits.
    """
    settings = engine_config(config, WorkerKind.THREAD)
    settings = replace(settings, idle_timeout_s=0.0, models=(), audit=AuditSettings(share=0.0))
    engine = Engine(settings, SystemClock())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def transcribe_files(files: Sequence[Path], config: MoorageConfig, show: Show) -> None:
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
        at_once = config.live.slots * config.live.n_instances
        await Transcription(engine=engine, at_once=at_once, on_progress=show.advance, on_record=show.keep).run(files)
