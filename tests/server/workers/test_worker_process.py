"""A worker's process: its name, its logs, and how it refuses what it is given."""

import json
import logging
import sys
from collections.abc import Iterator

import psutil
import pytest

from server.log import configure_logging
from server.workers.device_gate import cells_needed
from server.workers.orders import Load, Loaded, ModelSource, Refused
from server.workers.worker import ProcessChannel, WorkerKind, make_channel
from server.workers.worker_process import process_title
from tests.support.engines import ACCUMULATOR

CELLS = [0] * cells_needed(1)


def load(source: ModelSource = ACCUMULATOR, device: str = "cpu") -> Load:
    return Load(source=source, instance=0, device=device, threads=1)


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("worker", "title"),
    [
        ("live-7", "moorage live-7"),
        ("final-12", "moorage fina-12"),
        ("live.2-0", "moorage liv.2-0"),
        ("final.2-1", "moorage fin.2-1"),
        ("live.12-10", "moorage l.12-10"),
        ("simple_sequence-1", "moorage simpl-1"),
        ("simple.sequence-a.31-1", "moorage si.31-1"),
        ("live.123456-123", "moor.123456-123"),
    ],
)
def test_its_name_is_cut_where_it_tells_least(worker: str, title: str) -> None:
    assert process_title(worker) == title


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no such names")
def test_it_has_a_name_of_its_own() -> None:
    channel = make_channel(WorkerKind.PROCESS, CELLS, "live-7")
    assert isinstance(channel, ProcessChannel)
    channel.open()
    try:
        assert isinstance(channel.call(load()), Loaded)
        assert channel.pid is not None
        assert psutil.Process(channel.pid).name() == "moorage live-7"
    finally:
        channel.close()
        channel.join()


@pytest.mark.usefixtures("_restored_logging")
def test_it_logs_as_its_parent_does(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    channel = make_channel(WorkerKind.PROCESS, CELLS, "live-7")
    channel.open()
    try:
        refused = channel.call(load(ModelSource(name="x", factory="tests.support.accumulator_model:nothing")))
    finally:
        channel.close()
        channel.join()
    assert isinstance(refused, Refused)
    (line,) = capfd.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"], told["process"]) == ("error", "server.workers.worker_host", "live-7")
    assert "AttributeError" in told["traceback"]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (load(device="cuda:99"), "device cuda:99: this machine has"),
        (load(ModelSource(name="moonshine-live", options={"nonsense": 1})), "unknown live option nonsense: known are"),
        (load(ModelSource(name="moonshine-base", options={"weights": "/gone"})), "/gone is missing"),
    ],
)
def test_what_people_can_correct_is_refused_in_words_alone(
    caplog: pytest.LogCaptureFixture, order: Load, words: str
) -> None:
    refused = make_channel(WorkerKind.THREAD, CELLS, "live-0").call(order)
    assert isinstance(refused, Refused)
    assert refused.is_configuration
    assert refused.error.startswith(words)
    assert caplog.records == []
