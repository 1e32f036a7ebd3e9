"""The main function of a worker process. It lives exactly as long as its parent keeps the pipe open.

Imports the model's side only once it runs, so that the parent, which names the function, does not load torch.
"""

import logging
import os
import signal
import threading
from multiprocessing import connection, parent_process

from server.device_gate import Cells, DeviceGate
from server.orders import Order, Reply


def process_main(pipe: "connection.Connection[Reply, Order]", cells: Cells, log_level: int) -> None:
    """A worker process: carries out orders until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides what it means
    threading.Thread(target=_exit_with_parent, name="parent-watch", daemon=True).start()
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s")
    # Threads that spin at a barrier for one that has no core slow a step down tenfold as soon as cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from server.worker_host import Host  # loads torch, which reads this; see above too

    host = Host(DeviceGate(cells), may_nice=True)
    with pipe:
        while True:
            try:
                pipe.send(host.carry_out(pipe.recv()))
            except (EOFError, OSError):
                return


def _exit_with_parent() -> None:
    """Ends the process in the middle of a step too, where it would not look at its pipe for long."""
    parent = parent_process()
    assert parent is not None, "process_main runs in a child process"
    connection.wait([parent.sentinel])
    os._exit(1)
