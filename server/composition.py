"""From the configuration to what the parts are told. Free of torch: models are named here, loaded where they run."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from asr_model.declared import DECLARED, Declared
from asr_model.transcript import ROUNDING_MARGIN
from server.audit.auditor import AuditSettings
from server.codec.pool import CodecLimits
from server.configuration.config import BACKLOG_LEVELS, CodecConfig, MoorageConfig, load_config
from server.configuration.model_faults import dropped_faults, kernel_faults, option_faults
from server.configuration.model_sections import FinalConfig, LiveConfig, ModelSection, TensorModelConfig
from server.engine.engine_config import EngineConfig, tensor_batcher, turn_batcher
from server.engine.model_settings import AnySettings, FinalSettings, InstanceGroup, LiveSettings, TensorSettings
from server.engine.repository import Overrides, SettingsOf
from server.errors import ConfigError
from server.wire.messages import ModelCard, ModelCards
from server.workers.orders import Loaded, LoadLimits, ModelSource
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
        models=tuple(_tensor_settings(model) for model in config.models),
        resources=config.resources,
        sentiment=config.final.sentiment,
        worker_kind=worker_kind,
        idle_timeout_s=config.server.idle_timeout_s,
        max_finals=config.server.max_queued_finals,
        audit=AuditSettings(
            share=config.audit.share,
            max_audio_s=config.audit.max_audio_s,
            alarm_s=config.audit.alarm_s,
            shows_words=config.audit.log_texts,
            rounding_margins=ROUNDING_MARGIN,
        ),
    )


def codec_limits(config: CodecConfig) -> CodecLimits:
    """What the codec processes are told."""
    return CodecLimits(max_processes=config.max_processes, streams_per_process=config.streams_per_process)


def settings_of(config: MoorageConfig) -> SettingsOf:
    """How a model that is loaded again gets other settings: its section with some fields changed, checked as ever."""

    def changed(name: str, overrides: Overrides) -> AnySettings:
        tree = config.model_dump(exclude_unset=True)
        if "name" in overrides:
            raise ConfigError(f"{name}.name: a model keeps its name")
        if name in ("live", "final") and "model" in overrides:
            raise ConfigError(f"{name}.model: which one it is was told to clients; allowed: other options of the same")
        if name in ("live", "final"):
            tree[name] = tree.get(name, {}) | overrides
        else:
            tree["models"] = [model | (overrides if model["name"] == name else {}) for model in tree["models"]]
        changed_config = load_config(environment={}, overrides=tree)
        check_models(changed_config)
        engine = engine_config(changed_config)
        if name == "live":
            return engine.live
        if name == "final":
            assert engine.final is not None, "a model that is not there has no name to load it by"
            return engine.final
        return next(model for model in engine.models if model.name == name)

    return changed


def check_models(config: MoorageConfig, *, is_proved_later: bool = False) -> None:
    """Whether the models would take what they are given, as far as can be said without loading one.

    Args:
        config: The whole configuration.
        is_proved_later: Whether the models are loaded next: then a scheduler that a model does not declare is left to
            the probe, which refuses it with the evidence.

    Raises:
        ConfigError: A model is not known, cannot have its role or its scheduler, or refuses an option; or its batcher
            cannot be as it is asked for. One line per fault.
    """
    sections: list[tuple[str, LiveConfig | FinalConfig | TensorModelConfig]] = [("live", config.live)]
    if config.final.enabled:
        sections.append(("final", config.final))
    sections += [(f"models.{model.name}", model) for model in config.models]
    faults = [fault for place, section in sections for fault in _model_faults(place, section, is_proved_later)]
    faults += _sentiment_faults(config)
    if faults:
        raise ConfigError("\n".join(faults))
    engine = engine_config(config)
    faults = [fault for place, section in sections for fault in _batcher_faults(place, section, engine)]
    if faults:
        raise ConfigError("\n".join(faults))


def _model_faults(place: str, section: ModelSection, is_proved_later: bool) -> list[str]:
    declared = DECLARED.get(section.model)
    try:
        if isinstance(section, TensorModelConfig):
            _check_takes_tensors(place, section.model, declared)
        else:
            _architecture(place, section.model)
        assert declared is not None, "models with an architecture are declared"
        _check_scheduler(place, section, declared, is_excused=section.allow_wrong_scheduler or is_proved_later)
    except ConfigError as error:
        return [str(error)]
    scheduler = section.scheduler or declared.scheduler
    faults = [*kernel_faults(place, section), *dropped_faults(place, section, scheduler)]
    return faults or list(option_faults(place, section))


def _sentiment_faults(config: MoorageConfig) -> list[str]:
    name = config.final.sentiment
    schedulers = {
        model.name: model.scheduler or DECLARED[model.model].scheduler
        for model in config.models
        if model.model in DECLARED
    }
    if not name or schedulers.get(name) == "dynamic":
        return []
    allowed = ", ".join(each for each, scheduler in schedulers.items() if scheduler == "dynamic")
    what = "models of [[models]] under the dynamic batcher"
    return [f"final.sentiment: given {name!r}, allowed: {what} ({allowed or 'there is none'})"]


def _check_takes_tensors(place: str, name: str, declared: Declared | None) -> None:
    """Raises: ConfigError: it is not known, or listens."""
    if declared is None or declared.listens:
        allowed = ", ".join(each for each, known in DECLARED.items() if not known.listens)
        raise ConfigError(f"{place}.model: given {name!r}, allowed: {allowed}")


def _check_scheduler(place: str, section: ModelSection, declared: Declared, *, is_excused: bool) -> None:
    """Raises: ConfigError: it has another scheduler than it needs, or nobody says which it needs."""
    name, given, needed = section.model, section.scheduler, declared.scheduler
    if not (given or needed):
        raise ConfigError(f"{place}.scheduler: {name} does not say which batcher it needs; allowed: sequence, dynamic")
    role = {"live": "sequence", "final": "dynamic"}.get(place)
    if role is not None and needed not in ("", role):
        raise ConfigError(f"{place}.model: {name} needs the {needed} batcher, {place} has {role}")
    if given and needed not in ("", given) and not is_excused:
        raise ConfigError(
            f"{place}.scheduler: {name} needs the {needed} batcher, but {given} is configured; under the wrong one its "
            "answers are wrong without an error (moorage doctor shows why; allow_wrong_scheduler = true, how)"
        )


def _batcher_faults(
    place: str, section: LiveConfig | FinalConfig | TensorModelConfig, engine: EngineConfig
) -> list[str]:
    """What the batcher of a model whose ticks are as short as can be would say of its settings."""
    scheduler = section.scheduler or DECLARED[section.model].scheduler
    loaded = Loaded(
        model=section.model,
        scheduler=scheduler,
        device="cpu",
        tick_samples=1,
        lookahead_samples=0,
        slot_bytes=0,
        precision="float32",
    )
    try:
        if isinstance(section, LiveConfig):
            engine.live_batcher(loaded, 1)
        elif isinstance(section, FinalConfig):
            assert engine.final is not None, "its section is looked at where there is one"
            _ = engine.final_batcher(engine.final).limits
        else:
            settings = next(model for model in engine.models if model.name == section.name)
            if scheduler == "sequence":
                turn_batcher(settings, loaded, (settings.slots,) * len(settings.places), ())
            else:
                _ = tensor_batcher(settings, loaded).limits
    except ConfigError as error:
        return [f"{place}: {error}"]
    return []


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
        instances=live.n_instances,
        device=live.device,
        threads=live.threads,
        groups=_groups(live),
        scheduler=live.scheduler,
        allow_wrong_scheduler=live.allow_wrong_scheduler,
        optimize=_optimize(live),
        resources=live.resources,
        resource_priority=live.resource_priority,
        preferred_sizes=live.preferred_sizes,
        slots=live.slots,
        limits=LoadLimits(max_slots=live.max_slots, load_fraction=live.load_fraction, max_batch=live.max_batch),
        strategy=live.strategy,
        max_delay_ms=live.max_delay_ms,
        min_slot_utilisation=live.min_slot_utilisation,
        max_ticks=live.max_ticks,
        deadline_ms=live.deadline_ms,
        flush_deadline_ms=live.flush_deadline_ms,
        lead_ms=live.lead_ms,
        max_queued_s=live.max_queued_s,
        backlog=live.backlog,
        backlog_levels=BACKLOG_LEVELS,
        backlog_wait_s=live.backlog_wait_s,
    )


def _final_settings(final: FinalConfig) -> FinalSettings:
    return FinalSettings(
        source=_source("final", final),
        instances=final.n_instances,
        device=final.device,
        threads=final.threads,
        groups=_groups(final),
        scheduler=final.scheduler,
        allow_wrong_scheduler=final.allow_wrong_scheduler,
        optimize=_optimize(final),
        resources=final.resources,
        resource_priority=final.resource_priority,
        preferred_sizes=final.preferred_sizes,
        target_size=final.target_size,
        window_ms=final.window_ms,
        max_queued=final.max_queued,
        timeout_ms=final.timeout_ms,
        timeout_action=final.timeout_action,
        recordings_max_queued=final.recordings_max_queued,
        max_batch_s=final.max_batch_s,
    )


def _tensor_settings(model: TensorModelConfig) -> TensorSettings:
    return TensorSettings(
        name=model.name,
        source=ModelSource(name=model.model, options=model.options),
        instances=model.n_instances,
        device=model.device,
        threads=model.threads,
        groups=_groups(model),
        scheduler=model.scheduler,
        allow_wrong_scheduler=model.allow_wrong_scheduler,
        optimize=_optimize(model),
        resources=model.resources,
        resource_priority=model.resource_priority,
        preferred_sizes=model.preferred_sizes,
        strategy=model.strategy,
        slots=model.slots,
        max_batch=model.max_batch,
        max_delay_ms=model.max_delay_ms,
        min_slot_utilisation=model.min_slot_utilisation,
        deadline_ms=model.deadline_ms,
        idle_timeout_s=model.idle_timeout_s,
        max_queued_turns=model.max_queued_turns,
        backlog=model.backlog,
        backlog_wait_s=model.backlog_wait_s,
        max_queued=model.max_queued,
        priority_levels=model.priority_levels,
        default_priority_level=model.default_priority_level,
        timeout_ms=model.timeout_ms,
        timeout_action=model.timeout_action,
        preserve_ordering=model.preserve_ordering,
    )


def _groups(section: ModelSection) -> tuple[InstanceGroup, ...]:
    """() where the instances are a number."""
    if isinstance(section.instances, int):
        return ()
    return tuple(
        InstanceGroup(device=group.device, count=group.count, threads=group.threads) for group in section.groups
    )


def _optimize(section: ModelSection) -> str:
    """What workers are told: nothing where nothing is asked, so that the model's own options hold."""
    return "" if section.optimize == "none" else section.optimize


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
