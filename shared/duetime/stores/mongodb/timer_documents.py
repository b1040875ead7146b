"""Timers as documents of ``timers`` and back (names: durable-timer seed; the full list is in docs/stores/mongodb.md).

A value that a timer has not is a field that its document has not. ``timer_execute_at`` is the key of the due index:
``Timer.next_attempt_at``, so a finished timer has none. JSON is the exact text, an instant a BSON date, which has
milliseconds too.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from uuid import UUID

from duetime.domain.ids import timer_uuid
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    Failure,
    FailureReason,
    Timer,
    TimerContent,
    TimerState,
)
from duetime.domain.times import MIN_INSTANT
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import (
    DECODING_ERRORS,
    instant,
    lenient,
    optional,
    set_or_unset,
    text,
    texts,
    what_is_wrong,
    whole,
    without_none,
)
from duetime.stores.timer_check import DamagedTimer, checked, without_damage


class RowType(IntEnum):
    """What a document of ``timers`` is."""

    SHARD = 1
    TIMER = 2


class UnreadableError(Exception):
    """A document that does not decode. The message names the field and the kind of fault, never the value."""


def timer_key(shard_id: int, namespace: str, timer_id: str) -> Document:
    """What the unique index finds a timer by."""
    return {
        "shard_id": shard_id,
        "row_type": RowType.TIMER.value,
        "timer_namespace": namespace,
        "timer_id": timer_id,
    }


def key_of(timer: Timer) -> Document:
    return timer_key(timer.shard_id, timer.namespace, timer.timer_id)


# -- encoding -------------------------------------------------------------------------------------------------


def encode(timer: Timer) -> Document:
    content = timer.content
    document: Document = {
        **key_of(timer),
        "timer_uuid": timer_uuid(timer.namespace, timer.timer_id),
        "timer_execute_at": timer.next_attempt_at,
        "timer_due_at": content.execute_at,
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
        "timer_tags": list(content.tags) or None,
        "timer_expire_after_ms": content.expire_after_ms,
        "timer_digest": timer.digest,
        "timer_created_at": timer.created_at,
        "timer_updated_at": timer.updated_at,
        "timer_fired_at": timer.fired_at,
        "timer_failure": encode_failure(timer.failure),
        "timer_expires_at": timer.expires_at,
        "timer_rearmed_at": timer.rearmed_at,
        "timer_attempt_log": timer.attempt_log,
    }
    return without_none(document)


def outcome_change(outcome: Outcome, *, now: datetime) -> Document:
    """The update that an outcome makes of the timer that was fired."""
    log = outcome.timer.attempt_log if outcome.attempt_log is None else outcome.attempt_log
    change = set_or_unset(
        {
            "timer_execute_at": outcome.next_attempt_at,
            "timer_state": outcome.state.value,
            "timer_due_at": outcome.execute_at,
            "timer_firing_id": outcome.firing_id,
            "timer_attempts": outcome.attempts,
            "timer_updated_at": now,
            "timer_fired_at": outcome.fired_at,
            "timer_failure": encode_failure(outcome.failure),
            "timer_expires_at": outcome.expires_at,
            "timer_attempt_log": log,
        }
    )
    return {**change, "$inc": {"timer_revision": 1}}


def encode_failure(failure: Failure | None) -> Document | None:
    if failure is None:
        return None
    fields = {"reason": failure.reason.value, "message": failure.message, "at": failure.at, "status": failure.status}
    return without_none(fields)


# -- decoding -------------------------------------------------------------------------------------------------


def decode(document: Document) -> Timer:
    """The timer of a document. Raises ``UnreadableError``."""
    try:
        return checked(_decode(document))
    except DamagedTimer as error:
        raise UnreadableError(f"the stored timer cannot be read: {error}") from error
    except DECODING_ERRORS as error:
        raise UnreadableError(f"the stored timer cannot be read: {what_is_wrong(error)}") from error


def _decode(document: Document) -> Timer:
    if not isinstance(document["timer_uuid"], UUID):
        raise ValueError("timer_uuid is of another type")
    return Timer(
        namespace=text(document, "timer_namespace"),
        timer_id=text(document, "timer_id"),
        shard_id=whole(document, "shard_id"),
        content=TimerContent(
            execute_at=instant(document, "timer_due_at"),
            callback_url=text(document, "timer_callback_url"),
            payload_json=optional(text, document, "timer_payload"),
            headers_json=optional(text, document, "timer_headers"),
            retry_policy_json=optional(text, document, "timer_retry_policy"),
            callback_timeout_seconds=whole(document, "timer_callback_timeout_seconds"),
            correlation_id=optional(text, document, "timer_correlation_id"),
            tags=optional(texts, document, "timer_tags") or (),
            expire_after_ms=optional(whole, document, "timer_expire_after_ms"),
        ),
        digest=text(document, "timer_digest"),
        state=TimerState(document["timer_state"]),
        revision=whole(document, "timer_revision"),
        firing_id=text(document, "timer_firing_id"),
        attempts=whole(document, "timer_attempts"),
        next_attempt_at=optional(instant, document, "timer_execute_at"),
        created_at=instant(document, "timer_created_at"),
        updated_at=instant(document, "timer_updated_at"),
        fired_at=optional(instant, document, "timer_fired_at"),
        failure=optional(_failure, document, "timer_failure"),
        expires_at=optional(instant, document, "timer_expires_at"),
        rearmed_at=optional(instant, document, "timer_rearmed_at"),
        attempt_log=optional(text, document, "timer_attempt_log"),
    )


def decode_or_salvage(document: Document) -> Timer:
    """The timer of a document; for one that does not decode what is left of it, as a failed timer."""
    try:
        return decode(document)
    except UnreadableError as error:
        return _salvaged(document, str(error))


def _salvaged(document: Document, reason: str) -> Timer:
    updated_at = lenient(instant, document, "timer_updated_at", MIN_INSTANT)
    failure = lenient(_failure, document, "timer_failure", None)
    if failure is None or failure.reason is not FailureReason.UNREADABLE:
        failure = Failure(FailureReason.UNREADABLE, reason, updated_at)
    timer = Timer(
        namespace=lenient(text, document, "timer_namespace", ""),
        timer_id=lenient(text, document, "timer_id", ""),
        shard_id=lenient(whole, document, "shard_id", 0),
        content=TimerContent(
            execute_at=lenient(instant, document, "timer_due_at", MIN_INSTANT),
            callback_url=lenient(text, document, "timer_callback_url", ""),
            payload_json=lenient(text, document, "timer_payload", None),
            headers_json=lenient(text, document, "timer_headers", None),
            retry_policy_json=lenient(text, document, "timer_retry_policy", None),
            callback_timeout_seconds=lenient(
                whole, document, "timer_callback_timeout_seconds", DEFAULT_CALLBACK_TIMEOUT_SECONDS
            ),
            correlation_id=lenient(text, document, "timer_correlation_id", None),
            tags=lenient(texts, document, "timer_tags", ()),
            expire_after_ms=lenient(whole, document, "timer_expire_after_ms", None),
        ),
        digest=lenient(text, document, "timer_digest", ""),
        state=TimerState.FAILED,
        revision=lenient(whole, document, "timer_revision", 0),
        firing_id=lenient(text, document, "timer_firing_id", ""),
        attempts=lenient(whole, document, "timer_attempts", 0),
        next_attempt_at=None,
        created_at=lenient(instant, document, "timer_created_at", MIN_INSTANT),
        updated_at=updated_at,
        failure=failure,
        expires_at=lenient(instant, document, "timer_expires_at", None),
        attempt_log=lenient(text, document, "timer_attempt_log", None),
    )
    return without_damage(timer)


def readable_reason(document: Document) -> FailureReason | None:
    """The reason of the last failure alone, for filters; None when there is none or it cannot be read."""
    failure = lenient(_failure, document, "timer_failure", None)
    return None if failure is None else failure.reason


def _failure(document: Document, name: str) -> Failure:
    value = document[name]
    return Failure(
        FailureReason(value["reason"]), text(value, "message"), instant(value, "at"), optional(whole, value, "status")
    )
