"""Timers as items and back (names: durable-timer seed; the full list is in docs/stores/dynamodb.md).

``timer_execute_at`` is the key of the sparse index, so it is ``Timer.next_attempt_at``. The due time itself is
stored apart, as ``timer_due_at``, only when it differs or the index key is gone: a create writes nothing extra.
JSON is stored as the exact text, numbers are whole, times are fixed-width UTC text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from duetime.domain.ids import sort_key
from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    Failure,
    FailureReason,
    Timer,
    TimerContent,
    TimerState,
)
from duetime.domain.times import MIN_INSTANT, format_instant, read_instant, to_milliseconds
from duetime.stores.dynamodb.changes import Item, text, whole
from duetime.stores.timer_check import DamagedTimer, checked, without_damage

TIMER = "TIMER"
DUE_INDEX = "timer_execute_at-index"
CORRELATION_INDEX = "timer_correlation_id-index"

OPTIONAL_ATTRIBUTES = (
    "timer_execute_at",
    "timer_due_at",
    "timer_payload",
    "timer_payload_key",
    "timer_headers",
    "timer_retry_policy",
    "timer_correlation_id",
    "timer_tags",
    "timer_fired_at",
    "timer_failure",
    "timer_expires_at",
    "timer_expire_after_ms",
    "timer_rearmed_at",
    "timer_attempt_log",
    "expires_at",
)
"""What a timer's item may lack, and what a replaced timer must therefore lose."""

T = TypeVar("T")


class Unreadable(Exception):
    """An item cannot be decoded; never leaves this package."""


def item_key(shard_id: int, key: str) -> Item:
    return {"shard_id": whole(shard_id), "sortKey": text(key)}


def timer_key(shard_id: int, namespace: str, timer_id: str) -> Item:
    return item_key(shard_id, sort_key(namespace, timer_id))


def key_of(item: Item) -> Item:
    return {"shard_id": item["shard_id"], "sortKey": item["sortKey"]}


# -- encoding -------------------------------------------------------------------------------------------------


def encode(timer: Timer, *, payload_key: str | None = None) -> Item:
    """The item of ``timer``; with ``payload_key`` its payload is kept in the item of that name (payloads.py)."""
    content = timer.content
    item: Item = {
        **timer_key(timer.shard_id, timer.namespace, timer.timer_id),
        "row_type": text(TIMER),
        "timer_uuid": text(str(timer.timer_uuid)),
        "timer_namespace": text(timer.namespace),
        "timer_id": text(timer.timer_id),
        "timer_callback_url": text(content.callback_url),
        "timer_callback_timeout_seconds": whole(content.callback_timeout_seconds),
        "timer_digest": text(timer.digest),
        "timer_state": text(timer.state.value),
        "timer_revision": whole(timer.revision),
        "timer_firing_id": text(timer.firing_id),
        "timer_attempts": whole(timer.attempts),
        "timer_created_at": text(format_instant(timer.created_at)),
        "timer_updated_at": text(format_instant(timer.updated_at)),
    }
    optional: dict[str, str | None] = {
        "timer_execute_at": _instant_text(timer.next_attempt_at),
        "timer_due_at": None if timer.next_attempt_at == content.execute_at else format_instant(content.execute_at),
        "timer_payload": None if payload_key is not None else content.payload_json,
        "timer_payload_key": payload_key,
        "timer_headers": content.headers_json,
        "timer_retry_policy": content.retry_policy_json,
        "timer_correlation_id": content.correlation_id,
        "timer_fired_at": _instant_text(timer.fired_at),
        "timer_failure": None if timer.failure is None else failure_text(timer.failure),
        "timer_expires_at": _instant_text(timer.expires_at),
        "timer_rearmed_at": _instant_text(timer.rearmed_at),
        "timer_attempt_log": timer.attempt_log,
    }
    item.update((name, text(value)) for name, value in optional.items() if value is not None)
    if content.tags:
        item["timer_tags"] = {"L": [text(tag) for tag in content.tags]}
    if content.expire_after_ms is not None:
        item["timer_expire_after_ms"] = whole(content.expire_after_ms)
    if timer.expires_at is not None:
        item["expires_at"] = time_to_live(timer.expires_at)
    return item


def time_to_live(instant: datetime) -> dict[str, str]:
    """Epoch seconds for the table's TTL, rounded up: a row is never removed before its time."""
    return whole(-(-to_milliseconds(instant) // 1000))


def failure_text(failure: Failure) -> str:
    return json.dumps(
        {
            "reason": failure.reason.value,
            "message": failure.message,
            "at": format_instant(failure.at),
            "status": failure.status,
        },
        ensure_ascii=False,
    )


def failure_text_beginning(reason: FailureReason) -> str:
    """What the ``failure_text`` of every failure with this reason begins with, and of no other: for filters."""
    return f'{{"reason": {json.dumps(reason.value)}, '


def _instant_text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


# -- decoding -------------------------------------------------------------------------------------------------


def decode(item: Item) -> Timer:
    """The timer of ``item``, whose payload is in place. Raises ``Unreadable``, saying what is wrong."""
    try:
        timer = _decode(item)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        # A missing attribute may be named. Other errors quote what they could not read, which may be a secret.
        missing = f": {error}" if isinstance(error, KeyError) else ""
        raise Unreadable(f"{type(error).__name__}{missing}") from error
    if item["sortKey"]["S"] != sort_key(timer.namespace, timer.timer_id):
        raise Unreadable("the key does not belong to the timer id")
    if UUID(item["timer_uuid"]["S"]) != timer.timer_uuid:
        raise Unreadable("timer_uuid does not belong to the timer id")
    try:
        return checked(timer)
    except DamagedTimer as error:
        raise Unreadable(str(error)) from error


def _decode(item: Item) -> Timer:
    next_attempt_at = _instant(item, "timer_execute_at")
    execute_at = _instant(item, "timer_due_at") or next_attempt_at
    if execute_at is None:
        raise Unreadable("no due time")
    if "timer_payload_key" in item and "timer_payload" not in item:
        raise Unreadable("the payload is gone")
    failure = item.get("timer_failure")
    return Timer(
        namespace=item["timer_namespace"]["S"],
        timer_id=item["timer_id"]["S"],
        shard_id=int(item["shard_id"]["N"]),
        content=TimerContent(
            execute_at=execute_at,
            callback_url=item["timer_callback_url"]["S"],
            payload_json=_text(item, "timer_payload"),
            headers_json=_text(item, "timer_headers"),
            retry_policy_json=_text(item, "timer_retry_policy"),
            callback_timeout_seconds=int(item["timer_callback_timeout_seconds"]["N"]),
            correlation_id=_text(item, "timer_correlation_id"),
            tags=_tags(item),
            expire_after_ms=_whole(item, "timer_expire_after_ms"),
        ),
        digest=item["timer_digest"]["S"],
        state=TimerState(item["timer_state"]["S"]),
        revision=int(item["timer_revision"]["N"]),
        firing_id=item["timer_firing_id"]["S"],
        attempts=int(item["timer_attempts"]["N"]),
        next_attempt_at=next_attempt_at,
        created_at=read_instant(item["timer_created_at"]["S"]),
        updated_at=read_instant(item["timer_updated_at"]["S"]),
        fired_at=_instant(item, "timer_fired_at"),
        failure=None if failure is None else _failure(failure["S"]),
        expires_at=_instant(item, "timer_expires_at"),
        rearmed_at=_instant(item, "timer_rearmed_at"),
        attempt_log=_text(item, "timer_attempt_log"),
    )


def decode_leniently(item: Item) -> Timer:
    """The timer of ``item``; one that cannot be decoded reads as FAILED (unreadable), what is unreadable empty."""
    try:
        return decode(item)
    except Unreadable as error:
        return _unreadable_timer(item, str(error))


def _unreadable_timer(item: Item, reason: str) -> Timer:
    # The key was checked when it was written and is all that is certain.
    namespace, _, timer_id = item["sortKey"]["S"].removeprefix(f"{TIMER}#").partition("#")
    updated_at = lenient(lambda: read_instant(item["timer_updated_at"]["S"]), MIN_INSTANT)
    failure = lenient(lambda: _failure(item["timer_failure"]["S"]), None)
    if failure is None or failure.reason is not FailureReason.UNREADABLE:
        failure = Failure(FailureReason.UNREADABLE, reason, updated_at)
    due_at = lenient(lambda: _instant(item, "timer_due_at") or _instant(item, "timer_execute_at"), None)
    timer = Timer(
        namespace=namespace,
        timer_id=timer_id,
        shard_id=int(item["shard_id"]["N"]),
        content=TimerContent(
            execute_at=due_at or MIN_INSTANT,
            callback_url=lenient(lambda: item["timer_callback_url"]["S"], ""),
            payload_json=lenient(lambda: _text(item, "timer_payload"), None),
            headers_json=lenient(lambda: _text(item, "timer_headers"), None),
            retry_policy_json=lenient(lambda: _text(item, "timer_retry_policy"), None),
            callback_timeout_seconds=lenient(
                lambda: int(item["timer_callback_timeout_seconds"]["N"]), DEFAULT_CALLBACK_TIMEOUT_SECONDS
            ),
            correlation_id=lenient(lambda: _text(item, "timer_correlation_id"), None),
            tags=lenient(lambda: _tags(item), ()),
            expire_after_ms=lenient(lambda: _whole(item, "timer_expire_after_ms"), None),
        ),
        digest=lenient(lambda: item["timer_digest"]["S"], ""),
        state=TimerState.FAILED,
        revision=lenient(lambda: int(item["timer_revision"]["N"]), 0),
        firing_id=lenient(lambda: item["timer_firing_id"]["S"], ""),
        attempts=lenient(lambda: int(item["timer_attempts"]["N"]), 0),
        next_attempt_at=None,
        created_at=lenient(lambda: read_instant(item["timer_created_at"]["S"]), MIN_INSTANT),
        updated_at=updated_at,
        failure=failure,
        expires_at=lenient(lambda: _instant(item, "timer_expires_at"), None),
        attempt_log=lenient(lambda: _text(item, "timer_attempt_log"), None),
    )
    return without_damage(timer)


def lenient(read: Callable[[], T], default: T) -> T:
    try:
        return read()
    except (KeyError, ValueError, TypeError, AttributeError):
        return default


def _text(item: Item, name: str) -> str | None:
    return item[name]["S"] if name in item else None


def _whole(item: Item, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _instant(item: Item, name: str) -> datetime | None:
    return read_instant(item[name]["S"]) if name in item else None


def _tags(item: Item) -> tuple[str, ...]:
    return tuple(tag["S"] for tag in item["timer_tags"]["L"]) if "timer_tags" in item else ()


def _failure(failure_json: str) -> Failure:
    value: dict[str, Any] = json.loads(failure_json)
    return Failure(FailureReason(value["reason"]), value["message"], read_instant(value["at"]), value["status"])
