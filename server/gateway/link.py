"""One open connection: its socket, its session and the sequences behind it, one per channel.

A task reads and one per sequence tells; the session between them decides. Upholds I4 towards the client: whatever
fails, it learns why, and what was accepted before is answered.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from server.access.access import Grant
from server.clock import Clock
from server.codec.intake import Intake
from server.codec.resampler import MODEL_RATE
from server.codec.rows import Block
from server.engine.sequence_handle import SequenceHandle
from server.errors import MoorageError, SequenceAlreadyEnded, ServiceError, ShuttingDown, SlowReader, UnknownSequence
from server.events import UtteranceFinal
from server.gateway.stream_log import log_transcript
from server.plan import Samples
from server.wire.close_codes import close_code, close_reason
from server.wire.session import Audio, Close, Command, End, Fail, Finalize, KeepAlive, Outgoing, Session

OVER = (SequenceAlreadyEnded, UnknownSequence, ShuttingDown)
"""What a sequence answers that takes no more: its terminal event tells the client why."""
PACE_S = 0.25
"""A reader that waits for its key's budget shows a sign of life so often."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkParts:
    """What a link joins. The link closes the intake; the socket's loss gives back handles and grant."""

    socket: ServerConnection
    session: Session
    handles: tuple[SequenceHandle, ...]
    """By channel."""
    intake: Intake
    grant: Grant
    clock: Clock
    cancel: Callable[[SequenceHandle, MoorageError | None], None]
    """Leaves a sequence at once; with an error that is told and counted."""
    count_received: Callable[[int], None]
    """Takes the bytes of each message of audio."""
    send_timeout_s: float
    """Time for one message to leave."""
    logs_transcripts: bool = False
    """Whether final texts go to the log."""


class Link:
    """Runs from the upgrade to the close."""

    def __init__(self, parts: LinkParts) -> None:
        self._parts = parts
        self._session = parts.session
        self._taking = asyncio.Lock()
        """Held for one message of the client, so that a parting never comes in the middle of one."""
        self._telling = asyncio.Lock()
        """Held from the session's words to the socket: they leave in the order in which they were decided."""
        self._parting = asyncio.Event()
        """Set when the service ends the session: then a long message is not taken to its end, nor paced."""
        self._given_up: set[SequenceHandle] = set()
        """Ended by the service while they waited for a slot: they take nothing more, the other channels do."""

    async def run(self) -> None:
        """Until every sequence has ended and its end is told, or the client has left."""
        reader = asyncio.create_task(self._read())
        try:
            await asyncio.gather(*(self._tell(channel) for channel in range(len(self._parts.handles))))
        finally:
            reader.cancel()
            await asyncio.wait([reader])
            await self._parts.intake.close()

    def give_up_waiting(self, error: MoorageError) -> None:
        """Ends the sequences that still wait for a slot: what they have sent cannot be answered, so they are told."""
        waiting = [handle for handle in self._parts.handles if handle.place]
        if not waiting:
            return
        self._parting.set()
        self._session.cut(error)
        self._given_up.update(waiting)
        for handle in waiting:
            self._parts.cancel(handle, error)

    async def wind_up(self, error: MoorageError) -> None:
        """Ends the session for a reason of the service's: what was accepted is answered, then ``error`` is told."""
        self._parting.set()
        async with self._taking:
            await self._apply(self._session.wind_up(error))

    # From the client

    async def _read(self) -> None:
        try:
            async for message in self._parts.socket:
                async with self._taking:
                    await self._take(message)
        except (ConnectionClosed, TimeoutError):
            pass  # a lost or stuck socket cancels the sequences, which ends the telling side
        except Exception:
            logger.exception("reading failed", extra={"sequence_id": self._parts.handles[0].sequence_id})
            self._session.fail(ServiceError("reading failed"))
        if not self._session.is_answering:
            self._leave()

    async def _take(self, message: str | bytes) -> None:
        session = self._session
        await self._apply(
            session.receive_text(message) if isinstance(message, str) else session.receive_binary(message)
        )
        async with self._telling:
            await self._send_all(self._session.pending())

    async def _apply(self, commands: Sequence[Command]) -> None:
        for command in commands:
            try:
                await self._apply_one(command)
            except OVER as error:
                logger.debug("%s", error)
            except MoorageError as error:
                await self._apply(self._session.fail(error))

    async def _apply_one(self, command: Command) -> None:
        match command:
            case Audio(data):
                self._parts.count_received(len(data))
                await self._hear(self._parts.intake.feed(data), self._parting.is_set)
            case Finalize(channel):
                handles = self._parts.handles
                for handle in handles if channel is None else (handles[channel],):
                    await handle.finalize()
            case End():
                await self._hear(self._parts.intake.finish(), lambda: False)
                await self._end()
            case KeepAlive():
                self._touch()
            case Fail() if self._session.is_answering:
                await self._end()
            case Fail():
                self._leave()

    async def _hear(self, blocks: AsyncGenerator[Block, None], is_enough: Callable[[], bool]) -> None:
        """Gives decoded audio to the sequences, as fast as they and the key's budget take it, until it is enough."""
        parting: list[Command] = []
        async with aclosing(blocks) as each:
            is_silent = True
            async for block in each:
                is_silent = False
                for handle, samples in zip(self._parts.handles, block, strict=True):
                    await self._give(handle, samples)
                await self._pace(block.size / MODEL_RATE)
                parting = self._session.decoded(block.shape[1])
                if parting or is_enough():
                    break
            if is_silent:
                self._touch()  # bytes that complete no sample yet are a sign of life all the same
        await self._apply(parting)

    async def _give(self, handle: SequenceHandle, samples: Samples) -> None:
        try:
            await handle.send(samples)
        except OVER:
            if handle not in self._given_up:
                raise

    async def _pace(self, audio_s: float) -> None:
        wait_s = self._parts.grant.spend(audio_s, self._parts.clock.now_ns())
        while wait_s > 0 and not self._parting.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, PACE_S)):
                    await self._parting.wait()
            wait_s -= PACE_S
            self._touch()

    async def _end(self) -> None:
        for handle in self._parts.handles:
            with suppress(*OVER):
                await handle.end(self._session.parting)

    def _touch(self) -> None:
        for handle in self._parts.handles:
            if handle not in self._given_up:
                handle.keep_alive()

    def _leave(self) -> None:
        for handle in self._parts.handles:
            self._parts.cancel(handle, self._session.parting)

    # To the client

    async def _tell(self, channel: int) -> None:
        """Everything about one sequence, to its terminal event."""
        try:
            async for event in self._parts.handles[channel].events():
                if self._parts.logs_transcripts and isinstance(event, UtteranceFinal):
                    log_transcript(event)
                async with self._telling:
                    await self._send_all(self._session.translate(event, channel))
        except ConnectionClosed:
            self._leave()  # nobody is there to be told
        except TimeoutError:
            await self._cut_off()

    async def _send_all(self, outgoing: Sequence[Outgoing]) -> None:
        """Raises: TimeoutError: the client does not read. ConnectionClosed: it has left."""
        for each in outgoing:
            if isinstance(each, Close):
                self._leave()
                await self._close(each.code, each.reason)
                return
            async with asyncio.timeout(self._parts.send_timeout_s):
                await self._parts.socket.send(each.text)

    async def _cut_off(self) -> None:
        """Closes on a client that does not read; the reason waits in its socket, should it ever look."""
        error = SlowReader(f"results were not read for {self._parts.send_timeout_s:g} s")
        logger.warning("%s", error, extra={"sequence_id": self._parts.handles[0].sequence_id})
        self._session.fail(error)
        self._leave()
        await self._close(close_code(error), close_reason(error))

    async def _close(self, code: int, reason: str) -> None:
        """The close frame queues behind what the client has not read, without end: so the wait for it is bounded."""
        try:
            async with asyncio.timeout(self._parts.send_timeout_s):
                await self._parts.socket.close(code, reason)
        except TimeoutError:
            self._parts.socket.transport.abort()
