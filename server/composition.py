"""From the configuration to what the parts are told. Free of torch: models are named here, loaded where they run."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from server.config import FinalConfig, LiveConfig, MoorageConfig
from server.engine_config import EngineConfig, FinalSettings, LiveSettings
from server.errors import ConfigError
from server.orders import LoadLimits, ModelSource
from server.wire.messages import ModelCard, ModelCards
from server.worker import WorkerKind

ARCHITECTURES: Final = {"moonshine-live": "moonshine-streaming-encoder", "moonshine-base": "moonshine"}
"""Models that a configuration can name, and their architecture as clients are told."""


def engine_config(config: MoorageConfig, worker_kind: WorkerKind = WorkerKind.PROCESS) -> EngineConfig:
    """What the engine is told.

    Raises:
        ConfigError: A model is not known.
    """
    return EngineConfig(
        live=_live_settings(config.live),
        final=_final_settings(config.final) if config.final.enabled else None,
        worker_kind=worker_kind,
        idle_timeout_s=config.server.idle_timeout_s,
        max_finals=config.server.max_queued_finals,
    )


def model_cards(config: MoorageConfig) -> ModelCards:
    """What clients are told of the models.

    Raises:
        ConfigError: A model is not known.
    """
    final = _card("final", config.final.model) if config.final.enabled else None
    return ModelCards(live=_card("live", config.live.model), final=final)


def package_version() -> str:
    """Of Moorage, as installed."""
    try:
        return version("moorage")
    except PackageNotFoundError:
        return "0+unknown"


def _live_settings(live: LiveConfig) -> LiveSettings:
    return LiveSettings(
        source=_source("live", live),
        instances=live.instances,
        device=live.device,
        threads=live.threads,
        slots=live.slots,
        limits=LoadLimits(max_slots=live.max_slots, load_fraction=live.load_fraction, max_batch=live.max_batch),
        max_delay_ms=live.max_delay_ms,
        max_queued_s=live.max_queued_s,
    )


def _final_settings(final: FinalConfig) -> FinalSettings:
    return FinalSettings(
        source=_source("final", final),
        instances=final.instances,
        device=final.device,
        threads=final.threads,
        target_size=final.target_size,
        window_ms=final.window_ms,
        max_queued=final.max_queued,
        max_batch_s=final.max_batch_s,
    )


def _source(section: str, model: LiveConfig | FinalConfig) -> ModelSource:
    _architecture(section, model.model)
    return ModelSource(name=model.model, options=model.options)


def _card(section: str, name: str) -> ModelCard:
    return ModelCard(name=name, version=package_version(), arch=_architecture(section, name))


def _architecture(section: str, name: str) -> str:
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        allowed = ", ".join((*ARCHITECTURES, "none") if section == "final" else ARCHITECTURES)
        raise ConfigError(f"{section}.model: given {name!r}, allowed: {allowed}")
    return architecture
