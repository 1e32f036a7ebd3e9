"""The workers of one model: brings them up together, replaces the one that dies, hands plans to them.

Which instance runs what is the batcher's business; the pool only tells the engine that one is lost or restored.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Final, TypeVar

from server.errors import ConfigError, InstanceFailed, MoorageError
from server.figures.stats import ModelStats
from server.ids import InstanceIndex
from server.plan import BatchPlan, BatchResult, RequestBatch
from server.proving.evidence import Claim
from server.proving.judgement import Copy, Judgement, Probe, Probed, differs_from, judge
from server.workers.device_gate import DeviceGate
from server.workers.gate_places import GatePlaces
from server.workers.orders import CACHE_BYTES, BatchOutcome, Load, Loaded, Prepare, Prepared
from server.workers.pool_settings import TURN_SLOTS, PoolSettings, check_scheduler, check_ticks
from server.workers.worker import Worker, make_channel

SAMPLE_RATE: Final = 16_000
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0
"""Waits between attempts to bring a lost instance up again: each is twice the one before, up to this."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class InstancePool:
    """Workers of one model.

    Args:
        settings: What to bring up.
        gate: The device gate's places, shared by all pools of an engine.
        on_lost: An instance died between plans; it is being replaced. Over a plan, ``replace`` is the engine's to call.
        on_restored: A lost instance takes plans again.
    """

    def __init__(
        self,
        settings: PoolSettings,
        gate: GatePlaces,
        on_lost: Callable[[InstanceIndex], None],
        on_restored: Callable[[InstanceIndex], None],
    ) -> None:
        self._settings = settings
        self._gate_places = gate
        self._gate = DeviceGate(gate.cells)
        self._on_lost = on_lost
        self._on_restored = on_restored
        self._places: tuple[int, ...] = ()
        self._workers: dict[InstanceIndex, Worker] = {}
        self._loaded: dict[InstanceIndex, Loaded] = {}
        self._prepared: dict[InstanceIndex, Prepared] = {}
        self._cache_bytes: dict[InstanceIndex, int] = {}
        """Of each instance: what its caches that grow held after its last step."""
        self._probed: Probed | None = None
        """Of the first instance."""
        self._judgement: Judgement | None = None
        self._ready: set[InstanceIndex] = set()
        self._replacements: dict[InstanceIndex, asyncio.Task[None]] = {}
        self._n_restarts = 0
        self._is_stopped = False

    @property
    def settings(self) -> PoolSettings:
        """What it was told to bring up."""
        return self._settings

    @property
    def role(self) -> str:
        """For logs and errors."""
        return self._settings.role

    @property
    def places(self) -> tuple[int, ...]:
        """Of its instances in the device gate, while it is loaded."""
        return self._places

    @property
    def n_ready(self) -> int:
        """Instances that take plans."""
        return len(self._ready)

    @property
    def instance_slots(self) -> tuple[int, ...]:
        """Slots of each instance, once prepared; 0 each for a model without state."""
        return tuple(self._prepared[instance].slots for instance in sorted(self._prepared))

    @property
    def slots(self) -> int:
        """Slots that every instance has at least."""
        return min(self.instance_slots, default=self._settings.slots)

    @property
    def declared(self) -> Loaded:
        """What the model declares, once loaded."""
        return self._loaded[InstanceIndex(0)]

    @property
    def scheduler(self) -> str:
        """The batcher that it gets, once loaded: ``sequence`` or ``dynamic``."""
        return self._settings.scheduler or self.declared.scheduler

    @property
    def has_wrong_scheduler(self) -> bool:
        """Whether that is another than the model needs, which somebody has allowed."""
        return self.fault is not None

    @property
    def fault(self) -> str | None:
        """What is wrong with its scheduler, with the evidence; None: nothing, or nothing is loaded."""
        return None if self._judgement is None else self._judgement.fault

    def worker(self, instance: InstanceIndex) -> Worker:
        """The instance's present worker."""
        return self._workers[instance]

    async def load(self) -> None:
        """Loads all instances at the same time, and asks them what they are.

        Raises:
            ConfigError: The model refused its settings, or needs another scheduler, or nobody says which it needs, or
                it is right under none, or there are more instances than the service has room for.
            InstanceFailed: One could not be loaded.
        """
        self._places = self._gate_places.take(self._settings.instances)
        await together([self._load(InstanceIndex(index)) for index in range(self._settings.instances)])
        await self._prove()

    async def prepare(self) -> None:
        """Warms all instances up at the same time, so that a measurement sees the load they put on each other.

        Raises:
            ConfigError, InstanceFailed: One could not be prepared.
        """
        await together([self._prepare(instance) for instance in self._workers])
        self._ready = set(self._workers)

    def submit(self, plan: BatchPlan | RequestBatch, on_outcome: Callable[[BatchOutcome], None]) -> None:
        """Runs a plan on its instance; the outcome comes back on the loop, never within this call."""

        def on_reply(outcome: BatchOutcome) -> None:
            if isinstance(outcome, BatchResult) and CACHE_BYTES in outcome.counters:
                self._cache_bytes[plan.instance] = outcome.counters.pop(CACHE_BYTES)
            on_outcome(outcome)

        self._workers[plan.instance].submit(plan, on_reply)

    def abandon(self, batch: RequestBatch) -> None:
        """Nobody wants the batch now: a one-shot model stops between two slices. Its outcome comes back as always."""
        self._gate.abandon(self._places[batch.instance], batch.plan_id)

    def replace(self, instance: InstanceIndex) -> None:
        """The instance is lost: brings up another in its place, until that succeeds or the pool stops."""
        if self._is_stopped:
            return
        self._ready.discard(instance)
        self._cache_bytes.pop(instance, None)
        self._gate.leave(self._places[instance])
        if instance not in self._replacements:
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
        for place in self._places:
            self._gate.clear(place)
        self._gate_places.give_back(self._places)
        self._places = ()

    def stats(self) -> ModelStats:
        """A snapshot."""
        settings, declared = self._settings, self._loaded.get(InstanceIndex(0))
        devices = tuple(self._loaded[instance].device for instance in sorted(self._loaded))
        prepared, judgement = self._prepared.values(), self._judgement
        return ModelStats(
            role=settings.role,
            name=settings.source.name,
            scheduler=settings.scheduler or (declared.scheduler if declared is not None else ""),
            device=",".join(sorted(set(devices))),
            instances=settings.instances,
            instances_ready=self.n_ready,
            instances_restarted=self._n_restarts,
            proved_scheduler=(judgement.proof.scheduler or "") if judgement is not None else "",
            evidence=judgement.proof.evidence if judgement is not None else (),
            slots=self.slots,
            slot_bytes=max((loaded.slot_bytes for loaded in self._loaded.values()), default=0),
            streams=min((each.streams for each in prepared if each.streams is not None), default=None),
            precision=declared.precision if declared is not None else "",
            tick_s=declared.tick_samples / SAMPLE_RATE if declared is not None else 0.0,
            devices=devices,
            instance_slots=self.instance_slots,
            state_bytes=sum(each.state_bytes for each in prepared),
            cache_bytes=sum(each.cache_bytes for each in prepared),
            cache_bytes_used=sum(self._cache_bytes.values()),
        )

    async def _load(self, instance: InstanceIndex) -> None:
        settings = self._settings
        copy = "" if settings.generation == 1 else f".{settings.generation}"
        name = f"{settings.role}{copy}-{instance}"
        channel = make_channel(settings.worker_kind, self._gate_places.cells, name)
        self._workers[instance] = worker = Worker(
            name, channel, lambda: self._lose_idle(instance, worker), plan_limit_s=settings.plan_limit_s
        )
        placement = settings.placements[instance]
        loaded = await worker.load(
            Load(
                source=settings.source,
                instance=instance,
                device=placement.device,
                threads=placement.threads,
                gate=self._places[instance],
                optimize=settings.optimize,
                unpinned=settings.scheduler == "dynamic",
            )
        )
        check_scheduler(settings, loaded)
        self._loaded[instance] = loaded

    async def _prove(self) -> None:
        """Asks the first instance everything, the others what is compared.

        Raises:
            ConfigError: It needs another scheduler than it is given, or is right under none.
            InstanceFailed: One could not be asked.
        """
        settings = self._settings
        probed = await together([worker.probe(Probe(is_whole=index == 0)) for index, worker in self._workers.items()])
        self._probed = probed[0]
        copies = [self._copy(InstanceIndex(index), each) for index, each in enumerate(probed) if index]
        self._judgement = judged = judge(self._claim, probed[0], copies)
        refusal = judged.refusal(is_wrong_allowed=settings.allow_wrong_scheduler)
        if refusal is not None:
            raise ConfigError(refusal)
        check_ticks(settings, self.declared)
        level = logging.INFO if judged.proof.scheduler is not None else logging.WARNING
        evidence = "; ".join(judged.proof.evidence)
        logger.log(
            level, "%s: %s is %s: %s", settings.role, settings.source.name, judged.proof.conclusion.value, evidence
        )

    @property
    def _claim(self) -> Claim:
        settings = self._settings
        return Claim(
            role=settings.role,
            model=settings.source.name,
            declared=self.declared.scheduler,
            configured=settings.scheduler,
        )

    def _copy(self, instance: InstanceIndex, probed: Probed) -> Copy:
        kinds = {self._loaded[index].device.partition(":")[0] for index in (InstanceIndex(0), instance)}
        return Copy(probed=probed, is_alike=len(kinds) == 1)

    async def _compare(self, instance: InstanceIndex) -> None:
        """Whether an instance that took a lost one's place answers as the first did.

        Raises:
            InstanceFailed: It does not.
        """
        assert self._probed is not None, "the first instances were asked"
        probed = await self._workers[instance].probe(Probe(is_whole=False))
        found = differs_from(self._probed, self._copy(instance, probed))
        if not found.holds:
            raise InstanceFailed(f"{self._settings.role}-{instance}: {found.sentence}")

    async def _prepare(self, instance: InstanceIndex) -> None:
        before = self._prepared.get(instance)
        slots = before.slots if before is not None else self._settings.slots
        if self.scheduler == "sequence" and not self.declared.listens:
            slots = slots or TURN_SLOTS
        order = Prepare(slots=slots, limits=self._settings.limits, batches=self._settings.batches)
        prepared = await self._workers[instance].prepare(order)
        streams = before.streams if before is not None else prepared.streams
        self._prepared[instance] = replace(prepared, streams=streams)

    def _lose_idle(self, instance: InstanceIndex, worker: Worker) -> None:
        if self._workers.get(instance) is worker and instance in self._ready:
            logger.error("%s died between two plans", worker.name)
            self.replace(instance)
            self._on_lost(instance)

    async def _keep_replacing(self, instance: InstanceIndex) -> None:
        retry_s, role = FIRST_RETRY_S, self._settings.role
        loop = asyncio.get_running_loop()
        lost_at_s = loop.time()
        while True:
            await self._workers[instance].stop()
            try:
                await self._load(instance)
                await self._compare(instance)
                await self._prepare(instance)
                break
            except MoorageError as error:
                logger.error("could not replace %s-%d: %s; next attempt in %g s", role, instance, error, retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
        del self._replacements[instance]
        self._n_restarts += 1
        self._ready.add(instance)
        outage_s = loop.time() - lost_at_s
        name, count = self._workers[instance].name, self._n_restarts
        logger.info("%s instance %d is restored as %s after %.1f s, restart %d", role, instance, name, outage_s, count)
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
