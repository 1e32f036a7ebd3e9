"""One sequence as its caller sees it: audio in with back-pressure, events out. Runs on the event loop.

A handle has one sender and one reader; they may be different tasks.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import numpy as np

from server.batching.admission import check_audio
from server.engine.delays import SequenceDelays
from server.engine.replies import SequenceReplies
from server.engine.sentiment_reader import SentimentReader
from server.engine.sequence_driver import SequenceDriver
from server.engine.sequence_finals import SequenceFinals
from server.errors import MoorageError, QueueFull, SequenceAlreadyEnded
from server.events import Event
from server.ids import SequenceId
from server.plan import Chunk, Samples


class SequencePort(Protocol):
    """What a handle needs of the engine."""

    def offer(self, chunk: Chunk) -> None:
        """Takes the chunk whole, or raises."""

    def room(self, sequence_id: SequenceId) -> int:
        """Samples of the sequence that fit now; raises if it takes none any more."""

    def touch(self, sequence_id: SequenceId) -> None:
        """Keep-alive."""

    def cancel(self, handle: "SequenceHandle") -> None:
        """The caller leaves."""


class SequenceHandle:
    """Made by ``Engine.open``."""

    def __init__(
        self, sequence_id: SequenceId, port: SequencePort, replies: SequenceReplies, finals: SequenceFinals | None
    ) -> None:
        self._sequence_id = sequence_id
        self._port = port
        self._sending = asyncio.Lock()
        self._writable = asyncio.Event()
        self._readable = asyncio.Event()
        self._n_samples = 0
        self.replies = replies
        """The engine's."""
        self.finals = finals
        """The engine's; None where there is no final model."""
        self.place = 0
        """The engine's: where it waits for a slot, 1 is next; 0: it has one."""
        self.slot_wait_ns = 0
        """The engine's: how long it waited for its slot, once it has one."""
        self.is_audit = False
        """The engine's: nobody's client, so that it is in no count."""
        self.sentiments: SentimentReader | None = None
        """The engine's: who tells how its finals sound; None: nobody asked."""
        self.delays: SequenceDelays | None = None
        """The engine's: how late it is told things."""
        self.driver: SequenceDriver | None = None
        """The engine's: the copy of the model that has it."""

    @property
    def sequence_id(self) -> SequenceId:
        """Its id."""
        return self._sequence_id

    @property
    def n_samples(self) -> int:
        """Samples taken so far."""
        return self._n_samples

    async def send(self, samples: Samples) -> None:
        """Takes the sequence's next samples, float32 [N]; waits while there is no room for them.

        Raises:
            BadAudio: Not float32 [N], or not finite. Nothing was taken and the sequence goes on.
            SequenceAlreadyEnded: ``end`` was called, or the sequence is over: its terminal event says why.
        """
        check_audio(samples)
        async with self._sending:
            if not samples.size:
                self.keep_alive()
            position = 0
            while position < samples.size:
                part = samples[position : position + await self._room()]
                self._port.offer(Chunk(sequence_id=self._sequence_id, samples=part))
                self._n_samples += part.size
                if self.finals is not None:
                    self.finals.append(part)
                position += part.size

    async def finalize(self) -> None:
        """Ends the utterance after the samples sent so far; it is answered by exactly one UtteranceFinal.

        Raises:
            SequenceAlreadyEnded: As for ``send``.
        """
        nothing = np.empty(0, dtype=np.float32)
        await self._mark(Chunk(sequence_id=self._sequence_id, samples=nothing, finalize=True))

    async def end(self, parting: MoorageError | None = None) -> None:
        """Ends the sequence after the samples sent so far; the rest of its events comes, then the terminal one.

        Args:
            parting: Why, if not because the caller is done: the terminal event is then SequenceFailed with it.

        Raises:
            SequenceAlreadyEnded: As for ``send``.
        """
        nothing = np.empty(0, dtype=np.float32)
        await self._mark(Chunk(sequence_id=self._sequence_id, samples=nothing, end=True, parting=parting))

    def keep_alive(self) -> None:
        """The idle clock starts anew.

        Raises:
            SequenceAlreadyEnded: As for ``send``.
        """
        self._check_live()
        self._port.touch(self._sequence_id)

    async def cancel(self) -> None:
        """Leaves at once: what is pending is dropped, the slot is freed. Does nothing after the terminal event."""
        self._port.cancel(self)

    async def events(self) -> AsyncIterator[Event]:
        """All events in order; ends after the terminal one."""
        while True:
            event = self.replies.take()
            if event is not None:
                self._writable.set()
                yield event
            elif self.replies.is_told:
                return
            else:
                self._readable.clear()
                await self._readable.wait()

    def notify(self) -> None:
        """The engine's: there may be room, events, or an end."""
        self._writable.set()
        self._readable.set()

    def _check_live(self) -> None:
        """The id may have a new tenant, who must not get what is meant for this one."""
        if self.replies.terminal is not None:
            raise SequenceAlreadyEnded(f"sequence {self._sequence_id} is over")

    async def _room(self) -> int:
        """Samples that fit, at least 1."""
        while True:
            self._check_live()
            room = self._port.room(self._sequence_id)
            if room > 0 and not self.replies.is_full:
                return room
            self._writable.clear()
            await self._writable.wait()

    async def _mark(self, chunk: Chunk) -> None:
        async with self._sending:
            while True:
                self._check_live()
                try:
                    return self._port.offer(chunk)
                except QueueFull:
                    self._writable.clear()
                    await self._writable.wait()
