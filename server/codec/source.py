"""One stream's bytes in a codec process: the process's main thread puts them in, the stream's thread takes them out."""

import threading
from collections.abc import Callable
from typing import Final

from server.errors import BadAudio

MAX_BARREN_BYTES: Final = 1 << 20
"""Bytes that may go by without a sample: headers, pictures, damage. Bounds what a demuxer can be made to keep."""

HEAD_BYTES: Final = 512


class Closed(Exception):
    """The stream is given up; its thread ends."""


class Source:
    """A file as demuxers read it: forward only, blocking.

    Args:
        on_hungry: Called in the reading thread when it has taken every byte and waits for more.
    """

    def __init__(self, on_hungry: Callable[[], None]) -> None:
        self._on_hungry = on_hungry
        self._changed = threading.Condition()
        self._waiting = b""
        self._has_data = False
        self._is_ended = False
        self._is_closed = False
        self._is_told = True
        self._barren_bytes = 0
        self.head = b""
        """The first bytes that were read."""

    @property
    def has_ended(self) -> bool:
        """Whether the last byte was put in."""
        return self._is_ended

    def put(self, data: bytes) -> None:
        """The next bytes; the ones before have been taken."""
        with self._changed:
            self._waiting, self._has_data, self._is_told = data, True, False
            self._changed.notify_all()

    def end(self) -> None:
        """No more bytes come."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the reading thread at its next read."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def note_samples(self) -> None:
        """Something came of the bytes so far."""
        self._barren_bytes = 0

    def read(self, n_bytes: int = -1) -> bytes:
        """From 1 to ``n_bytes`` bytes (-1: all that were put in together); none at the end.

        Raises:
            BadAudio: Too many bytes without a sample.
            Closed: The stream was given up.
        """
        with self._changed:
            while not self._has_data and not self._is_ended and not self._is_closed:
                self._wait()
            if self._is_closed:
                raise Closed
            taken = self._waiting if n_bytes < 0 else self._waiting[:n_bytes]
            self._waiting = self._waiting[len(taken) :]
            self._has_data = bool(self._waiting)
        self._barren_bytes += len(taken)
        if len(self.head) < HEAD_BYTES:
            self.head += taken[: HEAD_BYTES - len(self.head)]
        if self._barren_bytes > MAX_BARREN_BYTES:
            raise BadAudio(
                f"more than {MAX_BARREN_BYTES >> 20} MiB of headers, pictures or damage without any audio: "
                "send the audio alone"
            )
        return taken

    def _wait(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._on_hungry()
        self._changed.wait()
