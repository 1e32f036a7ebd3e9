"""What the protocol tells of the service and its models: metadata, configuration, statistics, the index."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asr_model.tensor_spec import TensorSpec
from server.figures.stats import HistogramSnapshot, StepStats
from server.wire.kserve.datatypes import BYTES

NAME: Final = "moorage"
EXTENSIONS: Final = (
    "sequence",
    "sequence(string_id)",
    "binary_tensor_data",
    "schedule_policy",
    "model_configuration",
    "model_repository",
    "statistics",
)
"""Of Triton's, those that are served."""
CONTROLS: Final[Mapping[str, str]] = {
    "START": "CONTROL_SEQUENCE_START",
    "END": "CONTROL_SEQUENCE_END",
    "READY": "CONTROL_SEQUENCE_READY",
    "CORRID": "CONTROL_SEQUENCE_CORRID",
}
"""What every model that keeps state is told of its sequence, by the names that Triton's examples give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """Copies of a model on one device."""

    device: str
    """``cpu`` or ``cuda:N``."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """A model that takes tensors."""

    name: str
    version: str
    scheduler: str
    """``sequence`` or ``dynamic``."""
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    groups: tuple[InstanceGroup, ...]
    max_batch: int
    max_delay_us: int
    strategy: str
    """``direct`` or ``oldest``; only of the sequence batcher, as all below."""
    slots: int
    """Of one instance."""
    idle_timeout_us: int
    preferred_sizes: tuple[int, ...] = ()
    priority_levels: int = 1
    """Only of the dynamic batcher, as all below."""
    default_priority_level: int = 1
    timeout_us: int = 0
    timeout_action: str = "reject"
    max_queued: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """What a model has done."""

    name: str
    version: str
    completed: int
    failed: int
    steps: StepStats
    request_ns: int
    """Time of all answered requests, from their arrival."""
    failed_ns: int
    last_request_ms: int
    """Milliseconds since the epoch; 0: there was none."""


def server_metadata(version: str) -> dict[str, Any]:
    """Answer to ``GET /v2``."""
    return {"name": NAME, "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(model: ModelDescription) -> dict[str, Any]:
    """Answer to ``GET /v2/models/NAME``; shapes with their batch axis."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": NAME,
        "inputs": [_tensor_metadata(name, spec) for name, spec in model.inputs.items()],
        "outputs": [_tensor_metadata(name, spec) for name, spec in model.outputs.items()],
    }


def model_config(model: ModelDescription) -> dict[str, Any]:
    """Answer to ``GET /v2/models/NAME/config``, in the fields of Triton's ModelConfig; dims without a batch axis."""
    config: dict[str, Any] = {
        "name": model.name,
        "platform": NAME,
        "backend": NAME,
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": model.max_batch,
        "input": [_input_config(name, spec) for name, spec in model.inputs.items()],
        "output": [_tensor_config(name, spec) for name, spec in model.outputs.items()],
        "instance_group": [_group(f"{model.name}_{index}", group) for index, group in enumerate(model.groups)],
    }
    batching = _sequence_batching(model) if model.scheduler == "sequence" else _dynamic_batching(model)
    return config | {f"{model.scheduler}_batching": batching}


def statistics(models: list[ModelFigures]) -> dict[str, Any]:
    """Answer to ``GET …/stats``. What is not measured apart is 0: inputs and outputs cross with the batch."""
    return {"model_stats": [_model_statistics(model) for model in models]}


def _tensor_metadata(name: str, spec: TensorSpec) -> dict[str, Any]:
    return {"name": name, "datatype": spec.datatype, "shape": [-1, *spec.shape]}


def _tensor_config(name: str, spec: TensorSpec) -> dict[str, Any]:
    word = "STRING" if spec.datatype == BYTES else spec.datatype
    return {"name": name, "data_type": f"TYPE_{word}", "dims": list(spec.shape)}


def _input_config(name: str, spec: TensorSpec) -> dict[str, Any]:
    return _tensor_config(name, spec) | {"optional": spec.optional, "allow_ragged_batch": spec.ragged}


def _group(name: str, group: InstanceGroup) -> dict[str, Any]:
    if group.device == "cpu":
        return {"name": name, "kind": "KIND_CPU", "count": group.count}
    return {"name": name, "kind": "KIND_GPU", "count": group.count, "gpus": [int(group.device.rpartition(":")[2] or 0)]}


def _sequence_batching(model: ModelDescription) -> dict[str, Any]:
    strategy: dict[str, Any] = {"max_queue_delay_microseconds": model.max_delay_us}
    if model.strategy == "oldest":
        strategy |= {
            "max_candidate_sequences": model.slots,
            "preferred_batch_size": list(model.preferred_sizes),
        }
    return {
        "max_sequence_idle_microseconds": model.idle_timeout_us,
        "control_input": [{"name": name, "control": [{"kind": kind}]} for name, kind in CONTROLS.items()],
        model.strategy: strategy,
    }


def _dynamic_batching(model: ModelDescription) -> dict[str, Any]:
    return {
        "preferred_batch_size": list(model.preferred_sizes),
        "max_queue_delay_microseconds": model.max_delay_us,
        "preserve_ordering": model.preserve_ordering,
        "priority_levels": model.priority_levels,
        "default_priority_level": model.default_priority_level,
        "default_queue_policy": {
            "timeout_action": model.timeout_action.upper(),
            "default_timeout_microseconds": model.timeout_us,
            "allow_timeout_override": True,
            "max_queue_size": model.max_queued,
        },
    }


def _model_statistics(model: ModelFigures) -> dict[str, Any]:
    queue, steps = model.steps.queue_s, model.steps.step_s
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": model.last_request_ms,
        "inference_count": queue.count,
        "execution_count": steps.count,
        "inference_stats": {
            "success": {"count": model.completed, "ns": model.request_ns},
            "fail": {"count": model.failed, "ns": model.failed_ns},
            "queue": _duration(queue),
            "compute_input": _no_duration(model.completed),
            "compute_infer": _duration(steps),
            "compute_output": _no_duration(model.completed),
            "cache_hit": _no_duration(0),
            "cache_miss": _no_duration(0),
        },
        "batch_stats": _batch_statistics(model.steps.batch_size),
    }


def _batch_statistics(sizes: HistogramSnapshot) -> list[dict[str, Any]]:
    """By the buckets of the service's own histogram: a size stands for those up to it from the one before."""
    return [
        {
            "batch_size": int(bound),
            "compute_input": _no_duration(count),
            "compute_infer": _no_duration(count),
            "compute_output": _no_duration(count),
        }
        for bound, count in zip(sizes.upper_bounds, sizes.counts, strict=False)
        if count
    ]


def _duration(histogram: HistogramSnapshot) -> dict[str, int]:
    return {"count": histogram.count, "ns": round(histogram.total * 1e9)}


def _no_duration(count: int) -> dict[str, int]:
    return {"count": count, "ns": 0}
