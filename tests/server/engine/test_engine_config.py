"""What of the measured streams is left once final passes share the cores."""

from dataclasses import replace

import pytest

from server.engine import engine_config
from tests.support.engines import CONFIG


@pytest.mark.parametrize(
    ("cores", "instances", "share"),
    [
        (2, 2, 0.63),  # two live instances fill two cores: a third fewer
        (1, 1, 0.63),
        (2, 1, 1.0),  # a core is left for finals
        (4, 3, 0.84),
        (1, 4, 0.63),  # more threads than cores do no more
    ],
)
def test_finals_take_their_part_of_the_cores_that_live_instances_fill(
    monkeypatch: pytest.MonkeyPatch, cores: int, instances: int, share: float
) -> None:
    monkeypatch.setattr(engine_config, "_usable_cores", lambda: cores)
    config = replace(CONFIG, live=replace(CONFIG.live, instances=instances, threads=1))
    assert config.live_pool().limits.cpu_share == pytest.approx(share, abs=0.01)


def test_without_finals_or_with_finals_elsewhere_nothing_is_taken() -> None:
    assert replace(CONFIG, final=None).live_pool().limits.cpu_share == 1.0
    assert CONFIG.final is not None
    elsewhere = replace(CONFIG, final=replace(CONFIG.final, device="cuda:0"))
    assert elsewhere.live_pool().limits.cpu_share == 1.0
