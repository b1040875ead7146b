"""Service calls for tests: submissions, and the steps of their lives, with defaults for what a test does not mind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Any

from duetime.domain import call_steps
from duetime.domain.call_steps import CallRules, ExecutionResult, Transition
from duetime.domain.executions import Execution, LoggedMessage
from duetime.domain.ids import uuid7_at
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import (
    ONE_ATTEMPT,
    CallChange,
    CallFailure,
    Method,
    ServiceCall,
    Submission,
    call_digest,
    calls_namespace,
    request_spec,
)
from duetime.testing.contract.builders import NOW, seconds

TENANT = "acme"
RULES = CallRules(retention_seconds=3600.0)
RETENTION = seconds(3600)
SENT = LoggedMessage(headers=(("accept", "*/*"), ("authorization", "[redacted]")), body='{"a":1}', body_bytes=7)
ANSWER = LoggedMessage(headers=(("content-type", "text/plain"),), body="héllo", body_bytes=6, is_truncated=True)
_counter = count(1)


def id_at(instant: datetime, number: int | None = None) -> str:
    """Return a UUIDv7 of ``instant``; later calls give later ids of the same instant."""
    return uuid7_at(instant, next(_counter) if number is None else number)


def ids_at(instant: datetime) -> Callable[[], str]:
    return lambda: id_at(instant)


def namespace_of(tenant_id: str = TENANT, *, num_shards: int = 4) -> Namespace:
    """Return a namespace of calls that no store knows of."""
    return Namespace(
        calls_namespace(tenant_id), num_shards=num_shards, first_shard=0, dedicated=False, created_at=NOW
    )


def submission(
    *,
    name: str = "report",
    due_at: datetime | None = None,
    method: Method = Method.POST,
    url: str = "http://receiver.test/run?token=s3cret",
    headers_json: str | None = '{"Accept": "*/*"}',
    body_json: str | None = '{"a":1}',
    correlation_id: str = "corr-1",
    idempotency_key: str | None = None,
    **content: Any,
) -> Submission:
    request = request_spec(method=method, url=url, headers_json=headers_json, body_json=body_json)
    content |= {"name": name, "request": request, "correlation_id": correlation_id}
    digest = call_digest(due=None if due_at is None else due_at.isoformat(), **content)
    return Submission(**content, digest=digest, due_at=due_at, idempotency_key=idempotency_key)


def submitted(
    *,
    tenant_id: str = TENANT,
    call_id: str | None = None,
    now: datetime = NOW,
    num_shards: int = 4,
    **fields: Any,
) -> Transition:
    """Return the first transition of a call; ``fields`` as for ``submission``."""
    return call_steps.submitted(
        tenant_id,
        id_at(now) if call_id is None else call_id,
        submission(**fields),
        namespace=namespace_of(tenant_id, num_shards=num_shards),
        new_id=ids_at(now),
        now=now,
    )


def begun(call: ServiceCall, *, now: datetime = NOW) -> Transition:
    return call_steps.begun(
        call,
        url=call.request.url.partition("?")[0],
        sent=SENT,
        execution_id=id_at(now),
        new_id=ids_at(now),
        now=now,
        rules=RULES,
    )


def amended(call: ServiceCall, *, now: datetime = NOW, **fields: Any) -> Transition:
    return call_steps.amended(call, CallChange(**fields), new_id=ids_at(now), now=now, rules=RULES)


def cancelled(call: ServiceCall, *, now: datetime = NOW) -> Transition:
    return call_steps.cancelled(call, new_id=ids_at(now), now=now, rules=RULES)


def concluded(
    call: ServiceCall, execution: Execution, *, is_ok: bool = True, now: datetime = NOW, **fields: Any
) -> Transition:
    result = ExecutionResult(
        response_status=200 if is_ok else 503,
        response=ANSWER,
        duration_ms=12,
        failure=None if is_ok else CallFailure.HTTP_STATUS,
        message="" if is_ok else "the receiver answered 503",
        **fields,
    )
    return call_steps.concluded(call, execution, result, new_id=ids_at(now), now=now, rules=RULES, random=0.5)


assert ONE_ATTEMPT.max_attempts == 1
RETRIED = '{"maxAttempts":3,"initialInterval":"10s"}'
"""A policy under which a call waits for another attempt."""
