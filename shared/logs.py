"""Logging: each event is one line with a fixed name and its facts as fields, as JSON or as text for people."""

import contextvars
import json
import logging
import sys
import time
from typing import Any, Final, Literal

from shared.text import printable, printable_lines

# Facts that belong to every line of the task at hand: job, shard, attempt.
_bound: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("bound_log_fields", default=None)

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}


def bind(**fields: Any) -> None:
    """Add `fields` to every later line of this task; without arguments, forget all fields."""
    _bound.set({**(_bound.get() or {}), **fields} if fields else None)


def set_up(log_format: Literal["text", "json"], level: str) -> None:
    """Send all log lines to standard error in `log_format`; for entry points only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return (_bound.get() or {}) | {key: value for key, value in vars(record).items() if key not in _STANDARD}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = printable(f"{stamp} {record.levelname.lower():7} {record.name}: {record.getMessage()} {facts}".rstrip())
        return f"{text}\n{printable_lines(self.formatException(record.exc_info))}" if record.exc_info else text
