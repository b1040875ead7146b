"""Executions as rows of ``entities.EXECUTION`` and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import CallFailure, Method
from duetime.domain.times import MIN_INSTANT
from duetime.stores.core.call_check import checked_execution
from duetime.stores.core.instants import instant, milliseconds, optional_instant, optional_milliseconds
from duetime.stores.decoding import DECODING_ERRORS, repaired
from duetime.stores.entities import EXECUTION
from duetime.stores.entity import DAMAGED, Row, Value
from duetime.stores.json_texts import as_json, read_json

WITHOUT_BODIES = EXECUTION.names[:-2]
_UNREADABLE = "the stored execution cannot be read"

_METHODS = {method.value: method for method in Method}
_Headers = tuple[tuple[str, str], ...]


def encode_execution(execution: Execution) -> Row:
    sent, received = execution.request, execution.response
    return (
        execution.tenant_id,
        execution.call_id,
        execution.execution_id,
        execution.number,
        execution.status._value_,
        milliseconds(execution.started_at),
        milliseconds(execution.deadline_at),
        optional_milliseconds(execution.finished_at),
        execution.duration_ms,
        None if execution.response_status is None else str(execution.response_status),
        None if execution.failure is None else execution.failure._value_,
        execution.message or None,
        execution.method._value_,
        execution.url,
        as_json(sent.headers),
        _encode_body_meta(sent),
        None if received is None else as_json(received.headers),
        None if received is None else _encode_body_meta(received),
        sent.body,
        None if received is None else received.body,
    )


def decode_or_salvage_execution(row: Row) -> Execution:
    """Return the execution that a row holds, or a row without its bodies; for one that does not decode, what is left
    of it, as a failed one."""
    values: dict[str, Value] = dict.fromkeys(EXECUTION.names) | dict(zip(EXECUTION.names, row, strict=False))
    try:
        if DAMAGED in row:
            raise ValueError(EXECUTION.names[row.index(DAMAGED)])
        return checked_execution(_decode(values))
    except DECODING_ERRORS as error:
        return _salvaged(values, f"{_UNREADABLE}: {type(error).__name__}")


def _decode(values: Mapping[str, Value]) -> Execution:
    status, failure = values["response_status"], values["failure_reason"]
    is_answered = values["response_headers"] is not None
    return Execution(
        tenant_id=values["tenant_id"],
        call_id=values["service_call_id"],
        execution_id=values["execution_id"],
        number=values["execution_number"],
        status=ExecutionStatus(values["execution_status"]),
        started_at=instant(values["started_at"]),
        deadline_at=instant(values["deadline_at"]),
        method=Method(values["request_method"]),
        url=values["request_url"],
        request=_decode_message(values, "request"),
        finished_at=optional_instant(values["finished_at"]),
        duration_ms=values["duration_ms"],
        response_status=None if status is None else int(status),
        response=_decode_message(values, "response") if is_answered else None,
        failure=None if failure is None else CallFailure(failure),
        message=values["error_message"] or "",
    )


def _salvaged(values: Mapping[str, Value], reason: str) -> Execution:
    def given(name: str, default: Any) -> Any:
        return default if values[name] is DAMAGED else values[name]

    execution = Execution(
        tenant_id=given("tenant_id", ""),
        call_id=given("service_call_id", ""),
        execution_id=given("execution_id", ""),
        number=given("execution_number", 0),
        status=ExecutionStatus.FAILED,
        started_at=MIN_INSTANT,
        deadline_at=MIN_INSTANT,
        method=_METHODS.get(given("request_method", ""), Method.GET),
        url=given("request_url", ""),
        request=LoggedMessage(),
        duration_ms=given("duration_ms", None),
        failure=CallFailure.UNREADABLE,
        message=reason,
    )
    return repaired(execution)


def _encode_body_meta(message: LoggedMessage) -> str:
    """Encode the length of a body, and whether it is cut and in base64."""
    return as_json((message.body_bytes, message.is_truncated, message.body_is_base64))


def _decode_message(values: Mapping[str, Value], side: str) -> LoggedMessage:
    body_bytes, is_truncated, is_base64 = read_json(values[f"{side}_body_meta"])
    return LoggedMessage(
        headers=_decode_headers(values[f"{side}_headers"]),
        body=values[f"{side}_body"],
        body_bytes=body_bytes,
        is_truncated=is_truncated,
        body_is_base64=is_base64,
    )


def _decode_headers(text: str) -> _Headers:
    return tuple([(name, value) for name, value in read_json(text)])
