"""Logging: what one event looks like on standard output or error, locally and on Lambda.

Code logs through ``logging.getLogger(__name__)`` with ``extra={"action": "shard.claimed", ...}``: the action is the
stable name of the event, the other extras are its facts. An extra ``each``, a list of further facts, makes a line of
each of these: many lines at the price of few. ``configure_logging`` decides how that is written: one JSON object per
line, or ``time LEVEL action message key=value ...`` for people. Times are UTC. Both go through ``redaction``.
"""

from __future__ import annotations

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

from duetime.domain.redaction import redact_field, redact_text
from duetime.domain.times import format_instant


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_context: ContextVar[dict[str, object]] = ContextVar("duetime_log_context", default={})  # noqa: B039 (never mutated)

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "action"}
_NO_FACTS = _STANDARD_ATTRIBUTES | {"each"}

_AMBIGUOUS = re.compile("[ \"'=]")

# Libraries that say at INFO what our own events say better.
_QUIET_LOGGERS = ("uvicorn", "botocore", "boto3", "urllib3")


class LogContext:
    """Every event logged inside carries ``fields`` (request and correlation ids); None values are left out."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        given = {name: value for name, value in self._fields.items() if value is not None}
        self._token: Token[dict[str, object]] = _context.set(_context.get() | given)

    def __exit__(self, *_: object) -> None:
        _context.reset(self._token)


def configure_logging(log_format: LogFormat, level: LogLevel, stream: TextIO, **fields: object) -> None:
    """Send every event at or above ``level`` to ``stream``, each with ``fields``, and only there.

    The last call counts.
    """
    # What no line shows, and every record would look up (the "Optimization" section of Python's logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(fields) if log_format is LogFormat.JSON else TextFormatter(fields))
    root = logging.getLogger()
    # On Lambda the runtime has put its own handler here already: it would write every event a second time.
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class _Formatter(logging.Formatter, ABC):
    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__()
        self._fields = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of an event, with the redacted fields of the process, of the context and of its own."""
        extras = {name: value for name, value in vars(record).items() if name not in _NO_FACTS}
        facts = _redacted(self._fields | _context.get() | extras)
        each: Sequence[Mapping[str, object]] = getattr(record, "each", ({},))
        return "\n".join(self.lines(record, [facts | _redacted(own) for own in each]))

    @abstractmethod
    def lines(self, record: logging.LogRecord, facts: Sequence[Mapping[str, object]]) -> Iterator[str]:
        """Return the line of each of these facts."""


class JsonFormatter(_Formatter):
    """One object: ``time``, ``level``, ``action``, ``message``, ``logger``, then the facts and ``exception``."""

    def lines(self, record: logging.LogRecord, facts: Sequence[Mapping[str, object]]) -> Iterator[str]:
        fixed: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", None),
            "message": redact_text(record.getMessage()),
            "logger": record.name,
        }
        end = {"exception": redact_text(self.formatException(record.exc_info))} if record.exc_info else {}
        for own in facts:
            yield _encode({**fixed, **own, **fixed, **end})  # fixed ones come first, and no fact replaces them


class TextFormatter(_Formatter):
    """``2026-12-20T15:30:00.123Z INFO    shard.claimed  message  shard_id=3``, a traceback on lines of its own."""

    def lines(self, record: logging.LogRecord, facts: Sequence[Mapping[str, object]]) -> Iterator[str]:
        action = getattr(record, "action", record.name)
        parts = [f"{_time(record)} {record.levelname:<7} {action}", _one_line(redact_text(record.getMessage()))]
        start = "  ".join(filter(None, parts))
        end = f"\n{redact_text(self.formatException(record.exc_info))}" if record.exc_info else ""
        for own in facts:
            yield "  ".join([start, *[f"{name}={_plain(value)}" for name, value in own.items()]]) + end


_encode = json.JSONEncoder(default=str, ensure_ascii=False, separators=(",", ":")).encode


def _redacted(facts: Mapping[str, object]) -> dict[str, object]:
    return {name: redact_field(name, value) for name, value in facts.items()}


def _time(record: logging.LogRecord) -> str:
    return format_instant(datetime.fromtimestamp(record.created, UTC))


def _one_line(text: str) -> str:
    """Return ``text`` without anything that moves the cursor or forges a line: control characters are escaped."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _plain(value: object) -> str:
    """Return a value as the text format shows it: bare when that is unambiguous, else as JSON."""
    if isinstance(value, str) and value and value.isprintable() and _AMBIGUOUS.search(value) is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if isinstance(value, int) else json.dumps(value, default=str, ensure_ascii=not text.isprintable())
