"""Calls, timers, executions and events as they are stored, and what lists show of those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import CallUnreadable
from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import CallFailure, CallOutcome, CallStatus, Method, RequestSpec, ServiceCall
from duetime.domain.times import MIN_INSTANT, from_milliseconds
from duetime.stores.call_check import call_without_damage, checked_call, checked_event
from duetime.stores.cassandra.calls import codec
from duetime.stores.cassandra.requests import Row
from duetime.stores.event_reading import UnreadableEventError, report_unreadable, up_to_damage
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import UnreadableEvent

_MAX_SEQUENCE_DIGITS = 12


# -- calls --------------------------------------------------------------------------------------------------------


def encode_call(call: ServiceCall) -> str:
    """Without the request's body, which is a column of its own."""
    return codec.encode(replace(call, request=call.request.without_body()))


def decode_call(document: str | None, *, body_json: str | None) -> ServiceCall:
    """Raises ``CallUnreadable``."""
    try:
        call = checked_call(codec.decode(ServiceCall, _there(document)))
    except codec.DECODING_ERRORS as error:
        wrong = codec.what_is_wrong(error)
        raise CallUnreadable(f"the stored service call cannot be read: {wrong}") from error
    if body_json is None:
        return call
    return replace(call, request=replace(call.request, body_json=body_json))


def salvaged_call(tenant_id: str, call_id: str, row: Row, reason: str) -> ServiceCall:
    """What is left of a call that cannot be read, as a failed one."""
    left: dict[str, Any] = codec.lenient(ServiceCall, row.get("document") or "")
    updated_at = left.get("updated_at", MIN_INSTANT)
    fields: dict[str, Any] = {
        "shard_id": row.get("shard_id") or 0,
        "name": "",
        "request": RequestSpec(method=Method.GET, url=""),
        "digest": "",
        "submitted_at": MIN_INSTANT,
        "updated_at": updated_at,
        "due_at": MIN_INSTANT,
        "registered_at": MIN_INSTANT,
        "correlation_id": "",
        **left,
        "tenant_id": tenant_id,
        "call_id": call_id,
        "revision": row.get("revision") or 0,
        "status": CallStatus.FAILED,
        "finished_at": updated_at,
        "wake_at": None,
        "execution_id": None,
        "outcome": CallOutcome(execution_id="", reason=CallFailure.UNREADABLE, message=reason),
    }
    return call_without_damage(ServiceCall(**fields))


def _there(text: str | None) -> str:
    if text is None:
        raise KeyError("content")
    return text


# -- executions ---------------------------------------------------------------------------------------------------


def execution_position(number: int, execution_id: str) -> str:
    return f"{number:06d}/{execution_id}"


def decode_or_salvage_execution(tenant_id: str, call_id: str, row: Row) -> Execution:
    content = row["content"] or ""
    try:
        return codec.decode(Execution, content)
    except codec.DECODING_ERRORS as error:
        reason = f"the stored execution cannot be read: {codec.what_is_wrong(error)}"
    number, _, execution_id = row["position"].partition("/")
    left = codec.lenient(Execution, content)
    fields: dict[str, Any] = {
        "started_at": MIN_INSTANT,
        "deadline_at": MIN_INSTANT,
        "method": Method.GET,
        "url": "",
        "request": LoggedMessage(),
        **left,
        "tenant_id": tenant_id,
        "call_id": call_id,
        "execution_id": execution_id,
        "number": int(number),
        "status": ExecutionStatus.FAILED,
        "failure": CallFailure.UNREADABLE,
        "message": reason,
    }
    return Execution(**fields)


# -- events -------------------------------------------------------------------------------------------------------


def event_position(sequence: int) -> str:
    return f"{sequence:0{_MAX_SEQUENCE_DIGITS}d}"


def decode_event(row: Row) -> OutboxEvent:
    """Raises ``UnreadableEventError``. ``position`` is the revision that its call had with it."""
    try:
        event = checked_event(codec.decode(CallEvent, _there(row["content"])))
        return OutboxEvent(event, str(int(row["of_revision"])), published_at(row))
    except codec.DECODING_ERRORS as error:
        wrong = codec.what_is_wrong(error)
        raise UnreadableEventError(f"the stored event cannot be read: {wrong}") from error


def published_at(row: Row) -> datetime | None:
    return None if row["published_ms"] is None else from_milliseconds(row["published_ms"])


def sequence_of(row: Row) -> int:
    return int(row["position"])


def readable_events(tenant_id: str, call_id: str, rows: Iterable[Row]) -> Iterator[OutboxEvent]:
    """Those of one call, up to the first that cannot be read."""

    def report(row: Row, error: UnreadableEventError) -> None:
        report_unreadable(error, tenant_id=tenant_id, call_id=call_id, sequence=sequence_of(row))

    return up_to_damage(rows, decode_event, report)


def unreadable_event(tenant_id: str, call_id: str, row: Row, error: UnreadableEventError) -> UnreadableEvent:
    return UnreadableEvent(tenant_id, call_id, sequence_of(row), str(error))
