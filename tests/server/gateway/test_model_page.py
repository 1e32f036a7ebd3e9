"""What people are told of a model: who says which scheduler it needs, and a warning that nobody can miss."""

from dataclasses import replace

from server.gateway.model_page import model_entry, warning_of
from tests.support.statistics import engine_stats, model


def test_who_says_what() -> None:
    stats = replace(engine_stats(), sequence_batchers={})
    live = model(
        "live",
        "m",
        scheduler="sequence",
        declared_scheduler="sequence",
        proved_scheduler="sequence",
        evidence=("tick 3 was answered otherwise",),
        strategy="direct",
        optimize="bf16",
        optimizations=("none", "bf16"),
        tick_s=0.24,
        devices=("cpu", "cuda:0"),
        instance_slots=(4, 8),
        state_bytes=70,
        resources={"gpu": 1},
        preferred_sizes=(2, 4),
        backlog_limit=9,
        copies_ending=1,
    )
    assert model_entry(live, stats) == {
        "role": "live",
        "name": "m",
        "state": "READY",
        "scheduler": "sequence",
        "scheduler_declared": "sequence",
        "scheduler_configured": None,
        "scheduler_proved": "sequence",
        "evidence": ["tick 3 was answered otherwise"],
        "warning": None,
        "strategy": "direct",
        "device": "cpu",
        "devices": ["cpu", "cuda:0"],
        "precision": "",
        "optimize": "bf16",
        "optimizations": ["none", "bf16"],
        "optimize_note": "it changes kernels, never scheduling",
        "tick_ms": 240.0,
        "instances": 1,
        "instances_ready": 1,
        "copies_ending": 1,
        "slots": 0,
        "instance_slots": [4, 8],
        "slots_total": 8,
        "slots_used": 5,
        "slots_quarantined": 1,
        "slot_bytes": 0,
        "state_bytes": 70,
        "backlog": 0,
        "backlog_limit": 9,
        "streams": None,
        "resources": {"gpu": 1},
        "preferred_sizes": [2, 4],
    }


def test_a_model_without_slots() -> None:
    entry = model_entry(model("sentiment", "m", declared_scheduler="dynamic"), engine_stats())
    assert (entry["tick_ms"], entry["slots_total"], entry["slots_used"], entry["strategy"]) == (None, 0, 0, None)
    assert (entry["scheduler_declared"], entry["scheduler_proved"]) == ("dynamic", None)


def test_a_wrong_scheduler_is_shouted() -> None:
    wrong = model(
        "live",
        "m",
        scheduler="dynamic",
        declared_scheduler="sequence",
        configured_scheduler="dynamic",
        proved_scheduler="sequence",
        is_wrong_scheduler=True,
    )
    told = warning_of(wrong)
    assert told is not None
    assert told.startswith("WRONG SCHEDULER: it needs the sequence batcher and is served by the dynamic batcher")
    assert model_entry(wrong, engine_stats())["warning"] == told
    assert warning_of(replace(wrong, is_wrong_scheduler=False)) is None
