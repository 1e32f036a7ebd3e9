"""Decodes recorded sequences again through the engine, one at a time, in the pauses of the service.

Runs on the event loop and decides nothing: what to replay, and what it means, is the auditor's. A replay has a slot of
its own and runs in steps of its own; it rests between them. No client is refused or queued because of it:

* it begins only where it leaves a slot free, and nobody waits for one;
* it leaves in the very call in which a client takes the last free slot, or finds none. Its slot is then free at once;
* if a row of it is in flight at that moment, its slot goes to the first client that finds none free as soon as the row
  is through (``Chunk.gives_way``): the client is let in at once, and its first row runs behind that row.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

from server.audit.auditor import AuditLoad, Auditor, AuditStats, Replay
from server.audit.comparison import Outcome
from server.audit.report import difference_text
from server.clock import Clock, Timer
from server.effects import RowCompleted
from server.errors import MoorageError
from server.events import Event, SequenceClosed
from server.ids import SequenceId
from server.plan import Chunk, Samples, SequenceOptions

REST: Final = 3.0
"""Times as long as a part of the audio took, the replay then rests: it takes a quarter of an instance at most."""
MAX_REST_S: Final = 1.0
"""Less than any idle timeout that people set."""
RETRY_NS: Final = 1_000_000_000
"""Between two looks at whether there is room."""

logger = logging.getLogger(__name__)


class ReplayHandle(Protocol):
    """What is needed of a sequence's handle."""

    async def send(self, samples: Samples) -> None:
        """Takes its next samples; waits while there is no room."""

    async def finalize(self) -> None:
        """Ends the utterance."""

    async def end(self) -> None:
        """Ends the sequence."""

    def events(self) -> AsyncIterator[Event]:
        """What it is told, up to the terminal event."""


class AuditPort(Protocol):
    """What the audits need of the engine."""

    def open_replay(self, sequence_id: SequenceId, options: SequenceOptions) -> ReplayHandle:
        """A sequence whose steps are its own, that no final model reads and nothing counts; raises MoorageError."""

    def leave_replay(self, sequence_id: SequenceId) -> None:
        """The replay leaves, within this call. Not live: nothing."""

    def audit_load(self) -> AuditLoad:
        """How busy the live model is."""

    @property
    def n_slots(self) -> int:
        """All slots of the live model."""

    @property
    def tick_reach(self) -> tuple[int, int]:
        """Samples of a tick, and samples behind it that it needs."""


class Audits:
    """The auditor at work.

    Args:
        auditor: Whose decisions these are.
        port: The engine.
        clock: Time.
    """

    def __init__(self, auditor: Auditor, port: AuditPort, clock: Clock) -> None:
        self._auditor = auditor
        self._port = port
        self._clock = clock
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._replay: Replay | None = None
        self._progress = asyncio.Event()
        self._is_stopped = False

    # From the engine

    def begin(self, precision: str) -> None:
        """A live model with that number format takes over."""
        n_slots, share = self._port.n_slots, self._auditor.settings.share
        self._auditor.begin(precision, n_slots)
        self._make_room()  # what it would be compared with is of the model that leaves
        if share and not self._auditor.is_possible:
            logger.warning(
                "audit.share has no effect: an audit needs a slot beside one that is free for a client,"
                " and the live model has %d in all",
                n_slots,
            )

    def opening(self) -> None:
        """A client comes: if it would find no slot, the replay leaves."""
        if self._replay is not None and not self._port.audit_load().free_slots:
            self._make_room()

    def opened(self, sequence_id: SequenceId, options: SequenceOptions, *, is_recorded: bool) -> None:
        """A client's sequence began. If it took the last free slot, the replay leaves its own for the next."""
        if is_recorded:
            self._auditor.opened(sequence_id, options)
        self.opening()

    def offered(self, chunk: Chunk) -> None:
        """It took a chunk."""
        self._auditor.sent(chunk.sequence_id, chunk.samples)
        if chunk.finalize:
            self._auditor.finalized(chunk.sequence_id)

    def row(self, effect: RowCompleted) -> None:
        """One of its rows ran, or one of the replay's."""
        self._auditor.row(effect)
        if self._replay is not None and effect.row.sequence_id == self._replay.replay_id:
            self._progress.set()

    def closed(self, sequence_id: SequenceId, *, is_whole: bool) -> None:
        """It is over: answered to its end, or not."""
        self._auditor.closed(sequence_id, self._clock.now_ns(), is_whole=is_whole)
        self._look()

    def stats(self) -> AuditStats:
        """A snapshot."""
        return self._auditor.stats(self._clock.now_ns())

    async def stop(self) -> None:
        """No replay and no timer is left."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Replays

    def _make_room(self) -> None:
        """The replay, if there is one, leaves."""
        if (replay := self._replay) is not None:
            self._replay = None
            self._auditor.given_up(replay, made_room=True)
            self._port.leave_replay(replay.replay_id)

    def _look(self) -> None:
        """While something waits, a replay begins where there is room, and what is late is dropped."""
        self._auditor.drop_late(self._clock.now_ns())
        if self._is_stopped or self._timer is not None or not self._auditor.is_holding:
            return
        self._timer = self._clock.call_at(self._clock.now_ns() + RETRY_NS, self._look_again)
        if self._task is None:
            # not here: this may be in the middle of telling sequences what a step has brought
            self._task = asyncio.create_task(self._work())

    def _look_again(self) -> None:
        self._timer = None
        self._look()

    async def _work(self) -> None:
        """One replay after another while there is room."""
        try:
            while (replay := self._auditor.next_replay(self._port.audit_load())) is not None:
                await self._run(replay)
                self._auditor.drop_late(self._clock.now_ns())
        finally:
            self._task = None
        if self._timer is not None and not self._auditor.is_holding:
            self._timer.cancel()
            self._timer = None
        self._look()

    async def _run(self, replay: Replay) -> None:
        """One replay from its START to its verdict."""
        is_whole = False
        self._replay = replay
        try:
            handle = self._port.open_replay(replay.replay_id, replay.record.options)
            listening = asyncio.create_task(_listen(handle))
            try:
                await self._speak(replay, handle, listening)
                is_whole = await listening
            finally:
                self._port.leave_replay(replay.replay_id)
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
        except MoorageError as error:
            if self._replay is replay:
                logger.warning("the audit of sequence %s failed: %s", replay.record.sequence_id, error)
        finally:
            if self._replay is replay:  # it has not made room
                self._replay = None
                if is_whole:
                    self._conclude(replay)
                else:
                    self._auditor.given_up(replay, made_room=False)

    async def _speak(self, replay: Replay, handle: ReplayHandle, listening: "asyncio.Task[bool]") -> None:
        """Sends the audio, part by part, with rests; returns early where room is to be made."""
        tick, lookahead = self._port.tick_reach
        sent = 0
        for passage in replay.record.passages():
            for part in _parts(passage.samples, tick):
                began_ns = self._clock.now_ns()
                await handle.send(part)
                sent += part.size
                await self._until_heard(replay, sent - tick - lookahead, listening)
                if self._clock.now_ns() >= replay.drop_at_ns:
                    self._make_room()
                if self._replay is not replay:
                    return
                rest_s = min(MAX_REST_S, REST * (self._clock.now_ns() - began_ns) / 1e9)
                await asyncio.wait([listening], timeout=rest_s)
            if passage.finalize:
                await handle.finalize()
        await handle.end()

    async def _until_heard(self, replay: Replay, n_samples: int, listening: "asyncio.Task[bool]") -> None:
        while replay.alone.heard_samples < n_samples and not listening.done():
            self._progress.clear()
            waiting = asyncio.create_task(self._progress.wait())
            await asyncio.wait([waiting, listening], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    def _conclude(self, replay: Replay) -> None:
        verdict = self._auditor.finished(replay, self._clock.now_ns())
        if verdict.outcome is Outcome.SAME:
            logger.debug("audit: sequence %s heard the same alone", replay.record.sequence_id)
            return
        shows_words = self._auditor.settings.shows_words
        line = difference_text(replay.record, replay.alone, verdict, shows_words=shows_words)
        if verdict.outcome is Outcome.TIE:
            logger.info("audit: a tie within rounding: %s", line)
        else:
            logger.error("audit: a difference that no rounding explains: %s", line)


async def _listen(handle: ReplayHandle) -> bool:
    """Reads everything; whether it was answered to its end."""
    last: Event | None = None
    async for event in handle.events():
        last = event
    return isinstance(last, SequenceClosed)


def _parts(samples: Samples, n_samples: int) -> Iterator[Samples]:
    for first in range(0, samples.size, n_samples):
        yield samples[first : first + n_samples]
