"""From the configuration to what the parts are told. Free of torch: models are named here, loaded where they run."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from asr_model.declared import DECLARED, check_options
from server.codec.pool import CodecLimits
from server.configuration.config import CodecConfig, FinalConfig, LiveConfig, MoorageConfig
from server.engine.engine_config import EngineConfig, FinalSettings, LiveSettings
from server.errors import ConfigError
from server.wire.messages import ModelCard, ModelCards
from server.workers.orders import LoadLimits, ModelSource
from server.workers.worker import WorkerKind

ARCHITECTURES: Final = {
    "moonshine-live": "moonshine-streaming-encoder",
    "moonshine-base": "moonshine",
    "light-lstm": "random-lstm",
}
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


def codec_limits(config: CodecConfig) -> CodecLimits:
    """What the codec processes are told."""
    return CodecLimits(max_processes=config.max_processes, streams_per_process=config.streams_per_process)


def check_models(config: MoorageConfig) -> None:
    """Whether the models would take what they are given, as far as can be said without loading one.

    Raises:
        ConfigError: A model is not known, has another scheduler, or refuses an option. One line per fault.
    """
    faults = []
    sections: list[tuple[str, str, LiveConfig | FinalConfig]] = [("live", "sequence", config.live)]
    if config.final.enabled:
        sections.append(("final", "dynamic", config.final))
    for section, scheduler, model in sections:
        try:
            _architecture(section, model.model)
            needed = DECLARED[model.model].scheduler
            if needed != scheduler:
                raise ConfigError(
                    f"{section}.model: {model.model} needs the {needed} batcher, {section} has {scheduler}"
                )
            check_options(model.model, model.options)
        except ConfigError as error:
            faults.append(str(error))
        except ValueError as error:
            faults.append(f"{section}.options: {error}")
    if faults:
        raise ConfigError("\n".join(faults))


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
