"""Service calls, executions and events as JSON text.

Values of headers that may be secrets are shown to nobody, be it the tenant that gave them
(``domain.redaction``).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from duetime.api.encoding import encode, encode_ascii, instant_json
from duetime.domain.call_events import CallEvent
from duetime.domain.executions import REDACTED, Execution, LoggedMessage
from duetime.domain.redaction import DEFAULT_RULES
from duetime.domain.retry import retry_policy_json
from duetime.domain.service_calls import CallOutcome, RequestSpec, ServiceCall
from duetime.domain.times import format_instant


def call_json(call: ServiceCall) -> str:
    """A whole call. The body of its request is spliced in as the text that was given."""
    return f'{_summary(call)[:-2]},"body":{call.request.body_json or "null"}}}}}'


def call_summary_json(call: ServiceCall) -> str:
    """A call as lists show it: without the body of its request."""
    return _summary(call)


def _summary(call: ServiceCall) -> str:
    """Ends with the request, and that with no more than a brace."""
    members: dict[str, Any] = {
        "id": call.call_id,
        "tenantId": call.tenant_id,
        "name": call.name,
        "status": call.status,
        "revision": call.revision,
        "submittedAt": format_instant(call.submitted_at),
        "updatedAt": format_instant(call.updated_at),
        "dueAt": format_instant(call.due_at),
        "startedAt": instant_json(call.started_at),
        "finishedAt": instant_json(call.finished_at),
        "expiresAt": instant_json(call.expires_at),
        "attempts": call.attempts,
        "nextAttemptAt": instant_json(call.wake_at) if call.is_waiting else None,
        "executionId": call.execution_id,
        "outcome": None if call.outcome is None else _outcome(call.outcome),
        "tags": call.tags,
        "starred": call.starred,
        "correlationId": call.correlation_id,
        "idempotencyKey": call.idempotency_key,
        "rerunOf": call.rerun_of,
        "timer": {
            "state": "Scheduled" if call.reached_at is None else "Reached",
            "registeredAt": format_instant(call.registered_at),
            "reachedAt": instant_json(call.reached_at),
            "correlationId": call.correlation_id,
        },
        "timeoutSeconds": call.timeout_seconds,
    }
    policy, request = retry_policy_json(call.retry_policy), encode(_request(call.request))
    return f'{encode(members)[:-1]},"retryPolicy":{policy},"request":{request}}}'


def execution_json(execution: Execution) -> str:
    """A whole execution, for whoever wants to see what was sent and what came back."""
    return _execution(execution, with_bodies=True)


def execution_summary_json(execution: Execution) -> str:
    """An execution as lists show it: without bodies."""
    return _execution(execution, with_bodies=False)


def _execution(execution: Execution, *, with_bodies: bool) -> str:
    response = None
    if execution.response_status is not None:
        message = execution.response or LoggedMessage()
        response = {"status": execution.response_status} | _message(message, with_bodies=with_bodies)
    # The log hides what it is configured to hide; of what was given, no answer shows more than that of the call.
    headers = tuple((name, _shown(name, value)) for name, value in execution.request.headers)
    request = {"method": execution.method, "url": execution.url}
    # Text that strangers wrote: whatever control characters are in it reach a client as escapes.
    return encode_ascii(
        {
            "id": execution.execution_id,
            "serviceCallId": execution.call_id,
            "tenantId": execution.tenant_id,
            "number": execution.number,
            "status": execution.status,
            "startedAt": format_instant(execution.started_at),
            "finishedAt": instant_json(execution.finished_at),
            "durationMs": execution.duration_ms,
            "deadlineAt": format_instant(execution.deadline_at),
            "request": request | _message(replace(execution.request, headers=headers), with_bodies=with_bodies),
            "response": response,
            "reason": execution.failure,
            "message": execution.message or None,
        }
    )


def events_json(events: list[CallEvent], *, next_after: int, complete: bool) -> str:
    items = ",".join(encode_ascii(event.document()) for event in events)
    return f'{{"items":[{items}],"nextAfter":{next_after},"complete":{encode(complete)}}}'


def _message(message: LoggedMessage, *, with_bodies: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "headers": [{"name": name, "value": value} for name, value in message.headers],
        "bodyBytes": message.body_bytes,
        "bodyTruncated": message.is_truncated,
        "bodyIsBase64": message.body_is_base64,
    }
    return shown | {"body": message.body} if with_bodies else shown


def _request(request: RequestSpec) -> dict[str, Any]:
    headers = None if request.headers_json is None else json.loads(request.headers_json)
    shown = headers and {name: _shown(name, value) for name, value in headers.items()}
    return {"method": request.method, "url": request.url, "headers": shown, "bodyBytes": request.body_bytes}


def _shown(name: str, value: str) -> str:
    return REDACTED if DEFAULT_RULES.headers.fits(name) else value


def _outcome(outcome: CallOutcome) -> dict[str, Any]:
    return {
        "executionId": outcome.execution_id,
        "status": outcome.http_status,
        "reason": outcome.reason,
        "message": outcome.message or None,
    }
