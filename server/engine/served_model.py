"""A model under its name, as requests of other programs reach it: tensors in, tensors out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from server.engine.model_settings import ModelSettings
from server.figures.stats import ModelStats, StepStats
from server.plan import CorrelationId, Tensors
from server.workers.orders import Loaded

VERSION = "1"
"""Of every model: the newest copy is the only one that takes requests."""


class ModelState(Enum):
    """Whether a model takes requests; in the words of the KServe protocol."""

    READY = "READY"
    LOADING = "LOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTurn:
    """A request's place in its sequence."""

    correlation_id: CorrelationId
    start: bool = False
    end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStats:
    """What one model has done, all copies that its name has had."""

    model: ModelStats
    steps: StepStats
    completed: int
    """Requests that were answered; of the live model sequences that came to their end."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Those that were not, by error code; ``cancelled`` where the caller left."""


class ServedModel(Protocol):
    """One name. What answers to it may be replaced while it is served."""

    @property
    def name(self) -> str:
        """What clients call it."""

    @property
    def version(self) -> str:
        """``VERSION``."""

    @property
    def state(self) -> ModelState:
        """Whether it takes requests."""

    @property
    def reason(self) -> str:
        """Why it does not; "" if it does."""

    @property
    def scheduler(self) -> str:
        """Which batcher it is under: ``sequence`` or ``dynamic``; "" until it was loaded once."""

    @property
    def declared(self) -> Loaded:
        """What it declares, of the newest copy.

        Raises:
            UnknownModel: It was never loaded.
        """

    @property
    def accepts(self) -> Loaded:
        """What the tensors of a request must be: as ``declared``; where it is unloaded, what the copy declares that is
        still ending its sequences and takes their turns.

        Raises:
            UnknownModel: There is no copy.
        """

    @property
    def settings(self) -> ModelSettings:
        """What the newest copy was loaded with.

        Raises:
            UnknownModel: It is not loaded.
        """

    async def infer(
        self,
        tensors: Tensors,
        *,
        turn: SequenceTurn | None = None,
        priority: int = 0,
        timeout_ns: int | None = None,
    ) -> Tensors:
        """One request. Cancelling the call cancels the request, and with a ``turn`` its whole sequence.

        Args:
            tensors: The inputs.
            turn: Required by a model under the sequence batcher, and by no other.
            priority: Level, 1 is the highest; 0: the model's default.
            timeout_ns: Time that it may wait for its batch; may only shorten what is configured. Not with a ``turn``.

        Raises:
            BadTensor: An input is not what the model declares, or the model listens to audio.
            MissingStart, SequenceAlreadyEnded, DuplicateSequence: The turn is out of place.
            CapacityExceeded, QueueFull, RequestTimeout, BacklogTimeout: No room, or no batch in time.
            StepFailed, InstanceFailed, IdleTimeout: The request, or the sequence that it belongs to, is lost.
            UnknownModel: It is unloaded.
        """

    def leave(self, correlation_id: CorrelationId) -> None:
        """The caller of a sequence has left: it is cancelled, with what of it is not answered. Not live: nothing."""

    async def drained(self) -> None:
        """Returns when no copy has sequences or requests any more; meanwhile nothing new is let in."""

    def stats(self) -> ServedStats:
        """A snapshot.

        Raises:
            UnknownModel: It was never loaded.
        """
