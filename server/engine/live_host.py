"""The live model and the final model: what drives a copy, and who is told that it takes over."""

from dataclasses import replace

from server.batching.dynamic_batcher import DynamicBatcher
from server.batching.sequence_batcher import SequenceBatcher
from server.batching.unpinned_batcher import UnpinnedBatcher
from server.engine.final_pass import FinalPass
from server.engine.live_sequences import LiveSequences
from server.engine.model_copy import ModelCopy
from server.engine.model_host import STOPPED, HostParts, ModelHost
from server.engine.model_settings import FinalSettings, LiveSettings
from server.engine.request_driver import RequestDriver
from server.engine.sequence_driver import DriverParts, SequenceDriver, SequenceListener
from server.errors import ConfigError, ShuttingDown
from server.figures.stats import ModelStats
from server.workers.orders import Loaded
from server.workers.pool_settings import PoolSettings

LIVE, FINAL = "live", "final"
LIVE_ORDER, FINAL_ORDER, FURTHER_ORDER = 0, 1, 2
"""Live steps are planned before batches of whatever else."""

LiveCopy = ModelCopy[LiveSettings, SequenceDriver]
FinalCopy = ModelCopy[FinalSettings, RequestDriver]


class LiveHost(ModelHost[LiveSettings, SequenceDriver]):
    """The live model.

    Args:
        parts: What it shares with the others.
        sequences: Who it works for.
    """

    def __init__(self, parts: HostParts, sequences: LiveSequences) -> None:
        super().__init__(LIVE, LIVE_ORDER, parts)
        self._sequences = sequences

    def outcomes(self) -> dict[str, int]:
        """Sequences by how they ended."""
        ended = self._sequences.ended
        return {("completed" if cause == "end" else cause): count for cause, count in ended.items()}

    def model_stats(self) -> ModelStats | None:
        """Of the newest copy."""
        stats = super().model_stats()
        if stats is None or self._current is None:
            return stats
        settings = self._current.settings
        return replace(stats, strategy=settings.strategy, backlog_limit=settings.backlog)

    def check(self, copy: LiveCopy) -> None:
        """A model that listens and keeps state."""
        _check_listens(LIVE, copy, is_stateful=True)

    def _pool(self, settings: LiveSettings) -> PoolSettings:
        return replace(self._parts.config, live=settings).live_pool()

    def _settings_beside(self, settings: LiveSettings) -> LiveSettings:
        """As many slots as before: a measurement beside live streams would find few."""
        before = self._current
        if settings.slots or before is None or before.settings.places != settings.places:
            return settings
        return replace(settings, slots=before.pool.slots)

    def _drive(self, copy: LiveCopy, parts: DriverParts) -> SequenceDriver:
        pool = copy.pool
        config = replace(self._parts.config, live=copy.settings).live_batcher(
            copy.declared, pool.instance_slots, pool.stats().devices
        )
        listener = SequenceListener(on_effects=self._sequences.deal, on_room=self._sequences.notice_room)
        batcher = UnpinnedBatcher(config) if pool.scheduler == "dynamic" else SequenceBatcher(config)
        return SequenceDriver(batcher, parts, listener)

    def _take_over(self, copy: LiveCopy) -> None:
        self._sequences.use(copy.driver, copy.declared)


class FinalHost(ModelHost[FinalSettings, RequestDriver]):
    """The final model.

    Args:
        parts: What it shares with the others.
        final_pass: What it reads.
    """

    def __init__(self, parts: HostParts, final_pass: FinalPass) -> None:
        super().__init__(FINAL, FINAL_ORDER, parts)
        self._final_pass = final_pass

    def check(self, copy: FinalCopy) -> None:
        """A model that listens and keeps none."""
        _check_listens(FINAL, copy, is_stateful=False)

    def _pool(self, settings: FinalSettings) -> PoolSettings:
        return self._parts.config.final_pool(settings)

    def _drive(self, copy: FinalCopy, parts: DriverParts) -> RequestDriver:
        return RequestDriver(DynamicBatcher(self._parts.config.final_batcher(copy.settings)), parts)

    def _take_over(self, copy: FinalCopy) -> None:
        self._final_pass.use(copy.driver)

    def _let_go(self) -> None:
        self._final_pass.use(None)

    def _abandon(self, copy: FinalCopy) -> None:
        copy.driver.fail_all(ShuttingDown("the service is shutting down") if self._reason == STOPPED else None)


def _check_listens(role: str, copy: LiveCopy | FinalCopy, *, is_stateful: bool) -> None:
    """Raises: ConfigError: the model is not one that can have the role."""
    declared, name = copy.declared, copy.pool.settings.source.name
    if not declared.listens:
        raise ConfigError(f"{role}.model: {name} takes tensors; the {role} model listens to audio")
    if is_stateful != _keeps_state(declared):
        needed, given = ("dynamic", "sequence") if is_stateful else ("sequence", "dynamic")
        raise ConfigError(f"{role}.model: {name} needs the {needed} batcher, the {role} model has the {given} batcher")
    if not is_stateful and copy.pool.scheduler != "dynamic":
        raise ConfigError(f"{role}.scheduler: {name} keeps no state, so that there is nothing for sequences to share")


def _keeps_state(declared: Loaded) -> bool:
    """Whether it is a model of ticks."""
    return declared.tick_samples > 0
