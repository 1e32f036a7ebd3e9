"""The command line of ``moorage``."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from server.config import Tree, load_config
from server.errors import ConfigError, MoorageError

EXIT_FAULT = 1
EXIT_CONFIG = 2
DEFAULT_PATH = Path("moorage.toml")


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
    from server.app import configure_logging, run_service

    overrides: Tree = {
        "server": _given(host=host, port=port),
        "live": _given(instances=live_instances, slots=live_slots, device=device),
        "final": _given(instances=final_instances, model=final_model, device=device),
    }
    try:
        loaded = load_config(config, overrides=overrides)
        configure_logging(loaded.server.log_level)
        asyncio.run(run_service(loaded, Console(highlight=False)))
    except MoorageError as error:
        _say_error(error)
        raise typer.Exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAULT) from error


def check_config(
    path: Annotated[Path, typer.Argument(help="Configuration (TOML).")] = DEFAULT_PATH,
) -> None:
    """Check a configuration, together with the environment; loads no model."""
    from server.composition import engine_config

    try:
        engine_config(load_config(path))
    except ConfigError as error:
        _say_error(error)
        raise typer.Exit(EXIT_CONFIG) from error
    typer.echo(f"{path}: ok")


def build_cli() -> typer.Typer:
    """All commands. The clients' modules are part of it, their heavy imports wait until a command runs."""
    from clients import replay, transcribe

    cli = typer.Typer(
        no_args_is_help=True, add_completion=False, help="Moorage: streaming speech recognition.", rich_markup_mode=None
    )
    cli.command("serve")(serve)
    cli.command("transcribe")(transcribe.command)
    cli.command("replay")(replay.command)
    configuration = typer.Typer(no_args_is_help=True, help="Configuration.")
    configuration.command("check")(check_config)
    cli.add_typer(configuration, name="config")
    return cli


def _given(**options: str | int | None) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _say_error(error: MoorageError) -> None:
    Console(stderr=True, highlight=False).print(str(error), style="red", soft_wrap=True, markup=False)
