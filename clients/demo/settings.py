"""The two configurations of the demonstration: one file, of which one line is another."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clients.demo.outcome import SchedulerName
from server.configuration.config import MoorageConfig, Tree, load_config

INSTANCES: Final = 2
SLOTS: Final = 16
"""Of each instance, twice as many as there are clients: an instance that is nobody's own then forgets no state for want
of room, so that routing alone is to blame."""
MAX_BATCH: Final = 4
"""Rows of a step: half of the most clients there are, so that two instances have work."""

_TEXT: Final = """\
# The live model of `moorage demo reset`: {instances} instances of one thread.

[live]
instances = {instances}
threads = 1
slots = {slots}
max_batch = {max_batch}
max_delay_ms = 0.0             # a step runs with what is there
{line}

[final]
model = "none"                 # the live text is what is looked at

[audit]
share = 0.0                    # an audit would notice, and would take time from what is compared
"""


_LINES: Final[Mapping[SchedulerName, str]] = {
    SchedulerName.DYNAMIC: (
        'scheduler = "dynamic"          '
        "# `moorage serve` refuses this file; MOORAGE_LIVE__ALLOW_WRONG_SCHEDULER=true overrules it"
    ),
    SchedulerName.SEQUENCE: 'scheduler = "sequence"         # what the model declares, and the probe finds',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """One of the two."""

    scheduler: SchedulerName
    text: str
    """TOML."""

    @property
    def file_name(self) -> str:
        """What it is called where it is written."""
        return f"{self.scheduler.value}.toml"

    @property
    def line(self) -> str:
        """The line that is another in the other one."""
        return next(line for line in self.text.splitlines() if line.startswith("scheduler"))

    @property
    def setting(self) -> str:
        """The same without its comment."""
        return self.line.partition("#")[0].rstrip()

    def load(self, base: Path | None) -> MoorageConfig:
        """The configuration, over that of a file. The switch that lets the wrong one be served is given here and stands
        in neither text, so that nobody copies it.

        Raises:
            ConfigError: The file is wrong, or does not go with this.
        """
        overrides: Tree = tomllib.loads(self.text)
        live = overrides["live"]
        assert isinstance(live, dict), "the text has a section of that name"
        is_wrong = self.scheduler is SchedulerName.DYNAMIC
        return load_config(base, overrides={**overrides, "live": {**live, "allow_wrong_scheduler": is_wrong}})


def demo_config(scheduler: SchedulerName, *, slots: int = SLOTS, max_batch: int = MAX_BATCH) -> DemoConfig:
    """The configuration with that scheduler."""
    text = _TEXT.format(instances=INSTANCES, slots=slots, max_batch=max_batch, line=_LINES[scheduler])
    return DemoConfig(scheduler=scheduler, text=text)
