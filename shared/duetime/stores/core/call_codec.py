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
from duetime.stores.core.instants import instant, milliseconds, optional_instant, optional_milliseconds
from duetime.stores.core.timer_codec import readable_instant
from duetime.stores.decoding import DECODING_ERRORS, UnreadableError
from duetime.stores.entities import SERVICE_CALL, TIMER
from duetime.stores.entity import DAMAGED, Field, Kind, Row, Value
from duetime.stores.json_texts import as_json, read_json

LISTED = SERVICE_CALL.names[:-1]
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
_RENAMED = {
    "service_call_id": "call_id",
    "call_revision": "revision",
    "call_digest": "digest",
    "retry_policy": "retry_policy_json",
    "outcome_meta": "outcome",
}
"""By stored name: the name in ``ServiceCall``, where that is another."""
*_FACTS, _SPEC, _BODY = SERVICE_CALL.fields
_ATTRIBUTES = tuple(_RENAMED.get(each.name, each.name) for each in _FACTS)
_facts = attrgetter(*_ATTRIBUTES)
_PLACES = SERVICE_CALL.places
_INSTANTS = [_PLACES[each.name] for each in _FACTS if each.kind is Kind.INSTANT]
_OF_SUBMISSION = {*SERVICE_CALL.key, "submitted_at", "shard_id", "idempotency_key"}
_LABELS = tuple(each.name for each in _FACTS if each.name not in {*STEP, *_OF_SUBMISSION})
"""What only its owner changes."""
_step, _label = (itemgetter(*(_PLACES[name] for name in names)) for names in (STEP, _LABELS))
_labels = attrgetter(*(_RENAMED.get(name, name) for name in _LABELS))
_STATUSES = {status.value: status for status in CallStatus}
_METHODS = {method.value: method for method in Method}
_UNREADABLE = "the stored service call cannot be read"


def encode_call(call: ServiceCall) -> Row:
    return *_encode_facts(call), _encode_request(call.request), call.request.body_json


def _encode_facts(call: ServiceCall) -> Row:
    """Return all but the request."""
    values = list(_facts(call))
    for place in _INSTANTS:
        values[place] = optional_milliseconds(values[place])
    values[_PLACES["status"]] = call.status._value_
    values[_PLACES["tags"]] = call.tags or None
    values[_PLACES["outcome_meta"]] = _encode_outcome(call.outcome)
    return tuple(values)


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
        changes |= zip(
            (_SPEC.name, _BODY.name), (_encode_request(after.request), after.request.body_json), strict=True
        )
    return changes


def decode_call(row: Row) -> ServiceCall:
    """Return the call of a whole row, or of one of ``LISTED``. Raises ``UnreadableError``."""
    try:
        if DAMAGED in row:
            raise UnreadableError(f"{_UNREADABLE}: {SERVICE_CALL.names[row.index(DAMAGED)]}")
        values = dict(zip(_ATTRIBUTES, row, strict=False))
        for place in _INSTANTS:
            values[_ATTRIBUTES[place]] = _read_instant[place](row[place])
        values["status"] = _STATUSES[values["status"]]
        values["tags"] = values["tags"] or ()
        values["outcome"] = _decode_outcome(values["outcome"])
        request = _decode_request(*row[len(_FACTS) :])
        return checked_call(ServiceCall(request=request, **values))
    except DECODING_ERRORS as error:
        raise UnreadableError(f"{_UNREADABLE}: {type(error).__name__}") from error


_read_instant = {place: optional_instant if _FACTS[place].is_optional else instant for place in _INSTANTS}


def decode_or_salvage_call(row: Row) -> ServiceCall:
    """Return the call that a row holds; for one that does not decode, what is left of it, as a failed one."""
    try:
        return decode_call(row)
    except UnreadableError as error:
        return _salvaged(row, str(error))


def _salvaged(row: Row, reason: str) -> ServiceCall:
    values = dict(zip(_ATTRIBUTES, map(_readable, _FACTS, row), strict=True))
    ended = {
        "request": _readable_request(row[_PLACES[_SPEC.name]]),
        "status": CallStatus.FAILED,
        "finished_at": values["updated_at"],
        "wake_at": None,
        "execution_id": None,
        "tags": values["tags"] or (),
        "outcome": CallOutcome(execution_id="", reason=CallFailure.UNREADABLE, message=reason),
    }
    return call_without_damage(ServiceCall(**values | ended))


def _readable(field: Field, value: Value) -> Any:
    """Return a value, or what stands for one that cannot be read."""
    if field.kind is Kind.INSTANT:
        value = readable_instant(value) or DAMAGED
    return (None if field.is_optional else _NOTHING[field.kind]) if value is DAMAGED else value


_NOTHING: dict[Kind, Any] = {Kind.TEXT: "", Kind.WHOLE: 0, Kind.FLAG: False, Kind.INSTANT: MIN_INSTANT}


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


def _decode_request(spec_json: str, body_json: str | None = None) -> RequestSpec:
    spec = read_json(spec_json)
    return RequestSpec(
        method=_METHODS[spec["method"]],
        url=spec["url"],
        headers_json=spec["headers"],
        body_json=body_json,
        body_bytes=spec["bodyBytes"],
    )


def _readable_request(spec_json: Value) -> RequestSpec:
    try:
        return _decode_request(spec_json)
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
