"""The served side of a case: trials of paced streams against a running service, until it is known what is held."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from clients.bench.cases import Effort
from clients.bench.child import Child
from clients.bench.figures import Trial
from clients.bench.load_job import LoadJob, LoadRecord
from clients.bench.machine import Meter, usage_between
from clients.bench.search import StreamSearch
from clients.bench.track import Track
from clients.bench.trial import evaluate
from clients.connection import ANYONE, Access

GRACE_TICKS: Final = 2
LIGHT_LOAD: Final = 0.1
"""Part of the held streams that is light load."""
RESOLUTION: Final = 0.04
"""Of the first guess: how exactly the held streams are found."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The service under load."""

    url: str
    tick_samples: int
    lookahead_samples: int
    service_pid: int | None
    """None: it runs elsewhere."""
    wait_empty: Callable[[], None]
    """Waits until no stream of the trial before is left."""
    access: Access = ANYONE

    @property
    def tick_ms(self) -> float:
        """Of its live model."""
        return self.tick_samples / 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is played, and how."""

    client: Child[LoadJob, LoadRecord | str]
    track: Track
    chunk_ms: int
    effort: Effort
    say: Say
    until_s: float = math.inf
    """On the monotonic clock: when the search ends at the latest."""


class ServedLoop:
    """Runs trials.

    Args:
        target: The service.
        load: The client.
    """

    def __init__(self, target: Target, load: Load) -> None:
        self._target, self._load = target, load
        self._meter = Meter(service_pid=target.service_pid, client_pid=load.client.pid)
        self._idle_bytes = self._meter.memory_bytes()
        self.trials: list[Trial] = []

    def search(self, guess: int, limit: int) -> Trial | None:
        """The trial with the most streams that were held; None: not even one.

        Args:
            guess: Where to begin.
            limit: Streams that the service takes at most.
        """
        effort = self._load.effort
        search = StreamSearch(
            guess=guess, limit=limit, most_trials=effort.trials, resolution=max(1, round(guess * RESOLUTION))
        )
        trial_s = effort.settle_s + effort.measure_s
        while (streams := search.next()) is not None:
            began_s = time.monotonic()
            trial = self.run(streams, effort.measure_s)
            search.tell(streams, was_held=trial.is_held(self._target.tick_ms))
            now_s = time.monotonic()
            trial_s = max(trial_s, now_s - began_s)  # under overload it takes longer to end
            if now_s + trial_s > self._load.until_s:
                break
        fitting = [t for t in self.trials if t.streams == search.held and t.is_held(self._target.tick_ms)]
        return fitting[-1] if fitting else None

    def light_load(self, held: int) -> Trial | None:
        """Few streams, for the delays that a service has when it is not the bottleneck."""
        seconds = self._load.effort.light_load_s
        return self.run(max(1, round(held * LIGHT_LOAD)), seconds) if seconds else None

    def run(self, streams: int, measure_s: float) -> Trial:
        """One trial."""
        target, load = self._target, self._load
        load.say(f"{streams} streams")
        job = LoadJob(
            url=target.url,
            access=target.access,
            streams=streams,
            audio=load.track.linear16(),
            tick_samples=target.tick_samples,
            chunk_ms=load.chunk_ms,
            settle_s=load.effort.settle_s,
            measure_s=measure_s,
            grace_s=GRACE_TICKS * target.tick_ms / 1000,
        )
        load.client.send(job)
        readings = []
        growth_bytes = 0
        while isinstance(reply := load.client.receive(), str):
            growth_bytes = self._meter.memory_bytes() - self._idle_bytes
            readings.append(self._meter.read())
        trial = evaluate(reply, job, load.track, target.lookahead_samples)
        if len(readings) == 2:
            trial = replace(trial, usage=usage_between(*readings), growth_bytes=max(0, growth_bytes))
        target.wait_empty()
        self.trials.append(trial)
        return trial

    def confirm(self, streams: int) -> Trial | None:
        """Several trials at what was found, fewer streams until the median of p99 is held; the trial in the middle."""
        while streams > 0:
            trials = [self.run(streams, self._load.effort.measure_s) for _ in range(self._load.effort.confirmations)]
            p99s = [trial.step.p99_ms for trial in trials if trial.step is not None and not trial.failure]
            if len(p99s) == len(trials) and (middle := median(p99s)) < self._target.tick_ms:
                return min(trials, key=lambda trial: abs((trial.step.p99_ms if trial.step else 0.0) - middle))
            streams = min(streams - 1, round(streams * 0.95))
        return None
