"""A codec process as the service's event loop sees it, and the streams in it."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

from server.codec.messages import Fault, FrameReader, Kind, StreamOrder, frame, unpacked_block
from server.codec.rows import Block
from server.errors import BadAudio, CodecFailed, MoorageError

MAX_STREAMS_SERVED: Final = 10_000
"""By one process, before a fresh one takes over: what damaged audio may make libraries forget to free stays small."""
GRACE_S: Final = 1.0
"""For a process to end after its socket was closed; then it is killed."""

logger = logging.getLogger(__name__)


class CodecChannel(asyncio.Protocol):
    """One process: started, spoken to, and waited for after its end. On the loop only.

    Args:
        streams: What it may hold at once; bounds its memory.
        on_lost: Called once, when it has ended.

    Raises:
        OSError: It could not be started.
    """

    def __init__(self, streams: int, on_lost: Callable[["CodecChannel"], None]) -> None:
        self.streams: dict[int, CodecStream] = {}
        self._on_lost = on_lost
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        """Frames of the few turns of the loop until the transport is there."""
        self._next_number = 0
        self.was_let_go = False
        """Whether its end is wanted."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start(theirs, streams)
        except OSError:
            ours.close()
            raise
        # a task of its own: the client whose stream starts the process may leave meanwhile, others count on it
        self._connecting = asyncio.get_running_loop().create_task(self._connect(ours))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_spent(self) -> bool:
        """It has served long enough: no more streams, and its end with the last one."""
        return self._next_number >= MAX_STREAMS_SERVED

    async def _connect(self, ours: socket.socket) -> None:
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.writelines(self._unsent)
        self._unsent.clear()
        if self.was_let_go:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``. Frames of streams that were given up are dropped."""
        try:
            for kind, number, payload in self._reader.feed(data):
                stream = self.streams.get(number)
                if stream is not None:
                    stream.receive(kind, payload)
        except ValueError as error:
            logger.error("codec process %d sent what makes no sense, killing it: %s", self.pid, error)
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        streams, self.streams = list(self.streams.values()), {}
        for stream in streams:
            stream.lose()
        self._on_lost(self)

    def open(self, order: StreamOrder, turn_timeout_s: float) -> "CodecStream":
        """A new stream in it."""
        number, self._next_number = self._next_number, self._next_number + 1
        stream = CodecStream(self, number, order, turn_timeout_s)
        self.streams[number] = stream
        self.send(Kind.OPEN, number, order.packed())
        return stream

    def send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """To the process, unless it has ended. What may wait here is bounded by the turns of its streams."""
        if self._transport is None:
            self._unsent.append(frame(kind, number, payload))
        elif not self._transport.is_closing():
            self._transport.write(frame(kind, number, payload))

    def release(self, number: int) -> None:
        """A stream is over, however it ended."""
        if self.streams.pop(number, None) is not None:
            self.send(Kind.CLOSE, number)
            if self.is_spent and not self.streams:
                self.close()

    def kill(self) -> None:
        """Ends the process at once; ``connection_lost`` follows."""
        self._process.kill()

    def close(self) -> None:
        """Lets the process go; ``connection_lost`` follows."""
        self.was_let_go = True
        if self._transport is not None:
            self._transport.abort()  # close() would wait for a process that does not read

    async def wait(self) -> int:
        """Waits until the process has ended, kills it if it does not; its exit status."""
        try:
            return await asyncio.to_thread(self._process.wait, GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)


def _start(pipe: socket.socket, streams: int) -> subprocess.Popen[bytes]:
    """A fresh interpreter: it inherits no lock, no torch, no environment, and no descriptor but its socket."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "server.codec.process", str(pipe.fileno()), str(streams)],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        pass_fds=[pipe.fileno()],
    )


def _environment() -> dict[str, str]:
    """What an interpreter needs to find its libraries; no secrets of the service."""
    kept = {name: os.environ[name] for name in ("PYTHONHOME", "LD_LIBRARY_PATH", "PATH") if name in os.environ}
    paths = [path or os.getcwd() for path in sys.path]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class CodecStream:
    """One stream in a codec process. One turn at a time."""

    def __init__(self, channel: CodecChannel, number: int, order: StreamOrder, turn_timeout_s: float) -> None:
        self._channel = channel
        self._number = number
        self._n_rows = 1 if order.mixdown else order.channels
        self._turn_timeout_s = turn_timeout_s
        self._received: deque[tuple[Kind, bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_lost = False
        self._is_in_turn = False
        self.is_done = False
        """The audio is complete: its container said so, or END was answered."""

    def receive(self, kind: Kind, payload: bytes) -> None:
        """A frame of the process. No more come than a turn's window allows."""
        self._received.append((kind, payload))
        self._wake()

    def lose(self) -> None:
        """The process has ended."""
        self._is_lost = True
        self._wake()

    async def turn(self, kind: Kind, payload: bytes = b"") -> AsyncGenerator[Block, None]:
        """Sends DATA or END, and gives what comes of it until the decoder needs more.

        After a turn that was not taken to its end there is nothing.

        Raises:
            BadAudio: The bytes are no audio of that kind.
            CodecFailed: The decoder failed, died or hangs.
        """
        if self._is_in_turn:
            return
        self._is_in_turn = True
        self._channel.send(kind, self._number, payload)
        while (reply := await self._next())[0] is Kind.BLOCK:
            yield self._block(reply[1])
            self._channel.send(Kind.TAKEN, self._number)
        self._is_in_turn = False
        if reply[0] is Kind.FAULT:
            raise self._error(reply[1])
        self.is_done = reply[0] is Kind.DONE

    def release(self) -> None:
        """Gives the stream up, a turn that is on its way included; again does nothing."""
        self._channel.release(self._number)
        self.lose()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _next(self) -> tuple[Kind, bytes]:
        while not self._received:
            if self._is_lost:
                raise CodecFailed("the decoder's process ended, or the stream was closed")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._turn_timeout_s):
                    await self._waiter
            except TimeoutError:
                logger.error("codec process %d hangs, killing it", self._channel.pid)
                self._channel.kill()
                raise CodecFailed("the decoder hangs") from None
            finally:
                self._waiter = None
        return self._received.popleft()

    def _block(self, payload: bytes) -> Block:
        try:
            return unpacked_block(payload, self._n_rows)
        except ValueError as error:
            raise CodecFailed(str(error)) from error

    def _error(self, payload: bytes) -> MoorageError:
        try:
            fault = Fault.unpacked(payload)
        except ValueError as error:
            return CodecFailed(str(error))
        if fault.is_bad_audio:
            return BadAudio(fault.text)
        logger.error("a decoder failed: %s", fault.text)
        return CodecFailed("the decoder failed")
