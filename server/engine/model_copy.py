"""One loaded generation of a model: its workers, and the driver that gives them work. Replaced whole at run time."""

from typing import Generic, Protocol, TypeVar

from server.engine.model_settings import ModelSettings
from server.ids import InstanceIndex
from server.workers.gate_places import GatePlaces
from server.workers.orders import Loaded
from server.workers.pool import InstancePool
from server.workers.pool_settings import PoolSettings


class Driver(Protocol):
    """What a copy needs of either driver."""

    def lose_instance(self, instance: InstanceIndex) -> None:
        """An instance died while it had nothing to do."""

    def restore_instance(self, instance: InstanceIndex) -> None:
        """It is back."""

    async def drained(self) -> None:
        """Returns when nothing is left to do."""

    def stop(self) -> None:
        """Does no more."""

    def next_deadline_ns(self) -> int | None:
        """When ``pump`` has something to do."""

    def pump(self, now_ns: int) -> None:
        """Does what is due."""


S = TypeVar("S", bound=ModelSettings)
D = TypeVar("D", bound=Driver)


class ModelCopy(Generic[S, D]):
    """Made by a ``ModelHost``; the pool is loaded and prepared before a driver is put over it.

    Args:
        settings: What it is a copy of.
        pool: Of its workers.
        gate: The device gate's places, shared by all pools of an engine.
    """

    def __init__(self, settings: S, pool: PoolSettings, gate: GatePlaces) -> None:
        self.settings = settings
        self.pool = InstancePool(pool, gate, self._lose, self._restore)
        self._driver: D | None = None

    @property
    def declared(self) -> Loaded:
        """What the model declares, once loaded."""
        return self.pool.declared

    @property
    def driver(self) -> D:
        """Once ``serve`` was called."""
        assert self._driver is not None, "the copy does not serve yet"
        return self._driver

    def serve(self, driver: D) -> None:
        """The pool is ready; from now on this gives it work."""
        self._driver = driver

    async def retire(self) -> None:
        """Waits until it has nothing left to do, then stops. Its owner gives it nothing new."""
        await self.driver.drained()
        await self.stop()

    async def stop(self) -> None:
        """At once; no process, thread or task is left. May be called again."""
        if self._driver is not None:
            self._driver.stop()
        await self.pool.stop()

    def _lose(self, instance: InstanceIndex) -> None:
        if self._driver is not None:
            self._driver.lose_instance(instance)

    def _restore(self, instance: InstanceIndex) -> None:
        if self._driver is not None:
            self._driver.restore_instance(instance)
