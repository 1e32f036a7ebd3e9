from typing import Any

import pytest

from asr_model.tensor_spec import TensorSpec
from server.figures.stats import HistogramSnapshot, StepStats
from server.wire.kserve.descriptions import (
    InstanceGroup,
    ModelDescription,
    ModelFigures,
    model_config,
    model_metadata,
    server_metadata,
    statistics,
)


def description(**fields: Any) -> ModelDescription:
    return ModelDescription(
        **{
            "name": "m",
            "version": "1",
            "scheduler": "sequence",
            "inputs": {
                "X": TensorSpec(datatype="FP32", shape=(-1,), ragged=True),
                "T": TensorSpec(datatype="BYTES", shape=(1,), optional=True),
            },
            "outputs": {"Y": TensorSpec(datatype="INT64", shape=(2, 3))},
            "groups": (InstanceGroup(device="cpu", count=2), InstanceGroup(device="cuda:1", count=1)),
            "max_batch": 16,
            "max_delay_us": 500,
            "strategy": "oldest",
            "slots": 8,
            "idle_timeout_us": 1_000_000,
            "preferred_sizes": (4, 8),
            **fields,
        }
    )


def test_the_service() -> None:
    said = server_metadata("0.1.0")
    assert (said["name"], said["version"]) == ("moorage", "0.1.0")
    assert "sequence(string_id)" in said["extensions"]


def test_metadata_has_the_batch_axis_and_the_configuration_has_not() -> None:
    model = description()
    assert model_metadata(model)["inputs"] == [
        {"name": "X", "datatype": "FP32", "shape": [-1, -1]},
        {"name": "T", "datatype": "BYTES", "shape": [-1, 1]},
    ]
    config = model_config(model)
    assert config["input"] == [
        {"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "optional": False, "allow_ragged_batch": True},
        {"name": "T", "data_type": "TYPE_STRING", "dims": [1], "optional": True, "allow_ragged_batch": False},
    ]
    assert config["output"] == [{"name": "Y", "data_type": "TYPE_INT64", "dims": [2, 3]}]


def test_instances_by_device() -> None:
    assert model_config(description())["instance_group"] == [
        {"name": "m_0", "kind": "KIND_CPU", "count": 2},
        {"name": "m_1", "kind": "KIND_GPU", "count": 1, "gpus": [1]},
    ]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (
            "oldest",
            {"max_candidate_sequences": 8, "preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 500},
        ),
        ("direct", {"max_queue_delay_microseconds": 500}),
    ],
)
def test_the_sequence_batcher(strategy: str, expected: dict[str, Any]) -> None:
    config = model_config(description(strategy=strategy))
    assert "dynamic_batching" not in config
    batching = config["sequence_batching"]
    assert batching[strategy] == expected
    assert batching["max_sequence_idle_microseconds"] == 1_000_000
    assert [each["name"] for each in batching["control_input"]] == ["START", "END", "READY", "CORRID"]


def test_the_dynamic_batcher() -> None:
    config = model_config(description(scheduler="dynamic", timeout_us=9, timeout_action="delay", priority_levels=3))
    assert "sequence_batching" not in config
    batching = config["dynamic_batching"]
    assert batching["priority_levels"] == 3
    assert batching["default_queue_policy"]["timeout_action"] == "DELAY"
    assert batching["default_queue_policy"]["default_timeout_microseconds"] == 9


def test_statistics() -> None:
    steps = StepStats(
        queue_s=HistogramSnapshot(upper_bounds=(1.0,), counts=(5, 0), total=0.5),
        step_s=HistogramSnapshot(upper_bounds=(1.0,), counts=(3, 0), total=0.25),
        batch_size=HistogramSnapshot(upper_bounds=(1.0, 2.0), counts=(1, 2, 0), total=5.0),
        failures=0,
        row_failures=0,
    )
    figures = ModelFigures(
        name="m", version="1", completed=5, failed=1, steps=steps, request_ns=7, failed_ns=2, last_request_ms=9
    )
    (said,) = statistics([figures])["model_stats"]
    assert (said["inference_count"], said["execution_count"], said["last_inference"]) == (5, 3, 9)
    assert said["inference_stats"]["success"] == {"count": 5, "ns": 7}
    assert said["inference_stats"]["fail"] == {"count": 1, "ns": 2}
    assert said["inference_stats"]["queue"] == {"count": 5, "ns": 500_000_000}
    assert said["inference_stats"]["compute_infer"] == {"count": 3, "ns": 250_000_000}
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in said["batch_stats"]] == [(1, 1), (2, 2)]
