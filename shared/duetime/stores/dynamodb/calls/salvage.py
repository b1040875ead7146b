"""What lists show of items that cannot be decoded: what is left of them, as failed ones."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import CallFailure, CallOutcome, CallStatus, Method, RequestSpec, ServiceCall
from duetime.domain.times import MIN_INSTANT, read_instant
from duetime.stores.call_check import call_without_damage
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.execution_items import decode_execution
from duetime.stores.dynamodb.calls.items import decode_call, tags_of
from duetime.stores.dynamodb.changes import Item
from duetime.stores.dynamodb.items import Unreadable, lenient


def decode_or_salvage_call(item: Item) -> ServiceCall:
    """The call of ``item``; for one that cannot be decoded, what is left of it, as a Failed one."""
    try:
        return decode_call(item)
    except Unreadable as error:
        return _salvaged_call(item, str(error))


def decode_or_salvage_execution(item: Item) -> Execution:
    try:
        return decode_execution(item)
    except Unreadable as error:
        return _salvaged_execution(item, str(error))


def _salvaged_call(item: Item, reason: str) -> ServiceCall:
    updated_at = _instant(item, "updated_at")
    call = ServiceCall(
        tenant_id=item["tenant_id"]["S"],
        call_id=keys.call_id_of(item["sort_key"]["S"]),
        shard_id=lenient(lambda: int(item["shard_id"]["N"]), 0),
        name=lenient(lambda: keys.name_of_name_key(item["name_key"]["S"]), ""),
        request=RequestSpec(
            method=lenient(lambda: Method(item["method"]["S"]), Method.GET),
            url=lenient(lambda: item["url"]["S"], ""),
            headers_json=lenient(lambda: item["headers"]["S"], None),
            body_bytes=lenient(lambda: int(item["body_bytes"]["N"]), 0),
        ),
        digest=lenient(lambda: item["digest"]["S"], ""),
        status=CallStatus.FAILED,
        revision=lenient(lambda: int(item["revision"]["N"]), 0),
        submitted_at=_instant(item, "submitted_at"),
        updated_at=updated_at,
        due_at=_instant(item, "due_at"),
        registered_at=_instant(item, "registered_at"),
        finished_at=updated_at,
        wake_at=None,
        correlation_id=lenient(lambda: keys.correlation_id_of(item["correlation_key"]["S"]), ""),
        idempotency_key=lenient(lambda: item["idempotency_key"]["S"], None),
        rerun_of=lenient(lambda: item["rerun_of"]["S"], None),
        tags=lenient(lambda: tags_of(item), ()),
        starred="starred_key" in item,
        attempts=lenient(lambda: int(item["attempts"]["N"]), 0),
        outcome=CallOutcome(execution_id="", reason=CallFailure.UNREADABLE, message=reason),
        event_count=lenient(lambda: int(item["event_count"]["N"]), 0),
        last_event_id=lenient(lambda: item["last_event_id"]["S"], None),
    )
    return call_without_damage(call)


def _salvaged_execution(item: Item, reason: str) -> Execution:
    call_id, execution_id = keys.ids_of_execution(item["sort_key"]["S"])
    return Execution(
        tenant_id=item["tenant_id"]["S"],
        call_id=call_id,
        execution_id=execution_id,
        number=lenient(lambda: int(item["number"]["N"]), 0),
        status=ExecutionStatus.FAILED,
        started_at=_instant(item, "started_at"),
        deadline_at=_instant(item, "deadline_at"),
        method=lenient(lambda: Method(item["method"]["S"]), Method.GET),
        url=lenient(lambda: item["url"]["S"], ""),
        request=LoggedMessage(),
        failure=CallFailure.UNREADABLE,
        message=reason,
    )


def _instant(item: Item, name: str) -> datetime:
    return lenient(lambda: read_instant(item[name]["S"]), MIN_INSTANT)
