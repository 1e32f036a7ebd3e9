"""Logs: one line per event on the error output, for people or, as JSON, for machines.

A record may carry fields of its own (``extra``); the text line ends with them, the JSON object has them as keys. What
people said is never among them, except where ``log.transcripts = true`` asks for it (``stream_log``).
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

LogFormat = Literal["text", "json"]

STANDARD_FIELDS: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""What every record has; all else was given by the caller."""


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00,000 INFO server.engine.engine: message key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # the name that logging calls
        """The line without a traceback."""
        words = [super().formatMessage(record), *(f"{name}={_word(value)}" for name, value in _fields(record).items())]
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "logger": …, "event": …, "message": …, …}`` on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback is the key ``traceback``."""
        fields = _fields(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": fields.pop("event", "message"),
            "message": record.getMessage(),
            "process": record.processName,
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logging(level: str | int, style: LogFormat) -> None:
    """Logging of this process; modules just name their loggers. On a terminal text has colours."""
    level = level.upper() if isinstance(level, str) else level
    logging.basicConfig(level=level, handlers=[_handler(style)], force=True)
    # a line for each connection and each port scan is no news
    logging.getLogger("websockets").setLevel(max(logging.WARNING, logging.getLogger().level))
    # nor is each write to a socket that its client has just reset, of which it can cause thousands
    logging.getLogger("asyncio").setLevel(max(logging.ERROR, logging.getLogger().level))


def configured_format() -> LogFormat:
    """How this process logs: what the processes that it starts are told."""
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
    return "json" if is_json else "text"


def _handler(style: LogFormat) -> logging.Handler:
    if style == "json":
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        return handler
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(stderr=True))
        handler.setFormatter(_TerminalFormatter())
        return handler
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    return handler


class _TerminalFormatter(TextFormatter):
    def __init__(self) -> None:
        logging.Formatter.__init__(self, "%(name)s: %(message)s")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}


def _word(value: object) -> str:
    """A value that can be told from the next field: quoted if there is a space, a quote or a line break in it."""
    text = "-" if value is None else str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text, ensure_ascii=False)
