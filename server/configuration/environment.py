"""Which environment variables are settings, and which only look like it: a misspelt setting must not be ignored."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from server.errors import ConfigError

PREFIX: Final = "MOORAGE_"
SEPARATOR: Final = "__"
OTHER_VARIABLES: Final = frozenset({"MOORAGE_MOONSHINE", "MOORAGE_KEY", "MOORAGE_SPEECH", "MOORAGE_HYPOTHESIS"})
"""With the prefix, but no settings of the service: Moonshine's weights, a client's API key, and what tests want."""
CONTAINER_LINK: Final = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?")
"""Ends of the variables that Kubernetes and Docker make for a service called moorage or moorage-something."""


def variable_name(path: Iterable[str]) -> str:
    """The variable of a setting: ``server.port`` is ``MOORAGE_SERVER__PORT``."""
    return PREFIX + SEPARATOR.join(path).upper()


def settings_in(environment: Mapping[str, str], known_paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The variables that are settings, by name, with their paths. Whether there is such a setting is not checked.

    Args:
        environment: All variables.
        known_paths: Dotted paths of the settings there are.

    Raises:
        ConfigError: A variable has the prefix but is neither a setting nor one of the others; one line for each.
    """
    settings, faults = {}, []
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX):
            continue
        if SEPARATOR in name:
            settings[name] = tuple(name.removeprefix(PREFIX).lower().split(SEPARATOR))
        elif name not in OTHER_VARIABLES and not _is_container_link(name, text):
            faults.append(f"{name}: not a setting{_suggestion(name, known_paths)}")
    if faults:
        raise ConfigError("\n".join(faults))
    return settings


def _is_container_link(name: str, text: str) -> bool:
    rest = name.removeprefix(PREFIX)
    ends = [match for match in CONTAINER_LINK.finditer(rest) if match.end() == len(rest)]
    if not any(match.start() == 0 or rest[match.start() - 1] == "_" for match in ends):
        return False
    # MOORAGE_SERVER_PORT=9000 is a mistake, MOORAGE_SERVER_PORT=tcp://10.0.0.7:8765 is a link
    return not rest.endswith("PORT") or "SERVICE_PORT" in rest or "://" in text or "_TCP_" in rest or "_UDP_" in rest


def _suggestion(name: str, known_paths: Iterable[str]) -> str:
    variables = [*(variable_name(path.split(".")) for path in known_paths), *OTHER_VARIABLES]
    flat = {each.removeprefix(PREFIX).replace(SEPARATOR, "_"): each for each in variables}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), flat, n=1, cutoff=0.75)
    if not close:
        return f"; settings are named {PREFIX}SECTION{SEPARATOR}FIELD, with two underscores between section and field"
    return f" (did you mean {flat[close[0]]}?)"
