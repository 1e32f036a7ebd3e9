"""Log lines: one event, one line, the same fields for people and for machines."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from server.log import JsonFormatter, TextFormatter, configure_logging, configured_format

FIELDS = {"event": "stream_opened", "request_id": "r1", "key": "call centre", "sequences": 2, "sample_rate": None}
logger = logging.getLogger("server.test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("websockets", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def lines(monkeypatch: pytest.MonkeyPatch, style: str, level: str = "info") -> io.StringIO:
    """Logging configured; what it writes."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging(level, "json" if style == "json" else "text")
    return written


def test_json_has_one_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = lines(monkeypatch, "json")
    logger.info("stream %s", "opened", extra=FIELDS)
    logger.warning("plain")
    opened, plain = [json.loads(line) for line in written.getvalue().splitlines()]
    assert datetime.fromisoformat(opened.pop("time")).tzinfo == UTC
    assert opened == FIELDS | {
        "level": "info",
        "logger": "server.test",
        "message": "stream opened",
        "process": "MainProcess",
    }
    assert (plain["event"], plain["level"]) == ("message", "warning")


def test_text_has_the_same_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    written = lines(monkeypatch, "text")
    logger.info("stream opened", extra=FIELDS)
    logger.info("transcript", extra={"text": 'he said "yes"\n='})
    opened, said = written.getvalue().splitlines()
    assert opened.endswith(
        'INFO server.test: stream opened event=stream_opened request_id=r1 key="call centre" sequences=2 sample_rate=-'
    )
    assert said.endswith('transcript text="he said \\"yes\\"\\n="')


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_line_stays_a_line_whatever_is_logged(monkeypatch: pytest.MonkeyPatch, style: str) -> None:
    written = lines(monkeypatch, style)
    logger.info("m", extra={"who": "a\nb\u2028c\x1b[31m"})
    assert len(written.getvalue().strip("\n").split("\n")) == 1


def test_a_traceback_is_a_field() -> None:
    try:
        raise RuntimeError("it broke")
    except RuntimeError:
        record = logging.LogRecord("n", logging.ERROR, "p", 1, "failed %d", (3,), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["event"], line["level"]) == ("failed 3", "message", "error")
    assert "RuntimeError: it broke" in line["traceback"]
    assert "RuntimeError: it broke" in TextFormatter().format(record)


def test_what_json_does_not_know_is_its_text() -> None:
    record = logging.makeLogRecord({"msg": "m", "levelname": "INFO", "where": ValueError("x")})
    assert json.loads(JsonFormatter().format(record))["where"] == "x"


@pytest.mark.parametrize(("level", "n_lines"), [("info", 1), ("warning", 0)])
def test_level(monkeypatch: pytest.MonkeyPatch, level: str, n_lines: int) -> None:
    written = lines(monkeypatch, "json", level)
    logger.info("m")
    assert len(written.getvalue().splitlines()) == n_lines


def test_headers_with_keys_are_not_logged_at_any_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """websockets shows every header at DEBUG."""
    written = lines(monkeypatch, "text", "debug")
    logging.getLogger("websockets.server").debug("< Authorization: Token secret")
    assert written.getvalue() == ""


def test_a_client_cannot_fill_the_log_with_its_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    written = lines(monkeypatch, "text", "debug")
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    assert len(written.getvalue().splitlines()) == 1


def test_connections_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    written = lines(monkeypatch, "text")
    logging.getLogger("websockets.server").info("connection open")
    assert written.getvalue() == ""


@pytest.mark.parametrize("style", ["text", "json"])
def test_other_processes_are_told_the_format(monkeypatch: pytest.MonkeyPatch, style: str) -> None:
    lines(monkeypatch, style)
    assert configured_format() == style
