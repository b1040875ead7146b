"""Timers as rows of ``timers`` and back (names: durable-timer seed; the full list is in docs/stores/cassandra.md).

``timer_execute_at`` is ``Timer.next_attempt_at``, the key of the row that makes it due. Instants are milliseconds
since 1970 in a ``bigint``: the driver reads a ``timestamp`` by way of a float, and one out of range would spoil a
whole page. JSON is the exact text. A value that a timer has not is a column that its row has not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    Failure,
    FailureReason,
    Timer,
    TimerContent,
    TimerState,
)
from duetime.domain.times import MIN_INSTANT, from_milliseconds, to_milliseconds
from duetime.stores.cassandra.requests import Row
from duetime.stores.timer_check import DamagedTimer, checked, without_damage

T = TypeVar("T")

Key = tuple[int, str, str]
"""Shard id, namespace, timer id."""

_ROW_BYTES = 1024
"""About what a timer takes beside its texts."""

DECODING_ERRORS: Final = (KeyError, ValueError, TypeError, AttributeError, OverflowError)
"""What reading a damaged row may raise."""

COLUMNS: Final = (
    "timer_execute_at",
    "timer_due_at",
    "timer_state",
    "timer_revision",
    "timer_firing_id",
    "timer_attempts",
    "timer_callback_url",
    "timer_callback_timeout_seconds",
    "timer_payload",
    "timer_headers",
    "timer_retry_policy",
    "timer_correlation_id",
    "timer_tags",
    "timer_expire_after_ms",
    "timer_digest",
    "timer_created_at",
    "timer_updated_at",
    "timer_fired_at",
    "timer_failure",
    "timer_expires_at",
    "timer_rearmed_at",
    "timer_attempt_log",
)
"""All but the key and what belongs to the store itself."""


def is_trace(row: Row) -> bool:
    """Whether it is what a deletion leaves for a while: the write that made it, and no timer."""
    return row["timer_state"] is None and row["timer_revision"] is None and row["timer_created_at"] is None


class UnreadableError(Exception):
    """A row that does not decode. The message names the kind of fault, never the value."""


def key_of(timer: Timer) -> Key:
    return timer.shard_id, timer.namespace, timer.timer_id


def key_of_row(row: Row) -> Key:
    return row["shard_id"], row["timer_namespace"], row["timer_id"]


# -- encoding -------------------------------------------------------------------------------------------------


def encode(timer: Timer) -> Row:
    """The values of ``COLUMNS``."""
    content = timer.content
    return {
        "timer_execute_at": _optional_ms(timer.next_attempt_at),
        "timer_due_at": to_milliseconds(content.execute_at),
        "timer_state": timer.state.value,
        "timer_revision": timer.revision,
        "timer_firing_id": timer.firing_id,
        "timer_attempts": timer.attempts,
        "timer_callback_url": content.callback_url,
        "timer_callback_timeout_seconds": content.callback_timeout_seconds,
        "timer_payload": content.payload_json,
        "timer_headers": content.headers_json,
        "timer_retry_policy": content.retry_policy_json,
        "timer_correlation_id": content.correlation_id,
        "timer_tags": json.dumps(content.tags, ensure_ascii=False) if content.tags else None,
        "timer_expire_after_ms": content.expire_after_ms,
        "timer_digest": timer.digest,
        "timer_created_at": to_milliseconds(timer.created_at),
        "timer_updated_at": to_milliseconds(timer.updated_at),
        "timer_fired_at": _optional_ms(timer.fired_at),
        "timer_failure": None if timer.failure is None else failure_text(timer.failure),
        "timer_expires_at": _optional_ms(timer.expires_at),
        "timer_rearmed_at": _optional_ms(timer.rearmed_at),
        "timer_attempt_log": timer.attempt_log,
    }


def failure_text(failure: Failure) -> str:
    fields = {
        "reason": failure.reason.value,
        "message": failure.message,
        "at": to_milliseconds(failure.at),
        "status": failure.status,
    }
    return json.dumps(fields, ensure_ascii=False)


def size_bytes(row: Row) -> int:
    """About what the row with these ``COLUMNS`` takes."""
    texts = (value for name in COLUMNS if isinstance(value := row[name], str))
    return _ROW_BYTES + sum(len(text.encode()) for text in texts)


def _optional_ms(instant: datetime | None) -> int | None:
    return None if instant is None else to_milliseconds(instant)


# -- decoding -------------------------------------------------------------------------------------------------


def decode(row: Row) -> Timer:
    """The timer of a whole row. Raises ``UnreadableError``."""
    try:
        return checked(_decode(row))
    except DamagedTimer as error:
        raise UnreadableError(f"the stored timer cannot be read: {error}") from error
    except DECODING_ERRORS as error:
        missing = f": {error}" if isinstance(error, KeyError) else ""
        raise UnreadableError(f"the stored timer cannot be read: {type(error).__name__}{missing}") from error


def _decode(row: Row) -> Timer:
    shard_id, namespace, timer_id = key_of_row(row)
    return Timer(
        namespace=namespace,
        timer_id=timer_id,
        shard_id=shard_id,
        content=TimerContent(
            execute_at=from_milliseconds(_given(row, "timer_due_at")),
            callback_url=_given(row, "timer_callback_url"),
            payload_json=row["timer_payload"],
            headers_json=row["timer_headers"],
            retry_policy_json=row["timer_retry_policy"],
            callback_timeout_seconds=_given(row, "timer_callback_timeout_seconds"),
            correlation_id=row["timer_correlation_id"],
            tags=_tags(row),
            expire_after_ms=row["timer_expire_after_ms"],
        ),
        digest=_given(row, "timer_digest"),
        state=TimerState(_given(row, "timer_state")),
        revision=_given(row, "timer_revision"),
        firing_id=_given(row, "timer_firing_id"),
        attempts=_given(row, "timer_attempts"),
        next_attempt_at=_optional_instant(row, "timer_execute_at"),
        created_at=from_milliseconds(_given(row, "timer_created_at")),
        updated_at=from_milliseconds(_given(row, "timer_updated_at")),
        fired_at=_optional_instant(row, "timer_fired_at"),
        failure=_failure(row),
        expires_at=_optional_instant(row, "timer_expires_at"),
        rearmed_at=_optional_instant(row, "timer_rearmed_at"),
        attempt_log=row["timer_attempt_log"],
    )


def decode_or_salvage(row: Row) -> Timer:
    """The timer of a row; for one that does not decode what is left of it, as a failed timer."""
    try:
        return decode(row)
    except UnreadableError as error:
        return _salvaged(row, str(error))


def _salvaged(row: Row, reason: str) -> Timer:
    shard_id, namespace, timer_id = key_of_row(row)
    updated_at = lenient(lambda: from_milliseconds(row["timer_updated_at"]), MIN_INSTANT)
    failure = lenient(lambda: _failure(row), None)
    if failure is None or failure.reason is not FailureReason.UNREADABLE:
        failure = Failure(FailureReason.UNREADABLE, reason, updated_at)
    timer = Timer(
        namespace=namespace,
        timer_id=timer_id,
        shard_id=shard_id,
        content=TimerContent(
            execute_at=lenient(lambda: from_milliseconds(row["timer_due_at"]), MIN_INSTANT),
            callback_url=row["timer_callback_url"] or "",
            payload_json=row["timer_payload"],
            headers_json=row["timer_headers"],
            retry_policy_json=row["timer_retry_policy"],
            callback_timeout_seconds=row["timer_callback_timeout_seconds"] or DEFAULT_CALLBACK_TIMEOUT_SECONDS,
            correlation_id=row["timer_correlation_id"],
            tags=lenient(lambda: _tags(row), ()),
            expire_after_ms=row["timer_expire_after_ms"],
        ),
        digest=row["timer_digest"] or "",
        state=TimerState.FAILED,
        revision=row["timer_revision"] or 0,
        firing_id=row["timer_firing_id"] or "",
        attempts=row["timer_attempts"] or 0,
        next_attempt_at=None,
        created_at=lenient(lambda: from_milliseconds(row["timer_created_at"]), MIN_INSTANT),
        updated_at=updated_at,
        failure=failure,
        expires_at=lenient(lambda: _optional_instant(row, "timer_expires_at"), None),
        attempt_log=row["timer_attempt_log"],
    )
    return without_damage(timer)


def lenient(read: Callable[[], T], default: T) -> T:
    """What ``read`` gives, or ``default`` where that cannot be read."""
    try:
        return read()
    except DECODING_ERRORS:
        return default


def tags_of(row: Row) -> tuple[str, ...]:
    """For filters: none where they cannot be read."""
    return lenient(lambda: _tags(row), ())


def reason_of(row: Row) -> FailureReason | None:
    """For filters: the reason of the last failure; None where there is none, or it cannot be read."""
    failure = lenient(lambda: _failure(row), None)
    return None if failure is None else failure.reason


def _given(row: Row, name: str) -> Any:
    value = row[name]
    if value is None:
        raise KeyError(name)
    return value


def _optional_instant(row: Row, name: str) -> datetime | None:
    milliseconds = row[name]
    return None if milliseconds is None else from_milliseconds(milliseconds)


def _tags(row: Row) -> tuple[str, ...]:
    text = row["timer_tags"]
    tags = [] if text is None else json.loads(text)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("tags")
    return tuple(tags)


def _failure(row: Row) -> Failure | None:
    text = row["timer_failure"]
    if text is None:
        return None
    value = json.loads(text)
    return Failure(FailureReason(value["reason"]), value["message"], from_milliseconds(value["at"]), value["status"])
