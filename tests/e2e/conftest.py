"""The service as a user starts it, once for all end-to-end tests: two live instances, whose late sequences catch up by
several ticks a step, and a final one."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

START = "http"
INSTANCES, SLOTS = 2, 6


@pytest.fixture(scope="session")
def service_url() -> Iterator[str]:
    """Websocket address of a running ``moorage serve``."""
    options = ("--port", "0", "--device", "cpu", "--live-instances", str(INSTANCES), "--live-slots", str(SLOTS))
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "server", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"COLUMNS": "200", "MOORAGE_SERVER__IDLE_TIMEOUT_S": "60", "MOORAGE_LIVE__MAX_TICKS": "4"},
            start_new_session=True,
        )
        try:
            yield _address(process)
        except AssertionError:
            errors.seek(0)
            sys.stderr.write(errors.read())
            raise
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)
            assert process.stdout is not None
            process.stdout.close()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"(ws://127\.0\.0\.1:\d+)/v1/listen", line):
            return found[1]
    raise AssertionError(f"the service ended with {process.wait()}")
