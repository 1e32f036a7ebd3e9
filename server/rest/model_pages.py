"""Models as the protocol's pages describe them."""

from collections import Counter

from server.engine.model_settings import TensorSettings
from server.engine.served_model import ServedModel
from server.rest.inference import RequestFigures
from server.wire.kserve.descriptions import InstanceGroup, ModelDescription, ModelFigures


def describe(model: ServedModel) -> ModelDescription:
    """A model that takes tensors.

    Raises:
        UnknownModel: It is not loaded.
    """
    stats, settings = model.stats().model, model.settings
    assert isinstance(settings, TensorSettings), "it takes tensors"
    devices = Counter(stats.devices or (stats.device,) * stats.instances)
    return ModelDescription(
        name=model.name,
        version=model.version,
        scheduler=model.scheduler,
        inputs=model.declared.inputs,
        outputs=model.declared.outputs,
        groups=tuple(InstanceGroup(device=device, count=count) for device, count in devices.items()),
        max_batch=settings.max_batch,
        max_delay_us=round(settings.max_delay_ms * 1000),
        strategy=settings.strategy,
        slots=max(stats.instance_slots, default=stats.slots),
        idle_timeout_us=round(settings.idle_timeout_s * 1e6),
        preferred_sizes=settings.preferred_sizes,
        priority_levels=settings.priority_levels,
        default_priority_level=settings.default_priority_level,
        timeout_us=round(settings.timeout_ms * 1000),
        timeout_action=settings.timeout_action,
        max_queued=settings.max_queued,
        preserve_ordering=settings.preserve_ordering,
    )


def figures_of(model: ServedModel, requests: RequestFigures) -> ModelFigures:
    """What a model has done.

    Raises:
        UnknownModel: It is not loaded.
    """
    return ModelFigures(
        name=model.name,
        version=model.version,
        completed=requests.completed,
        failed=requests.failed,
        steps=model.stats().steps,
        request_ns=requests.completed_ns,
        failed_ns=requests.failed_ns,
        last_request_ms=requests.last_ms,
    )
