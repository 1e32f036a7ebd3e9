"""``moorage demo reset``: the same live model and audio under both schedulers, at rising load."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clients.demo.outcome import Outcome, SchedulerName
from clients.demo.playing import Played, TickGrid, play_all
from clients.demo.settings import DemoConfig
from clients.demo.utterances import Utterance, deal
from server.clock import SystemClock
from server.composition import check_models, engine_config
from server.configuration.config import MoorageConfig
from server.engine.engine import Engine

LIVE = "live"


@dataclass(slots=True, kw_only=True)
class ResetDemo:
    """Both runs, one after the other: what the second one changes is one line of the configuration."""

    base: Path | None
    """Configuration under the demonstration's own; None: the defaults."""
    loads: Sequence[int]
    """Numbers of clients."""
    utterances_of: Callable[[int], Sequence[Utterance]]
    """What to play to a model with ticks of so many samples."""
    on_progress: Callable[[str], None]
    """What is being done, in words, again and again."""
    on_done: Callable[[str], None]
    """What was done, in words."""
    _played: dict[tuple[SchedulerName, int], list[Played]] = field(default_factory=dict, init=False)

    @property
    def outcome(self) -> Outcome:
        """All that was played so far."""
        return Outcome(played=dict(self._played))

    async def run(self, config: DemoConfig) -> None:
        """One scheduler at all loads.

        Raises:
            ConfigError: The configuration is refused.
            InstanceFailed: The model cannot be loaded.
        """
        name = config.scheduler.value
        self.on_progress(f"{name} batcher: the model is loaded, twice")
        async with _running(config.load(self.base)) as engine:
            declared = engine.repository.get(LIVE).declared
            grid = TickGrid(tick_samples=declared.tick_samples, lookahead_samples=declared.lookahead_samples)
            utterances = self.utterances_of(grid.tick_samples)
            for clients in self.loads:
                hands, began_s = deal(utterances, clients), time.monotonic()
                tell = _Tally(name, clients, sum(len(hand) for hand in hands), self.on_progress)
                played = await play_all(engine, grid, hands, tell.played)
                self._played[config.scheduler, clients] = played
                self.on_done(f"{tell.what}: {len(played)} utterances in {time.monotonic() - began_s:.0f} s")


class _Tally:
    """Counts what was played, aloud."""

    def __init__(self, scheduler: str, clients: int, of: int, on_progress: Callable[[str], None]) -> None:
        self._n, self._of, self._on_progress = 0, of, on_progress
        self.what = f"{scheduler} batcher, {clients} client{'s' * (clients > 1)}"
        on_progress(f"{self.what}: 0 of {of} utterances")

    def played(self, played: Played) -> None:
        """One more."""
        self._n += 1
        self._on_progress(f"{self.what}: {self._n} of {self._of} utterances")


@asynccontextmanager
async def _running(config: MoorageConfig) -> AsyncIterator[Engine]:
    """The engine of the service, its instances in processes of their own as there."""
    check_models(config)
    engine = Engine(engine_config(config), SystemClock())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
