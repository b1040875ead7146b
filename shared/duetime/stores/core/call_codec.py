"""Service calls as rows of ``entities.SERVICE_CALL`` and back."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any

from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
    calls_namespace,
    timer_state,
)
from duetime.domain.times import MIN_INSTANT
from duetime.stores.core.call_check import call_without_damage, checked_call
from duetime.stores.core.timer_codec import (
    instant,
    milliseconds,
    optional_instant,
    optional_milliseconds,
    readable_instant,
)
from duetime.stores.decoding import DECODING_ERRORS, UnreadableError
from duetime.stores.entities import SERVICE_CALL, TIMER
from duetime.stores.entity import DAMAGED, Row, Value
from duetime.stores.json_texts import as_json, read_json

LISTED = tuple(name for name in SERVICE_CALL.names if name != "request_body")
"""What lists read: all but the body of the request."""
_OF_PATHS = {name for path in SERVICE_CALL.paths for name in (*path.by, *path.order_names, *path.where)}
_OF_REMOVAL = {*_OF_PATHS, "call_revision", "shard_id", "wake_at", "execution_id"}
REMOVED = tuple(name for name in LISTED if name in _OF_REMOVAL)
"""What is known of a call to remove it: what leads to it and to its timer."""
STEP = (
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
_LABELS = (
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
"""What only its owner changes."""
_REQUEST = SERVICE_CALL.names[-2:]
_step, _label = (itemgetter(*(SERVICE_CALL.places[name] for name in names)) for names in (STEP, _LABELS))
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
_STATUSES = {status.value: status for status in CallStatus}
_UNREADABLE = "the stored service call cannot be read"


def encode_call(call: ServiceCall) -> Row:
    return *_encode_facts(call), _encode_request(call.request), call.request.body_json


def _encode_facts(call: ServiceCall) -> Row:
    """Return all but the request."""
    return (
        call.tenant_id,
        call.call_id,
        call.name,
        call.status._value_,
        call.starred,
        milliseconds(call.submitted_at),
        milliseconds(call.due_at),
        optional_milliseconds(call.started_at),
        optional_milliseconds(call.finished_at),
        milliseconds(call.registered_at),
        optional_milliseconds(call.reached_at),
        optional_milliseconds(call.wake_at),
        milliseconds(call.updated_at),
        optional_milliseconds(call.expires_at),
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
        call.tags or None,
        call.retry_policy_json,
        _encode_outcome(call.outcome),
    )


def encode_timer(call: ServiceCall) -> Row:
    """Return the row of ``timer_of(call)`` without making that timer: each step of a call writes one."""
    namespace = calls_namespace(call.tenant_id)
    return (
        call.shard_id,
        namespace,
        call.call_id,
        timer_uuid_bytes(namespace, call.call_id),
        optional_milliseconds(call.wake_at),
        timer_state(call.status, call.execution_id)._value_,
        milliseconds(call.due_at),
        None,
        None,
        call.correlation_id,
        call.revision,
        call.call_id,
        call.attempts,
        milliseconds(call.registered_at),
        milliseconds(call.updated_at),
        optional_milliseconds(call.reached_at),
        None,
        call.digest,
        call.timeout_seconds,
        call.request.url,
        *_NO_MORE_OF_A_TIMER,
    )


def timer_known(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return what leads to a call's timer, of values of ``REMOVED``; nothing where they cannot be read."""
    wake_at, execution_id, status = values["wake_at"], values["execution_id"], _STATUSES.get(values["status"])
    if status is None or DAMAGED in (wake_at, execution_id):
        return {}
    return {
        "timer_uuid": timer_uuid_bytes(calls_namespace(values["tenant_id"]), values["service_call_id"]),
        "timer_execute_at": wake_at,
        "timer_state": timer_state(status, execution_id).value,
        "timer_payload": None,
    }


_NO_MORE_OF_A_TIMER = (None,) * (len(TIMER.names) - TIMER.places["timer_callback_url"] - 1)


def call_changes(before: ServiceCall, after: ServiceCall) -> dict[str, Value]:
    """Return what changes of a row from ``before`` to ``after``.

    The request is written only where it differs: a call from a list has a body that neither of them tells.
    """
    facts = _encode_facts(after)
    changes = dict(zip(STEP, _step(facts), strict=True))
    if _labels(before) != _labels(after):
        changes |= zip(_LABELS, _label(facts), strict=True)
    if before.request != after.request:
        changes |= zip(_REQUEST, (_encode_request(after.request), after.request.body_json), strict=True)
    return changes


def decode_call(row: Row) -> ServiceCall:
    """Return the call of a whole row, or of one of ``LISTED``. Raises ``UnreadableError``."""
    values = dict(zip(SERVICE_CALL.names, row, strict=False))
    try:
        if DAMAGED in row:
            raise UnreadableError(f"{_UNREADABLE}: {SERVICE_CALL.names[row.index(DAMAGED)]}")
        call = ServiceCall(
            **{name: values[stored] for name, stored in _PLAIN.items()},
            request=_decode_request(values["request_spec"], values.get("request_body")),
            status=CallStatus(values["status"]),
            submitted_at=instant(values["submitted_at"]),
            updated_at=instant(values["updated_at"]),
            due_at=instant(values["due_at"]),
            registered_at=instant(values["registered_at"]),
            reached_at=optional_instant(values["reached_at"]),
            started_at=optional_instant(values["started_at"]),
            finished_at=optional_instant(values["finished_at"]),
            wake_at=optional_instant(values["wake_at"]),
            expires_at=optional_instant(values["expires_at"]),
            tags=values["tags"] or (),
            outcome=_decode_outcome(values["outcome_meta"]),
        )
        return checked_call(call)
    except DECODING_ERRORS as error:
        raise UnreadableError(f"{_UNREADABLE}: {type(error).__name__}") from error


_PLAIN = {
    "tenant_id": "tenant_id",
    "call_id": "service_call_id",
    "shard_id": "shard_id",
    "name": "name",
    "digest": "call_digest",
    "revision": "call_revision",
    "timeout_seconds": "timeout_seconds",
    "retry_policy_json": "retry_policy",
    "correlation_id": "correlation_id",
    "idempotency_key": "idempotency_key",
    "rerun_of": "rerun_of",
    "starred": "is_starred",
    "attempts": "attempts",
    "execution_id": "execution_id",
    "event_count": "event_count",
    "last_event_id": "last_event_id",
}
"""By name in ``ServiceCall``: what is stored as it is."""
_DEFAULTS: dict[str, Any] = {
    "shard_id": 0,
    "revision": 0,
    "timeout_seconds": 0,
    "attempts": 0,
    "event_count": 0,
    "starred": False,
    "retry_policy_json": None,
    "idempotency_key": None,
    "rerun_of": None,
    "execution_id": None,
    "last_event_id": None,
}
"""By name in ``ServiceCall``: what stands for a value that cannot be read; for others an empty text."""


def decode_or_salvage_call(row: Row) -> ServiceCall:
    """Return the call that a row holds; for one that does not decode, what is left of it, as a failed one."""
    try:
        return decode_call(row)
    except UnreadableError as error:
        return _salvaged(dict(zip(SERVICE_CALL.names, row, strict=False)), str(error))


def _salvaged(values: Mapping[str, Value], reason: str) -> ServiceCall:
    plain = {
        name: _DEFAULTS.get(name, "") if values[stored] is DAMAGED else values[stored]
        for name, stored in _PLAIN.items()
    }
    tags = values["tags"]
    updated_at = readable_instant(values["updated_at"]) or MIN_INSTANT
    call = ServiceCall(
        **(plain | {"execution_id": None}),
        request=_readable_request(values["request_spec"]),
        status=CallStatus.FAILED,
        submitted_at=readable_instant(values["submitted_at"]) or MIN_INSTANT,
        updated_at=updated_at,
        due_at=readable_instant(values["due_at"]) or MIN_INSTANT,
        registered_at=readable_instant(values["registered_at"]) or MIN_INSTANT,
        finished_at=updated_at,
        wake_at=None,
        tags=() if tags is DAMAGED or tags is None else tags,
        outcome=CallOutcome(execution_id="", reason=CallFailure.UNREADABLE, message=reason),
        expires_at=readable_instant(values["expires_at"]),
    )
    return call_without_damage(call)


def _encode_request(request: RequestSpec) -> str:
    """Encode a request without its body, which is a field of its own. ``headers`` is their exact JSON text, as a
    string."""
    spec = {
        "method": request.method._value_,
        "url": request.url,
        "headers": request.headers_json,
        "bodyBytes": request.body_bytes,
    }
    return as_json(spec)


def _decode_request(spec_json: str, body_json: str | None) -> RequestSpec:
    spec = read_json(spec_json)
    return RequestSpec(
        method=Method(spec["method"]),
        url=spec["url"],
        headers_json=spec["headers"],
        body_json=body_json,
        body_bytes=spec["bodyBytes"],
    )


def _readable_request(spec_json: Value) -> RequestSpec:
    try:
        return _decode_request(spec_json, None)
    except DECODING_ERRORS:
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
    return as_json(meta)


def _decode_outcome(text: str | None) -> CallOutcome | None:
    if text is None:
        return None
    meta = read_json(text)
    return CallOutcome(
        execution_id=meta["executionId"],
        http_status=meta["httpStatus"],
        reason=None if meta["reason"] is None else CallFailure(meta["reason"]),
        message=meta["message"],
    )
