"""The async driver: the only caller of the batchers' plan and commit, and the owner of the one timer.

Everything here runs on the event loop and does little: models run in workers (I10), decisions are the batchers', words
to clients are ``replies``'. Upholds I4, I5, I9.
"""

import asyncio
import logging
from collections import Counter

import numpy as np

from asr_model.transcript import FinalOutput, LiveOutput
from server.batching.sequence_batcher import SequenceBatcher
from server.clock import Clock, Timer
from server.effects import RowCompleted, SequenceEffect, SequenceEnded
from server.engine.delays import DelayRecorder
from server.engine.engine_config import SAMPLE_RATE, EngineConfig
from server.engine.final_pass import FinalPass
from server.engine.replies import OpenFinal, SequenceReplies
from server.engine.sequence_finals import SequenceFinals
from server.engine.sequence_handle import SequenceHandle
from server.errors import MoorageError, QueueFull, ShuttingDown, StepFailed
from server.events import CloseCause, SequenceClosed, SequenceFailed
from server.figures.stats import EngineStats
from server.figures.step_recorder import StepRecorder
from server.ids import InstanceIndex, SequenceId
from server.plan import NOTHING_ASKED, BatchFailure, BatchPlan, Chunk, SequenceOptions
from server.workers.device_gate import Cells
from server.workers.orders import BatchOutcome
from server.workers.pool import InstancePool, together
from server.workers.worker import shared_cells

logger = logging.getLogger(__name__)


class Engine:
    """Models, batchers and live sequences of one service.

    Args:
        config: What to run.
        clock: Time; nothing else here reads one.
    """

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._pools: list[InstancePool] = []
        self._live_pool: InstancePool | None = None
        self._final_pass: FinalPass | None = None
        self._batcher: SequenceBatcher | None = None
        self._handles: dict[SequenceId, SequenceHandle] = {}
        """Sequences that the batcher holds."""
        self._untold: set[SequenceHandle] = set()
        """Sequences without their terminal event yet: those, and those that wait for their last finals."""
        self._timer: Timer | None = None
        self._armed_at_ns: int | None = None
        self._recorder = StepRecorder()
        self._delays = DelayRecorder()
        self._started = 0
        self._ended: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._utterances: Counter[str] = Counter()
        self._taken_samples = 0

    # Life

    async def start(self) -> None:
        """Loads all models, warms them up, measures what is to be measured. After an error nothing is left running.

        Raises:
            ConfigError: A model refused its settings or needs the other scheduler.
            InstanceFailed: A model could not be loaded.
        """
        n_final = self._config.final.instances if self._config.final is not None else 0
        cells = shared_cells(self._config.worker_kind, self._config.live.instances, n_final)
        live = InstancePool(self._config.live_pool(), cells, self._lose_live, self._restore_live)
        self._pools = [live]
        try:
            await self._bring_up(live, cells)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends every sequence with ShuttingDown, then all workers. No process, thread or task is left."""
        self._batcher = None
        self._arm(None)
        for handle in list(self._untold):
            self._fail_at_once(handle, ShuttingDown("the service is shutting down"))
        self._handles.clear()
        await asyncio.gather(*(pool.stop() for pool in self._pools))

    @property
    def is_ready(self) -> bool:
        """Whether sequences are taken (if there is a slot) and some live instance can run them."""
        return self._batcher is not None and self._live_pool is not None and self._live_pool.n_ready > 0

    # Sequences

    def open(self, sequence_id: SequenceId, options: SequenceOptions = NOTHING_ASKED) -> SequenceHandle:
        """Opens a sequence; its slot is taken from now on.

        Args:
            sequence_id: Not live now.
            options: What its client asked for.

        Raises:
            CapacityExceeded: Every slot is taken.
            DuplicateSequence: The id is live.
            ShuttingDown: The engine is not started, or stopped.
        """
        max_samples = round(self._config.max_utterance_s * SAMPLE_RATE)
        finals = SequenceFinals(self._final_pass, max_samples) if self._final_pass is not None else None
        replies = SequenceReplies(sequence_id, has_final_pass=finals is not None, max_finals=self._config.max_finals)
        handle = SequenceHandle(sequence_id, self, replies, finals)
        try:
            self.offer(
                Chunk(sequence_id=sequence_id, samples=np.empty(0, dtype=np.float32), start=True, options=options)
            )
        except MoorageError as error:
            self._refusals[error.code] += 1
            raise
        self._started += 1
        assert self._live_pool is not None, "only a started engine opens sequences"
        declared = self._live_pool.declared
        handle.delays = self._delays.open(declared.tick_samples, declared.lookahead_samples)
        self._handles[sequence_id] = handle
        self._untold.add(handle)
        return handle

    def offer(self, chunk: Chunk) -> None:
        """For handles: gives the batcher a chunk.

        Raises:
            MoorageError: The batcher's reason; nothing was taken.
            ShuttingDown: The engine is not started, or stopped.
        """
        self._running().offer(chunk, self._clock.now_ns())
        self._taken_samples += chunk.samples.size
        if (handle := self._handles.get(chunk.sequence_id)) is not None and handle.delays is not None:
            handle.delays.arrived(chunk.samples.size, self._clock.now_ns())
        self._pump_if_due()

    def room(self, sequence_id: SequenceId) -> int:
        """For handles: samples of the sequence that fit now.

        Raises:
            SequenceAlreadyEnded, UnknownSequence: It takes none any more.
            ShuttingDown: The engine is stopped.
        """
        return self._running().room(sequence_id)

    def touch(self, sequence_id: SequenceId) -> None:
        """For handles: keep-alive.

        Raises:
            SequenceAlreadyEnded, UnknownSequence: The sequence is not live.
            ShuttingDown: The engine is stopped.
        """
        self._running().touch(sequence_id, self._clock.now_ns())
        self._pump_if_due()

    def cancel(self, handle: SequenceHandle, error: MoorageError | None = None) -> None:
        """The caller leaves, or has to: ``error`` is then told and counted. What is pending is dropped."""
        if handle not in self._untold:
            return
        if error is not None:
            self._fail_at_once(handle, error)
        elif self._handles.get(handle.sequence_id) is handle and self._batcher is not None:
            self._deal(self._batcher.cancel(handle.sequence_id, self._clock.now_ns()))
            self._pump(self._clock.now_ns())
        else:  # its audio is through, only finals are pending
            handle.replies.close(CloseCause.CANCELLED, handle.n_samples)
            self._settle(handle)

    def stats(self) -> EngineStats:
        """A snapshot."""
        batcher = self._batcher.stats() if self._batcher is not None else None
        instances = batcher.instances if batcher is not None else ()
        final = self._final_pass
        stale_results = (batcher.stale_results if batcher is not None else 0) + (final.stale_results if final else 0)
        return EngineStats(
            is_ready=self.is_ready,
            is_loaded=self._batcher is not None,
            models=tuple(pool.stats() for pool in self._pools),
            live=self._recorder.stats(),
            final=final.stats() if final is not None else None,
            sequences_live=len(self._untold),
            sequences_started=self._started,
            sequences_ended=dict(self._ended),
            slots_total=sum(instance.slots for instance in instances),
            slots_used=sum(instance.slots_held for instance in instances),
            slots_quarantined=sum(instance.slots_quarantined for instance in instances),
            refusals=dict(self._refusals),
            utterances=dict(self._utterances),
            audio_s=self._taken_samples / SAMPLE_RATE,
            finals_waiting=final.n_waiting if final is not None else 0,
            finals_replaced=final.replaced if final is not None else {},
            stale_results=stale_results,
            delays=self._delays.stats(self._clock.now_ns()),
            early_finals=final.early_outcomes if final is not None else {},
        )

    # Driving

    async def _bring_up(self, live: InstancePool, cells: Cells) -> None:
        """Loads everything at the same time, then prepares: the live model alone, so that its measurement is right."""
        settings = self._config.final
        if settings is None:
            await live.load()
            await live.prepare()
        else:
            final = InstancePool(self._config.final_pool(settings), cells, self._lose_final, self._restore_final)
            self._pools = [live, final]
            await together([live.load(), final.load()])
            await live.prepare()
            await final.prepare()
            final_config = self._config.final_batcher(settings)
            self._final_pass = FinalPass(final_config, final, self._clock, self._pump_now)
        self._live_pool = live
        self._batcher = SequenceBatcher(self._config.live_batcher(live.declared, live.slots))

    def _running(self) -> SequenceBatcher:
        if self._batcher is None:
            raise ShuttingDown("the service takes no sequences now")
        return self._batcher

    def _pump_now(self) -> None:
        self._pump(self._clock.now_ns())

    def _pump_if_due(self) -> None:
        """After audio: most of it completes no tick, and a deadline that moves away needs no other timer."""
        now_ns, due_ns = self._clock.now_ns(), self._running().next_deadline_ns()
        if due_ns is not None and (self._armed_at_ns is None or due_ns <= now_ns or due_ns < self._armed_at_ns):
            self._pump(now_ns)

    def _pump(self, now_ns: int) -> None:
        """Does what is due: expires, plans, submits; then arms the timer for what is due next."""
        if self._batcher is None or self._live_pool is None:
            return
        self._batcher.expire(now_ns)
        while (plan := self._batcher.plan(now_ns)) is not None:
            self._recorder.planned([now_ns - row.ready_at_ns for row in plan.rows])
            self._live_pool.submit(plan, lambda outcome, plan=plan: self._commit(plan, outcome))  # type: ignore[misc]
            for row in plan.rows:
                if (handle := self._handles.get(row.sequence_id)) is not None:
                    handle.notify()  # its queue has room now
        deadlines = [self._batcher.next_deadline_ns()]
        if self._final_pass is not None:
            self._final_pass.pump(now_ns)
            deadlines.append(self._final_pass.next_deadline_ns())
        self._arm(min((each for each in deadlines if each is not None), default=None))

    def _arm(self, deadline_ns: int | None) -> None:
        if deadline_ns == self._armed_at_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at_ns = deadline_ns
        self._timer = None if deadline_ns is None else self._clock.call_at(deadline_ns, self._on_timer)

    def _on_timer(self) -> None:
        deadline_ns, self._timer, self._armed_at_ns = self._armed_at_ns, None, None
        # A timer that fires early must still meet its deadline, or it would be armed again and again.
        self._pump(max(deadline_ns or 0, self._clock.now_ns()))

    def _commit(self, plan: BatchPlan, outcome: BatchOutcome) -> None:
        if self._batcher is None or self._live_pool is None:
            return
        self._recorder.finished(outcome, plan.instance)
        effects = self._batcher.commit(plan, outcome, self._clock.now_ns())
        if isinstance(outcome, BatchFailure) and outcome.instance_lost:
            logger.error(
                "live instance %d was lost in a step of %d rows, its sequences with it: %s",
                plan.instance,
                len(plan.rows),
                outcome.error,
            )
            self._live_pool.replace(plan.instance)
        self._deal(effects)
        self._pump(self._clock.now_ns())

    def _lose_live(self, instance: InstanceIndex) -> None:
        if self._batcher is not None:
            self._deal(self._batcher.lose_instance(instance, "the instance died", self._clock.now_ns()))
            self._pump(self._clock.now_ns())

    def _restore_live(self, instance: InstanceIndex) -> None:
        if self._batcher is not None:
            logger.warning("live instance %d is back", instance)
            self._batcher.instance_restored(instance, self._clock.now_ns())
            self._pump(self._clock.now_ns())

    def _lose_final(self, instance: InstanceIndex) -> None:
        if self._final_pass is not None:
            self._final_pass.lose_instance(instance)
            self._pump_now()

    def _restore_final(self, instance: InstanceIndex) -> None:
        if self._final_pass is not None:
            self._final_pass.restore_instance(instance)

    # What sequences are told

    def _deal(self, effects: list[SequenceEffect]) -> None:
        for effect in effects:
            if isinstance(effect, RowCompleted):
                handle = self._handles.get(effect.row.sequence_id)
                if handle is not None:
                    self._complete_row(handle, effect)
                continue
            handle = self._handles.pop(effect.sequence_id, None)
            if handle is None:
                continue
            if isinstance(effect, SequenceEnded):
                handle.replies.close(effect.cause, effect.received_samples)
            else:
                handle.replies.fail(effect.error)
            self._settle(handle)

    def _complete_row(self, handle: SequenceHandle, effect: RowCompleted) -> None:
        output = effect.output
        if not isinstance(output, LiveOutput):
            self._fail_at_once(handle, StepFailed(f"the model answered {type(output).__name__}"))
            return
        if handle.delays is not None:
            handle.delays.answered(effect.row, output, self._clock.now_ns())
        final = handle.replies.complete_row(effect, output)
        if output.ended is not None and (output.ended.words or effect.row.flush):
            self._utterances[output.ended.cause.value] += 1
        if final is not None:
            self._ask_final(handle, final)
        if handle.finals is not None:
            handle.finals.follow(output)
        if handle.replies.is_overrun:
            self._fail_at_once(handle, QueueFull("too many results wait to be read"))
        self._settle(handle)

    def _ask_final(self, handle: SequenceHandle, final: OpenFinal) -> None:
        assert handle.finals is not None, "only with a final pass do finals stay open"

        def on_text(text: FinalOutput | None) -> None:
            handle.replies.resolve(final, text)
            self._settle(handle)

        handle.finals.ask(final.ended, on_text)

    def _fail_at_once(self, handle: SequenceHandle, error: MoorageError) -> None:
        """Ends a sequence for a reason of the engine's own."""
        if self._handles.get(handle.sequence_id) is handle:
            del self._handles[handle.sequence_id]
            if self._batcher is not None:
                self._batcher.cancel(handle.sequence_id, self._clock.now_ns())
        handle.replies.fail(error, at_once=True)
        self._settle(handle)

    def _settle(self, handle: SequenceHandle) -> None:
        """After its replies changed: once all is told, nothing more is kept for it."""
        if handle.delays is not None:
            handle.delays.told(handle.replies.n_finals_told, self._clock.now_ns())
        if handle.replies.is_told and handle in self._untold:
            self._untold.discard(handle)
            if handle.delays is not None:
                self._delays.close(handle.delays)
            self._ended[_cause(handle.replies.terminal)] += 1
            if handle.finals is not None:
                handle.finals.cancel()
        handle.notify()


def _cause(terminal: SequenceClosed | SequenceFailed | None) -> str:
    assert terminal is not None, "all is told, so the end is known"
    return terminal.cause.value if isinstance(terminal, SequenceClosed) else terminal.error.code
