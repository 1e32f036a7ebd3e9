"""One stream in a codec process: a thread that decodes, never more than a second ahead of what was taken."""

import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from server.codec.ffmpeg import decode
from server.codec.messages import WINDOW_BLOCKS, Fault, Kind, StreamOrder, packed_block
from server.codec.rows import Block, Rows, open_rows
from server.codec.source import Closed, Source
from server.errors import BadAudio


class Send(Protocol):
    """The way back to the service; called from streams' threads."""

    def __call__(self, kind: Kind, payload: bytes = b"") -> None:
        """Sends a frame of this stream.

        Raises:
            Closed: The service is gone.
        """


class Window:
    """Counts what was sent and not yet taken."""

    def __init__(self) -> None:
        self._room = WINDOW_BLOCKS
        self._changed = threading.Condition()
        self._is_closed = False

    def take(self) -> None:
        """Waits for room for one block.

        Raises:
            Closed: The stream was given up.
        """
        with self._changed:
            while not self._room and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                raise Closed
            self._room -= 1

    def give(self) -> None:
        """A block was taken."""
        with self._changed:
            self._room += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread that waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Stream:
    """See module. ``data``, ``end``, ``taken`` and ``close`` are called in the process's main thread."""

    def __init__(self, order: StreamOrder, send: Send) -> None:
        self._order = order
        self._send = send
        self._source = Source(lambda: send(Kind.HUNGRY))
        self._window = Window()
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)
        self._thread.start()

    def data(self, data: bytes) -> None:
        """The client's next bytes."""
        self._source.put(data)

    def end(self) -> None:
        """No bytes follow."""
        self._source.end()

    def taken(self) -> None:
        """The service has taken a block."""
        self._window.give()

    def close(self) -> None:
        """Ends the thread, soon."""
        self._source.close()
        self._window.close()

    def _run(self) -> None:
        try:
            for block in self._blocks():
                self._window.take()
                self._send(Kind.BLOCK, packed_block(block))
            self._send(Kind.DONE)
        except Closed:
            pass  # nobody is there to be told
        except BadAudio as error:
            self._tell(Fault(is_bad_audio=True, text=str(error)))
        except MemoryError:
            self._tell(Fault(is_bad_audio=True, text="the audio needs more memory than a decoder may take"))
        except Exception:
            self._tell(Fault(is_bad_audio=False, text=traceback.format_exc()[-2000:]))

    def _tell(self, fault: Fault) -> None:
        with suppress(Closed):
            self._send(Kind.FAULT, fault.packed())

    def _blocks(self) -> Iterator[Block]:
        rows: Rows | None = None
        known = (0, 0)
        for rate, samples in decode(self._order, self._source):
            found = (rate, len(samples))
            if rows is None:
                order = self._order
                rows = open_rows(rate, len(samples), mixdown=order.mixdown, declared=order.channels)
                known = found
            elif found != known:
                raise BadAudio(
                    f"the audio changes from {known[0]} Hz, {known[1]} channels to {rate} Hz, {len(samples)} channels: "
                    "send one kind of audio on a connection"
                )
            yield from rows.process(samples)
        if rows is not None:
            yield from rows.finish()
