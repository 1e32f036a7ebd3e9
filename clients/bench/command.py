"""``moorage bench``."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clients.bench.cases import FULL, QUICK, CaseName
from clients.bench.figures import BenchFigures
from clients.bench.machine import describe_machine
from clients.bench.report import print_rich, to_json, to_markdown
from clients.bench.run import Bench
from clients.bench.track import Track, WordAligner, default_files, make_track
from clients.service_options import CaOption, KeyOption, access_of
from server.configuration.config import load_config
from server.errors import BadAudio, BadParameter, ConfigError, MoorageError

EXIT_FAULT = 1
EXIT_CONFIG = 2


class Format(Enum):
    """How figures are printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def command(  # noqa: PLR0913  # the options of a command are its parameters
    quick: Annotated[bool, typer.Option("--quick", help="Under two minutes in all; rougher figures.")] = False,
    only: Annotated[list[CaseName] | None, typer.Option(help="Cases to run; default: all.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How the figures are printed.")] = Format.TABLE,
    config: Annotated[
        Path | None, typer.Option(help="Configuration whose [live] and [final] are measured; else the defaults.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Load this running service, without a bare loop; --only names its models.")
    ] = None,
    most_streams: Annotated[int, typer.Option(min=1, max=10_000, help="With --url: never more streams.")] = 64,
    chunk_ms: Annotated[int, typer.Option(min=20, max=100, help="Audio of one message.")] = 80,
    speech: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Recordings to play.")] = None,
    key: KeyOption = None,
    ca: CaOption = None,
) -> None:
    """Measure how many streams this machine holds: the models alone, then served to clients in another process."""
    errors = Console(stderr=True, highlight=False)
    effort = QUICK if quick else FULL
    names = list(dict.fromkeys(only or (CaseName.LIVE,) if url else only or tuple(CaseName)))
    if url is not None and len(names) > 1:
        raise typer.BadParameter("with --url one case is measured; --only names it")
    try:
        with errors.status("reading speech") as status:
            files = speech or default_files(effort.files)
            track = _track(files, errors, with_words=any(name is not CaseName.LIGHT for name in names))
            bench = Bench(config=load_config(config), track=track, effort=effort, chunk_ms=chunk_ms, say=status.update)
            if url is None:
                cases = bench.run(names)
            else:
                cases = [bench.run_elsewhere(names[0], url, access_of(url, key, ca), most_streams)]
    except (MoorageError, BadAudio, BadParameter) as error:
        errors.print(str(error), style="red", soft_wrap=True, markup=False)
        raise typer.Exit(EXIT_CONFIG if isinstance(error, ConfigError | BadParameter) else EXIT_FAULT) from error
    _print(
        BenchFigures(
            machine=describe_machine(),
            speech=track.description,
            chunk_ms=chunk_ms,
            seconds=effort.measure_s,
            cases=tuple(cases),
        ),
        output,
    )
    if any(case.held is None for case in cases):
        raise typer.Exit(EXIT_FAULT)


def _print(figures: BenchFigures, output: Format) -> None:
    match output:
        case Format.TABLE:
            print_rich(Console(highlight=False), figures)
        case Format.MARKDOWN:
            typer.echo(to_markdown(figures))
        case Format.JSON:
            typer.echo(to_json(figures))


def _track(files: list[Path], errors: Console, *, with_words: bool) -> Track:
    aligner = _aligner(errors) if with_words else None
    return make_track(files, aligner)


def _aligner(errors: Console) -> WordAligner | None:
    """The forced aligner; imported here because it needs torch."""
    from asr_model.alignment import Aligner
    from asr_model.moonshine.weights import WeightsError, load_weights

    try:
        return Aligner(load_weights())
    except WeightsError as error:
        errors.print(f"no word and final delays: {error}", style="yellow", markup=False)
        return None
