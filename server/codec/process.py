"""A codec process: ``python -m server.codec.process FD STREAMS``. It lives until the service closes its socket.

Hostile bytes meet C code here. So the process has what decoding takes and no more: no file or socket can be opened, no
core dumped, memory is bounded, and live steps come first where cores are short.
"""

import ctypes
import faulthandler
import importlib
import os
import pkgutil
import resource
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import Final

import av

from server.codec.messages import FrameReader, Kind, StreamOrder, frame
from server.codec.source import Closed
from server.codec.stream import Stream
from server.workers.heap import keep_flat

NICENESS: Final = 5
"""Behind the live models, before the final ones."""
STACK_BYTES: Final = 1 << 20
BASE_BYTES: Final = 256 << 20
STREAM_BYTES: Final = 16 << 20
"""Address space beyond what the libraries take: some, and some per stream."""
RECEIVE_BYTES: Final = 1 << 18
PR_SET_NO_NEW_PRIVS: Final = 38
M_ARENA_MAX: Final = -8
ARENAS: Final = 2


class Host:
    """Hands the service's frames to streams, and their frames back."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._streams: dict[int, Stream] = {}

    def serve(self) -> None:
        """Until the service closes the socket or dies."""
        reader = FrameReader()
        with suppress(OSError):
            while data := self._pipe.recv(RECEIVE_BYTES):
                for kind, number, payload in reader.feed(data):
                    self._carry_out(kind, number, payload)

    def _carry_out(self, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.OPEN:
            self._streams[number] = Stream(StreamOrder.unpacked(payload), partial(self._send, number))
            return
        stream = self._streams[number]
        match kind:
            case Kind.DATA:
                stream.data(payload)
            case Kind.END:
                stream.end()
            case Kind.TAKEN:
                stream.taken()
            case _:
                stream.close()
                del self._streams[number]

    def _send(self, number: int, kind: Kind, payload: bytes = b"") -> None:
        try:
            with self._sending:
                self._pipe.sendall(frame(kind, number, payload))
        except OSError as error:
            raise Closed from error


def confine(streams: int) -> None:
    """Takes from this process what decoding does not need. Nothing can be imported afterwards."""
    for module in pkgutil.walk_packages(av.__path__, "av."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)  # some are otherwise imported when a file first needs them
    importlib.import_module("soxr")  # as the resampler does with its first stream
    av.logging.set_level(None)  # a client's damage is told to the client, not to the log
    with suppress(OSError):
        os.nice(NICENESS)
    threading.stack_size(STACK_BYTES)
    keep_flat()
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        libc.mallopt(M_ARENA_MAX, ARENAS)  # an arena takes 64 MiB of address space
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _limit(resource.RLIMIT_AS, _address_space_bytes() + BASE_BYTES + streams * STREAM_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _fill_descriptors())


def _fill_descriptors() -> int:
    """Leaves no free descriptor below the number that is returned, which is above all that are open."""
    listed = {int(name) for name in os.listdir("/dev/fd")}
    taken = {number for number in listed if _is_open(number)}  # the list's own is not any more
    for number in set(range(max(taken))) - taken:
        os.dup2(0, number)
    return max(taken) + 1


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _limit(what: int, value: int) -> None:
    """Never above what holds already."""
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main() -> None:
    """The process's main function. The service alone decides when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of a process group or a container: streams are still drained
    faulthandler.enable()
    pipe, streams = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    confine(streams)
    Host(pipe).serve()
    os._exit(0)  # threads in the middle of decoding are not waited for


if __name__ == "__main__":
    main()
