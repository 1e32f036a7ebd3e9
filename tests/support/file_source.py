"""A microphone that plays a file: an ``AudioSource`` with a thread, and with the queue of the real one."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.mic.audio_source import BlockQueue, NoMicrophone
from clients.transcribe.audio_file import AudioFile, Samples

BLOCK_S = 0.04


class FileSource:
    """Plays a file so many times faster than it was spoken; after its end nothing comes until it is stopped."""

    def __init__(self, path: Path, *, speed: float, waiting_s: float = 10.0, breaks: bool = False) -> None:
        self._file = AudioFile(path)
        self._speed = speed
        self._breaks = breaks
        self._queue = BlockQueue(asyncio.get_running_loop(), round(waiting_s * self._file.rate))
        self._stopping = threading.Event()
        self._is_broken = False
        self.played = threading.Event()
        self.overflows = 0
        self._thread = threading.Thread(target=self._play)

    @property
    def name(self) -> str:
        return self._file.path.name

    @property
    def sample_rate(self) -> int:
        return self._file.rate

    @property
    def lost_s(self) -> float:
        return self._queue.lost_samples / self.sample_rate

    async def read(self) -> Samples | None:
        block = await self._queue.get()
        if block is None and self._is_broken:
            raise NoMicrophone(f"{self.name} has stopped recording: is it still connected?")
        return block

    def stop(self) -> None:
        self._stopping.set()
        self._queue.close()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._file.close()

    def _play(self) -> None:
        for block in self._file.blocks(BLOCK_S):
            if self._stopping.wait(BLOCK_S / self._speed):
                return
            self._queue.put(block)
        self.played.set()
        if self._breaks:
            self._is_broken = True
            self._queue.close()


@contextmanager
def playing(path: Path, *, speed: float, waiting_s: float = 10.0, breaks: bool = False) -> Iterator[FileSource]:
    """The file, playing. ``breaks``: at its end it is gone, as a microphone that is unplugged."""
    source = FileSource(path, speed=speed, waiting_s=waiting_s, breaks=breaks)
    source.start()
    try:
        yield source
    finally:
        source.close()
