"""``moorage key``: makes API keys. The service itself only ever knows their hashes."""

import hashlib
import re
import secrets
from typing import Annotated, Final

import typer

from server.configuration.config import NAME_PATTERN, PATTERN_WORDS, AccessKey

PREFIX: Final = "moorage_"
"""Tells a key that turns up where it should not be, to people and to scanners of repositories."""
KEY_BYTES: Final = 24


def new_key() -> str:
    """A key of 192 random bits, of letters and digits alone, so that a header and a websocket subprotocol take it."""
    return PREFIX + secrets.token_hex(KEY_BYTES)


def hash_of(key: str) -> str:
    """What the configuration has in place of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def toml_of(key: AccessKey) -> str:
    """The lines for the configuration; what has its default is left out."""
    lines = ["[[access.keys]]", f'name = "{key.name}"', f'sha256 = "{key.sha256}"']
    if key.max_streams:
        lines.append(f"max_streams = {key.max_streams}")
    if key.max_audio_s_per_minute:
        lines.append(f"max_audio_s_per_minute = {key.max_audio_s_per_minute}")
    if key.priority:
        lines.append(f"priority = {key.priority}")
    return "\n".join(lines)


def new(
    name: Annotated[str, typer.Argument(help="Whose key it is; shown in logs and messages.")],
    max_streams: Annotated[int, typer.Option(min=0, max=1_000_000, help="Streams at the same time; 0: no limit.")] = 0,
    max_audio_s_per_minute: Annotated[
        float,
        typer.Option(min=0.0, max=10_000_000.0, help="Seconds of audio per minute, all streams together; 0: no limit."),
    ] = 0.0,
) -> None:
    """Make an API key: prints it, this once, and the lines for moorage.toml, which do not contain it."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise typer.BadParameter(f"{name!r}; allowed: {PATTERN_WORDS[NAME_PATTERN]}")
    key = new_key()
    entry = AccessKey(
        name=name,
        sha256=hash_of(key),
        max_streams=max_streams,
        max_audio_s_per_minute=max_audio_s_per_minute,
    )
    typer.echo(f"key, shown this once, for the client alone:\n\n{key}\n\nfor moorage.toml:\n\n{toml_of(entry)}")


def build_cli() -> typer.Typer:
    """The commands of ``moorage key``."""
    cli = typer.Typer(no_args_is_help=True, help="API keys.")

    @cli.callback()
    def key() -> None:
        """API keys."""

    cli.command("new")(new)
    return cli
