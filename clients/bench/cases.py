"""What is measured, and how thoroughly."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.configuration.config import FinalConfig, LiveConfig, MoorageConfig
from server.configuration.environment import PREFIX, SEPARATOR
from server.configuration.report import toml_value

LIGHT_MODEL: Final = "light-lstm"


class CaseName(Enum):
    """The models of a case."""

    LIVE = "live"
    FINALS = "finals"
    LIGHT = "light"


TITLES: Final = {
    CaseName.LIVE: "live model, no finals",
    CaseName.FINALS: "live model, finals on",
    CaseName.LIGHT: "light model",
}
TICKS: Final = {CaseName.LIVE: (3_840, 511), CaseName.FINALS: (3_840, 511), CaseName.LIGHT: (2_560, 240)}
"""Samples of a tick and of its look-ahead, for a service that runs elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long everything runs."""

    files: int
    """Recordings of the default speech."""
    settle_ticks: int
    """Bare steps that are not timed …"""
    timed_ticks: int
    """… and those that are."""
    bare_limit_s: float
    """Of one batch size; it may end before all ticks are through."""
    settle_s: float
    """Of a trial: streams begin, nothing is measured."""
    measure_s: float
    trials: int
    """To find the streams that are held, from the first that was."""
    confirmations: int
    """Trials at what was found, between two passes of the bare loop; fewer streams as long as most of them fail."""
    light_load_s: float
    """Measured time of a trial with few streams; 0: none."""
    budget_s: float
    """Time for everything: each case ends its search when its share is used up. 0: without end."""


QUICK: Final = Effort(
    files=3,
    settle_ticks=5,
    timed_ticks=10,
    bare_limit_s=2.0,
    settle_s=1.5,
    measure_s=4.0,
    trials=4,
    confirmations=0,
    light_load_s=0.0,
    budget_s=100.0,
)
FULL: Final = Effort(
    files=6,
    settle_ticks=8,
    timed_ticks=40,
    bare_limit_s=15.0,
    settle_s=4.0,
    measure_s=15.0,
    trials=7,
    confirmations=3,
    light_load_s=30.0,
    budget_s=0.0,
)


def case_config(config: MoorageConfig, case: CaseName) -> MoorageConfig:
    """The configuration with the models of a case; instances, threads and devices stay."""
    live, final = config.live, config.final
    if case is CaseName.LIGHT:
        live = live.model_copy(update={"model": LIGHT_MODEL, "options": {}})
    if case is not CaseName.FINALS:
        final = FinalConfig(model="none")
    elif not final.enabled:
        final = FinalConfig()
    return config.model_copy(update={"live": live, "final": final})


def environment_of(config: MoorageConfig, slots: int) -> Mapping[str, str]:
    """The environment of a service with these models and as many slots on each instance. Of the other settings it has
    the defaults: keys and certificates are for others than this machine."""
    live = config.live.model_copy(update={"slots": slots, "max_slots": max(slots, config.live.max_slots)})
    kept = {name: value for name, value in os.environ.items() if not (name.startswith(PREFIX) and SEPARATOR in name)}
    settings = {"LOG__LEVEL": "warning", **_settings("LIVE", live), **_settings("FINAL", config.final)}
    return kept | {PREFIX + name: value for name, value in settings.items()}


def _settings(section: str, model: LiveConfig | FinalConfig) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if name == "options":
            found |= {f"{section}__OPTIONS__{key.upper()}": json.dumps(each) for key, each in value.items()}
        elif name != "resources":  # what models of the service share, a case has for itself
            found[f"{section}__{name.upper()}"] = value if isinstance(value, str) else toml_value(name, value)
    return found
