"""The workers of one model: brings them up together, replaces the one that dies, hands plans to them.

Which instance runs what is the batcher's business; the pool only tells the engine that one is lost or restored.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, TypeVar

from server.errors import ConfigError, MoorageError
from server.figures.stats import ModelStats
from server.ids import InstanceIndex
from server.plan import BatchPlan, RequestBatch
from server.workers.device_gate import Cells, DeviceGate
from server.workers.orders import BatchOutcome, Load, Loaded, LoadLimits, ModelSource, Prepare, Prepared
from server.workers.worker import Worker, WorkerKind, make_channel

SAMPLE_RATE: Final = 16_000
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0
"""Waits between attempts to bring a lost instance up again: each is twice the one before, up to this."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """One model's instances."""

    role: str
    """``live`` or ``final``: the section of the configuration, for errors and names."""
    scheduler: str
    """Which the model must declare: ``sequence`` or ``dynamic``."""
    source: ModelSource
    instances: int
    device: str
    threads: int
    slots: int
    """Of each instance; 0: measured, or none for a model without state."""
    limits: LoadLimits
    plan_limit_s: float
    """A plan that takes longer hangs, and its process is replaced."""
    worker_kind: WorkerKind


class InstancePool:
    """Workers of one model.

    Args:
        settings: What to bring up.
        cells: The device gate's, shared by all pools of an engine.
        on_lost: An instance died between plans; it is being replaced. Over a plan, ``replace`` is the engine's to call.
        on_restored: A lost instance takes plans again.
    """

    def __init__(
        self,
        settings: PoolSettings,
        cells: Cells,
        on_lost: Callable[[InstanceIndex], None],
        on_restored: Callable[[InstanceIndex], None],
    ) -> None:
        self._settings = settings
        self._cells = cells
        self._on_lost = on_lost
        self._on_restored = on_restored
        self._workers: dict[InstanceIndex, Worker] = {}
        self._loaded: dict[InstanceIndex, Loaded] = {}
        self._ready: set[InstanceIndex] = set()
        self._replacements: dict[InstanceIndex, asyncio.Task[None]] = {}
        self._slots = settings.slots
        self._streams: int | None = None
        self._n_restarts = 0
        self._is_stopped = False

    @property
    def n_ready(self) -> int:
        """Instances that take plans."""
        return len(self._ready)

    @property
    def slots(self) -> int:
        """Slots of each instance, once prepared."""
        return self._slots

    @property
    def declared(self) -> Loaded:
        """What the model declares, once loaded."""
        return self._loaded[InstanceIndex(0)]

    def worker(self, instance: InstanceIndex) -> Worker:
        """The instance's present worker."""
        return self._workers[instance]

    async def load(self) -> None:
        """Loads all instances at the same time.

        Raises:
            ConfigError: The model refused its settings, or needs the other scheduler.
            InstanceFailed: One could not be loaded.
        """
        await together([self._load(InstanceIndex(index)) for index in range(self._settings.instances)])

    async def prepare(self) -> None:
        """Warms all instances up at the same time, so that a measurement sees the load they put on each other.

        Raises:
            ConfigError, InstanceFailed: One could not be prepared.
        """
        prepared = await together([self._prepare(instance) for instance in self._workers])
        self._slots = min(each.slots for each in prepared)
        self._streams = min((each.streams for each in prepared if each.streams is not None), default=None)
        self._ready = set(self._workers)

    def submit(self, plan: BatchPlan | RequestBatch, on_outcome: Callable[[BatchOutcome], None]) -> None:
        """Runs a plan on its instance; the outcome comes back on the loop, never within this call."""
        self._workers[plan.instance].submit(plan, on_outcome)

    def abandon(self, batch: RequestBatch) -> None:
        """Nobody wants the batch now: a one-shot model stops between two slices. Its outcome comes back as always."""
        DeviceGate(self._cells).abandon(batch.instance, batch.plan_id)

    def replace(self, instance: InstanceIndex) -> None:
        """The instance is lost: brings up another in its place, until that succeeds or the pool stops."""
        self._ready.discard(instance)
        if self._settings.role == "live":
            DeviceGate(self._cells).leave(instance)
        if instance not in self._replacements and not self._is_stopped:
            self._replacements[instance] = asyncio.create_task(self._keep_replacing(instance))

    async def stop(self) -> None:
        """Ends all workers; no process, thread or task is left."""
        self._is_stopped = True
        self._ready.clear()
        replacements = list(self._replacements.values())
        for task in replacements:
            task.cancel()
        await asyncio.gather(*replacements, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        self._workers.clear()

    def stats(self) -> ModelStats:
        """A snapshot."""
        devices = sorted({loaded.device for loaded in self._loaded.values()})
        declared = self._loaded.get(InstanceIndex(0))
        return ModelStats(
            role=self._settings.role,
            name=self._settings.source.name,
            scheduler=self._settings.scheduler,
            device=",".join(devices),
            instances=self._settings.instances,
            instances_ready=self.n_ready,
            instances_restarted=self._n_restarts,
            slots=self._slots,
            slot_bytes=max((loaded.slot_bytes for loaded in self._loaded.values()), default=0),
            streams=self._streams,
            precision=declared.precision if declared is not None else "",
            tick_s=declared.tick_samples / SAMPLE_RATE if declared is not None else 0.0,
        )

    async def _load(self, instance: InstanceIndex) -> None:
        settings = self._settings
        name = f"{settings.role}-{instance}"
        channel = make_channel(settings.worker_kind, self._cells, name)
        self._workers[instance] = worker = Worker(
            name, channel, lambda: self._lose_idle(instance, worker), plan_limit_s=settings.plan_limit_s
        )
        loaded = await worker.load(
            Load(source=settings.source, instance=instance, device=settings.device, threads=settings.threads)
        )
        if loaded.scheduler != settings.scheduler:
            raise ConfigError(
                f"{settings.role}.model: {settings.source.name} needs the {loaded.scheduler} batcher,"
                f" the {settings.role} model has the {settings.scheduler} batcher"
            )
        self._loaded[instance] = loaded

    async def _prepare(self, instance: InstanceIndex) -> Prepared:
        return await self._workers[instance].prepare(Prepare(slots=self._slots, limits=self._settings.limits))

    def _lose_idle(self, instance: InstanceIndex, worker: Worker) -> None:
        if self._workers.get(instance) is worker and instance in self._ready:
            logger.error("%s died between two plans", worker.name)
            self.replace(instance)
            self._on_lost(instance)

    async def _keep_replacing(self, instance: InstanceIndex) -> None:
        retry_s, role = FIRST_RETRY_S, self._settings.role
        while True:
            await self._workers[instance].stop()
            try:
                await self._load(instance)
                await self._prepare(instance)
                break
            except MoorageError as error:
                logger.error("could not replace %s-%d: %s; next attempt in %g s", role, instance, error, retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
        del self._replacements[instance]
        self._n_restarts += 1
        self._ready.add(instance)
        self._on_restored(instance)


async def together(coroutines: list[Coroutine[None, None, T]]) -> list[T]:
    """All results; after the first error the others are cancelled and awaited."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
