"""Live audio: what a microphone is to its user, and the queue between a device's thread and the event loop."""

import asyncio
import threading
from collections import deque
from typing import ClassVar, Protocol

from clients.transcribe.audio_file import Samples
from server.errors import MoorageError


class NoMicrophone(MoorageError):
    """No library, no device, or one that gives no audio; the message says what to do."""

    code: ClassVar[str] = "no_microphone"


class AudioSource(Protocol):
    """Something that is recording."""

    @property
    def name(self) -> str:
        """As its user knows it."""

    @property
    def sample_rate(self) -> int:
        """Samples per second of what is read."""

    @property
    def lost_s(self) -> float:
        """Seconds of audio that were thrown away because they were not read in time."""

    @property
    def overflows(self) -> int:
        """How often the device itself reported that it had lost audio."""

    async def read(self) -> Samples | None:
        """The next samples, float32 [N] in [-1, 1], N > 0; None after the last, once it is stopped.

        Raises:
            NoMicrophone: It went away.
        """

    def stop(self) -> None:
        """Record no more; what is recorded can still be read."""


class BlockQueue:
    """Blocks of samples on their way from another thread, up to a limit; beyond it the oldest are thrown away."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_samples: int) -> None:
        self._loop = loop
        self._max_samples = max_samples
        self._lock = threading.Lock()
        self._news = asyncio.Event()
        self._blocks: deque[Samples] = deque()
        self._waiting_samples = 0
        self._lost_samples = 0
        self._is_closed = False

    @property
    def lost_samples(self) -> int:
        """Samples that were thrown away."""
        return self._lost_samples

    def put(self, block: Samples) -> None:
        """From any thread while the loop lives; never waits for the reader."""
        with self._lock:
            if self._is_closed:
                return
            self._blocks.append(block)
            self._waiting_samples += len(block)
            while self._waiting_samples > self._max_samples:
                oldest = self._blocks.popleft()
                self._waiting_samples -= len(oldest)
                self._lost_samples += len(oldest)
        self._loop.call_soon_threadsafe(self._news.set)

    def close(self) -> None:
        """No more comes; from any thread while the loop lives."""
        with self._lock:
            self._is_closed = True
        self._loop.call_soon_threadsafe(self._news.set)

    async def get(self) -> Samples | None:
        """The oldest block; None when there is none and no more comes. One reader."""
        while True:
            with self._lock:
                if self._blocks:
                    block = self._blocks.popleft()
                    self._waiting_samples -= len(block)
                    return block
                if self._is_closed:
                    return None
                self._news.clear()
            await self._news.wait()
