"""Executions as items and back. A long request or response is an item of its own (``MESSAGE#``).

So what ends an execution does not pay once more for the request that was written when it began, and no item comes
near DynamoDB's 400 KB.
"""

from __future__ import annotations

import json
from typing import Any

from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import CallFailure, Method
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.changes import Item, text, whole
from duetime.stores.dynamodb.items import Unreadable

ROW_TYPE = "EXECUTION"
INLINE_MESSAGE_BYTES = 2048
REQUEST = "request"
RESPONSE = "response"


def encode_execution(execution: Execution) -> tuple[Item, dict[str, Item]]:
    """The item of ``execution``, and by part (``REQUEST``, ``RESPONSE``) the items of its long messages."""
    item: Item = {
        **keys.execution_key(execution.tenant_id, execution.call_id, execution.execution_id),
        "row_type": text(ROW_TYPE),
        "number": whole(execution.number),
        "status": text(execution.status.value),
        "started_at": text(format_instant(execution.started_at)),
        "deadline_at": text(format_instant(execution.deadline_at)),
        "method": text(execution.method.value),
        "url": text(execution.url),
    }
    if execution.finished_at is not None:
        item["finished_at"] = text(format_instant(execution.finished_at))
    if execution.failure is not None:
        item["failure"] = text(execution.failure.value)
    if execution.message:
        item["message"] = text(execution.message)
    numbers = {"duration_ms": execution.duration_ms, "response_status": execution.response_status}
    item.update((name, whole(number)) for name, number in numbers.items() if number is not None)
    apart: dict[str, Item] = {}
    for part, message in ((REQUEST, execution.request), (RESPONSE, execution.response)):
        if message is None:
            continue
        value = _message_text(message)
        if len(value.encode()) <= INLINE_MESSAGE_BYTES:
            item[part] = text(value)
        else:
            item[f"{part}_apart"] = {"BOOL": True}
            key = keys.message_sort_key(execution.call_id, execution.execution_id, part)
            apart[part] = {
                **keys.key(execution.tenant_id, key),
                "row_type": text("MESSAGE"),
                "message": text(value),
            }
    return item, apart


def keys_apart(item: Item) -> dict[str, Item]:
    """By part, the keys of the messages that are items of their own."""
    call_id, execution_id = keys.ids_of_execution(item["sort_key"]["S"])
    return {
        part: keys.key(item["tenant_id"]["S"], keys.message_sort_key(call_id, execution_id, part))
        for part in (REQUEST, RESPONSE)
        if f"{part}_apart" in item
    }


def decode_execution(item: Item) -> Execution:
    """The execution of ``item``, into which long messages have been put. Raises ``Unreadable``."""
    try:
        return _decode(item)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        missing = f": {error}" if isinstance(error, KeyError) else ""
        raise Unreadable(f"{type(error).__name__}{missing}") from error


def _decode(item: Item) -> Execution:
    call_id, execution_id = keys.ids_of_execution(item["sort_key"]["S"])
    return Execution(
        tenant_id=item["tenant_id"]["S"],
        call_id=call_id,
        execution_id=execution_id,
        number=int(item["number"]["N"]),
        status=ExecutionStatus(item["status"]["S"]),
        started_at=read_instant(item["started_at"]["S"]),
        deadline_at=read_instant(item["deadline_at"]["S"]),
        method=Method(item["method"]["S"]),
        url=item["url"]["S"],
        request=_message(item[REQUEST]["S"]),
        finished_at=read_instant(item["finished_at"]["S"]) if "finished_at" in item else None,
        duration_ms=int(item["duration_ms"]["N"]) if "duration_ms" in item else None,
        response_status=int(item["response_status"]["N"]) if "response_status" in item else None,
        response=_message(item[RESPONSE]["S"]) if RESPONSE in item else None,
        failure=CallFailure(item["failure"]["S"]) if "failure" in item else None,
        message=item["message"]["S"] if "message" in item else "",
    )


def _message_text(message: LoggedMessage) -> str:
    """What has its usual value is left out."""
    value: dict[str, Any] = {"headers": message.headers}
    if message.body is not None:
        value["body"] = message.body
    if message.body_bytes:
        value["bytes"] = message.body_bytes
    if message.is_truncated:
        value["truncated"] = True
    if message.body_is_base64:
        value["base64"] = True
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _message(message_json: str) -> LoggedMessage:
    value: dict[str, Any] = json.loads(message_json)
    return LoggedMessage(
        headers=tuple((name, header) for name, header in value["headers"]),
        body=value.get("body"),
        body_bytes=value.get("bytes", 0),
        is_truncated=value.get("truncated", False),
        body_is_base64=value.get("base64", False),
    )
