"""The second pass: utterances that ended go through the dynamic batcher to the final model, and their texts back.

Runs on the event loop; a text that cannot be had is told as None, and the live text serves. Never fails a sequence.
"""

import logging
from collections import Counter
from collections.abc import Callable
from itertools import count

from asr_model.transcript import FinalOutput
from server.clock import Clock
from server.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig
from server.effects import RequestCompleted, RequestEffect
from server.errors import MoorageError
from server.ids import InstanceIndex, RequestId
from server.orders import BatchOutcome
from server.plan import BatchFailure, Request, RequestBatch, Samples
from server.pool import InstancePool
from server.stats import StepStats
from server.step_recorder import StepRecorder

OnText = Callable[[RequestId | None, FinalOutput | None], None]
"""Takes the id that ``offer`` gave (None if it gave none) and the text (None if there will be none)."""

logger = logging.getLogger(__name__)


class FinalPass:
    """The dynamic batcher with its pool.

    Args:
        config: The batcher's.
        pool: Its instances, ready.
        clock: Time.
        on_change: Called when the batcher may have something to plan; ``pump`` must follow.
    """

    def __init__(
        self, config: DynamicBatcherConfig, pool: InstancePool, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        self._batcher = DynamicBatcher(config)
        self._pool = pool
        self._clock = clock
        self._on_change = on_change
        self._ids = count(1)
        self._waiting: dict[RequestId, OnText] = {}
        self._replaced: Counter[str] = Counter()
        self._recorder = StepRecorder()

    @property
    def n_waiting(self) -> int:
        """Utterances whose text is pending."""
        return len(self._waiting)

    @property
    def replaced(self) -> dict[str, int]:
        """Utterances without a final text, by reason."""
        return dict(self._replaced)

    @property
    def stale_results(self) -> int:
        """Results that came after their caller had left."""
        return self._batcher.stats().stale_results

    def offer(self, samples: Samples | None, on_text: OnText) -> RequestId | None:
        """Asks for an utterance's final text.

        Args:
            samples: float32 [N], None if the utterance's audio could not be kept.
            on_text: Called exactly once on the loop unless cancelled, perhaps within this call.

        Returns:
            The request's id for ``cancel``; None if the call came already.
        """
        if samples is None or not self._pool.n_ready:
            self._replace(on_text, None, "no_audio" if samples is None else "failed")
            return None
        request_id = RequestId(next(self._ids))
        try:
            self._batcher.offer(Request(request_id=request_id, samples=samples), self._clock.now_ns())
        except MoorageError as error:
            self._replace(on_text, None, error.code)
            return None
        self._waiting[request_id] = on_text
        return request_id

    def cancel(self, request_id: RequestId) -> None:
        """The caller left: its ``on_text`` will not be called."""
        self._waiting.pop(request_id, None)
        self._batcher.cancel(request_id, self._clock.now_ns())

    def next_deadline_ns(self) -> int | None:
        """When ``pump`` has something to do without other input."""
        return self._batcher.next_deadline_ns()

    def pump(self, now_ns: int) -> None:
        """Submits every batch that is due."""
        while (batch := self._batcher.plan(now_ns)) is not None:
            self._recorder.planned([now_ns - at_ns for at_ns in batch.queued_at_ns])
            self._pool.submit(batch, lambda outcome, batch=batch: self._commit(batch, outcome))  # type: ignore[misc]

    def lose_instance(self, instance: InstanceIndex) -> None:
        """An instance died between batches."""
        self._deal(self._batcher.lose_instance(instance, "the instance died", self._clock.now_ns()))
        self._give_up_if_alone()

    def restore_instance(self, instance: InstanceIndex) -> None:
        """A lost instance takes batches again."""
        self._batcher.instance_restored(instance, self._clock.now_ns())
        self._on_change()

    def stats(self) -> StepStats:
        """What the batches did."""
        return self._recorder.stats()

    def _commit(self, batch: RequestBatch, outcome: BatchOutcome) -> None:
        self._recorder.finished(outcome)
        effects = self._batcher.commit(batch, outcome, self._clock.now_ns())
        if isinstance(outcome, BatchFailure) and outcome.instance_lost:
            logger.error("final instance %d was lost in a batch: %s", batch.instance, outcome.error)
            self._pool.replace(batch.instance)
        self._deal(effects)
        self._give_up_if_alone()
        self._on_change()

    def _deal(self, effects: list[RequestEffect]) -> None:
        for effect in effects:
            on_text = self._waiting.pop(effect.request_id, None)
            if on_text is None:
                continue
            if not isinstance(effect, RequestCompleted) or not isinstance(effect.output, FinalOutput):
                self._replace(on_text, effect.request_id, "failed")
            elif not effect.output.words:  # the live model heard words in it, or nobody had asked
                self._replace(on_text, effect.request_id, "empty")
            else:
                on_text(effect.request_id, effect.output)

    def _give_up_if_alone(self) -> None:
        """With no instance left nobody knows when the next batch will run: those who wait get their live text."""
        if self._pool.n_ready:
            return
        waiting, self._waiting = self._waiting, {}
        for request_id, on_text in waiting.items():
            self._batcher.cancel(request_id, self._clock.now_ns())
            self._replace(on_text, request_id, "failed")

    def _replace(self, on_text: OnText, request_id: RequestId | None, reason: str) -> None:
        self._replaced[reason] += 1
        on_text(request_id, None)
