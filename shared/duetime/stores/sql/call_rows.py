"""Service calls as rows and back. Rows are plain tuples in the order of ``CALL_COLUMNS``."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
)
from duetime.domain.times import MIN_INSTANT, format_instant, read_instant
from duetime.stores.call_check import call_without_damage, checked_call
from duetime.stores.core.timer_codec import decode_tags, encode_tags, readable_tags
from duetime.stores.sql.call_tables import service_calls

CALL_COLUMNS = tuple(service_calls.columns)
"""What ``decode_call`` reads."""
LISTED_COLUMNS = tuple(column for column in CALL_COLUMNS if column is not service_calls.c.request_body)
"""The same without the last one, the body of the request."""
CALL_NAMES = tuple(column.name for column in CALL_COLUMNS)
REQUEST_NAMES = ("request_spec", "request_body")
STEP_NAMES = (
    "status",
    "started_at",
    "finished_at",
    "reached_at",
    "wake_at",
    "updated_at",
    "expires_at",
    "call_revision",
    "attempts",
    "event_count",
    "execution_id",
    "last_event_id",
    "outcome_meta",
)
"""What the steps of a call's life change. The others stand in indexes, which would be written again."""
LABEL_NAMES = (
    "name",
    "is_starred",
    "due_at",
    "registered_at",
    "timeout_seconds",
    "correlation_id",
    "call_digest",
    "rerun_of",
    "tags",
    "retry_policy",
)
"""What only its owner changes. With the request and what never changes these are all columns."""
_STEP_PLACES = tuple(map(CALL_NAMES.index, STEP_NAMES))
_LABEL_PLACES = tuple(map(CALL_NAMES.index, LABEL_NAMES))

Row = Any
"""A tuple in the order of ``CALL_COLUMNS`` or ``LISTED_COLUMNS``."""

UNREADABLE_TEXT = "the stored service call cannot be read"
_DECODING_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# One unit of work has few instants, and most of them stand in several columns.
instant_text = lru_cache(maxsize=4096)(format_instant)
text_instant = lru_cache(maxsize=4096)(read_instant)


class UnreadableCallError(Exception):
    """A row that does not decode. The message names the kind of fault, never the value."""


def optional_text(instant: datetime | None) -> str | None:
    return None if instant is None else instant_text(instant)


def optional_instant(text: str | None) -> datetime | None:
    return None if text is None else text_instant(text)


def encode_call(call: ServiceCall) -> tuple[Any, ...]:
    """The values for ``CALL_NAMES``."""
    return *_encode_facts(call), *encode_request(call.request)


def encode_step(call: ServiceCall) -> tuple[Any, ...]:
    """The values for ``STEP_NAMES``."""
    values = _encode_facts(call)
    return tuple([values[place] for place in _STEP_PLACES])


def encode_labels(call: ServiceCall) -> tuple[Any, ...]:
    """The values for ``LABEL_NAMES``."""
    values = _encode_facts(call)
    return tuple([values[place] for place in _LABEL_PLACES])


def has_other_labels(call: ServiceCall, other: ServiceCall) -> bool:
    """Whether the two differ in what ``LABEL_NAMES`` hold."""
    return _labels(call) != _labels(other)


_labels = attrgetter(
    "name",
    "starred",
    "due_at",
    "registered_at",
    "timeout_seconds",
    "correlation_id",
    "digest",
    "rerun_of",
    "tags",
    "retry_policy_json",
)


def _encode_facts(call: ServiceCall) -> tuple[Any, ...]:
    """The values for ``CALL_NAMES`` without ``REQUEST_NAMES``, which are the last."""
    return (
        call.tenant_id,
        call.call_id,
        call.name,
        call.status.value,
        int(call.starred),
        instant_text(call.submitted_at),
        instant_text(call.due_at),
        optional_text(call.started_at),
        optional_text(call.finished_at),
        instant_text(call.registered_at),
        optional_text(call.reached_at),
        optional_text(call.wake_at),
        instant_text(call.updated_at),
        optional_text(call.expires_at),
        call.shard_id,
        call.revision,
        call.attempts,
        call.event_count,
        call.timeout_seconds,
        call.correlation_id,
        call.idempotency_key,
        call.digest,
        call.execution_id,
        call.last_event_id,
        call.rerun_of,
        encode_tags(call.tags),
        call.retry_policy_json,
        _encode_outcome(call.outcome),
    )


def encode_request(request: RequestSpec) -> tuple[str, str | None]:
    """The values for ``REQUEST_NAMES``: ``headers`` is the exact JSON text as a JSON string."""
    spec = {
        "method": request.method.value,
        "url": request.url,
        "headers": request.headers_json,
        "bodyBytes": request.body_bytes,
    }
    return _as_json(spec), request.body_json


def decode_call(row: Row) -> ServiceCall:
    """The call that a row holds, without body where the row ends before it. Raises ``UnreadableCallError``."""
    values = dict(zip(CALL_NAMES, row, strict=False))
    try:
        call = ServiceCall(
            **_plain_values(values),
            request=_decode_request(values["request_spec"], values.get("request_body")),
            status=CallStatus(values["status"]),
            submitted_at=text_instant(values["submitted_at"]),
            updated_at=text_instant(values["updated_at"]),
            due_at=text_instant(values["due_at"]),
            registered_at=text_instant(values["registered_at"]),
            reached_at=optional_instant(values["reached_at"]),
            started_at=optional_instant(values["started_at"]),
            finished_at=optional_instant(values["finished_at"]),
            wake_at=optional_instant(values["wake_at"]),
            expires_at=optional_instant(values["expires_at"]),
            tags=() if values["tags"] is None else decode_tags(values["tags"]),
            outcome=_decode_outcome(values["outcome_meta"]),
        )
        return checked_call(call)
    except _DECODING_ERRORS as error:
        raise UnreadableCallError(f"{UNREADABLE_TEXT}: {type(error).__name__}") from error


def decode_or_salvage_call(row: Row) -> ServiceCall:
    """The call that a row holds; for one that does not decode, what is left of it, as a failed one."""
    try:
        return decode_call(row)
    except UnreadableCallError as error:
        return _salvaged(dict(zip(CALL_NAMES, row, strict=False)), str(error))


def _plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """The fields that are stored as they are: always readable."""
    return {
        "tenant_id": values["tenant_id"],
        "call_id": values["service_call_id"],
        "shard_id": values["shard_id"],
        "name": values["name"],
        "digest": values["call_digest"],
        "revision": values["call_revision"],
        "timeout_seconds": values["timeout_seconds"],
        "retry_policy_json": values["retry_policy"],
        "correlation_id": values["correlation_id"],
        "idempotency_key": values["idempotency_key"],
        "rerun_of": values["rerun_of"],
        "starred": bool(values["is_starred"]),
        "attempts": values["attempts"],
        "execution_id": values["execution_id"],
        "event_count": values["event_count"],
        "last_event_id": values["last_event_id"],
    }


def _salvaged(values: dict[str, Any], reason: str) -> ServiceCall:
    """A FAILED call of what can be read; the rest is empty."""
    call = ServiceCall(
        **(_plain_values(values) | {"execution_id": None}),
        request=_readable_request(values["request_spec"]),
        status=CallStatus.FAILED,
        submitted_at=_readable_instant(values["submitted_at"]),
        updated_at=_readable_instant(values["updated_at"]),
        due_at=_readable_instant(values["due_at"]),
        registered_at=_readable_instant(values["registered_at"]),
        finished_at=_readable_instant(values["updated_at"]),
        wake_at=None,
        tags=readable_tags(values["tags"]),
        outcome=CallOutcome(execution_id="", reason=CallFailure.UNREADABLE, message=reason),
        expires_at=None if values["expires_at"] is None else _readable_instant(values["expires_at"]),
    )
    return call_without_damage(call)


def _readable_instant(text: str) -> datetime:
    try:
        return text_instant(text)
    except ValueError:
        return MIN_INSTANT


def _decode_request(spec_json: str, body_json: str | None) -> RequestSpec:
    spec = json.loads(spec_json)
    return RequestSpec(
        method=Method(spec["method"]),
        url=spec["url"],
        headers_json=spec["headers"],
        body_json=body_json,
        body_bytes=spec["bodyBytes"],
    )


def _readable_request(spec_json: str) -> RequestSpec:
    try:
        return _decode_request(spec_json, None)
    except _DECODING_ERRORS:
        return RequestSpec(method=Method.GET, url="")


def _encode_outcome(outcome: CallOutcome | None) -> str | None:
    if outcome is None:
        return None
    meta = {
        "executionId": outcome.execution_id,
        "httpStatus": outcome.http_status,
        "reason": outcome.reason,
        "message": outcome.message,
    }
    return _as_json(meta)


def _decode_outcome(text: str | None) -> CallOutcome | None:
    if text is None:
        return None
    meta = json.loads(text)
    return CallOutcome(
        execution_id=meta["executionId"],
        http_status=meta["httpStatus"],
        reason=None if meta["reason"] is None else CallFailure(meta["reason"]),
        message=meta["message"],
    )
