"""A further model: tensors in and out, under whichever of the two batchers it needs."""

from dataclasses import replace
from itertools import count

from asr_model.tensor_check import inputs_fault
from server.batching.dynamic_batcher import DynamicBatcher
from server.batching.sequence_batcher import SequenceBatcher
from server.engine.engine_config import tensor_batcher, turn_batcher
from server.engine.live_host import FURTHER_ORDER
from server.engine.model_copy import ModelCopy
from server.engine.model_host import STOPPED, HostParts, ModelHost
from server.engine.model_settings import TensorSettings
from server.engine.request_driver import RequestDriver
from server.engine.sequence_driver import DriverParts, SequenceDriver, SequenceListener
from server.engine.served_model import SequenceTurn
from server.engine.tensor_desks import RequestDesk, TurnDesk, sequence_id_of
from server.errors import BadTensor, ConfigError, MissingStart, ShuttingDown, UnknownModel
from server.figures.stats import ModelStats
from server.plan import CorrelationId, Tensors
from server.workers.pool_settings import PoolSettings

TensorDriver = SequenceDriver | RequestDriver
TensorCopy = ModelCopy[TensorSettings, TensorDriver]


class TensorHost(ModelHost[TensorSettings, TensorDriver]):
    """One of ``[[models]]``."""

    def __init__(self, name: str, parts: HostParts) -> None:
        super().__init__(name, FURTHER_ORDER, parts)
        self._desks: dict[TensorCopy, RequestDesk | TurnDesk] = {}
        self._turn_ids = count(1)

    async def infer(
        self,
        tensors: Tensors,
        *,
        turn: SequenceTurn | None = None,
        priority: int = 0,
        timeout_ns: int | None = None,
    ) -> Tensors:
        """As of ``ServedModel``."""
        desk, copy = self._desk(turn)
        if fault := inputs_fault(tensors.arrays, copy.declared.inputs, tensors.n_rows):
            raise BadTensor(f"{self._name}: {fault}")
        if isinstance(desk, RequestDesk):
            return await desk.infer(tensors, priority, timeout_ns)
        assert turn is not None, "a desk of turns is given to turns"
        return await desk.infer(tensors, turn, priority)

    def leave(self, correlation_id: CorrelationId) -> None:
        """As of ``ServedModel``: wherever the sequence is."""
        for desk in list(self._desks.values()):
            if isinstance(desk, TurnDesk):
                desk.cancel(sequence_id_of(correlation_id))

    def check(self, copy: TensorCopy) -> None:
        """A model that takes tensors."""
        if copy.declared.listens:
            name = copy.pool.settings.source.name
            raise ConfigError(f"models.{self._name}.model: {name} listens to audio; allowed: models that take tensors")

    def model_stats(self) -> ModelStats | None:
        """Of the newest copy."""
        stats = super().model_stats()
        if stats is None or self._current is None or not isinstance(self._current.driver, SequenceDriver):
            return stats
        settings = self._current.settings
        return replace(stats, strategy=settings.strategy, backlog_limit=settings.backlog)

    def _pool(self, settings: TensorSettings) -> PoolSettings:
        return self._parts.config.tensor_pool(settings)

    def _drive(self, copy: TensorCopy, parts: DriverParts) -> TensorDriver:
        pool = copy.pool
        if pool.scheduler == "dynamic":
            driver = RequestDriver(DynamicBatcher(tensor_batcher(copy.settings, copy.declared)), parts)
            self._desks[copy] = RequestDesk(driver)
            return driver
        config = turn_batcher(copy.settings, copy.declared, pool.instance_slots, pool.stats().devices)
        desk = TurnDesk(self._recorder, self._turn_ids)
        listener = SequenceListener(on_effects=desk.deal, on_room=lambda _: None)
        turns = SequenceDriver(SequenceBatcher(config), parts, listener)
        desk.use(turns)
        self._desks[copy] = desk
        return turns

    def _take_over(self, copy: TensorCopy) -> None:
        """Those who wait for a slot of another copy come first; for the rest every call looks for its desk itself."""
        desk = self._desks[copy]
        for before in self._desks.values():
            if isinstance(before, TurnDesk) and isinstance(desk, TurnDesk) and before is not desk:
                before.hand_over(desk)

    def _abandon(self, copy: TensorCopy) -> None:
        desk = self._desks.pop(copy, None)
        if desk is not None:
            is_stopping = self._reason == STOPPED
            limit_s = self._parts.config.unload_limit_s
            gone = UnknownModel(f"{self._name} was unloaded, and this did not end within {limit_s:g} s")
            desk.fail_all(ShuttingDown("the service is shutting down") if is_stopping else gone)

    def _gone(self, copy: TensorCopy) -> None:
        self._desks.pop(copy, None)

    def _desk(self, turn: SequenceTurn | None) -> tuple[RequestDesk | TurnDesk, TensorCopy]:
        """Where a call goes: a sequence to the copy that has it, all else to the present one.

        Raises:
            MissingStart: The model has sequences, and the call belongs to none.
            BadTensor: It keeps no state, and the call belongs to a sequence.
            UnknownModel: It is not loaded.
        """
        if turn is not None and (kept := self._former(turn)) is not None:
            return kept
        current = self.current
        desk = self._desks[current]
        if isinstance(desk, TurnDesk) and turn is None:
            raise MissingStart(f"{self._name} keeps state: a request needs the id of its sequence (sequence_id)")
        if isinstance(desk, RequestDesk) and turn is not None and not current.pool.has_wrong_scheduler:
            raise BadTensor(f"{self._name} keeps no state: a request has no sequence_id")
        return desk, current

    def _former(self, turn: SequenceTurn) -> tuple[TurnDesk, TensorCopy] | None:
        """The desk of a copy that is ending, if the sequence is there and does not start anew.

        Raises:
            UnknownModel: It starts anew, and nothing takes it: then it goes on as it was.
        """
        sequence_id = sequence_id_of(turn.correlation_id)
        for copy in self._ending:
            desk = self._desks.get(copy)
            if not isinstance(desk, TurnDesk) or not desk.has(sequence_id):
                continue
            if not turn.start:
                return desk, copy
            _ = self.current
            desk.leave_when_answered(sequence_id)
        return None
