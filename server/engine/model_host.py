"""One name and the copies of a model that answer to it in turn: the present one, and those before it that are ending.

A copy is replaced while it is served: the new one comes up beside it, then takes everything that is new; the old one
ends what it has, and stops.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic

from server.batching.resources import ResourceLedger
from server.clock import Clock
from server.engine.engine_config import EngineConfig
from server.engine.model_copy import D, ModelCopy, S
from server.engine.pump import Pump
from server.engine.resource_share import ResourceShare
from server.engine.sequence_driver import DriverParts
from server.engine.served_model import VERSION, ModelState, SequenceTurn, ServedStats
from server.errors import BadTensor, ShuttingDown, UnknownModel
from server.figures.stats import ModelStats
from server.figures.step_recorder import StepRecorder
from server.plan import CorrelationId, Tensors
from server.workers.gate_places import GatePlaces
from server.workers.orders import Loaded
from server.workers.pool_settings import PoolSettings

STOPPED: Final = "stopped"
"""Why a model takes nothing where its service stops."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """What all models of an engine share."""

    config: EngineConfig
    clock: Clock
    pump: Pump
    gate: GatePlaces
    ledger: ResourceLedger


class ModelHost(ABC, Generic[S, D]):
    """Runs on the event loop. Its subclasses are the roles that a model can have.

    Args:
        name: What it is called.
        order: Its place in the pump.
        parts: What it shares with the others.
    """

    def __init__(self, name: str, order: int, parts: HostParts) -> None:
        self._name = name
        self._order = order
        self._parts = parts
        self._current: ModelCopy[S, D] | None = None
        self._starting: set[ModelCopy[S, D]] = set()
        self._ending: dict[ModelCopy[S, D], asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()
        self._generation = 0
        self._reason = "not loaded"
        self._recorder = StepRecorder()

    # As a served model

    @property
    def name(self) -> str:
        """What clients call it."""
        return self._name

    @property
    def version(self) -> str:
        """There is one."""
        return VERSION

    @property
    def state(self) -> ModelState:
        """Whether it takes requests."""
        if self._current is not None:
            return ModelState.READY if self._current.pool.n_ready else ModelState.UNAVAILABLE
        return ModelState.LOADING if self._starting else ModelState.UNAVAILABLE

    @property
    def reason(self) -> str:
        """Why it does not."""
        if self.state is ModelState.READY:
            return ""
        return "its instances are being replaced" if self._current is not None else self._reason

    @property
    def scheduler(self) -> str:
        """Which batcher it is under."""
        return self._current.pool.scheduler if self._current is not None else ""

    @property
    def declared(self) -> Loaded:
        """What it declares.

        Raises:
            UnknownModel: It is not loaded.
        """
        return self.current.declared

    @property
    def accepts(self) -> Loaded:
        """As of ``ServedModel``."""
        return (self.serving or (self.current,))[0].declared

    @property
    def settings(self) -> S:
        """What the newest copy was loaded with.

        Raises:
            UnknownModel: It is not loaded.
        """
        return self.current.settings

    async def infer(
        self,
        tensors: Tensors,
        *,
        turn: SequenceTurn | None = None,
        priority: int = 0,
        timeout_ns: int | None = None,
    ) -> Tensors:
        """A model that listens takes no tensors."""
        raise BadTensor(f"{self._name} listens to audio: it takes no tensors")

    def leave(self, correlation_id: CorrelationId) -> None:
        """A model that listens has no sequences of requests."""

    async def drained(self) -> None:
        """As of ``ServedModel``."""
        await asyncio.gather(*(copy.driver.drained() for copy in self.serving))

    def stats(self) -> ServedStats:
        """A snapshot.

        Raises:
            UnknownModel: It is not loaded.
        """
        _ = self.current
        models, steps, outcomes = self.model_stats(), self._recorder.stats(), dict(self.outcomes())
        assert models is not None, "there is a copy"
        return ServedStats(model=models, steps=steps, completed=outcomes.pop("completed", 0), failed=outcomes)

    # For the engine

    @property
    def current(self) -> ModelCopy[S, D]:
        """The copy that takes what is new.

        Raises:
            UnknownModel: There is none.
        """
        if self._current is None:
            raise UnknownModel(f"{self._name} is {self._reason}")
        return self._current

    @property
    def is_loaded(self) -> bool:
        """Whether there is a copy; its instances may be lost."""
        return self._current is not None

    @property
    def serving(self) -> tuple[ModelCopy[S, D], ...]:
        """The present copy and those that are ending."""
        return (*(() if self._current is None else (self._current,)), *self._ending)

    @property
    def recorder(self) -> StepRecorder:
        """Counts the steps of all copies."""
        return self._recorder

    def outcomes(self) -> Mapping[str, int]:
        """Requests by what became of them."""
        return self._recorder.stats().outcomes

    def model_stats(self) -> ModelStats | None:
        """Of the newest copy; None: there is none."""
        copy = next(iter(self._starting), None) if self._current is None else self._current
        if copy is None:
            return None
        stats, settings = copy.pool.stats(), copy.settings
        declared = copy.declared if copy is self._current else None
        return replace(
            stats,
            state=self.state.value,
            declared_scheduler=declared.scheduler if declared is not None else "",
            configured_scheduler=settings.scheduler,
            is_wrong_scheduler=declared is not None and copy.pool.has_wrong_scheduler,
            optimize=declared.optimize if declared is not None else settings.optimize or "none",
            optimizations=declared.optimizations if declared is not None else (),
            resources=settings.resources,
            preferred_sizes=settings.preferred_sizes,
            copies_ending=len(self._ending),
        )

    def new_copy(self, settings: S) -> ModelCopy[S, D]:
        """A copy whose pool is to be loaded and prepared; then it may ``begin``."""
        self._generation += 1
        pool = replace(self._pool(settings), generation=self._generation)
        copy = ModelCopy[S, D](settings, pool, self._parts.gate)
        self._starting.add(copy)
        return copy

    def begin(self, copy: ModelCopy[S, D]) -> None:
        """A checked and prepared copy takes over; the one before ends what it has.

        Raises:
            ConfigError: There are not the resources that it needs.
        """
        owner = f"{self._name}.{copy.pool.settings.generation}"
        settings = copy.settings
        share = ResourceShare(self._parts.ledger, owner, settings.resources, settings.resource_priority)
        parts = DriverParts(
            pool=copy.pool,
            clock=self._parts.clock,
            pump=self._parts.pump,
            share=share,
            recorder=self._recorder,
        )
        copy.serve(self._drive(copy, parts))
        self._starting.discard(copy)
        before, self._current = self._current, copy
        self._take_over(copy)
        self._parts.pump.add(copy.driver, order=self._order)
        if before is not None:
            self._retire(before)
        if copy.pool.fault is not None:
            logger.error(
                "WRONG SCHEDULER, by allow_wrong_scheduler: answers are wrong under load, without an error: %s",
                copy.pool.fault,
            )

    async def load(self, settings: S) -> None:
        """Brings up another copy and begins with it; whatever goes wrong, the present one stays.

        Raises:
            ConfigError, InstanceFailed, ShuttingDown: As ``ModelRepository.load``.
        """
        async with self._changing:
            if self._reason == STOPPED:
                raise ShuttingDown("the service loads no models now")
            copy = self.new_copy(self._settings_beside(settings))
            try:
                await copy.pool.load()
                self.check(copy)
                await copy.pool.prepare()
                self.begin(copy)
            except BaseException:
                self._starting.discard(copy)
                await copy.stop()
                raise
        logger.info("%s was loaded", self._name, extra={"event": "model_loaded", "model": self._name})

    async def unload(self) -> None:
        """Takes nothing new, ends what it has within the limit, stops. A load meanwhile does not wait for that."""
        async with self._changing:
            before, self._current = self._current, None
            self._reason = "unloaded"
            self._let_go()
            if before is not None:
                self._retire(before)
            ending = dict(self._ending)
        if ending:
            await asyncio.wait(ending.values(), timeout=self._parts.config.unload_limit_s)
        for copy in ending:
            await self._cut_short(copy)
        self._parts.pump.run()
        logger.info("%s was unloaded", self._name, extra={"event": "model_unloaded", "model": self._name})

    async def stop(self) -> None:
        """Ends everything at once; no process, thread or task is left."""
        self._reason = STOPPED
        tasks = list(self._ending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        serving, starting = self.serving, tuple(self._starting)
        self._current = None
        self._starting.clear()
        self._ending.clear()
        for copy in serving:
            self._abandon(copy)
        await asyncio.gather(*(copy.stop() for copy in (*serving, *starting)))

    # For the roles

    @abstractmethod
    def check(self, copy: ModelCopy[S, D]) -> None:
        """Whether what was loaded can have this role.

        Raises:
            ConfigError: It cannot.
        """

    @abstractmethod
    def _pool(self, settings: S) -> PoolSettings:
        """What workers the copy has."""

    @abstractmethod
    def _drive(self, copy: ModelCopy[S, D], parts: DriverParts) -> D:
        """A driver over a prepared pool."""

    @abstractmethod
    def _take_over(self, copy: ModelCopy[S, D]) -> None:
        """It takes what is new from now on."""

    def _let_go(self) -> None:
        """Nothing takes what is new from now on."""

    def _abandon(self, copy: ModelCopy[S, D]) -> None:
        """It stops with work left: whoever waits for that is told."""

    def _gone(self, copy: ModelCopy[S, D]) -> None:
        """It has stopped, with nothing left to do."""

    def _settings_beside(self, settings: S) -> S:
        """For a copy that comes up beside the present one."""
        return settings

    def _retire(self, copy: ModelCopy[S, D]) -> None:
        task = asyncio.create_task(self._end(copy))
        self._ending[copy] = task

    async def _cut_short(self, copy: ModelCopy[S, D]) -> None:
        """The limit is over: it ends with whatever it still has. Ended: nothing."""
        task = self._ending.pop(copy, None)
        if task is not None:
            task.cancel()
            self._abandon(copy)
            await copy.stop()

    async def _end(self, copy: ModelCopy[S, D]) -> None:
        await copy.driver.drained()
        del self._ending[copy]
        self._gone(copy)
        await copy.stop()
        self._parts.pump.run()
        logger.info("a former copy of %s has ended its work", self._name)
