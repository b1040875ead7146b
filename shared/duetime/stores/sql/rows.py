"""Timers as rows of ``timers`` and back. Rows are plain tuples in the order of ``COLUMNS``: it is the hot path."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Failure, FailureReason, Timer, TimerContent, TimerState
from duetime.domain.times import MIN_INSTANT
from duetime.stores.core.timer_codec import (
    UnreadableError,
    decode_failure,
    decode_tags,
    encode_failure,
    encode_tags,
    instant,
    milliseconds,
    optional_milliseconds,
    readable_tags,
)
from duetime.stores.sql.tables import RowType, timers
from duetime.stores.timer_check import DamagedTimer, checked, without_damage

COLUMNS = (
    timers.c.shard_id,
    timers.c.row_type,
    timers.c.timer_execute_at,
    timers.c.timer_namespace,
    timers.c.timer_id,
    timers.c.timer_state,
    timers.c.timer_due_at,
    timers.c.timer_expires_at,
    timers.c.timer_tags,
    timers.c.timer_correlation_id,
    timers.c.timer_revision,
    timers.c.timer_firing_id,
    timers.c.timer_attempts,
    timers.c.timer_created_at,
    timers.c.timer_updated_at,
    timers.c.timer_fired_at,
    timers.c.timer_failure,
    timers.c.timer_digest,
    timers.c.timer_callback_timeout_seconds,
    timers.c.timer_callback_url,
    timers.c.timer_retry_policy,
    timers.c.timer_headers,
    timers.c.timer_payload,
    timers.c.timer_expire_after_ms,
    timers.c.timer_rearmed_at,
    timers.c.timer_attempt_log,
    timers.c.timer_uuid,
)
"""What ``decode`` reads."""

KEY_NAMES = ("shard_id", "timer_namespace", "timer_id")
VALUE_NAMES = (
    "timer_execute_at",
    "timer_state",
    "timer_due_at",
    "timer_tags",
    "timer_correlation_id",
    "timer_revision",
    "timer_firing_id",
    "timer_attempts",
    "timer_fired_at",
    "timer_failure",
    "timer_digest",
    "timer_callback_timeout_seconds",
    "timer_callback_url",
    "timer_retry_policy",
    "timer_headers",
    "timer_payload",
    "timer_expire_after_ms",
    "timer_rearmed_at",
    "timer_attempt_log",
)
"""What ``encode_values`` writes: the values of a timer that waits for an attempt."""

Row = Any
"""A tuple in the order of ``COLUMNS``."""

_STATES = {state.value: state for state in TimerState}
_TIMER = RowType.TIMER.value
"""Looked up once: an enum's value costs more than the comparison, and a backlog is many rows."""
_UNREADABLE_TEXT = "the stored timer cannot be read"


def encode_values(timer: Timer) -> tuple[Any, ...]:
    """The values for ``VALUE_NAMES``. The timer is not finished, so it has a next attempt."""
    content = timer.content
    assert timer.next_attempt_at is not None
    return (
        milliseconds(timer.next_attempt_at),
        timer.state.value,
        milliseconds(content.execute_at),
        encode_tags(content.tags),
        content.correlation_id,
        timer.revision,
        timer.firing_id,
        timer.attempts,
        optional_milliseconds(timer.fired_at),
        encode_failure(timer.failure),
        timer.digest,
        content.callback_timeout_seconds,
        content.callback_url,
        content.retry_policy_json,
        content.headers_json,
        content.payload_json,
        content.expire_after_ms,
        optional_milliseconds(timer.rearmed_at),
        timer.attempt_log,
    )


def encode_key(timer: Timer) -> tuple[int, str, str]:
    """The values for ``KEY_NAMES``."""
    return timer.shard_id, timer.namespace, timer.timer_id


OUTCOME_NAMES = (
    "new_row_type",
    "new_execute_at",
    "new_state",
    "new_due_at",
    "new_firing_id",
    "new_attempts",
    "new_fired_at",
    "new_failure",
    "new_expires_at",
    "new_attempt_log",
    "old_shard_id",
    "old_execute_at",
    "old_uuid",
    "old_revision",
    "old_firing_id",
)


def encode_outcome(outcome: Outcome) -> tuple[Any, ...]:
    """The values for ``OUTCOME_NAMES``: the new ones, then the row as it was when it was fired.

    A finished row keeps its last ``timer_execute_at``: a part of the primary key cannot be NULL.
    """
    timer = outcome.timer
    assert timer.next_attempt_at is not None
    fired_key = milliseconds(timer.next_attempt_at)
    next_attempt_at = outcome.next_attempt_at
    return (
        RowType.FINISHED.value if next_attempt_at is None else RowType.TIMER.value,
        fired_key if next_attempt_at is None else milliseconds(next_attempt_at),
        outcome.state.value,
        milliseconds(outcome.execute_at),
        outcome.firing_id,
        outcome.attempts,
        optional_milliseconds(outcome.fired_at),
        encode_failure(outcome.failure),
        optional_milliseconds(outcome.expires_at),
        timer.attempt_log if outcome.attempt_log is None else outcome.attempt_log,
        timer.shard_id,
        fired_key,
        timer_uuid_bytes(timer.namespace, timer.timer_id),
        timer.revision,
        timer.firing_id,
    )


def decode(row: Row) -> Timer:
    """The timer that a row holds. Raises ``UnreadableError``."""
    (
        shard_id,
        row_type,
        execute_at,
        namespace,
        timer_id,
        state,
        due_at,
        expires_at,
        tags,
        correlation_id,
        revision,
        firing_id,
        attempts,
        created_at,
        updated_at,
        fired_at,
        failure,
        digest,
        callback_timeout_seconds,
        callback_url,
        retry_policy,
        headers,
        payload,
        expire_after_ms,
        rearmed_at,
        attempt_log,
        _uuid,
    ) = row
    try:
        timer = Timer(
            namespace=namespace,
            timer_id=timer_id,
            shard_id=shard_id,
            content=TimerContent(
                execute_at=instant(due_at),
                callback_url=callback_url,
                payload_json=payload,
                headers_json=headers,
                retry_policy_json=retry_policy,
                callback_timeout_seconds=callback_timeout_seconds,
                correlation_id=correlation_id,
                tags=() if tags is None else decode_tags(tags),
                expire_after_ms=expire_after_ms,
            ),
            digest=digest,
            state=_STATES[state],
            revision=revision,
            firing_id=firing_id,
            attempts=attempts,
            next_attempt_at=instant(execute_at) if row_type == _TIMER else None,
            created_at=instant(created_at),
            updated_at=instant(updated_at),
            fired_at=None if fired_at is None else instant(fired_at),
            failure=None if failure is None else decode_failure(failure),
            expires_at=None if expires_at is None else instant(expires_at),
            rearmed_at=None if rearmed_at is None else instant(rearmed_at),
            attempt_log=attempt_log,
        )
        return checked(timer)
    except DamagedTimer as error:
        raise UnreadableError(f"{_UNREADABLE_TEXT}: {error}") from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise UnreadableError(f"{_UNREADABLE_TEXT}: {type(error).__name__}") from error


def decode_or_salvage(row: Row) -> Timer:
    """The timer that a row holds; for one that does not decode, what is left of it, as a failed timer."""
    try:
        return decode(row)
    except UnreadableError as error:
        return _salvaged(dict(zip((column.name for column in COLUMNS), row, strict=True)), str(error))


def _salvaged(values: dict[str, Any], reason: str) -> Timer:
    """A FAILED timer of what can be read; the rest is empty. Texts and counts are always readable."""
    updated_at = _readable_instant(values["timer_updated_at"])
    timer = Timer(
        namespace=values["timer_namespace"],
        timer_id=values["timer_id"],
        shard_id=values["shard_id"],
        content=TimerContent(
            execute_at=_readable_instant(values["timer_due_at"]),
            callback_url=values["timer_callback_url"],
            payload_json=values["timer_payload"],
            headers_json=values["timer_headers"],
            retry_policy_json=values["timer_retry_policy"],
            callback_timeout_seconds=values["timer_callback_timeout_seconds"],
            correlation_id=values["timer_correlation_id"],
            tags=readable_tags(values["timer_tags"]),
            expire_after_ms=values["timer_expire_after_ms"],
        ),
        digest=values["timer_digest"],
        state=TimerState.FAILED,
        revision=values["timer_revision"],
        firing_id=values["timer_firing_id"],
        attempts=values["timer_attempts"],
        next_attempt_at=None,
        created_at=_readable_instant(values["timer_created_at"]),
        updated_at=updated_at,
        failure=Failure(FailureReason.UNREADABLE, reason, updated_at),
        expires_at=_readable_end(values["timer_expires_at"]),
        attempt_log=values["timer_attempt_log"],
    )
    return without_damage(timer)


def _readable_instant(milliseconds: int) -> datetime:
    try:
        return instant(milliseconds)
    except OverflowError:
        return MIN_INSTANT


def _readable_end(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _readable_instant(milliseconds)
