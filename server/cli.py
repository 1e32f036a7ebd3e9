"""The command line of ``moorage``."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from server.configuration.config import Tree, load_config
from server.errors import ConfigError, MoorageError

EXIT_FAULT = 1
EXIT_CONFIG = 2


def _tell_version(is_wanted: bool) -> None:
    if is_wanted:
        from server.composition import package_version

        typer.echo(f"moorage {package_version()}")
        raise typer.Exit


def serve(  # noqa: PLR0913  # the options of a command are its parameters
    config: Annotated[Path | None, typer.Option(help="Configuration (TOML); else the defaults.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes any free one.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N, for both models.")] = None,
    live_instances: Annotated[int | None, typer.Option(help="Copies of the live model.")] = None,
    live_slots: Annotated[int | None, typer.Option(help="Streams per live instance; 0 measures.")] = None,
    final_model: Annotated[str | None, typer.Option(help="Model of the second pass; none: no second pass.")] = None,
    final_instances: Annotated[int | None, typer.Option(help="Copies of the final model.")] = None,
) -> None:
    """Start the service."""
    from server.app import run_service
    from server.composition import check_models
    from server.log import configure_logging

    overrides: Tree = {
        "server": _given(host=host, port=port),
        "live": _given(instances=live_instances, slots=live_slots, device=device),
        "final": _given(instances=final_instances, model=final_model, device=device),
    }
    load = partial(load_config, config, overrides=overrides)
    try:
        loaded = load()
        check_models(loaded, is_proved_later=True)
        configure_logging(loaded.log.level, loaded.log.format)
        asyncio.run(run_service(loaded, Console(highlight=False), load))
    except MoorageError as error:
        _say_error(error)
        raise typer.Exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAULT) from error


def moorage(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version and end.")
    ] = False,
) -> None:
    """Moorage: streaming speech recognition."""


def build_cli() -> typer.Typer:
    """All commands. The clients' modules are part of it, their heavy imports wait until a command runs."""
    from clients.bench import command as bench
    from clients.demo import command as demo
    from clients.mic import command as mic
    from clients.replay import command as replay
    from clients.transcribe import command as transcribe
    from server.access import keys
    from server.configuration import commands as config_commands
    from server.doctor import command as doctor

    cli = typer.Typer(
        no_args_is_help=True, add_completion=False, help="Moorage: streaming speech recognition.", rich_markup_mode=None
    )
    cli.callback()(moorage)
    cli.command("serve")(serve)
    cli.command("mic", short_help="Stream the microphone; text as it is spoken.")(mic.command)
    cli.command("replay", short_help="Stream files as microphones would; measure.")(replay.command)
    cli.command("transcribe", short_help="Files to text or subtitles, without a service.")(transcribe.command)
    cli.command("bench", short_help="Measure how many streams this machine holds.")(bench.command)
    cli.command("doctor")(doctor.command)
    cli.add_typer(config_commands.build_cli(), name="config")
    cli.add_typer(keys.build_cli(), name="key")
    cli.add_typer(demo.build_cli(), name="demo")
    return cli


def _given(**options: str | int | None) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _say_error(error: MoorageError) -> None:
    Console(stderr=True, highlight=False).print(str(error), style="red", soft_wrap=True, markup=False)
