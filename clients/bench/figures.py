"""What a benchmark finds, as frozen plain data. Pure; times in the units of their names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Of one kind of latency, by nearest rank."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


def spread(values_ms: Sequence[float]) -> Spread | None:
    """None of nothing."""
    if not values_ms:
        return None
    ranked = sorted(values_ms)
    p50, p95, p99 = (ranked[max(0, math.ceil(percent * len(ranked) / 100) - 1)] for percent in (50, 95, 99))
    return Spread(count=len(ranked), p50_ms=p50, p95_ms=p95, p99_ms=p99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Cores in use over a stretch of time: 1.0 is one core all the time."""

    service_cores: float = 0.0
    """The service's own process: sockets, protocol, batchers."""
    worker_cores: float = 0.0
    """Its workers: the models."""
    client_cores: float = 0.0
    """The load client, which shares the machine."""
    other_cores: float = 0.0
    """Everybody else's. Figures taken beside more than a few hundredths say little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """So many paced streams over a stretch of time."""

    streams: int
    step: Spread | None
    """Step latency, from when the last sample of a tick was due to be sent."""
    ticks_without_result: int = 0
    """Complete ticks that were not covered when the trial ended; in ``step`` they count with the time waited."""
    first_partial: Spread | None = None
    """Word delay to the first partial that contains the word."""
    commit: Spread | None = None
    """Word delay to the commit."""
    final: Spread | None = None
    """Final delay at endpoints, their silence included."""
    lag: Spread | None = None
    """Real-time lag: at each result, the audio spoken by then and not yet covered."""
    late_send: Spread | None = None
    """How late chunks left the load client: more than a few milliseconds, and the client is what is measured."""
    usage: Usage = field(default_factory=Usage)
    growth_bytes: int = 0
    """Memory of the service above what it had before its first stream came."""
    failure: str = ""
    """Why the streams did not live to the end; empty if they did."""

    def is_held(self, tick_ms: float) -> bool:
        """Whether every stream was answered in time: p99 of the step latency under one tick."""
        return not self.failure and self.step is not None and self.step.p99_ms < tick_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class BarePoint:
    """One batch size in the bare loop, on all instances at the same time."""

    batch: int
    """Rows of each instance."""
    step_ms: float
    """Mean time of a step, over all instances."""
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BareFinals:
    """The bare loop of the final model."""

    utterance_ms: float
    """Time of an utterance on one instance: its share of a batch."""
    utterances_per_stream_s: float
    """How often a stream of the speech in use ends one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """The models without a service."""

    points: tuple[BarePoint, ...]
    finals: BareFinals | None
    streams: float
    """Real-time streams of all instances together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFigures:
    """One case: the same models bare and served."""

    name: str
    title: str
    tick_ms: float
    instances: int
    threads: int
    """CPU threads of each instance."""
    slot_bytes: int = 0
    """State of one stream, taken when the service starts."""
    bare: tuple[Bare, ...] = ()
    """The passes before, between and after the served ones."""
    trials: tuple[Trial, ...] = ()
    """In the order in which they ran."""
    light_load: Trial | None = None
    """Few streams."""
    held: Trial | None = None
    """The most streams that were held; None: not even one."""
    is_capped: bool = False
    """Every slot was taken, so that more might have been held."""

    @property
    def bare_streams(self) -> float | None:
        """Median over the passes; None where there was no bare loop."""
        ranked = sorted(each.streams for each in self.bare)
        if not ranked:
            return None
        middle = len(ranked) // 2
        return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2

    @property
    def ratio(self) -> float | None:
        """Streams served over streams bare; None where either is not known."""
        bare = self.bare_streams
        if not bare or (self.held is None and all(trial.streams > 1 for trial in self.trials)):
            return None
        return (self.held.streams if self.held is not None else 0) / bare


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFigures:
    """Where it ran."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    torch: str
    accelerators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFigures:
    """A whole run."""

    machine: MachineFigures
    speech: str
    """What was said: files, seconds, part that is speech."""
    chunk_ms: int
    seconds: float
    """Measured time of each trial."""
    cases: tuple[CaseFigures, ...]
