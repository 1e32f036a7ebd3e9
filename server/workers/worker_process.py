"""The main function of a worker process. It lives exactly as long as its parent keeps the pipe open.

Imports the model's side only once it runs, so that the parent, which names the function, does not load torch.
"""

import ctypes
import os
import re
import signal
import threading
from dataclasses import dataclass
from multiprocessing import connection, current_process, parent_process
from typing import Final

from server.log import LogFormat, configure_logging
from server.workers.device_gate import Cells, DeviceGate
from server.workers.orders import Order, Reply

PR_SET_NAME: Final = 15
TITLE_BYTES: Final = 15
"""What Linux keeps of a process's name."""
COPY: Final = re.compile(r"(\.\d+)?-\d+$")
"""End of a worker's name: which generation of its model it is, from the second on, and which instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLogging:
    """How a worker process logs: as the process that starts it."""

    level: int
    format: LogFormat


def process_main(pipe: "connection.Connection[Reply, Order]", cells: Cells, log: WorkerLogging) -> None:
    """A worker process: carries out orders until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides what it means
    threading.Thread(target=_exit_with_parent, name="parent-watch", daemon=True).start()
    name_process(process_title(current_process().name))
    configure_logging(log.level, log.format)
    # Threads that spin at a barrier for one that has no core slow a step down tenfold as soon as cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from server.workers.worker_host import Host  # loads torch, which reads this; see above too

    host = Host(DeviceGate(cells), may_nice=True)
    with pipe:
        while True:
            try:
                pipe.send(host.carry_out(pipe.recv()))
            except (EOFError, OSError):
                return


def process_title(worker: str) -> str:
    """``moorage live-0``: where that is too long the model's name is cut, never which copy and instance it is."""
    copy = COPY.search(worker)
    end = copy.group() if copy is not None else ""
    return f"moorage {worker.removesuffix(end)}"[: TITLE_BYTES - len(end)] + end


def name_process(title: str) -> None:
    """What ``ps -e`` and ``top`` call this process, on Linux; elsewhere it keeps its name."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_NAME, title.encode()[:TITLE_BYTES], 0, 0, 0)


def _exit_with_parent() -> None:
    """Ends the process in the middle of a step too, where it would not look at its pipe for long."""
    parent = parent_process()
    assert parent is not None, "process_main runs in a child process"
    connection.wait([parent.sentinel])
    os._exit(1)
