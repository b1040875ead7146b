"""Service calls as items and back.

What is the key of an index is stored there alone: the status, the name and the correlation id are read from
``status_key``, ``name_key`` and ``correlation_key``. JSON is the exact text, times are fixed-width UTC text.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
    timer_of,
)
from duetime.domain.times import format_instant, read_instant
from duetime.stores.call_check import checked_call
from duetime.stores.dynamodb import items as timer_items
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.changes import Item, text, whole
from duetime.stores.dynamodb.items import Unreadable

ROW_TYPE = "CALL"
INLINE_BODY_BYTES = 1024
"""A longer body is an item of its own, so that changes of the status do not pay for it."""

_EXPIRY = "outbox_key"
_EXPIRY_BEFORE = "call_expires_at"
"""The end of a finished call: the key by which it is found then, and where it was before there was that key."""
_CLOSING = "call_closing"
"""Marks a call that is being removed with more than one transaction can hold. It reads as absent."""


# -- encoding -----------------------------------------------------------------------------------------------------


def has_own_body(request: RequestSpec) -> bool:
    return request.body_bytes > INLINE_BODY_BYTES


def encode_call(call: ServiceCall) -> Item:
    """The item of ``call``, without a body that is an item of its own."""
    request = call.request
    item: Item = {
        **keys.call_key(call.tenant_id, call.call_id),
        "row_type": text(ROW_TYPE),
        "status_key": text(keys.status_prefix(call.status) + call.call_id),
        "name_key": text(keys.name_index_key(call.name, call.call_id)),
        "correlation_key": text(keys.correlation_index_key(call.tenant_id, call.correlation_id)),
        "shard_id": whole(call.shard_id),
        "method": text(request.method.value),
        "url": text(request.url),
        "body_bytes": whole(request.body_bytes),
        "digest": text(call.digest),
        "revision": whole(call.revision),
        "submitted_at": text(format_instant(call.submitted_at)),
        "updated_at": text(format_instant(call.updated_at)),
        "due_at": text(format_instant(call.due_at)),
        "registered_at": text(format_instant(call.registered_at)),
        "timeout_seconds": whole(call.timeout_seconds),
        "attempts": whole(call.attempts),
        "event_count": whole(call.event_count),
    }
    optional: dict[str, str | None] = {
        "starred_key": call.call_id if call.starred else None,
        "due_key": keys.due_index_key(call.due_at, call.call_id) if call.status is CallStatus.SCHEDULED else None,
        "headers": request.headers_json,
        "body": None if has_own_body(request) else request.body_json,
        "reached_at": _instant_text(call.reached_at),
        "started_at": _instant_text(call.started_at),
        "finished_at": _instant_text(call.finished_at),
        "wake_at": _instant_text(call.wake_at),
        "retry_policy": call.retry_policy_json,
        "idempotency_key": call.idempotency_key,
        "rerun_of": call.rerun_of,
        "execution_id": call.execution_id,
        "outcome": None if call.outcome is None else _outcome_text(call.outcome),
        "last_event_id": call.last_event_id,
    }
    item.update((name, text(value)) for name, value in optional.items() if value is not None)
    if call.tags:
        item["tags"] = {"L": [text(tag) for tag in call.tags]}
    if call.expires_at is not None:  # by ``prune`` and not by TTL, which tells nobody
        item |= _expiry(call.call_id, call.expires_at)
    return item


def _expiry(call_id: str, at: datetime) -> Item:
    """By which ``prune`` finds what is to go from ``at`` on."""
    return {"outbox_partition": whole(keys.expiry_partition(call_id)), _EXPIRY: text(format_instant(at))}


def encode_timer(call: ServiceCall) -> Item:
    """The call's row in the timers table, which the table's TTL removes together with the call."""
    return timer_items.encode(replace(timer_of(call), expires_at=call.expires_at))


def encode_body(call: ServiceCall) -> Item:
    """The item of a body that is set by ``call.revision``.

    Who reads a call and then its body knows by the revision whether the body was changed in between.
    """
    assert call.request.body_json is not None
    return {
        **keys.body_key(call.tenant_id, call.call_id),
        "row_type": text("BODY"),
        "revision": whole(call.revision),
        "body": text(call.request.body_json),
    }


def _outcome_text(outcome: CallOutcome) -> str:
    return json.dumps(
        {
            "executionId": outcome.execution_id,
            "status": outcome.http_status,
            "reason": outcome.reason,
            "message": outcome.message,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _instant_text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


# -- decoding -----------------------------------------------------------------------------------------------------


def decode_call(item: Item) -> ServiceCall:
    """The call of ``item``; its ``request.body_json`` is None when the body is an item of its own.

    Raises ``Unreadable``, quoting nothing that the item holds.
    """
    try:
        return checked_call(_decode(item))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        missing = f": {error}" if isinstance(error, KeyError) else ""
        raise Unreadable(f"{type(error).__name__}{missing}") from error


def with_body(call: ServiceCall, body: Item) -> ServiceCall:
    """``call`` with the body of ``body``, which is its item."""
    return replace(call, request=replace(call.request, body_json=body["body"]["S"]))


def without_body(call: ServiceCall) -> ServiceCall:
    return replace(call, request=call.request.without_body())


def is_absent(item: Item | None, now: datetime) -> bool:
    """Whether ``item`` reads as no call: there is none, it has expired, or its removal has begun."""
    if item is None or is_closing(item):
        return True
    expires_at = item.get(_EXPIRY, item.get(_EXPIRY_BEFORE))
    return expires_at is not None and expires_at["S"] <= format_instant(now)


def is_closing(item: Item) -> bool:
    return _CLOSING in item


def closing(tenant_id: str, call_id: str, now: datetime) -> Item:
    """What is left of a call whose removal takes several steps, for ``prune`` if nobody completes them."""
    return {
        **keys.call_key(tenant_id, call_id),
        "row_type": text(ROW_TYPE),
        _CLOSING: {"BOOL": True},
        **_expiry(call_id, now),
    }


def _decode(item: Item) -> ServiceCall:
    status, _, call_id = item["status_key"]["S"].partition("#")
    if item["sort_key"]["S"] != keys.CALL + call_id:
        raise Unreadable("the key does not belong to the call id")
    return ServiceCall(
        tenant_id=item["tenant_id"]["S"],
        call_id=call_id,
        shard_id=int(item["shard_id"]["N"]),
        name=keys.name_of_name_key(item["name_key"]["S"]),
        request=RequestSpec(
            method=Method(item["method"]["S"]),
            url=item["url"]["S"],
            headers_json=_text(item, "headers"),
            body_json=_text(item, "body"),
            body_bytes=int(item["body_bytes"]["N"]),
        ),
        digest=item["digest"]["S"],
        status=CallStatus(status),
        revision=int(item["revision"]["N"]),
        submitted_at=read_instant(item["submitted_at"]["S"]),
        updated_at=read_instant(item["updated_at"]["S"]),
        due_at=read_instant(item["due_at"]["S"]),
        registered_at=read_instant(item["registered_at"]["S"]),
        reached_at=_instant(item, "reached_at"),
        started_at=_instant(item, "started_at"),
        finished_at=_instant(item, "finished_at"),
        wake_at=_instant(item, "wake_at"),
        timeout_seconds=int(item["timeout_seconds"]["N"]),
        retry_policy_json=_text(item, "retry_policy"),
        correlation_id=keys.correlation_id_of(item["correlation_key"]["S"]),
        idempotency_key=_text(item, "idempotency_key"),
        rerun_of=_text(item, "rerun_of"),
        tags=tags_of(item),
        starred="starred_key" in item,
        attempts=int(item["attempts"]["N"]),
        execution_id=_text(item, "execution_id"),
        outcome=_outcome(item["outcome"]["S"]) if "outcome" in item else None,
        event_count=int(item["event_count"]["N"]),
        last_event_id=_text(item, "last_event_id"),
        expires_at=_instant(item, _EXPIRY if _EXPIRY in item else _EXPIRY_BEFORE),
    )


def tags_of(item: Item) -> tuple[str, ...]:
    return tuple(tag["S"] for tag in item["tags"]["L"]) if "tags" in item else ()


def _outcome(outcome_json: str) -> CallOutcome:
    value: dict[str, Any] = json.loads(outcome_json)
    reason = value["reason"]
    return CallOutcome(
        execution_id=value["executionId"],
        http_status=value["status"],
        reason=None if reason is None else CallFailure(reason),
        message=value["message"],
    )


def _text(item: Item, name: str) -> str | None:
    return item[name]["S"] if name in item else None


def _instant(item: Item, name: str) -> datetime | None:
    return read_instant(item[name]["S"]) if name in item else None
