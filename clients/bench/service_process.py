"""A service to load: ``moorage serve`` in a process of its own, as users have it."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from server.errors import MoorageError

START_S: Final = 180.0
STOP_S: Final = 15.0
ASK_S: Final = 0.1
LOOPBACK: Final = "127.0.0.1"
EMPTY: Final = ("moorage_sequences_live", 'moorage_slots{state="used"}')
"""Figures that are 0 then."""


class ServiceFailed(MoorageError):
    """It did not come up, or did not get rid of its streams."""

    code = "service_failed"


class ServiceProcess:
    """Starts the service; ``wait_ready`` says when it can be used.

    Args:
        config: Its configuration file; None: the defaults.
        environment: Settings that win over the file, as ``MOORAGE_LIVE__SLOTS``.
    """

    def __init__(self, config: Path | None, environment: Mapping[str, str]) -> None:
        self._port = _free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        command = [sys.executable, "-m", "server", "serve", "--host", LOOPBACK, "--port", str(self._port)]
        if config is not None:
            command += ["--config", str(config)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its workers end with it
                self._process.wait()
        self._log.close()

    @property
    def url(self) -> str:
        """Of its websocket."""
        return f"ws://{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int:
        """Of its own process; the workers are its children."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Until it takes streams.

        Raises:
            ServiceFailed: It ended, or took too long; with its last words.
        """
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise ServiceFailed(f"the service ended with {self._process.returncode}: {self._last_words()}")
            if self._get("/readyz") is not None:
                return
            time.sleep(ASK_S)
        raise ServiceFailed(f"the service was not ready after {START_S:.0f} s: {self._last_words()}")

    def wait_empty(self) -> None:
        """Until no stream is left of the trial before.

        Raises:
            ServiceFailed: There still are some after a while.
        """
        deadline_s = time.monotonic() + STOP_S
        while time.monotonic() < deadline_s:
            if is_empty(self._get("/metrics") or ""):
                return
            time.sleep(ASK_S)
        raise ServiceFailed("the service did not let go of the streams of the trial before")

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}{path}", timeout=5.0) as answer:
                return str(answer.read().decode())
        except (OSError, urllib.error.HTTPError):
            return None

    def _last_words(self) -> str:
        self._log.seek(0)
        return " / ".join(self._log.read().decode(errors="replace").strip().splitlines()[-3:])


def is_empty(metrics: str) -> bool:
    """Whether a page of metrics says that no stream is left and no slot held: a slot outlives the cancelled stream that
    is in a step."""
    figures = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line and not line.startswith("#"))
    return all(float(figures.get(name, "1")) == 0.0 for name in EMPTY)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
