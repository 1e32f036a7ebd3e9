"""What ``/v1/models`` says of each model: what it is, who says so, what it takes. Pure."""

from collections.abc import Mapping
from typing import Final

from server.figures.stats import EngineStats, ModelStats

OPTIMIZE_NOTE: Final = "it changes kernels, never scheduling"

Entry = Mapping[str, object]


def model_entry(model: ModelStats, stats: EngineStats) -> Entry:
    """One model's entry."""
    return {
        "role": model.role,
        "name": model.name,
        "state": model.state,
        **_scheduling(model),
        "device": model.device,
        "devices": list(model.devices),
        "precision": model.precision,
        "optimize": model.optimize,
        "optimizations": list(model.optimizations),
        "optimize_note": OPTIMIZE_NOTE,
        "tick_ms": round(model.tick_s * 1000, 3) if model.tick_s else None,
        "instances": model.instances,
        "instances_ready": model.instances_ready,
        "copies_ending": model.copies_ending,
        **_slots(model, stats),
        "streams": model.streams,
        "resources": dict(model.resources),
        "preferred_sizes": list(model.preferred_sizes),
    }


def warning_of(model: ModelStats) -> str | None:
    """What everybody who reads the model's answers should know; None: nothing."""
    if not model.is_wrong_scheduler:
        return None
    needed = model.proved_scheduler or model.declared_scheduler
    return (
        f"WRONG SCHEDULER: it needs the {needed} batcher and is served by the {model.scheduler} batcher"
        " (allow_wrong_scheduler): answers are wrong under load, without an error"
    )


def _scheduling(model: ModelStats) -> Entry:
    return {
        "scheduler": model.scheduler,
        "scheduler_declared": model.declared_scheduler or None,
        "scheduler_configured": model.configured_scheduler or None,
        "scheduler_proved": model.proved_scheduler or None,
        "evidence": list(model.evidence),
        "warning": warning_of(model),
        "strategy": model.strategy or None,
    }


def _slots(model: ModelStats, stats: EngineStats) -> Entry:
    """Slots in all: those of the live model's copies that are ending included."""
    batcher = stats.sequence_batchers.get(model.role)
    instances = batcher.instances if batcher is not None else ()
    is_live = model.role == "live"
    return {
        "slots": model.slots,
        "instance_slots": list(model.instance_slots),
        "slots_total": stats.slots_total if is_live else sum(each.slots for each in instances),
        "slots_used": stats.slots_used if is_live else sum(each.slots_held for each in instances),
        "slots_quarantined": stats.slots_quarantined if is_live else sum(each.slots_quarantined for each in instances),
        "slot_bytes": model.slot_bytes,
        "state_bytes": model.state_bytes,
        "backlog": batcher.backlog if batcher is not None else 0,
        "backlog_limit": model.backlog_limit,
    }
