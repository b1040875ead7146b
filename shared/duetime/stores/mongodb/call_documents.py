"""Service calls as documents of ``service_calls`` and back. What a call has not is a field that it lacks."""

from __future__ import annotations

from typing import Any, Final

from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
)
from duetime.domain.times import MIN_INSTANT
from duetime.stores.call_check import call_without_damage, checked_call
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import (
    DECODING_ERRORS,
    flag,
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

BODY: Final = "request_body"
WITHOUT_BODY: Final = {BODY: 0}
"""The fields that lists read."""

_ONCE = frozenset({"tenant_id", "service_call_id", "shard_id", "submitted_at", "idempotency_key", "call_digest"})
"""What never changes after a call was submitted."""


class UnreadableCallError(Exception):
    """A document that does not decode. The message names the field and the kind of fault, never the value."""


def call_key(tenant_id: str, call_id: str) -> Document:
    """What the unique index finds a call by."""
    return {"tenant_id": tenant_id, "service_call_id": call_id}


def encode_call(call: ServiceCall) -> Document:
    return without_none({**_encode_state(call), **_encode_request(call.request)})


def step_change(before: ServiceCall, after: ServiceCall) -> Document:
    """The update from ``before`` to ``after``.

    The request is written only where it differs: a call from a list has a body that neither of them tells.
    """
    values = {name: value for name, value in _encode_state(after).items() if name not in _ONCE}
    if after.request != before.request:
        values |= _encode_request(after.request)
    return set_or_unset(values)


def _encode_state(call: ServiceCall) -> Document:
    return {
        **call_key(call.tenant_id, call.call_id),
        "name": call.name,
        "status": call.status.value,
        "is_starred": call.starred,
        "submitted_at": call.submitted_at,
        "due_at": call.due_at,
        "started_at": call.started_at,
        "finished_at": call.finished_at,
        "registered_at": call.registered_at,
        "reached_at": call.reached_at,
        "wake_at": call.wake_at,
        "updated_at": call.updated_at,
        "expires_at": call.expires_at,
        "shard_id": call.shard_id,
        "call_revision": call.revision,
        "attempts": call.attempts,
        "event_count": call.event_count,
        "timeout_seconds": call.timeout_seconds,
        "correlation_id": call.correlation_id,
        "idempotency_key": call.idempotency_key,
        "call_digest": call.digest,
        "execution_id": call.execution_id,
        "last_event_id": call.last_event_id,
        "rerun_of": call.rerun_of,
        "tags": list(call.tags) or None,
        "retry_policy": call.retry_policy_json,
        "outcome": _encode_outcome(call.outcome),
    }


def _encode_request(request: RequestSpec) -> Document:
    spec = {
        "method": request.method.value,
        "url": request.url,
        "headers": request.headers_json,
        "body_bytes": request.body_bytes,
    }
    return {"request": without_none(spec), BODY: request.body_json}


def _encode_outcome(outcome: CallOutcome | None) -> Document | None:
    if outcome is None:
        return None
    return without_none(
        {
            "execution_id": outcome.execution_id,
            "http_status": outcome.http_status,
            "reason": None if outcome.reason is None else outcome.reason.value,
            "message": outcome.message,
        }
    )


def decode_call(document: Document) -> ServiceCall:
    """The call of a document, without body where that was not read. Raises ``UnreadableCallError``."""
    try:
        return checked_call(_decode(document))
    except DECODING_ERRORS as error:
        raise UnreadableCallError(f"the stored service call cannot be read: {what_is_wrong(error)}") from error


def _decode(document: Document) -> ServiceCall:
    return ServiceCall(
        tenant_id=text(document, "tenant_id"),
        call_id=text(document, "service_call_id"),
        shard_id=whole(document, "shard_id"),
        name=text(document, "name"),
        request=_request(document),
        digest=text(document, "call_digest"),
        status=CallStatus(document["status"]),
        revision=whole(document, "call_revision"),
        submitted_at=instant(document, "submitted_at"),
        updated_at=instant(document, "updated_at"),
        due_at=instant(document, "due_at"),
        registered_at=instant(document, "registered_at"),
        reached_at=optional(instant, document, "reached_at"),
        started_at=optional(instant, document, "started_at"),
        finished_at=optional(instant, document, "finished_at"),
        wake_at=optional(instant, document, "wake_at"),
        timeout_seconds=whole(document, "timeout_seconds"),
        retry_policy_json=optional(text, document, "retry_policy"),
        correlation_id=text(document, "correlation_id"),
        idempotency_key=optional(text, document, "idempotency_key"),
        rerun_of=optional(text, document, "rerun_of"),
        tags=optional(texts, document, "tags") or (),
        starred=flag(document, "is_starred"),
        attempts=whole(document, "attempts"),
        execution_id=optional(text, document, "execution_id"),
        outcome=optional(_outcome, document, "outcome"),
        event_count=whole(document, "event_count"),
        last_event_id=optional(text, document, "last_event_id"),
        expires_at=optional(instant, document, "expires_at"),
    )


def decode_or_salvage_call(document: Document) -> ServiceCall:
    """The call of a document; for one that does not decode what is left of it, as a failed one."""
    try:
        return decode_call(document)
    except UnreadableCallError as error:
        return _salvaged(document, str(error))


def _salvaged(document: Document, reason: str) -> ServiceCall:
    def given(read: Any, name: str, default: Any) -> Any:
        return lenient(read, document, name, default)

    updated_at = given(instant, "updated_at", MIN_INSTANT)
    call = ServiceCall(
        tenant_id=given(text, "tenant_id", ""),
        call_id=given(text, "service_call_id", ""),
        shard_id=given(whole, "shard_id", 0),
        name=given(text, "name", ""),
        request=given(lambda whole_document, _: _request(whole_document), "", RequestSpec(method=Method.GET, url="")),
        digest=given(text, "call_digest", ""),
        status=CallStatus.FAILED,
        revision=given(whole, "call_revision", 0),
        submitted_at=given(instant, "submitted_at", MIN_INSTANT),
        updated_at=updated_at,
        due_at=given(instant, "due_at", MIN_INSTANT),
        registered_at=given(instant, "registered_at", MIN_INSTANT),
        finished_at=updated_at,
        wake_at=None,
        timeout_seconds=given(whole, "timeout_seconds", 0),
        correlation_id=given(text, "correlation_id", ""),
        idempotency_key=given(text, "idempotency_key", None),
        rerun_of=given(text, "rerun_of", None),
        tags=given(texts, "tags", ()),
        starred=given(flag, "is_starred", False),
        attempts=given(whole, "attempts", 0),
        outcome=CallOutcome(execution_id="", reason=CallFailure.UNREADABLE, message=reason),
        event_count=given(whole, "event_count", 0),
        last_event_id=given(text, "last_event_id", None),
        expires_at=given(instant, "expires_at", None),
    )
    return call_without_damage(call)


def _request(document: Document) -> RequestSpec:
    spec = document["request"]
    return RequestSpec(
        method=Method(spec["method"]),
        url=text(spec, "url"),
        headers_json=optional(text, spec, "headers"),
        body_json=optional(text, document, BODY),
        body_bytes=whole(spec, "body_bytes"),
    )


def _outcome(document: Document, name: str) -> CallOutcome:
    value = document[name]
    reason = value.get("reason")
    return CallOutcome(
        execution_id=text(value, "execution_id"),
        http_status=optional(whole, value, "http_status"),
        reason=None if reason is None else CallFailure(reason),
        message=text(value, "message"),
    )
