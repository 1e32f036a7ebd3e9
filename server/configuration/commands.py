"""``moorage config check|show|reference``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from server.composition import check_models
from server.configuration.config import load_config
from server.configuration.report import config_text, reference
from server.errors import ConfigError

EXIT_CONFIG = 2
DEFAULT_PATH = Path("moorage.toml")


def check(
    path: Annotated[Path, typer.Argument(help="Configuration (TOML).")] = DEFAULT_PATH,
) -> None:
    """Check a configuration, together with the environment and the models' options; loads no model."""
    try:
        check_models(load_config(path))
    except ConfigError as error:
        raise _said(error) from error
    typer.echo(f"{path}: ok")


def show(
    path: Annotated[Path | None, typer.Argument(help="Configuration (TOML); else the defaults.")] = None,
) -> None:
    """Print the configuration in force, with the origin of each value; secrets are hidden."""
    try:
        text = config_text(path)
    except ConfigError as error:
        raise _said(error) from error
    typer.echo(text, nl=False)


def write_reference() -> None:
    """Print the reference of every setting (Markdown)."""
    typer.echo(reference(), nl=False)


def build_cli() -> typer.Typer:
    """The commands."""
    cli = typer.Typer(no_args_is_help=True, help="Configuration.")
    cli.command("check")(check)
    cli.command("show")(show)
    cli.command("reference")(write_reference)
    return cli


def _said(error: ConfigError) -> typer.Exit:
    Console(stderr=True, highlight=False).print(str(error), style="red", soft_wrap=True, markup=False)
    return typer.Exit(EXIT_CONFIG)
