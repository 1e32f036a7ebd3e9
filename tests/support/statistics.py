"""Snapshots with a number of its own in every place, so that a mix-up shows."""

from server.audit.auditor import AuditStats
from server.batching.dynamic_config import DynamicBatcherStats
from server.batching.resources import ResourceStats
from server.batching.sequence_stats import BatcherStats
from server.figures.stats import DelayStats, EngineStats, HistogramSnapshot, ModelStats, StepStats


def histogram(*counts: int, total: float) -> HistogramSnapshot:
    """Buckets with upper bounds 1, 2, …"""
    bounds = tuple(float(index) for index in range(1, len(counts)))
    return HistogramSnapshot(upper_bounds=bounds, counts=counts, total=total)


def steps(offset: int, **counters: int) -> StepStats:
    """Figures that start at the offset."""
    return StepStats(
        queue_s=histogram(offset + 1, 2, 3, total=offset + 0.5),
        step_s=histogram(offset + 4, 5, total=offset + 1.5),
        batch_size=histogram(offset + 6, 7, total=offset + 2.5),
        failures=offset + 8,
        row_failures=offset + 9,
        counters=counters,
        busy_s={0: offset + 0.25, 1: offset + 0.75},
        slot_wait_s=histogram(offset + 10, 3, total=offset + 3.5),
        outcomes={"completed": offset + 11, "request_timeout": offset + 12},
    )


def model(role: str, name: str, **changes: object) -> ModelStats:
    """One model of one ready instance."""
    fields: dict[str, object] = {
        "scheduler": "dynamic",
        "device": "cpu",
        "instances": 1,
        "instances_ready": 1,
        "instances_restarted": 0,
        "slots": 0,
        "slot_bytes": 0,
        "streams": None,
    }
    return ModelStats(role=role, name=name, **(fields | changes))  # type: ignore[arg-type]  # checked when it is made


def sequence_batcher(offset: int) -> BatcherStats:
    """Figures that start at the offset."""
    return BatcherStats(
        live=offset,
        started=offset + 1,
        ended={"end": offset + 2, "backlog_timeout": offset + 3},
        refused={},
        stale_results=offset + 4,
        queued_samples=offset + 5,
        queued_turns=offset + 6,
        ready_rows=offset + 7,
        backlog=offset + 8,
        backlog_oldest_ns=(offset + 9) * 1_000_000_000,
        expected_wait_ns=None,
        queued=offset + 10,
        placed=offset + 11,
        idle=offset + 12,
        restarts=offset + 13,
        steps=offset + 14,
        rows=offset + 15,
        padded_slots=offset + 16,
        catch_up_ticks=offset + 17,
        late_rows=offset + 18,
        instances=(),
    )


def request_batcher(offset: int) -> DynamicBatcherStats:
    """Figures that start at the offset."""
    return DynamicBatcherStats(
        queued=offset,
        queued_samples=offset + 1,
        in_flight=offset + 2,
        accepted=offset + 3,
        ended={},
        refused={},
        stale_results=offset + 4,
        instances_idle=offset + 5,
        instances_lost=offset + 6,
        queued_by_level=(offset + 7, offset + 8),
        late=offset + 9,
    )


def engine_stats(*, is_ready: bool = True, has_final: bool = True, is_loaded: bool = True) -> EngineStats:
    """An engine with a live model of two instances, one of them down, and perhaps a final model."""
    live = model(
        "live",
        "accumulator",
        scheduler="sequence",
        instances=2,
        instances_ready=1,
        instances_restarted=3,
        slots=4,
        slot_bytes=100,
        streams=5,
        precision="bfloat16",
        tick_s=0.24,
        state_bytes=59,
        cache_bytes=50,
        cache_bytes_used=13,
        is_wrong_scheduler=True,
        copies_ending=60,
    )
    return EngineStats(
        is_ready=is_ready,
        is_loaded=is_loaded,
        models=(live, model("final", "sum")) if has_final else (live,),
        live=steps(10, encoder_frames=11, decoder_passes=12, decoder_positions=13),
        final=steps(100, decoder_passes=112, requests=114, samples=115) if has_final else None,
        sequences_live=21,
        sequences_started=22,
        sequences_ended={"end": 23, "idle_timeout": 24},
        slots_total=8,
        slots_used=5,
        slots_quarantined=1,
        refusals={"capacity_exceeded": 25},
        utterances={"endpoint": 26},
        audio_s=27.5,
        finals_waiting=28,
        finals_replaced={"queue_full": 29},
        stale_results=30,
        delays=DelayStats(
            lag_s=histogram(41, 42, total=40.5),
            max_lag_s=43.5,
            word_shown_s=histogram(44, 45, total=46.5),
            word_committed_s=histogram(47, 48, total=49.5),
            final_s={"endpoint": histogram(50, 51, total=52.5), "finalize": histogram(53, 54, total=55.5)},
        ),
        early_finals={"used": 56, "wasted": 57},
        recorded_s=76.5,
        sentiments={"told": 74, "late": 75},
        further={"adder": steps(200, requests=213, rows=214)},
        sequence_batchers={"live": sequence_batcher(300), "adder": sequence_batcher(400)},
        request_batchers={"final": request_batcher(500)} if has_final else {},
        resources=ResourceStats(totals={"gpu": 7}, in_use={"gpu": 5}, waiting=58),
        audit=AuditStats(outcomes={"same": 63, "mismatch": 64}, recording=65, waiting=66, running=67),
    )
