"""Timers as rows of ``entities.TIMER`` and back. It is on the hot path: rows are unpacked, not looked into."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from duetime.domain.ids import schedule_id_of, timer_uuid_bytes
from duetime.domain.json_text import are_headers, is_policy
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    MAX_CALLBACK_TIMEOUT_SECONDS,
    Failure,
    FailureReason,
    Timer,
    TimerContent,
)
from duetime.domain.timers import TimerState as State
from duetime.domain.times import MIN_INSTANT
from duetime.stores.backend import NOW, Now
from duetime.stores.core.failure_codec import decode_failure, encode_failure
from duetime.stores.core.instants import instant, milliseconds, optional_milliseconds
from duetime.stores.core.schedule_codec import decode_schedule, encode_schedule
from duetime.stores.decoding import DECODING_ERRORS, DamagedRow, UnreadableError, is_text, repaired
from duetime.stores.entities import TIMER
from duetime.stores.entity import DAMAGED, Key, Row, Value
from duetime.stores.json_texts import is_json

_STATES = {state.value: state for state in State}
"""Looked up once: an enum's value costs more than the comparison, and a backlog is many rows."""
_UNREADABLE = "the stored timer cannot be read"


def key_of(timer: Timer) -> Key:
    return timer.shard_id, timer.namespace, timer.timer_id


def keys_of(namespace: Namespace, timer_id: str, now: datetime) -> list[Key]:
    """Return the keys under which a timer may stand, first the one under which it is created."""
    return [(shard_id, namespace.name, timer_id) for shard_id in namespace.shards_of(timer_id, now)]


def encode(timer: Timer) -> Row:
    """Return the row of a timer, with its own times."""
    return _encode(timer, milliseconds(timer.created_at), milliseconds(timer.updated_at))


def encode_new(timer: Timer) -> Row:
    """Return the row of a timer that is created with this write."""
    return _encode(timer, NOW, NOW)


def encode_changed(timer: Timer) -> Row:
    """Return the row of a timer that is updated by this write."""
    return _encode(timer, milliseconds(timer.created_at), NOW)


def _encode(timer: Timer, created_at: int | Now, updated_at: int | Now) -> Row:
    content = timer.content
    return (
        timer.shard_id,
        timer.namespace,
        timer.timer_id,
        timer_uuid_bytes(timer.namespace, timer.timer_id),
        optional_milliseconds(timer.next_attempt_at),
        timer.state._value_,
        milliseconds(content.execute_at),
        optional_milliseconds(timer.expires_at),
        encode_tags(content.tags),
        content.correlation_id,
        timer.revision,
        timer.firing_id,
        timer.attempts,
        created_at,
        updated_at,
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
        content.timing_json,
        None if timer.schedule is None else encode_schedule(timer.schedule),
    )


OUTCOME_CHANGES = (
    "timer_execute_at",
    "timer_state",
    "timer_due_at",
    "timer_revision",
    "timer_firing_id",
    "timer_attempts",
    "timer_updated_at",
    "timer_fired_at",
    "timer_failure",
    "timer_expires_at",
    "timer_attempt_log",
)
SCHEDULE_CHANGES = (*OUTCOME_CHANGES, "timer_schedule")
OUTCOME_EXPECTS = ("timer_revision", "timer_firing_id", "timer_execute_at")
"""That the row is still the one of the timer that was fired."""


def encode_outcome(outcome: Outcome) -> Row:
    """Return the values of ``OUTCOME_CHANGES``, or of ``SCHEDULE_CHANGES``, and those of ``OUTCOME_EXPECTS``."""
    timer = outcome.timer
    assert timer.next_attempt_at is not None
    return (
        None if outcome.next_attempt_at is None else milliseconds(outcome.next_attempt_at),
        outcome.state._value_,
        milliseconds(outcome.execute_at),
        timer.revision + 1,
        outcome.firing_id,
        outcome.attempts,
        NOW,
        None if outcome.fired_at is None else milliseconds(outcome.fired_at),
        encode_failure(outcome.failure),
        None if outcome.expires_at is None else milliseconds(outcome.expires_at),
        timer.attempt_log if outcome.attempt_log is None else outcome.attempt_log,
        *(() if outcome.schedule is None else (encode_schedule(outcome.schedule.schedule),)),
        timer.revision,
        timer.firing_id,
        milliseconds(timer.next_attempt_at),
    )


def decode(row: Row) -> Timer:
    """Return the timer that a row holds. Raises ``UnreadableError``."""
    (
        shard_id,
        namespace,
        timer_id,
        _uuid,
        execute_at,
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
        timing,
        schedule,
    ) = row
    try:
        if DAMAGED in row:
            raise UnreadableError(f"{_UNREADABLE}: {TIMER.names[row.index(DAMAGED)]}")
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
                timing_json=timing,
            ),
            digest=digest,
            state=_STATES[state],
            revision=revision,
            firing_id=firing_id,
            attempts=attempts,
            next_attempt_at=None if execute_at is None else instant(execute_at),
            created_at=instant(created_at),
            updated_at=instant(updated_at),
            fired_at=None if fired_at is None else instant(fired_at),
            failure=None if failure is None else decode_failure(failure),
            expires_at=None if expires_at is None else instant(expires_at),
            rearmed_at=None if rearmed_at is None else instant(rearmed_at),
            attempt_log=attempt_log,
            schedule=None if schedule is None else decode_schedule(schedule),
        )
        return checked(timer)
    except DamagedRow as error:
        raise UnreadableError(f"{_UNREADABLE}: {error}") from error
    except DECODING_ERRORS as error:
        raise UnreadableError(f"{_UNREADABLE}: {type(error).__name__}") from error


def decode_or_salvage(row: Row) -> Timer:
    """Return the timer that a row holds; for one that does not decode, what is left of it, as a failed timer."""
    try:
        return decode(row)
    except UnreadableError as error:
        return _salvaged(dict(zip(TIMER.names, row, strict=True)), str(error))


def _salvaged(values: Mapping[str, Value], reason: str) -> Timer:
    def given(name: str, default: Any) -> Any:
        value = values[name]
        return default if value is None or value is DAMAGED else value

    updated_at = readable_instant(values["timer_updated_at"]) or MIN_INSTANT
    timer = Timer(
        namespace=given("timer_namespace", ""),
        timer_id=given("timer_id", ""),
        shard_id=given("shard_id", 0),
        content=TimerContent(
            execute_at=readable_instant(values["timer_due_at"]) or MIN_INSTANT,
            callback_url=given("timer_callback_url", ""),
            payload_json=given("timer_payload", None),
            headers_json=given("timer_headers", None),
            retry_policy_json=given("timer_retry_policy", None),
            callback_timeout_seconds=given("timer_callback_timeout_seconds", DEFAULT_CALLBACK_TIMEOUT_SECONDS),
            correlation_id=given("timer_correlation_id", None),
            tags=readable_tags(values["timer_tags"]),
            expire_after_ms=given("timer_expire_after_ms", None),
            timing_json=given("timer_timing", None),
        ),
        digest=given("timer_digest", ""),
        state=State.FAILED,
        revision=given("timer_revision", 0),
        firing_id=given("timer_firing_id", ""),
        attempts=given("timer_attempts", 0),
        next_attempt_at=None,
        created_at=readable_instant(values["timer_created_at"]) or MIN_INSTANT,
        updated_at=updated_at,
        failure=Failure(FailureReason.UNREADABLE, reason, updated_at),
        expires_at=readable_instant(values["timer_expires_at"]),
        attempt_log=given("timer_attempt_log", None),
    )
    return without_damage(timer)


def readable_instant(value: Value) -> datetime | None:
    """Return the instant; None when there is none or it cannot be read."""
    try:
        return None if value is None else instant(value)
    except (TypeError, OverflowError):
        return None


def encode_tags(tags: tuple[str, ...]) -> str | None:
    return json.dumps(tags, ensure_ascii=False) if tags else None


def decode_tags(text: str) -> tuple[str, ...]:
    """Return the tags. Raises ``ValueError`` for anything but a JSON array of strings."""
    tags = json.loads(text)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("not a list of tags")
    return tuple(tags)


def readable_tags(text: Value) -> tuple[str, ...]:
    try:
        return () if text is None else decode_tags(text)
    except (ValueError, TypeError):
        return ()


def readable_reason(text: Value) -> FailureReason | None:
    """Return the reason alone, for filters; None when there is none or it cannot be read."""
    try:
        return None if text is None else decode_failure(text).reason
    except (ValueError, TypeError):
        return None


_FIRING_ID = re.compile(r"[!-~]{1,64}")
"""It is sent as a header."""


def checked(timer: Timer) -> Timer:
    """Return ``timer``. Raises ``DamagedRow`` when it cannot be sent or shown as it is.

    A store decodes its rows by types alone. The texts among them are spliced into requests and responses as they
    are, so a damaged one would go out as JSON that nobody can read.
    """
    if damaged := _damaged(timer):
        raise DamagedRow(f"{damaged[0]} is damaged")
    return timer


def without_damage(timer: Timer) -> Timer:
    """Return ``timer`` with nothing in the place of what ``checked`` refuses: it is shown, and never sent."""
    damaged = set(_damaged(timer))
    of_content: dict[str, Any] = dict.fromkeys(damaged & _CLEARED_IN_CONTENT)
    content = replace(timer.content, **of_content)
    cleared: dict[str, Any] = {name: value for name, value in _CLEARED.items() if name in damaged}
    return repaired(replace(timer, content=content, **cleared))


_CLEARED_IN_CONTENT = frozenset({"payload_json", "headers_json", "retry_policy_json", "expire_after_ms"})
_CLEARED: dict[str, Any] = {"firing_id": "", "attempts": 0}


def _damaged(timer: Timer) -> list[str]:
    """Return the names of the fields that are damaged."""
    content = timer.content
    damaged: list[str] = []
    texts = (
        timer.namespace,
        timer.timer_id,
        content.callback_url,
        content.payload_json,
        content.headers_json,
        content.retry_policy_json,
        content.correlation_id,
        timer.digest,
        timer.attempt_log,
        content.timing_json,
        None if timer.schedule is None or timer.schedule.pause is None else timer.schedule.pause.reason,
        *content.tags,
    )
    if not is_text("".join(filter(None, texts))):
        damaged.append("a text")
    if content.payload_json is not None and not is_json(content.payload_json):
        damaged.append("payload_json")
    if content.headers_json is not None and not are_headers(content.headers_json):
        damaged.append("headers_json")
    if content.retry_policy_json is not None and not is_policy(content.retry_policy_json):
        damaged.append("retry_policy_json")
    if timer.attempts < 0:
        damaged.append("attempts")
    if _FIRING_ID.fullmatch(timer.firing_id) is None:
        damaged.append("firing_id")
    if not 1 <= content.callback_timeout_seconds <= MAX_CALLBACK_TIMEOUT_SECONDS:
        damaged.append("callback_timeout_seconds")
    if content.expire_after_ms is not None and content.expire_after_ms < 1:
        damaged.append("expire_after_ms")
    if timer.schedule is not None or schedule_id_of(timer.timer_id) is not None:
        is_whole = timer.schedule is not None and timer.is_schedule == (content.timing_json is not None)
        if not is_whole or timer.schedule_id is None:
            damaged.append("schedule")
    return damaged
