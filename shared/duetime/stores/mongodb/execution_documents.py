"""Executions as documents of ``http_execution_log`` and back."""

from __future__ import annotations

from typing import Any

from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import CallFailure, Method
from duetime.domain.times import MIN_INSTANT
from duetime.stores.call_check import checked_execution
from duetime.stores.decoding import repaired
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import (
    DECODING_ERRORS,
    flag,
    instant,
    lenient,
    optional,
    text,
    what_is_wrong,
    whole,
    without_none,
)


def execution_key(tenant_id: str, call_id: str, execution_id: str) -> Document:
    """What the unique index finds an execution by."""
    return {"tenant_id": tenant_id, "service_call_id": call_id, "execution_id": execution_id}


def encode_execution(execution: Execution) -> Document:
    response = execution.response
    return without_none(
        {
            **execution_key(execution.tenant_id, execution.call_id, execution.execution_id),
            "execution_number": execution.number,
            "execution_status": execution.status.value,
            "started_at": execution.started_at,
            "deadline_at": execution.deadline_at,
            "finished_at": execution.finished_at,
            "duration_ms": execution.duration_ms,
            "response_status": execution.response_status,
            "failure_reason": None if execution.failure is None else execution.failure.value,
            "error_message": execution.message or None,
            "request_method": execution.method.value,
            "request_url": execution.url,
            "request": _encode_message(execution.request),
            "response": None if response is None else _encode_message(response),
        }
    )


def _encode_message(message: LoggedMessage) -> Document:
    return without_none(
        {
            "headers": [list(pair) for pair in message.headers],
            "body": message.body,
            "body_bytes": message.body_bytes,
            "is_truncated": message.is_truncated,
            "body_is_base64": message.body_is_base64,
        }
    )


def decode_or_salvage_execution(document: Document) -> Execution:
    """The execution of a document; for one that does not decode what is left of it, as a failed one."""
    try:
        return checked_execution(_decode(document))
    except DECODING_ERRORS as error:
        return _salvaged(document, f"the stored execution cannot be read: {what_is_wrong(error)}")


def _decode(document: Document) -> Execution:
    failure = document.get("failure_reason")
    return Execution(
        tenant_id=text(document, "tenant_id"),
        call_id=text(document, "service_call_id"),
        execution_id=text(document, "execution_id"),
        number=whole(document, "execution_number"),
        status=ExecutionStatus(document["execution_status"]),
        started_at=instant(document, "started_at"),
        deadline_at=instant(document, "deadline_at"),
        method=Method(document["request_method"]),
        url=text(document, "request_url"),
        request=_message(document, "request"),
        finished_at=optional(instant, document, "finished_at"),
        duration_ms=optional(whole, document, "duration_ms"),
        response_status=optional(whole, document, "response_status"),
        response=optional(_message, document, "response"),
        failure=None if failure is None else CallFailure(failure),
        message=optional(text, document, "error_message") or "",
    )


def _salvaged(document: Document, reason: str) -> Execution:
    def given(read: Any, name: str, default: Any) -> Any:
        return lenient(read, document, name, default)

    execution = Execution(
        tenant_id=given(text, "tenant_id", ""),
        call_id=given(text, "service_call_id", ""),
        execution_id=given(text, "execution_id", ""),
        number=given(whole, "execution_number", 0),
        status=ExecutionStatus.FAILED,
        started_at=given(instant, "started_at", MIN_INSTANT),
        deadline_at=given(instant, "deadline_at", MIN_INSTANT),
        method=given(lambda values, name: Method(values[name]), "request_method", Method.GET),
        url=given(text, "request_url", ""),
        request=LoggedMessage(),
        duration_ms=given(whole, "duration_ms", None),
        failure=CallFailure.UNREADABLE,
        message=reason,
    )
    return repaired(execution)


def _message(document: Document, name: str) -> LoggedMessage:
    value = document[name]
    return LoggedMessage(
        headers=tuple([(str(key), str(content)) for key, content in value["headers"]]),
        body=optional(text, value, "body"),
        body_bytes=whole(value, "body_bytes"),
        is_truncated=flag(value, "is_truncated"),
        body_is_base64=flag(value, "body_is_base64"),
    )
