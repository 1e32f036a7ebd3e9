"""The bare loop from the parent's side: as many processes as the service has instances, all at the same time."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self, TypeVar

from clients.bench.bare_loop import bare_main
from clients.bench.bare_orders import (
    BareOrder,
    BareReply,
    Failed,
    LoadModel,
    ModelLoaded,
    RunTicks,
    RunUtterances,
    TicksRun,
    UtterancesRun,
)
from clients.bench.bare_streams import BareSetting, bare_streams
from clients.bench.cases import Effort
from clients.bench.child import Child
from clients.bench.figures import Bare, BareFinals, BarePoint, spread
from clients.bench.machine import usable_cores
from clients.bench.track import Track
from server.engine.engine_config import SAMPLE_RATE, EngineConfig
from server.errors import MoorageError

MOST_ROWS: Final = 64
"""The largest batch size that is tried."""
Say = Callable[[str], None]
Kind = TypeVar("Kind")


class BareFailed(MoorageError):
    """A model could not be loaded or run."""

    code = "bare_failed"


class BareModels:
    """The live model's instances, and one of the final model where there is one.

    Args:
        engine: Models, instances, threads and devices, as the service is told.
        track: What is said.
        effort: How long.
    """

    def __init__(self, engine: EngineConfig, track: Track, effort: Effort) -> None:
        self._engine, self._track, self._effort = engine, track, effort
        self._children = ExitStack()
        self._live: list[Child[BareOrder, BareReply]] = []
        self._pool = engine.live_pool()
        self._points: dict[int, BarePoint] = {}
        self._devices: set[str] = set()

    def __enter__(self) -> Self:
        try:
            for index in range(self._pool.instances):
                child = Child[BareOrder, BareReply](bare_main, f"bare-live-{index}")
                self._live.append(self._children.enter_context(child))
            self.loaded = self._load()
        except BaseException:
            self._children.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._children.close()

    @property
    def tick_ms(self) -> float:
        """Of the live model."""
        return self.loaded.tick_samples * 1000 / SAMPLE_RATE

    @property
    def setting(self) -> BareSetting:
        """What bare streams share."""
        final = self._engine.final
        on_devices = self._devices != {"cpu"}
        return BareSetting(
            tick_ms=self.tick_ms,
            instances=self._pool.instances,
            max_batch=self._pool.limits.max_batch,
            units=len(self._devices) if on_devices else usable_cores(),
            units_each=1 if on_devices else self._pool.threads,
            final_instances=len(final.places) if final is not None else 0,
        )

    def sweep(self, say: Say) -> Bare:
        """Batches of 1, 2, 4 … rows until a step takes longer than a tick."""
        batch = 1
        while batch <= min(MOST_ROWS, self._pool.limits.max_batch):
            say(f"bare loop, {batch} rows")
            point = self._point(batch)
            if point.step_ms > self.tick_ms:
                break
            batch *= 2
        return self._bare(None)

    def again(self, say: Say) -> Bare:
        """The two largest batches once more."""
        for batch in sorted(self._points)[-2:]:
            say(f"bare loop again, {batch} rows")
            self._point(batch)
        return self._bare(None)

    def with_finals(self, bare: Bare, finals: BareFinals | None) -> Bare:
        """The same with the final model's part, if there is one."""
        return Bare(points=bare.points, finals=finals, streams=bare_streams(bare.points, self.setting, finals))

    def time_finals(self, say: Say) -> BareFinals:
        """The final model alone, on the recordings of the track, each an utterance.

        Raises:
            BareFailed: It failed.
        """
        settings = self._engine.final
        assert settings is not None, "only where there is a final model"
        say("bare final model")
        pool = self._engine.final_pool(settings)
        with Child[BareOrder, BareReply](bare_main, "bare-final") as child:
            child.send(
                LoadModel(
                    source=pool.source,
                    instance=0,
                    device=pool.placements[0].device,
                    threads=pool.placements[0].threads,
                    track=self._track.samples,
                )
            )
            self._devices.add(_expect(child, ModelLoaded).device)
            child.send(RunUtterances(utterances=self._track.utterances, target_size=settings.target_size))
            run = _expect(child, UtterancesRun)
        return BareFinals(
            utterance_ms=run.total_ns / run.n_utterances / 1e6,
            utterances_per_stream_s=run.n_utterances / self._track.seconds,
        )

    def _load(self) -> ModelLoaded:
        for index, child in enumerate(self._live):
            child.send(
                LoadModel(
                    source=self._pool.source,
                    instance=index,
                    device=self._pool.placements[index].device,
                    threads=self._pool.placements[index].threads,
                    track=self._track.samples,
                )
            )
        loaded = [_expect(child, ModelLoaded) for child in self._live]
        self._devices |= {each.device for each in loaded}
        return loaded[0]

    def _point(self, batch: int) -> BarePoint:
        """All instances at once, each with so many rows of their own."""
        streams = batch * len(self._live)
        offsets = [self._track.offset_samples(stream, streams) for stream in range(streams)]
        for index, child in enumerate(self._live):
            child.send(
                RunTicks(
                    offsets=tuple(offsets[index :: len(self._live)]),
                    settle_ticks=self._effort.settle_ticks,
                    timed_ticks=self._effort.timed_ticks,
                    limit_ns=round(self._effort.bare_limit_s * 1e9),
                )
            )
        runs = [_expect(child, TicksRun) for child in self._live]
        times_ms = [step_ns / 1e6 for run in runs for step_ns in run.step_ns]
        times = spread(times_ms)
        assert times is not None, "a run times one step at least"
        self._points[batch] = BarePoint(batch=batch, step_ms=sum(times_ms) / len(times_ms), p99_ms=times.p99_ms)
        return self._points[batch]

    def _bare(self, finals: BareFinals | None) -> Bare:
        points: Sequence[BarePoint] = [self._points[batch] for batch in sorted(self._points)]
        return Bare(points=tuple(points), finals=finals, streams=bare_streams(points, self.setting, finals))


def _expect(child: Child[BareOrder, BareReply], kind: type[Kind]) -> Kind:
    reply = child.receive()
    if isinstance(reply, Failed):
        raise BareFailed(reply.error)
    assert isinstance(reply, kind), "every order has its reply"
    return reply
