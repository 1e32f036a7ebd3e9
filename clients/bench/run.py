"""Runs the cases: bare, served, bare again, in one sitting on one machine."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clients.bench.bare import BareModels
from clients.bench.cases import TICKS, TITLES, CaseName, Effort, case_config, environment_of
from clients.bench.child import Child
from clients.bench.figures import Bare, BareFinals, CaseFigures
from clients.bench.load_client import load_main
from clients.bench.load_job import LoadJob, LoadRecord
from clients.bench.served import Load, ServedLoop, Target
from clients.bench.service_process import ServiceProcess
from clients.bench.track import Track
from clients.connection import Access
from server.composition import engine_config
from server.configuration.config import MoorageConfig

FIRST_GUESS: Final = 0.7
"""Of the bare streams, the first trial."""
SPARE_SLOTS: Final = 1.05
"""Slots of the service over bare streams: what cannot be held needs no memory."""
FIRST_STREAMS: Final = 4
"""Where a search begins that knows no bare streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all cases share."""

    config: MoorageConfig
    track: Track
    effort: Effort
    chunk_ms: int
    say: Callable[[str], None]
    """Told what runs now."""

    def run(self, names: Sequence[CaseName]) -> list[CaseFigures]:
        """All cases; the two with the same live model share its bare loop.

        Raises:
            MoorageError: A model or the service could not be run.
        """
        found: list[CaseFigures] = []
        began_s = time.monotonic()
        with Child[LoadJob, LoadRecord | str](load_main, "load-client") as client:
            load = Load(client=client, track=self.track, chunk_ms=self.chunk_ms, effort=self.effort, say=self.say)
            for group in self._groups(names):
                share = (len(found) + len(group)) / len(names)
                until_s = began_s + share * self.effort.budget_s if self.effort.budget_s else math.inf
                found += self._run_group(group, replace(load, until_s=until_s))
        return found

    def _groups(self, names: Sequence[CaseName]) -> list[list[CaseName]]:
        """Cases with the same live model and as many threads, so that they have the same bare loop."""
        groups: dict[tuple[str, int], list[CaseName]] = {}
        for name in names:
            pool = engine_config(case_config(self.config, name)).live_pool()
            groups.setdefault((pool.source.name, pool.threads), []).append(name)
        return list(groups.values())

    def _run_group(self, names: Sequence[CaseName], load: Load) -> list[CaseFigures]:
        engine = engine_config(case_config(self.config, max(names, key=lambda name: name is CaseName.FINALS)))
        self.say(f"loading {engine.live.source.name}")
        with BareModels(engine, self.track, self.effort) as models:
            bare = models.sweep(self.say)
            finals = models.time_finals(self.say) if engine.final is not None else None
            return [
                self._run_case(name, models, (bare, finals), _share(load, len(names) - index))
                for index, name in enumerate(names)
            ]

    def _run_case(
        self, name: CaseName, models: BareModels, bare: tuple[Bare, BareFinals | None], load: Load
    ) -> CaseFigures:
        config = case_config(self.config, name)
        finals = bare[1] if name is CaseName.FINALS else None
        passes = [models.with_finals(bare[0], finals)]
        pool = engine_config(config).live_pool()
        slots = math.ceil(passes[0].streams / pool.instances * SPARE_SLOTS) + 1
        case = CaseFigures(
            name=name.value,
            title=TITLES[name],
            tick_ms=models.tick_ms,
            instances=pool.instances,
            threads=pool.threads,
            slot_bytes=models.loaded.slot_bytes,
        )
        self.say(f"{case.title}: starting a service with {slots} slots on each instance")
        with ServiceProcess(None, environment_of(config, slots)) as service:
            service.wait_ready()
            loop = ServedLoop(
                Target(
                    url=service.url,
                    tick_samples=models.loaded.tick_samples,
                    lookahead_samples=models.loaded.lookahead_samples,
                    service_pid=service.pid,
                    wait_empty=service.wait_empty,
                ),
                replace(load, track=_said_by(name, load.track), say=lambda what: self.say(f"{case.title}: {what}")),
            )
            held = loop.search(max(1, round(passes[0].streams * FIRST_GUESS)), slots * pool.instances)
            passes.append(models.with_finals(models.again(self.say), finals))
            if held is not None and self.effort.confirmations:
                held = loop.confirm(held.streams)
                passes.append(models.with_finals(models.again(self.say), finals))
            light_load = loop.light_load(held.streams) if held is not None else None
        return replace(
            case,
            bare=tuple(passes),
            trials=tuple(loop.trials),
            light_load=light_load,
            held=held,
            is_capped=held is not None and held.streams >= slots * pool.instances,
        )

    def run_elsewhere(self, name: CaseName, url: str, access: Access, most_streams: int) -> CaseFigures:
        """Loads a service that is already running; what it runs on is not known here, so there is no bare loop.

        Raises:
            MoorageError: The load client died.
        """
        tick_samples, lookahead_samples = TICKS[name]
        with Child[LoadJob, LoadRecord | str](load_main, "load-client") as client:
            load = Load(client=client, track=self.track, chunk_ms=self.chunk_ms, effort=self.effort, say=self.say)
            target = Target(
                url=url,
                tick_samples=tick_samples,
                lookahead_samples=lookahead_samples,
                service_pid=None,
                wait_empty=lambda: None,
                access=access,
            )
            loop = ServedLoop(target, load)
            held = loop.search(min(FIRST_STREAMS, most_streams), most_streams)
            light_load = loop.light_load(held.streams) if held is not None else None
        return CaseFigures(
            name=name.value,
            title=f"{TITLES[name]}, at {url}",
            tick_ms=target.tick_ms,
            instances=0,
            threads=0,
            trials=tuple(loop.trials),
            light_load=light_load,
            held=held,
            is_capped=held is not None and held.streams >= most_streams,
        )


def _share(load: Load, cases: int) -> Load:
    """The load of the next of so many cases, with its part of the time that is left."""
    left_s = load.until_s - time.monotonic()
    return replace(load, until_s=time.monotonic() + left_s / cases)


def _said_by(name: CaseName, track: Track) -> Track:
    """What a case is matched with: the light model's words are none, whatever they look like."""
    return replace(track, words=()) if name is CaseName.LIGHT else track
