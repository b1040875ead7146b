"""The attempt log: what became of a timer's last attempts, as the JSON text that is stored with the timer.

It is written with the outcome, so it costs no write of its own, and it must not make that write dear: the text is
bounded, and a timer's first attempt is logged without reading anything. Why it looks as it does:
docs/decisions/0009-logs-metrics-and-failure-events.md.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from typing import Any

from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.timers import FailureReason
from duetime.domain.times import from_milliseconds, to_milliseconds

MAX_ATTEMPTS_LOGGED = 10
MAX_SUCCESSES_LOGGED = 2
MAX_LOG_BYTES = 8 * 1024
MAX_MESSAGE_CHARACTERS = 200
_MAX_ENTRY_BYTES = 4 * 1024
"""An entry that would be larger (an answer whose every byte has to be escaped, say) loses some of its body."""
_MAX_BYTES_PER_CHARACTER = 4

_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class AttemptOutcome(StrEnum):
    """The state of the timer after an attempt."""

    FIRED = "Fired"
    RESCHEDULED = "Rescheduled"
    RETRY = "Retry"
    WAITING = "Waiting"
    FAILED = "Failed"

    @property
    def is_success(self) -> bool:
        return self in _SUCCESSES


_SUCCESSES = (AttemptOutcome.FIRED, AttemptOutcome.RESCHEDULED)


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt.

    ``number`` counts from 1 within a firing. ``status`` is None when there was no answer; ``error_class`` then names
    what went wrong on the way (``delivery.port.TransportError``). ``headers`` are those of the answer that were kept,
    lower-case names, without secrets. ``body`` is the beginning of the answer, None when there was none or it is not
    to be kept; ``body_bytes`` is how much of the answer was read and ``body_truncated`` tells that ``body`` is not
    the whole answer. ``first_started_at`` is when the first attempt of the same firing began, however far back; None
    on that one itself, and where nothing follows.
    """

    number: int
    firing_id: str
    started_at: datetime
    duration_ms: int
    outcome: AttemptOutcome
    status: int | None = None
    reason: FailureReason | None = None
    error_class: str | None = None
    message: str = ""
    headers: Mapping[str, str]
    body: str | None = None
    body_bytes: int = 0
    body_truncated: bool = False
    first_started_at: datetime | None = None

    @property
    def finished_at(self) -> datetime:
        return self.started_at + timedelta(milliseconds=self.duration_ms)


def append_attempt(log_text: str | None, record: AttemptRecord) -> str:
    """Return the log with ``record`` as its newest attempt: at most MAX_ATTEMPTS_LOGGED, at most MAX_LOG_BYTES.

    A timer that is rescheduled again and again carries its log through every write. So the log reaches back to the
    second last success and no further, and of a success before the newest attempt neither headers nor body are kept.
    A log that cannot be read is begun anew.
    """
    newest = _bounded_text(record)
    if not log_text:
        return f"[{newest}]"
    kept = [newest]
    successes = int(record.outcome.is_success)
    room = MAX_LOG_BYTES - len("[]") - len(newest.encode())
    for entry in reversed(_entries(log_text)[1 - MAX_ATTEMPTS_LOGGED :]):
        if successes == MAX_SUCCESSES_LOGGED:
            break
        try:
            older = _encode_json(_without_details(entry))
            room -= len(older.encode()) + len(",")
        except (ValueError, RecursionError):
            continue  # half a surrogate pair, say, which no store takes
        if room < 0:
            break
        kept.append(older)
        successes += entry[_OUTCOME] in _SUCCESSES
    return f"[{','.join(reversed(kept))}]"


def read_attempts(log_text: str | None) -> list[AttemptRecord]:
    """Return the attempts of a log, oldest first. What cannot be read is left out."""
    records = []
    for entry in _entries(log_text) if log_text else []:
        try:
            records.append(_decode(entry))
        except (ValueError, TypeError, OverflowError):
            continue
    return records


def first_attempt_at(log_text: str | None, *, firing_id: str) -> datetime | None:
    """Return when the first attempt of a firing began whose newest attempt failed; None if unknown.

    The log itself does not reach back that far: the newest attempt carries the time.
    """
    for entry in _entries(log_text)[-1:] if log_text else []:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            newest = _decode(entry)
            if newest.firing_id == firing_id:
                return newest.first_started_at or newest.started_at
    return None


def newest_attempt(log_text: str | None, *, firing_id: str, number: int) -> AttemptRecord | None:
    """Return the newest entry of a log if it is of this attempt and can be read."""
    newest = read_attempts(log_text)[-1:]
    return newest[0] if newest and (newest[0].firing_id, newest[0].number) == (firing_id, number) else None


def with_newest_as(log_text: str | None, record: AttemptRecord) -> str:
    """Return the log with ``record`` as its newest entry, in the place of one of the same attempt."""
    older = _entries(log_text) if log_text else []
    if newest_attempt(log_text, firing_id=record.firing_id, number=record.number) is not None:
        older.pop()
    return append_attempt(_encode_json(older) if older else None, record)


# -- the stored form: an array per attempt, for names would take a third of it ------------------------------------
#
# number, firing id, start (ms), duration (ms), outcome, then what may be absent; absent ones at the end are left out.

_OPTIONAL: tuple[Any, ...] = (None, {}, None, 0, 0, None, None, "", None)
"""Status, headers, body, bytes read, truncated (0 or 1), reason, error class, message, first attempt (ms): as they
are when absent."""
_REQUIRED = 5
_OUTCOME, _HEADERS, _BYTES_READ = 4, 6, 8


def _text(record: AttemptRecord) -> str:
    first = record.first_started_at
    answer = _optional_text(
        record.status,
        tuple(record.headers.items()),
        record.body,
        record.body_bytes,
        1 if record.body_truncated else 0,
        record.reason,
        record.error_class,
        record.message[:MAX_MESSAGE_CHARACTERS],
        None if first is None else to_milliseconds(first),
    )
    number, started_at, duration_ms = record.number, to_milliseconds(record.started_at), record.duration_ms
    return f'[{number},{_quoted(record.firing_id)},{started_at},{duration_ms},"{record.outcome._value_}"{answer}]'


@lru_cache(maxsize=128)
def _optional_text(status: int | None, headers: tuple[tuple[str, str], ...], *others: Any) -> str:
    """Return what may be absent, each with a comma before it. Receivers mostly answer the same."""
    optional = [status, dict(headers), *others]
    while optional and optional[-1] == _OPTIONAL[len(optional) - 1]:
        optional.pop()
    return "".join(f",{_encode_json(value)}" for value in optional)


def _bounded_text(record: AttemptRecord) -> str:
    while True:
        text = _text(record)
        if len(text) * _MAX_BYTES_PER_CHARACTER <= _MAX_ENTRY_BYTES or len(text.encode()) <= _MAX_ENTRY_BYTES:
            return text
        if record.body:
            record = replace(record, body=record.body[: len(record.body) // 2], body_truncated=True)
        elif record.headers:
            record = replace(record, headers={})
        else:
            return text


def _without_details(entry: list[Any]) -> list[Any]:
    """Return an older attempt as it is kept: of a success only what happened and when."""
    if entry[_OUTCOME] not in _SUCCESSES:
        return entry
    is_answer_gone = len(entry) > _BYTES_READ and entry[_BYTES_READ]
    return [*entry[:_HEADERS], {}, None, entry[_BYTES_READ], 1] if is_answer_gone else entry[:_HEADERS]


def _decode(entry: list[Any]) -> AttemptRecord:
    number, firing_id, started_at, duration_ms, outcome = entry[:_REQUIRED]
    given = tuple(entry[_REQUIRED:])
    status, headers, body, body_bytes, truncated, reason, error_class, message, first = (
        given + _OPTIONAL[len(given) :]
    )
    return AttemptRecord(
        number=int(number),
        firing_id=str(firing_id),
        started_at=from_milliseconds(int(started_at)),
        duration_ms=int(duration_ms),
        outcome=AttemptOutcome(outcome),
        status=None if status is None else int(status),
        reason=None if reason is None else FailureReason(reason),
        error_class=None if error_class is None else str(error_class),
        message=str(message),
        headers={str(name): str(value) for name, value in dict(headers).items()},
        body=None if body is None else str(body),
        body_bytes=int(body_bytes),
        body_truncated=bool(truncated),
        first_started_at=None if first is None else from_milliseconds(int(first)),
    )


def _entries(log_text: str) -> list[list[Any]]:
    try:
        entries = json.loads(log_text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, list) and len(entry) >= _REQUIRED]
