"""Cases: their models, and the environment of the service that runs them."""

import pytest

from clients.bench.cases import CaseName, case_config, environment_of
from server.configuration.config import FinalConfig, LiveConfig, MoorageConfig, load_config
from server.configuration.model_sections import InstanceGroup

CONFIG = MoorageConfig(
    live=LiveConfig(instances=3, device="cpu", threads=2, options={"agree": 3, "checkpoint": "1.safetensors"}),
    final=FinalConfig(model="none", threads=4, max_batch_s=90.0),
)


@pytest.mark.parametrize(
    ("case", "live", "final"),
    [
        (CaseName.LIVE, "moonshine-live", "none"),
        (CaseName.FINALS, "moonshine-live", "moonshine-base"),
        (CaseName.LIGHT, "light-lstm", "none"),
    ],
)
def test_models_of_a_case(case: CaseName, live: str, final: str) -> None:
    found = case_config(CONFIG, case)
    assert (found.live.model, found.final.model) == (live, final)
    assert (found.live.instances, found.live.threads, found.live.device) == (3, 2, "cpu")


def test_the_service_has_the_same_models_and_nothing_else_of_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_SERVER__PORT", "1")
    monkeypatch.setenv("MOORAGE_MOONSHINE", "/weights")
    environment = environment_of(CONFIG, 7)
    assert "MOORAGE_SERVER__PORT" not in environment
    assert environment["MOORAGE_MOONSHINE"] == "/weights"
    found = load_config(environment=environment)
    assert found.live == CONFIG.live.model_copy(update={"slots": 7})
    assert found.final == CONFIG.final
    assert found.server == MoorageConfig().server


def test_more_slots_than_allowed_by_default() -> None:
    found = load_config(environment=environment_of(MoorageConfig(), 3_000))
    assert (found.live.slots, found.live.max_slots) == (3_000, 3_000)


def test_places_of_instances_are_handed_on() -> None:
    places = (InstanceGroup(device="cpu", count=2), InstanceGroup(device="cuda:1", threads=3))
    config = MoorageConfig(
        live=LiveConfig(instances=places, preferred_sizes=(4, 2), resources={"gpu": 1}), resources={"gpu": 1}
    )
    found = load_config(environment=environment_of(config, 7)).live
    assert (found.instances, found.preferred_sizes, found.resources) == (places, (4, 2), {})
