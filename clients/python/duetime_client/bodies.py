"""Bodies and queries of requests, as tables: the argument, the API's name of it, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from uuid6 import uuid7

from duetime_client.call_models import NewServiceCall
from duetime_client.errors import InvalidArgument
from duetime_client.models import NewTimer
from duetime_client.values import (
    Encoder,
    duration,
    headers,
    instant,
    members,
    payload,
    plain,
    policy,
    query_pairs,
    texts,
    whole_seconds,
    without_nulls,
)

Table = Mapping[str, tuple[str, Encoder]]

PAGE_ITEMS: Final = 100

TIMER: Table = {
    "id": ("id", plain),
    "execute_at": ("executeAt", instant),
    "delay": ("delay", duration),
    "callback_url": ("callbackUrl", plain),
    "payload": ("payload", payload),
    "headers": ("headers", headers),
    "retry_policy": ("retryPolicy", policy),
    "timeout": ("timeoutSeconds", whole_seconds),
    "expire_after": ("expireAfter", duration),
    "correlation_id": ("correlationId", plain),
    "tags": ("tags", texts),
}
TIMER_FILTER: Table = {
    "state": ("state", plain),
    "tag": ("tag", plain),
    "due_from": ("dueFrom", instant),
    "due_to": ("dueTo", instant),
    "correlation_id": ("correlationId", plain),
    "reason": ("reason", plain),
    "failed_from": ("failedFrom", instant),
    "failed_to": ("failedTo", instant),
    "limit": ("limit", plain),
}
REDRIVE: Table = {
    "reason": ("reason", plain),
    "tag": ("tag", plain),
    "correlation_id": ("correlationId", plain),
    "due_from": ("dueFrom", instant),
    "due_to": ("dueTo", instant),
    "failed_from": ("failedFrom", instant),
    "failed_to": ("failedTo", instant),
    "dry_run": ("dryRun", plain),
    "limit": ("limit", plain),
}
NAMESPACE: Table = {
    "num_shards": ("numShards", plain),
    "dedicated": ("dedicated", plain),
    "retry_policy": ("retryPolicy", policy),
    "max_in_flight": ("maxInFlight", plain),
    "rate_limit": ("rateLimit", plain),
    "misfire": ("misfire", plain),
}
PAUSE: Table = {"reason": ("reason", plain)}
SECRET: Table = {"secret": ("secret", plain), "overlap": ("overlap", duration)}
API_KEY: Table = {
    "role": ("role", plain),
    "name": ("name", plain),
    "expires_at": ("expiresAt", instant),
    "expires_in": ("expiresIn", duration),
}
CALL: Table = {
    "name": ("name", plain),
    "due_at": ("dueAt", instant),
    "delay": ("delay", duration),
    "tags": ("tags", texts),
    "starred": ("starred", plain),
    "idempotency_key": ("idempotencyKey", plain),
    "timeout": ("timeoutSeconds", whole_seconds),
    "retry_policy": ("retryPolicy", policy),
    "correlation_id": ("correlationId", plain),
}
CALL_REQUEST: Table = {
    "method": ("method", plain),
    "url": ("url", plain),
    "headers": ("headers", headers),
    "body": ("body", payload),
}
CALL_FILTER: Table = {
    "status": ("status", plain),
    "tags": ("tag", texts),
    "created_from": ("createdFrom", instant),
    "created_to": ("createdTo", instant),
    "name": ("name", plain),
    "starred": ("starred", plain),
    "correlation_id": ("correlationId", plain),
    "order": ("order", plain),
    "due_to": ("dueTo", instant),
    "limit": ("limit", plain),
}
EVENT_FILTER: Table = {"after": ("after", plain), "limit": ("limit", plain)}
WEBHOOK: Table = {"url": ("url", plain), "event_types": ("eventTypes", texts), "enabled": ("enabled", plain)}
DELIVERY_FILTER: Table = {"state": ("state", plain), "type": ("type", plain), "limit": ("limit", plain)}


def body(table: Table, **given: Any) -> dict[str, Any]:
    """None is as good as nothing."""
    return without_nulls(members(table, given))


def patch(table: Table, **given: Any) -> dict[str, Any]:
    """None clears; UNSET stays as it is."""
    return members(table, given)


def query(table: Table, **given: Any) -> list[tuple[str, str]]:
    return query_pairs(table, given)


def new_id() -> str:
    return str(uuid7())


def timer_body(timer: NewTimer, *, id: str | None) -> dict[str, Any]:  # noqa: A002
    if (timer.execute_at is None) == (timer.delay is None):
        raise InvalidArgument("give either execute_at or delay")
    given = {each.name: getattr(timer, each.name) for each in fields(timer)}
    return body(TIMER, **given | {"id": id, "tags": timer.tags or None})


def call_body(call: NewServiceCall) -> dict[str, Any]:
    """With an idempotency key, so that a request whose answer was lost can be repeated."""
    given = {each.name: getattr(call, each.name) for each in fields(call)}
    request = body(CALL_REQUEST, **{name: given.pop(name) for name in CALL_REQUEST})
    optional = {"tags": call.tags or None, "starred": call.starred or None}
    key = new_id() if call.idempotency_key is None else call.idempotency_key
    return body(CALL, **given | optional | {"idempotency_key": key}) | {"request": request}
