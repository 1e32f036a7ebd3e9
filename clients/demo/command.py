"""``moorage demo``."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from server.errors import BadParameter, ConfigError, MoorageError

EXIT_NOT_SHOWN: Final = 1
EXIT_CONFIG: Final = 2
QUICK_LOADS: Final = (1, 2, 8)
LOADS: Final = (1, 2, 4, 8)


def build_cli() -> typer.Typer:
    """The commands below ``demo``."""
    cli = typer.Typer(no_args_is_help=True, help="What goes wrong under the wrong scheduler.")
    cli.callback()(demo)
    cli.command("reset", short_help="The mid-utterance reset: the live model under both schedulers.")(reset)
    return cli


def demo() -> None:
    """What goes wrong under the wrong scheduler, with the real live model."""


def reset(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer utterances, at 1, 2 and 8 clients: under 3 minutes on 2 cores.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="Configuration (TOML) under the demonstration's own; else the defaults.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, the picture and both configurations.")] = Path(
        "reset_demo"
    ),
    audio: Annotated[
        Path | None, typer.Option(help="Folder of recordings with a manifest.tsv (file, text); else audio_fixtures.")
    ] = None,
) -> None:
    """Serve the live model twice on two instances, under the dynamic and under the sequence batcher, and compare.

    Exit status 0: the dynamic batcher's live text of the longest utterances at the highest load is at least 10 points
    of WER worse, and the sequence batcher's is at every load word for word what each utterance is alone.
    """
    from clients.demo.files import write_files
    from clients.demo.outcome import SchedulerName
    from clients.demo.report import print_case, print_fix, print_table, print_verdict
    from clients.demo.reset import ResetDemo
    from clients.demo.settings import demo_config
    from clients.demo.utterances import FIXTURES, as_utterances, quick_choice, read_recordings

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
    console, began_s = Console(highlight=False), time.monotonic()
    wrong, right = demo_config(SchedulerName.DYNAMIC), demo_config(SchedulerName.SEQUENCE)
    try:
        recordings = read_recordings(audio or FIXTURES)
        with console.status("") as status:
            show = ResetDemo(
                base=config,
                loads=QUICK_LOADS if quick else LOADS,
                utterances_of=lambda ticks: (quick_choice if quick else list)(as_utterances(recordings, ticks)),
                on_progress=status.update,
                on_done=lambda words: console.print(words, style="dim"),
            )
            asyncio.run(show.run(wrong))
            print_fix(console, wrong, right)
            asyncio.run(show.run(right))
    except BadParameter as error:
        raise typer.BadParameter(str(error)) from error
    except MoorageError as error:
        Console(stderr=True, highlight=False).print(str(error), style="red", soft_wrap=True, markup=False)
        raise typer.Exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_NOT_SHOWN) from error
    outcome = show.outcome
    print_table(console, outcome)
    for case in outcome.cases():
        print_case(console, case)
    verdict = outcome.verdict()
    print_verdict(console, outcome, verdict)
    for path in write_files(out, outcome, verdict, (wrong, right)):
        console.print(f"wrote {path}", style="dim", soft_wrap=True, markup=False)
    console.print(f"{time.monotonic() - began_s:.0f} s", style="dim")
    if not verdict.holds:
        raise typer.Exit(EXIT_NOT_SHOWN)
