"""The attempt log: what became of a timer's last attempts, as the JSON text that is stored with the timer.

It is written with the outcome, so it costs no write of its own, and it must not make that write dear: the text is
bounded, and a timer's first attempt is logged without reading anything. Why it looks as it does:
docs/decisions/0083-attempt-log-in-the-timer.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from duetime.domain.timers import FailureReason
from duetime.domain.times import from_milliseconds, to_milliseconds

MAX_ATTEMPTS_LOGGED = 10
MAX_LOG_BYTES = 8 * 1024
MAX_MESSAGE_CHARACTERS = 200
_MAX_ENTRY_BYTES = 4 * 1024
"""An entry that would be larger (an answer whose every byte has to be escaped, say) loses some of its body."""
_MAX_BYTES_PER_CHARACTER = 4

_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class AttemptOutcome(StrEnum):
    """What the timer became by an attempt."""

    FIRED = "fired"
    RESCHEDULED = "rescheduled"
    RETRY = "retry"
    FAILED = "failed"

    @property
    def is_success(self) -> bool:
        return self in (AttemptOutcome.FIRED, AttemptOutcome.RESCHEDULED)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt.

    ``number`` counts from 1 within a firing. ``status`` is None when there was no answer; ``error_class`` then names
    what went wrong on the way (``delivery.port.TransportError``). ``headers`` are those of the answer that were kept,
    lower-case names, without secrets. ``body`` is the beginning of the answer, None when there was none or it is not
    to be kept; ``body_bytes`` is how much of the answer was read and ``body_truncated`` tells that ``body`` is not
    the whole answer.
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

    @property
    def ended_at(self) -> datetime:
        return self.started_at + timedelta(milliseconds=self.duration_ms)


def append_attempt(log_text: str | None, record: AttemptRecord) -> str:
    """The log with ``record`` as its newest attempt: at most MAX_ATTEMPTS_LOGGED, at most MAX_LOG_BYTES.

    Attempts before the newest that were a success keep neither headers nor body: a timer that is rescheduled again
    and again would carry them through every write. A log that cannot be read is begun anew.
    """
    entry = _bounded_entry(record)
    if not log_text:
        return f"[{entry}]"
    kept = [entry]
    room = MAX_LOG_BYTES - len("[]") - len(entry.encode())
    for document in reversed(_entries(log_text)[1 - MAX_ATTEMPTS_LOGGED :]):
        try:
            older = _encode_json(_without_details(document))
            room -= len(older.encode()) + len(",")
        except (ValueError, RecursionError):
            continue  # half a surrogate pair, say, which no store takes
        if room < 0:
            break
        kept.append(older)
    return f"[{','.join(reversed(kept))}]"


def read_attempts(log_text: str | None) -> list[AttemptRecord]:
    """The attempts of a log, oldest first. What cannot be read is left out."""
    records = []
    for document in _entries(log_text) if log_text else []:
        try:
            records.append(_decode(document))
        except (KeyError, ValueError, TypeError, OverflowError):
            continue
    return records


# -- the stored form: one object per attempt, short names, nothing that is absent ---------------------------------


def _bounded_entry(record: AttemptRecord) -> str:
    while True:
        entry = _encode_json(_document(record))
        if len(entry) * _MAX_BYTES_PER_CHARACTER <= _MAX_ENTRY_BYTES or len(entry.encode()) <= _MAX_ENTRY_BYTES:
            return entry
        if record.body:
            record = replace(record, body=record.body[: len(record.body) // 2], body_truncated=True)
        elif record.headers:
            record = replace(record, headers={})
        else:
            return entry


def _document(record: AttemptRecord) -> dict[str, object]:
    document: dict[str, object] = {
        "n": record.number,
        "f": record.firing_id,
        "t": to_milliseconds(record.started_at),
        "d": record.duration_ms,
        "o": record.outcome.value,
    }
    if record.status is not None:
        document["s"] = record.status
    if record.reason is not None:
        document["r"] = record.reason.value
    if record.error_class is not None:
        document["e"] = record.error_class
    if record.message:
        document["m"] = record.message[:MAX_MESSAGE_CHARACTERS]
    if record.headers:
        document["h"] = record.headers
    if record.body is not None:
        document["b"] = record.body
    if record.body_bytes:
        document["l"] = record.body_bytes
    if record.body_truncated:
        document["c"] = 1
    return document


def _without_details(document: dict[str, Any]) -> dict[str, Any]:
    """An older attempt as it is kept: of a success only what happened and when."""
    if document.get("o") not in (AttemptOutcome.FIRED, AttemptOutcome.RESCHEDULED):
        return document
    brief = {name: value for name, value in document.items() if name not in ("h", "b", "c")}
    return brief | {"c": 1} if "l" in brief else brief


def _decode(document: Mapping[str, Any]) -> AttemptRecord:
    return AttemptRecord(
        number=int(document["n"]),
        firing_id=str(document["f"]),
        started_at=from_milliseconds(int(document["t"])),
        duration_ms=int(document["d"]),
        outcome=AttemptOutcome(document["o"]),
        status=None if "s" not in document else int(document["s"]),
        reason=None if "r" not in document else FailureReason(document["r"]),
        error_class=None if "e" not in document else str(document["e"]),
        message=str(document.get("m", "")),
        headers={str(name): str(value) for name, value in dict(document.get("h", {})).items()},
        body=None if "b" not in document else str(document["b"]),
        body_bytes=int(document.get("l", 0)),
        body_truncated=bool(document.get("c")),
    )


def _entries(log_text: str) -> list[dict[str, Any]]:
    try:
        documents = json.loads(log_text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(documents, list):
        return []
    return [document for document in documents if isinstance(document, dict)]
