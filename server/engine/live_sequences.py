"""The sequences of the live model, each from its opening to its terminal event, whichever copy of the model reads it.

Runs on the event loop. Decisions are the batchers', words to clients are ``replies``'. Upholds I4, I5, I9.
"""

from collections import Counter

import numpy as np

from asr_model.transcript import FinalOutput, LiveOutput, Sentiment, joined
from server.audit.auditor import AuditLoad
from server.audit.replaying import Audits
from server.clock import Clock
from server.effects import RowCompleted, SequenceEffect, SequenceEnded, SequenceLost, SequencePlaced, SequenceQueued
from server.engine.delays import DelayRecorder
from server.engine.engine_config import SAMPLE_RATE, EngineConfig
from server.engine.final_pass import FinalPass
from server.engine.pump import Pump
from server.engine.replies import OpenFinal, SequenceReplies
from server.engine.sentiment_reader import SentimentReader
from server.engine.sequence_driver import SequenceDriver
from server.engine.sequence_finals import SequenceFinals
from server.engine.sequence_handle import SequenceHandle
from server.errors import DuplicateSequence, MoorageError, PeerError, QueueFull, ShuttingDown, StepFailed
from server.events import CloseCause, SequenceClosed, SequenceFailed
from server.figures.stats import DelayStats
from server.ids import SequenceId
from server.plan import Chunk, SequenceOptions
from server.workers.orders import Loaded


class LiveSequences:
    """Made by the engine.

    Args:
        config: The engine's.
        clock: Time.
        pump: Runs the drivers.
    """

    def __init__(self, config: EngineConfig, clock: Clock, pump: Pump) -> None:
        self._config = config
        self._clock = clock
        self._pump = pump
        self._driver: SequenceDriver | None = None
        self._declared: Loaded | None = None
        self._final_pass: FinalPass | None = None
        self._handles: dict[SequenceId, SequenceHandle] = {}
        """Sequences that a batcher holds."""
        self._untold: set[SequenceHandle] = set()
        """Sequences without their terminal event yet: those, and those that wait for their last finals."""
        self._audits: Audits | None = None
        self._delays = DelayRecorder()
        self._started = 0
        self._ended: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._utterances: Counter[str] = Counter()
        self._taken_samples = 0

    # For the engine

    def use(self, driver: SequenceDriver, declared: Loaded) -> None:
        """New sequences go to this copy of the model, behind those that wait for a slot of the one before: they come
        along, with all that they have sent. What that one has begun to read, it ends.
        """
        before, self._driver, self._declared = self._driver, driver, declared
        if self._audits is not None:
            self._audits.begin(declared.precision)
        if before is not None and driver.has_line:
            self._move_line(before, driver, declared)

    def use_finals(self, final_pass: FinalPass | None) -> None:
        """New sequences have their utterances read by this; None: the live text is the final text."""
        self._final_pass = final_pass

    def watch(self, audits: Audits) -> None:
        """Everything that sequences send and hear is told to these from now on."""
        self._audits = audits

    def stop(self) -> None:
        """Ends every sequence with ShuttingDown."""
        self._driver = None
        for handle in list(self._untold):
            self._fail_at_once(handle, ShuttingDown("the service is shutting down"))
        self._handles.clear()

    @property
    def is_open(self) -> bool:
        """Whether sequences are taken (if there is a slot) and some instance can run them."""
        return self._driver is not None and self._driver.n_ready > 0

    @property
    def n_live(self) -> int:
        """Sequences without their terminal event."""
        return sum(not handle.is_audit for handle in self._untold)

    @property
    def n_started(self) -> int:
        """Sequences opened so far."""
        return self._started

    @property
    def audio_s(self) -> float:
        """Seconds of audio taken."""
        return self._taken_samples / SAMPLE_RATE

    @property
    def ended(self) -> dict[str, int]:
        """Sequences that ended, by cause."""
        return dict(self._ended)

    @property
    def refusals(self) -> dict[str, int]:
        """Opens that were refused, by error code."""
        return dict(self._refusals)

    @property
    def utterances(self) -> dict[str, int]:
        """Utterances that ended, by cause."""
        return dict(self._utterances)

    def delays(self) -> DelayStats:
        """A snapshot."""
        return self._delays.stats(self._clock.now_ns())

    def open(
        self,
        sequence_id: SequenceId,
        options: SequenceOptions,
        *,
        priority: int,
        solo: bool,
        sentiments: SentimentReader | None = None,
    ) -> SequenceHandle:
        """As ``Engine.open``."""
        max_samples = round(self._config.max_utterance_s * SAMPLE_RATE)
        finals = SequenceFinals(self._final_pass, max_samples) if self._final_pass is not None else None
        replies = SequenceReplies(
            sequence_id,
            has_final_pass=finals is not None,
            max_finals=self._config.max_finals,
            wants_sentiment=sentiments is not None,
        )
        handle = SequenceHandle(sequence_id, self, replies, finals)
        handle.sentiments = sentiments
        try:
            self._take(handle, options, priority=priority, solo=solo)
        except MoorageError as error:
            self._refusals[error.code] += 1
            raise
        return handle

    def cancel(self, handle: SequenceHandle, error: MoorageError | None = None) -> None:
        """The caller leaves, or has to: ``error`` is then told and counted. What is pending is dropped."""
        if handle not in self._untold:
            return
        if error is not None:
            self._fail_at_once(handle, error)
        elif self._handles.get(handle.sequence_id) is handle and handle.driver is not None:
            handle.driver.cancel(handle.sequence_id)
            self._pump.run()
        else:  # its audio is through, only finals are pending
            handle.replies.close(CloseCause.CANCELLED, handle.n_samples)
            self._settle(handle)

    # For audits

    def open_replay(self, sequence_id: SequenceId, options: SequenceOptions) -> SequenceHandle:
        """A sequence whose steps are its own, that no final model reads and nothing counts.

        Raises:
            CapacityExceeded, DuplicateSequence, ShuttingDown: As ``Engine.open``.
        """
        replies = SequenceReplies(sequence_id, has_final_pass=False, max_finals=self._config.max_finals)
        handle = SequenceHandle(sequence_id, self, replies, None)
        handle.is_audit = True
        self._take(handle, options, priority=0, solo=True)
        return handle

    def leave_replay(self, sequence_id: SequenceId) -> None:
        """The replay leaves, within this call; a row of it may still be in flight. Not live: nothing."""
        if (handle := self._handles.get(sequence_id)) is not None and handle.is_audit:
            self.cancel(handle)

    def audit_load(self) -> AuditLoad:
        """How busy the live model is."""
        stats = self._running().stats()
        free = (each.slots - each.slots_held - each.slots_quarantined for each in stats.instances if not each.is_lost)
        return AuditLoad(free_slots=sum(free), waiting=stats.backlog)

    @property
    def n_slots(self) -> int:
        """All slots of the live model, those of lost instances too."""
        return sum(each.slots for each in self._running().stats().instances)

    @property
    def tick_reach(self) -> tuple[int, int]:
        """Samples of a tick, and samples behind it that it needs."""
        assert self._declared is not None, "only where a model is loaded"
        return self._declared.tick_samples, self._declared.lookahead_samples

    # For handles

    def offer(self, chunk: Chunk) -> None:
        """Gives the batcher a chunk.

        Raises:
            MoorageError: The batcher's reason; nothing was taken.
            ShuttingDown: The engine is not started, or stopped.
        """
        handle, driver = self._placed(chunk.sequence_id)
        driver.offer(chunk)
        if self._audits is not None:
            self._audits.offered(chunk)
        if handle is None or not handle.is_audit:
            self._taken_samples += chunk.samples.size
        if handle is not None and handle.delays is not None:
            handle.delays.arrived(chunk.samples.size, self._clock.now_ns())
        driver.run_if_due()

    def room(self, sequence_id: SequenceId) -> int:
        """Samples of the sequence that fit now.

        Raises:
            SequenceAlreadyEnded, UnknownSequence: It takes none any more.
            ShuttingDown: The engine is stopped.
        """
        return self._placed(sequence_id)[1].room(sequence_id)

    def touch(self, sequence_id: SequenceId) -> None:
        """Keep-alive.

        Raises:
            SequenceAlreadyEnded, UnknownSequence: The sequence is not live.
            ShuttingDown: The engine is stopped.
        """
        driver = self._placed(sequence_id)[1]
        driver.touch(sequence_id)
        driver.run_if_due()

    # For the drivers

    def notice_room(self, sequence_id: SequenceId) -> None:
        """A row of the sequence was planned."""
        if (handle := self._handles.get(sequence_id)) is not None:
            handle.notify()

    def deal(self, effects: list[SequenceEffect]) -> None:
        """What happened, in order."""
        for effect in effects:
            sequence_id = effect.row.sequence_id if isinstance(effect, RowCompleted) else effect.sequence_id
            handle = self._handles.get(sequence_id)
            if handle is None:
                continue
            match effect:
                case RowCompleted():
                    self._complete_row(handle, effect)
                case SequenceQueued():
                    self._stand(handle, effect.position, effect.expected_wait_ns)
                case SequencePlaced():
                    handle.slot_wait_ns = effect.waited_ns
                    if handle.place:  # else it was never told that it waits, and has waited for one row of an audit
                        self._stand(handle, 0, 0)
                case SequenceEnded() | SequenceLost():
                    self._end(handle, effect)

    def _take(self, handle: SequenceHandle, options: SequenceOptions, *, priority: int, solo: bool) -> None:
        sequence_id, driver = handle.sequence_id, self._running()
        before = self._handles.get(sequence_id)
        if before is not None and before.driver is not driver:
            raise DuplicateSequence(f"sequence {sequence_id} is live")
        if self._audits is not None and not handle.is_audit:
            self._audits.opening()
        driver.offer(
            Chunk(
                sequence_id=sequence_id,
                samples=np.empty(0, dtype=np.float32),
                start=True,
                options=options,
                priority=priority,
                solo=solo,
                gives_way=handle.is_audit,
            )
        )
        assert self._declared is not None, "it comes with the driver"
        handle.driver = driver
        self._handles[sequence_id] = handle
        self._untold.add(handle)
        if not handle.is_audit:
            self._started += 1
            handle.delays = self._delays.open(self._declared.tick_samples, self._declared.lookahead_samples)
            if self._audits is not None:
                self._audits.opened(sequence_id, options, is_recorded=not solo)
        if (place := driver.place_in_line(sequence_id)) is not None:
            self._stand(handle, place.position, place.expected_wait_ns)
            self._pump.run()  # those behind it have moved
        driver.run_if_due()

    def _move_line(self, before: SequenceDriver, driver: SequenceDriver, declared: Loaded) -> None:
        line = before.hand_over()
        handles = [self._handles[sequence_id] for sequence_id in line.sequence_ids]
        for handle in handles:
            handle.driver = driver
            if handle.delays is not None:
                handle.delays.cut_anew(declared.tick_samples, declared.lookahead_samples)
        driver.take_over(line)
        for handle in handles:
            place = driver.place_in_line(handle.sequence_id)
            if place is not None and place.position != handle.place:
                self._stand(handle, place.position, place.expected_wait_ns)
            handle.notify()  # its queue may have other bounds

    def _running(self) -> SequenceDriver:
        if self._driver is None:
            raise ShuttingDown("the service takes no sequences now")
        return self._driver

    def _placed(self, sequence_id: SequenceId) -> tuple[SequenceHandle | None, SequenceDriver]:
        """The sequence's handle and the copy that has it; the present copy says what is wrong with other ids."""
        running = self._running()
        handle = self._handles.get(sequence_id)
        return handle, running if handle is None or handle.driver is None else handle.driver

    def _stand(self, handle: SequenceHandle, position: int, expected_wait_ns: int | None) -> None:
        """Its place in the line for a slot; 0: it has one."""
        handle.place = position
        handle.replies.queue(position, expected_wait_ns)
        handle.notify()

    def _end(self, handle: SequenceHandle, effect: SequenceEnded | SequenceLost) -> None:
        del self._handles[handle.sequence_id]
        self._audited_end(handle, is_whole=_is_answered(effect))
        if isinstance(effect, SequenceEnded):
            handle.replies.close(effect.cause, effect.received_samples)
        else:
            handle.replies.fail(effect.error)
        self._settle(handle)

    def _complete_row(self, handle: SequenceHandle, effect: RowCompleted) -> None:
        output = effect.output
        if self._audits is not None:
            self._audits.row(effect)
        if not isinstance(output, LiveOutput):
            self._fail_at_once(handle, StepFailed(f"the model answered {type(output).__name__}"))
            return
        if handle.delays is not None:
            handle.delays.answered(effect.row, output, self._clock.now_ns())
        final = handle.replies.complete_row(effect, output)
        if output.ended is not None and (output.ended.words or effect.row.flush) and not handle.is_audit:
            self._utterances[output.ended.cause.value] += 1
        if final is not None:
            (self._ask_final if final.wants_text else self._ask_sentiment)(handle, final)
        if handle.finals is not None:
            handle.finals.follow(output)
        if handle.replies.is_overrun:
            self._fail_at_once(handle, QueueFull("too many results wait to be read"))
        self._settle(handle)

    def _ask_final(self, handle: SequenceHandle, final: OpenFinal) -> None:
        assert handle.finals is not None, "only with a final pass do finals stay open"

        def on_text(text: FinalOutput | None) -> None:
            handle.replies.resolve(final, text)
            if not final.is_resolved:
                self._ask_sentiment(handle, final)
            self._settle(handle)

        handle.finals.ask(final.ended, on_text)

    def _ask_sentiment(self, handle: SequenceHandle, final: OpenFinal) -> None:
        assert handle.sentiments is not None, "only where it was asked for do finals wait for it"

        def on_sentiment(sentiment: Sentiment | None) -> None:
            if handle in self._untold:
                handle.replies.feel(final, sentiment)
                self._settle(handle)

        handle.sentiments.ask(joined(final.event.words), on_sentiment)

    def _fail_at_once(self, handle: SequenceHandle, error: MoorageError) -> None:
        """Ends a sequence for a reason of the engine's own."""
        if self._handles.get(handle.sequence_id) is handle:
            del self._handles[handle.sequence_id]
            self._audited_end(handle, is_whole=False)
            if handle.driver is not None:
                handle.driver.cancel(handle.sequence_id)
        handle.replies.fail(error, at_once=True)
        self._settle(handle)

    def _audited_end(self, handle: SequenceHandle, *, is_whole: bool) -> None:
        if self._audits is not None and not handle.is_audit:
            self._audits.closed(handle.sequence_id, is_whole=is_whole)

    def _settle(self, handle: SequenceHandle) -> None:
        """After its replies changed: once all is told, nothing more is kept for it."""
        if handle.delays is not None:
            handle.delays.told(handle.replies.n_finals_told, self._clock.now_ns())
        if handle.replies.is_told and handle in self._untold:
            self._untold.discard(handle)
            if handle.delays is not None:
                self._delays.close(handle.delays)
            if not handle.is_audit:
                self._ended[_cause(handle.replies.terminal)] += 1
            if handle.finals is not None:
                handle.finals.cancel()
        handle.notify()


def _is_answered(effect: SequenceEnded | SequenceLost) -> bool:
    """Whether the sequence was read to its end. What its peer is to blame for is told after that."""
    if isinstance(effect, SequenceEnded):
        return effect.cause is CloseCause.END
    return isinstance(effect.error, PeerError)


def _cause(terminal: SequenceClosed | SequenceFailed | None) -> str:
    assert terminal is not None, "all is told, so the end is known"
    return terminal.cause.value if isinstance(terminal, SequenceClosed) else terminal.error.code
