"""The codec processes of a service: started when first needed, bounded, replaced when one dies."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from server.codec.channel import CodecChannel, CodecStream
from server.codec.messages import StreamOrder
from server.errors import CapacityExceeded, CodecFailed, ShuttingDown

logger = logging.getLogger(__name__)

TURN_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecLimits:
    """What decoding may take."""

    max_processes: int = 16
    """From 1."""
    streams_per_process: int = 64
    """Streams that share a process and its fate, from 1."""
    turn_timeout_s: float = TURN_TIMEOUT_S
    """A decoder that works on one message for longer hangs: its process is replaced."""

    @property
    def max_streams(self) -> int:
        """Coded streams of the service at once."""
        return self.max_processes * self.streams_per_process


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecStats:
    """A snapshot of a pool."""

    processes: int
    streams: int
    places: int
    """Streams that there is room for, those that are open included."""
    lost_processes: int
    """Processes that ended before they were told to."""


class Place:
    """The right to one stream."""

    def __init__(self, pool: "CodecPool") -> None:
        self._pool = pool
        self._is_held = True

    def release(self) -> None:
        """Gives it back; again does nothing."""
        if self._is_held:
            self._is_held = False
            self._pool.give_back()


class CodecPool:
    """See module. Use from one event loop; nothing is started before the first stream is."""

    def __init__(self, limits: CodecLimits | None = None) -> None:
        self._limits = limits or CodecLimits()
        self._channels: list[CodecChannel] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._n_places = 0
        self._n_lost = 0
        self._is_closed = False

    def stats(self) -> CodecStats:
        """A snapshot."""
        return CodecStats(
            processes=len(self._channels),
            streams=self._n_places,
            places=self._limits.max_streams,
            lost_processes=self._n_lost,
        )

    def reserve(self) -> Place:
        """A place for a stream that may come to be.

        Raises:
            CapacityExceeded: All places are taken.
        """
        if self._n_places >= self._limits.max_streams:
            raise CapacityExceeded(f"all {self._limits.max_streams} decoders for coded audio are taken")
        self._n_places += 1
        return Place(self)

    def give_back(self) -> None:
        """For ``Place``."""
        self._n_places -= 1

    def open(self, order: StreamOrder) -> CodecStream:
        """A stream, for the holder of a place.

        Raises:
            CodecFailed: No process could be started.
            ShuttingDown: The pool is closed.
        """
        if self._is_closed:
            raise ShuttingDown("the service is shutting down")
        fresh = [each for each in self._channels if not each.is_spent]
        channel = min(fresh, key=lambda each: len(each.streams), default=None)
        if channel is None or len(channel.streams) >= self._limits.streams_per_process:
            channel = self._start()
        return channel.open(order, self._limits.turn_timeout_s)

    async def close(self) -> None:
        """Ends all processes and waits for them; streams that are open fail."""
        self._is_closed = True
        for channel in self._channels:
            channel.close()
        await self._all_gone.wait()
        if self._ending:
            await asyncio.wait(self._ending)

    def _start(self) -> CodecChannel:
        try:
            channel = CodecChannel(self._limits.streams_per_process, self._lost)
        except OSError as error:
            raise CodecFailed(f"no codec process could be started: {error}") from error
        self._channels.append(channel)
        self._all_gone.clear()
        logger.info("codec process %d started", channel.pid)
        return channel

    def _lost(self, channel: CodecChannel) -> None:
        self._channels.remove(channel)
        if not self._channels:
            self._all_gone.set()
        task = asyncio.get_running_loop().create_task(self._reap(channel))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _reap(self, channel: CodecChannel) -> None:
        status = await channel.wait()
        if not channel.was_let_go:
            self._n_lost += 1
            logger.error("codec process %d ended by itself with status %d; its streams failed", channel.pid, status)
