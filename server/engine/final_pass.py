"""The second pass: utterances that ended go through the dynamic batcher to the final model, and their texts back.

Runs on the event loop; a text that cannot be had is told as None, and the live text serves. Never fails a sequence.
Where there is nothing else to do, an utterance that will probably end is read early; its text waits until it has.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from asr_model.transcript import AudioRange, FinalOutput
from server.batching.dynamic_batcher import DynamicBatcher, DynamicBatcherConfig
from server.clock import Clock
from server.effects import RequestCompleted, RequestEffect
from server.errors import MoorageError
from server.figures.stats import StepStats
from server.figures.step_recorder import StepRecorder
from server.ids import InstanceIndex, RequestId
from server.plan import BatchFailure, Request, RequestBatch, Samples
from server.workers.orders import BatchOutcome
from server.workers.pool import InstancePool

OnText = Callable[[RequestId | None, FinalOutput | None], None]
"""Takes the id that ``offer`` gave (None if it gave none) and the text (None if there will be none)."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class EarlyText:
    """An utterance that is read before it has ended."""

    request_id: RequestId
    audio: AudioRange
    output: FinalOutput | None = None
    """Once it is read."""
    is_void: bool = False
    """It could not be read."""


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
        self._early: dict[RequestId, EarlyText] = {}
        self._replaced: Counter[str] = Counter()
        self._early_outcomes: Counter[str] = Counter()
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
    def early_outcomes(self) -> dict[str, int]:
        """Utterances offered before they had ended: ``used`` as their final, or ``wasted``."""
        return dict(self._early_outcomes)

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
        self._give_way()
        return request_id

    def offer_early(self, samples: Samples, audio: AudioRange) -> EarlyText | None:
        """Reads an utterance that has not ended; None if there are better things to do."""
        early = EarlyText(request_id=RequestId(next(self._ids)), audio=audio)
        request = Request(request_id=early.request_id, samples=samples, is_early=True)
        if not self._pool.n_ready or not self._batcher.takes_early(samples):
            return None
        self._batcher.offer(request, self._clock.now_ns())
        self._early[early.request_id] = early
        return early

    def adopt(self, early: EarlyText, on_text: OnText) -> RequestId | None:
        """The utterance ended as was expected: its text is told as that of ``offer``, which this call replaces.

        ``early`` must not be void.
        """
        self._early_outcomes["used"] += 1
        if early.output is not None:
            self._tell(on_text, early.request_id, early.output)
            return None
        del self._early[early.request_id]
        self._waiting[early.request_id] = on_text
        self._batcher.confirm(early.request_id, self._clock.now_ns())
        self._give_way()
        return early.request_id

    def drop(self, early: EarlyText) -> None:
        """The utterance did not end there."""
        self._early_outcomes["wasted"] += 1
        if self._early.pop(early.request_id, None) is not None:
            self._batcher.cancel(early.request_id, self._clock.now_ns())
            self._give_way()

    def cancel(self, request_id: RequestId) -> None:
        """The caller left: its ``on_text`` will not be called."""
        self._waiting.pop(request_id, None)
        self._batcher.cancel(request_id, self._clock.now_ns())
        self._give_way()

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
        self._give_way()

    def restore_instance(self, instance: InstanceIndex) -> None:
        """A lost instance takes batches again."""
        self._batcher.instance_restored(instance, self._clock.now_ns())
        self._on_change()

    def stats(self) -> StepStats:
        """What the batches did."""
        return self._recorder.stats()

    def _commit(self, batch: RequestBatch, outcome: BatchOutcome) -> None:
        if not (isinstance(outcome, BatchFailure) and outcome.is_abandoned):
            self._recorder.finished(outcome, batch.instance)
        effects = self._batcher.commit(batch, outcome, self._clock.now_ns())
        if isinstance(outcome, BatchFailure) and outcome.instance_lost:
            logger.error("final instance %d was lost in a batch: %s", batch.instance, outcome.error)
            self._pool.replace(batch.instance)
        self._deal(effects)
        self._give_up_if_alone()
        self._give_way()
        self._on_change()

    def _give_way(self) -> None:
        """Stops batches that nobody wants, and early ones that others wait for."""
        for batch in self._batcher.to_abandon():
            self._pool.abandon(batch)

    def _deal(self, effects: list[RequestEffect]) -> None:
        for effect in effects:
            output = effect.output if isinstance(effect, RequestCompleted) else None
            output = output if isinstance(output, FinalOutput) else None
            if (early := self._early.pop(effect.request_id, None)) is not None:
                early.output, early.is_void = output, output is None
            elif (on_text := self._waiting.pop(effect.request_id, None)) is not None:
                self._tell(on_text, effect.request_id, output)

    def _tell(self, on_text: OnText, request_id: RequestId, output: FinalOutput | None) -> None:
        if output is None:
            self._replace(on_text, request_id, "failed")
        elif not output.words:  # the live model heard words in it, or nobody had asked
            self._replace(on_text, request_id, "empty")
        else:
            on_text(request_id, output)

    def _give_up_if_alone(self) -> None:
        """With no instance left nobody knows when the next batch will run: those who wait get their live text."""
        if self._pool.n_ready:
            return
        waiting, self._waiting = self._waiting, {}
        for request_id, on_text in waiting.items():
            self._batcher.cancel(request_id, self._clock.now_ns())
            self._replace(on_text, request_id, "failed")
        early, self._early = self._early, {}
        for each in early.values():
            self._batcher.cancel(each.request_id, self._clock.now_ns())
            each.is_void = True

    def _replace(self, on_text: OnText, request_id: RequestId | None, reason: str) -> None:
        self._replaced[reason] += 1
        on_text(request_id, None)
