"""Who has which place in the device gate, so that models come and go while others run. Used on the event loop alone."""

from typing import Final

from server.errors import ConfigError
from server.workers.device_gate import Cells

PLACES: Final = 128
"""Instances that a service holds at once, those included that are being replaced."""


class GatePlaces:
    """The places of one gate. A place serves an instance of either kind.

    Args:
        cells: ``cells_needed(n_places, n_places)`` integers, seen by all workers of an engine.
        n_places: How many instances there may be.
    """

    def __init__(self, cells: Cells, n_places: int = PLACES) -> None:
        self.cells: Final = cells
        self._free = set(range(n_places))

    def take(self, n_instances: int) -> tuple[int, ...]:
        """Places for so many instances, lowest first.

        Raises:
            ConfigError: There are not that many left.
        """
        if n_instances > len(self._free):
            raise ConfigError(f"{n_instances} more instances: the service has room for {len(self._free)}")
        taken = tuple(sorted(self._free)[:n_instances])
        self._free.difference_update(taken)
        return taken

    def give_back(self, places: tuple[int, ...]) -> None:
        """Their instances are gone."""
        self._free.update(places)
