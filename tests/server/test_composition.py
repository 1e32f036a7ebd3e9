"""From the configuration to the engine's: every field arrives."""

import pytest

from asr_model.registry import FACTORIES
from server.composition import ARCHITECTURES, engine_config, model_cards, package_version
from server.configuration.config import FinalConfig, LiveConfig, MoorageConfig, ServerConfig
from server.errors import ConfigError
from server.workers.worker import WorkerKind

LIVE = LiveConfig(
    instances=2,
    device="cuda:1",
    slots=3,
    max_slots=4,
    load_fraction=0.5,
    max_batch=6,
    max_delay_ms=7.5,
    max_queued_s=8.5,
    threads=9,
    options={"a": 1},
)
FINAL = FinalConfig(
    instances=11,
    device="cpu",
    target_size=12,
    window_ms=13.5,
    max_queued=14,
    max_batch_s=50.5,
    threads=16,
    options={"b": True},
)


def test_every_field_arrives() -> None:
    config = MoorageConfig(server=ServerConfig(idle_timeout_s=2.5, max_queued_finals=17), live=LIVE, final=FINAL)
    engine = engine_config(config, WorkerKind.THREAD)
    live, final = engine.live, engine.final
    assert final is not None
    assert (engine.idle_timeout_s, engine.max_finals, engine.worker_kind) == (2.5, 17, WorkerKind.THREAD)
    assert (live.source.name, live.source.options) == ("moonshine-live", {"a": 1})
    assert (live.instances, live.device, live.slots, live.threads) == (2, "cuda:1", 3, 9)
    assert (live.limits.max_slots, live.limits.load_fraction, live.limits.max_batch) == (4, 0.5, 6)
    assert (live.max_delay_ms, live.max_queued_s) == (7.5, 8.5)
    assert (final.source.name, final.source.options) == ("moonshine-base", {"b": True})
    assert (final.instances, final.device, final.target_size, final.threads) == (11, "cpu", 12, 16)
    assert (final.window_ms, final.max_queued, final.max_batch_s) == (13.5, 14, 50.5)


def test_no_second_pass() -> None:
    config = MoorageConfig(final=FinalConfig(model="none"))
    assert engine_config(config).final is None
    assert model_cards(config).final is None


def test_models_run_in_processes_unless_said_otherwise() -> None:
    assert engine_config(MoorageConfig()).worker_kind is WorkerKind.PROCESS


def test_cards() -> None:
    cards = model_cards(MoorageConfig())
    assert cards.final is not None
    assert (cards.live.name, cards.final.name) == ("moonshine-live", "moonshine-base")
    assert cards.live.version == package_version()
    assert cards.live.model_uuid != cards.final.model_uuid


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            MoorageConfig(live=LiveConfig(model="whisper")),
            "live.model: given 'whisper', allowed: moonshine-live, moonshine-base, light-lstm",
        ),
        (
            MoorageConfig(final=FinalConfig(model="whisper")),
            "final.model: given 'whisper', allowed: moonshine-live, moonshine-base, light-lstm, none",
        ),
    ],
)
def test_unknown_models(config: MoorageConfig, message: str) -> None:
    for build in (engine_config, model_cards):
        with pytest.raises(ConfigError) as caught:
            build(config)
        assert str(caught.value) == message


def test_the_names_are_those_of_the_registry() -> None:
    assert set(ARCHITECTURES) == set(FACTORIES)
