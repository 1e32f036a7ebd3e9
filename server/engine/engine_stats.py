"""A snapshot of the whole engine, put together from those of its parts."""

from dataclasses import dataclass

from server.audit.replaying import Audits
from server.batching.dynamic_config import DynamicBatcherStats
from server.batching.resources import ResourceLedger
from server.batching.sequence_stats import BatcherStats
from server.engine.final_pass import FinalPass
from server.engine.live_host import FinalHost, LiveHost
from server.engine.live_sequences import LiveSequences
from server.engine.repository import Host
from server.engine.request_driver import RequestDriver
from server.engine.sentiment_reader import SentimentReader
from server.engine.sequence_driver import SequenceDriver
from server.engine.tensor_host import TensorHost
from server.figures.stats import EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What there is to tell of."""

    is_ready: bool
    is_loaded: bool
    sequences: LiveSequences
    live: LiveHost
    final: FinalHost | None
    final_pass: FinalPass | None
    further: tuple[TensorHost, ...]
    ledger: ResourceLedger
    audits: Audits
    sentiments: SentimentReader | None
    recorded_s: float


def engine_stats(parts: EngineParts) -> EngineStats:
    """The snapshot."""
    sequences, final_pass = parts.sequences, parts.final_pass
    live = [copy.driver.stats() for copy in parts.live.serving]
    instances = [instance for stats in live for instance in stats.instances]
    final = [copy.driver.stats() for copy in parts.final.serving] if parts.final is not None else []
    hosts: list[Host] = [parts.live, *([parts.final] if parts.final is not None else []), *parts.further]
    ledger = parts.ledger.stats()
    return EngineStats(
        is_ready=parts.is_ready,
        is_loaded=parts.is_loaded,
        models=tuple(stats for host in hosts if (stats := host.model_stats()) is not None),
        live=parts.live.recorder.stats(),
        final=parts.final.recorder.stats() if parts.final is not None and parts.is_loaded else None,
        sequences_live=sequences.n_live,
        sequences_started=sequences.n_started,
        sequences_ended=sequences.ended,
        slots_total=sum(instance.slots for instance in instances),
        slots_used=sum(instance.slots_held for instance in instances),
        slots_quarantined=sum(instance.slots_quarantined for instance in instances),
        refusals=sequences.refusals,
        utterances=sequences.utterances,
        audio_s=sequences.audio_s,
        finals_waiting=final_pass.n_waiting if final_pass is not None else 0,
        finals_replaced=final_pass.replaced if final_pass is not None else {},
        stale_results=sum(stats.stale_results for stats in live) + sum(stats.stale_results for stats in final),
        delays=sequences.delays(),
        early_finals=final_pass.early_outcomes if final_pass is not None else {},
        further={host.name: host.recorder.stats() for host in parts.further},
        sequence_batchers=_sequence_batchers(hosts),
        request_batchers=_request_batchers(hosts),
        resources=ledger if ledger.totals else None,
        audit=parts.audits.stats(),
        recorded_s=parts.recorded_s,
        sentiments=dict(parts.sentiments.outcomes) if parts.sentiments is not None else {},
    )


def _sequence_batchers(hosts: list[Host]) -> dict[str, BatcherStats]:
    drivers = {host.name: host.current.driver for host in hosts if host.is_loaded}
    return {name: driver.stats() for name, driver in drivers.items() if isinstance(driver, SequenceDriver)}


def _request_batchers(hosts: list[Host]) -> dict[str, DynamicBatcherStats]:
    drivers = {host.name: host.current.driver for host in hosts if host.is_loaded}
    return {name: driver.stats() for name, driver in drivers.items() if isinstance(driver, RequestDriver)}
