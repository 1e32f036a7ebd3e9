"""What all commands that speak to a service have in common: their options, and their exit codes."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from clients.connection import KEY_REFUSED, LOOPBACK, Access, ConnectionFailed, Refused, is_websocket_address
from server.errors import BadParameter

DEFAULT_URL = "ws://127.0.0.1:8765"
EXIT_FAULT = 1
"""Nobody there, the connection lost, a file that cannot be read."""
EXIT_USAGE = 2
"""Options that cannot be."""
EXIT_NO_MICROPHONE = 3
EXIT_KEY_REFUSED = 4
"""401 or 403: the service wants another key, or none from here."""
EXIT_BUSY = 5
"""429 or 503: later it may go."""

KEY_IN_CLEAR = "the key goes over the network in clear: use a wss:// address"

UrlOption = Annotated[str, typer.Option(help="The service.")]
KeyOption = Annotated[
    str | None, typer.Option(envvar="MOORAGE_KEY", show_envvar=True, help="API key, if the service wants one.")
]
CaOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Authorities (PEM) to trust for wss://; else the system's.")
]


def access_of(url: str, key: str | None, ca: Path | None) -> Access:
    """The options as one, checked before anything starts.

    Raises:
        typer.BadParameter: The address is no websocket's, or the key or the file of authorities cannot be used.
    """
    if not is_websocket_address(url):
        raise typer.BadParameter(f"--url: given {url!r}, allowed: ws:// or wss://, then a host, as in {DEFAULT_URL}")
    access = Access(key=key or None, ca_file=ca)
    try:
        access.headers()
        access.tls(url)
    except BadParameter as error:
        raise typer.BadParameter(str(error)) from error
    return access


def goes_in_clear(url: str, access: Access) -> bool:
    """Whether others on the network could read the key."""
    parts = urlsplit(url)
    return access.key is not None and parts.scheme == "ws" and parts.hostname not in LOOPBACK


def exit_code(error: ConnectionFailed) -> int:
    """What a command ends with."""
    if not isinstance(error, Refused):
        return EXIT_FAULT
    if error.status in KEY_REFUSED:
        return EXIT_KEY_REFUSED
    return EXIT_BUSY if error.is_busy else EXIT_FAULT
