"""Service calls for tests, with defaults for whatever a test does not care about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Any

from duetime.domain.call_steps import CallRules, Submission, Transition, submitted
from duetime.domain.executions import LoggedMessage
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import Method, ServiceCall, call_digest, calls_namespace, request_spec
from tests.support.clock import NOW

TENANT = "acme"
RULES = CallRules()
SENT = LoggedMessage(headers=(("Accept", "*/*"),))


def counted_ids(prefix: str = "id") -> Callable[[], str]:
    """Ids that sort in the order in which they were made."""
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers):06}"


new_id = counted_ids("event")


def make_calls_namespace(tenant_id: str = TENANT, *, num_shards: int = 4) -> Namespace:
    """A namespace that no store knows of."""
    return Namespace(
        calls_namespace(tenant_id),
        num_shards=num_shards,
        first_shard=0,
        dedicated=False,
        created_at=NOW,
        tenant_id=tenant_id,
    )


def make_submission(
    *,
    name: str = "call",
    method: Method = Method.POST,
    url: str = "http://receiver.test/hook",
    headers_json: str | None = None,
    body_json: str | None = '{"n":1}',
    due_at: datetime | None = None,
    timeout_seconds: int = 30,
    retry_policy_json: str | None = None,
    correlation_id: str = "correlation-1",
    **fields: Any,
) -> Submission:
    request = request_spec(method=method, url=url, headers_json=headers_json, body_json=body_json)
    digest = call_digest(
        name=name,
        request=request,
        due=None if due_at is None else due_at.isoformat(),
        tags=fields.get("tags", ()),
        timeout_seconds=timeout_seconds,
        retry_policy_json=retry_policy_json,
        correlation_id=correlation_id,
    )
    return Submission(
        name=name,
        request=request,
        digest=digest,
        due_at=due_at,
        timeout_seconds=timeout_seconds,
        retry_policy_json=retry_policy_json,
        correlation_id=correlation_id,
        **fields,
    )


def submit(call_id: str = "call-1", *, tenant_id: str = TENANT, now: datetime = NOW, **fields: Any) -> Transition:
    """The transition that submits a call."""
    return submitted(
        tenant_id,
        call_id,
        make_submission(**fields),
        namespace=make_calls_namespace(tenant_id),
        new_id=new_id,
        now=now,
    )


def make_call(call_id: str = "call-1", **fields: Any) -> ServiceCall:
    """A call as it was submitted at NOW."""
    return submit(call_id, **fields).after
