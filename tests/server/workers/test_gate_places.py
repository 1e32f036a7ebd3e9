"""Places in the device gate: two instances never have one."""

import pytest

from server.errors import ConfigError
from server.workers.device_gate import cells_needed
from server.workers.gate_places import GatePlaces


def test_places_are_taken_once_and_come_back() -> None:
    places = GatePlaces([0] * cells_needed(4, 4), 4)
    first, second = places.take(2), places.take(1)
    assert len({*first, *second}) == 3
    with pytest.raises(ConfigError, match="2 more instances: the service has room for 1"):
        places.take(2)
    places.give_back(first)
    assert len({*places.take(3), *second}) == 4
