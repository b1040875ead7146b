"""Encodes each kind of record as a line of JSON.

Equal records give equal bytes, whichever store they come from, so bytes can be compared and digested. None, an empty
list of tags and an empty text are left out. JSON from clients is exact text within a string (``payloadJson``). Shards
are left out: the target has its own.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeAlias

from duetime.domain.api_keys import ApiKey
from duetime.domain.executions import Execution, LoggedMessage
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceSettings
from duetime.domain.service_calls import CallOutcome, RequestSpec, ServiceCall
from duetime.domain.timers import Failure, Timer
from duetime.domain.times import format_instant
from duetime.stores.port.outbox import OutboxEvent


class Kind(StrEnum):
    SECRET = "secret"  # noqa: S105  (a kind of record)
    NAMESPACE = "namespace"
    API_KEY = "apiKey"
    TIMER = "timer"
    SERVICE_CALL = "serviceCall"
    EXECUTION = "execution"
    EVENT = "event"
    UNREADABLE = "unreadable"
    """What the source could not read: it is reported, not transferred."""


TRANSFERRED_KINDS = tuple(kind for kind in Kind if kind is not Kind.UNREADABLE)
CATALOGUE_KINDS = (Kind.SECRET, Kind.NAMESPACE, Kind.API_KEY)
"""They come first in a file."""


@dataclass(frozen=True, slots=True)
class CatalogueSecret:
    """A secret that all processes of a deployment share, such as the key of cursors."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Names what cannot be read: its kind (``of``), its key (``place``) and why; ``reason`` quotes nothing of it."""

    of: Kind
    place: tuple[str, ...]
    reason: str


Value: TypeAlias = CatalogueSecret | Namespace | ApiKey | Timer | ServiceCall | Execution | OutboxEvent | Unreadable


@dataclass(frozen=True, slots=True)
class Record:
    """``line`` is the JSON without the line end. ``expires_at``: the time from which it is treated as absent."""

    kind: Kind
    value: Value
    line: bytes
    expires_at: datetime | None = None


def record_of(value: Value, *, expires_at: datetime | None = None) -> Record:
    """Encode ``value``. ``expires_at``: given for what expires with something else, an execution with its call."""
    kind = kind_of(value)
    if isinstance(value, Timer | ServiceCall):
        expires_at = value.expires_at
    fields = {"kind": kind.value, **_ENCODERS[kind](value)}
    return Record(kind, value, as_line(fields), expires_at)


def kind_of(value: Value) -> Kind:
    return _KINDS[type(value)]


def name_of(value: Value) -> str:
    """Name a value for people, without its secrets."""
    return _NAMES[type(value)](value)


def as_line(fields: dict[str, Any]) -> bytes:
    return _encode_json(fields).encode()


_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_instant = lru_cache(maxsize=4096)(format_instant)
_KINDS: dict[type, Kind] = {
    CatalogueSecret: Kind.SECRET,
    Namespace: Kind.NAMESPACE,
    ApiKey: Kind.API_KEY,
    Timer: Kind.TIMER,
    ServiceCall: Kind.SERVICE_CALL,
    Execution: Kind.EXECUTION,
    OutboxEvent: Kind.EVENT,
    Unreadable: Kind.UNREADABLE,
}
_NAMES: dict[type, Callable[[Any], str]] = {
    CatalogueSecret: lambda value: f"catalogue secret {value.name!r}",
    Namespace: lambda value: f"namespace {value.name!r}",
    ApiKey: lambda value: f"API key {value.key_id} of tenant {value.tenant_id!r}",
    Timer: lambda value: f"timer {value.timer_id!r} of namespace {value.namespace!r}",
    ServiceCall: lambda value: f"service call {value.call_id} of tenant {value.tenant_id!r}",
    Execution: lambda value: f"execution {value.execution_id} of service call {value.call_id}",
    OutboxEvent: lambda value: f"event {value.event.sequence} of service call {value.event.aggregate_id}",
    Unreadable: lambda value: f"{value.of.value} {'/'.join(value.place)}",
}


def _optional(instant: datetime | None) -> str | None:
    return None if instant is None else _instant(instant)


def _bytes(value: bytes) -> str:
    return b64encode(value).decode()


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _secret(secret: CatalogueSecret) -> dict[str, Any]:
    return {"name": secret.name, "value": _bytes(secret.value)}


def _namespace(namespace: Namespace) -> dict[str, Any]:
    return _given(
        {
            "name": namespace.name,
            "tenantId": namespace.tenant_id,
            "numShards": namespace.num_shards,
            "dedicated": namespace.dedicated,
            "revision": namespace.revision,
            "createdAt": _instant(namespace.created_at),
            "settings": _settings(namespace.settings) or None,
            "secrets": [_encrypted(secret) for secret in namespace.secrets] or None,
        }
    )


def _settings(settings: NamespaceSettings) -> dict[str, Any]:
    webhook, rate = settings.webhook, settings.rate_limit_per_second
    shown_webhook = None
    if webhook is not None:
        types = None if webhook.event_types is None else [str(each) for each in webhook.event_types]
        shown_webhook = _given(
            {
                "url": webhook.url,
                "eventTypes": types,
                "enabled": webhook.is_enabled,
                "unknownJson": webhook.unknown_json,
            }
        )
    return _given(
        {
            "retryPolicyJson": settings.retry_policy_json,
            "maxInFlight": settings.max_in_flight,
            "rateLimitPerSecond": None if rate is None else float(rate),
            "webhook": shown_webhook,
            "misfire": settings.misfire,
            "pausedAt": None if settings.pause is None else _instant(settings.pause.at),
            "pauseReason": None if settings.pause is None else settings.pause.reason,
            "resumedAt": None if settings.resumed_at is None else _instant(settings.resumed_at),
            "deletingSince": None if settings.deleting_since is None else _instant(settings.deleting_since),
            "unknownJson": settings.unknown_json,
        }
    )


def _encrypted(secret: EncryptedSecret) -> dict[str, Any]:
    return _given(
        {
            "id": secret.secret_id,
            "ciphertext": _bytes(secret.ciphertext),
            "createdAt": _instant(secret.created_at),
            "expiresAt": _optional(secret.expires_at),
        }
    )


def _api_key(key: ApiKey) -> dict[str, Any]:
    return _given(
        {
            "tenantId": key.tenant_id,
            "id": key.key_id,
            "role": key.role,
            "name": key.name or None,
            "secretHash": _bytes(key.secret_hash),
            "createdAt": _instant(key.created_at),
            "expiresAt": _optional(key.expires_at),
        }
    )


def _timer(timer: Timer) -> dict[str, Any]:
    content = timer.content
    return _given(
        {
            "namespace": timer.namespace,
            "id": timer.timer_id,
            "state": timer.state.value,
            "revision": timer.revision,
            "firingId": timer.firing_id,
            "attempts": timer.attempts,
            "digest": timer.digest,
            "executeAt": _instant(content.execute_at),
            "nextAttemptAt": _optional(timer.next_attempt_at),
            "createdAt": _instant(timer.created_at),
            "updatedAt": _instant(timer.updated_at),
            "firedAt": _optional(timer.fired_at),
            "rearmedAt": _optional(timer.rearmed_at),
            "expiresAt": _optional(timer.expires_at),
            "callbackUrl": content.callback_url,
            "callbackTimeoutSeconds": content.callback_timeout_seconds,
            "expireAfterMs": content.expire_after_ms,
            "correlationId": content.correlation_id,
            "tags": list(content.tags) or None,
            "headersJson": content.headers_json,
            "retryPolicyJson": content.retry_policy_json,
            "payloadJson": content.payload_json,
            "failure": None if timer.failure is None else _failure(timer.failure),
            "attemptLogJson": timer.attempt_log,
        }
    )


def _failure(failure: Failure) -> dict[str, Any]:
    return _given(
        {
            "reason": failure.reason.value,
            "message": failure.message or None,
            "at": _instant(failure.at),
            "status": failure.status,
        }
    )


def _call(call: ServiceCall) -> dict[str, Any]:
    return _given(
        {
            "tenantId": call.tenant_id,
            "id": call.call_id,
            "name": call.name,
            "status": call.status.value,
            "revision": call.revision,
            "digest": call.digest,
            "submittedAt": _instant(call.submitted_at),
            "updatedAt": _instant(call.updated_at),
            "dueAt": _instant(call.due_at),
            "registeredAt": _instant(call.registered_at),
            "reachedAt": _optional(call.reached_at),
            "startedAt": _optional(call.started_at),
            "finishedAt": _optional(call.finished_at),
            "wakeAt": _optional(call.wake_at),
            "expiresAt": _optional(call.expires_at),
            "timeoutSeconds": call.timeout_seconds,
            "retryPolicyJson": call.retry_policy_json,
            "correlationId": call.correlation_id,
            "idempotencyKey": call.idempotency_key,
            "rerunOf": call.rerun_of,
            "tags": list(call.tags) or None,
            "starred": call.starred,
            "attempts": call.attempts,
            "executionId": call.execution_id,
            "outcome": None if call.outcome is None else _outcome(call.outcome),
            "eventCount": call.event_count,
            "lastEventId": call.last_event_id,
            "request": _request(call.request),
        }
    )


def _request(request: RequestSpec) -> dict[str, Any]:
    return _given(
        {
            "method": request.method.value,
            "url": request.url,
            "headersJson": request.headers_json,
            "bodyJson": request.body_json,
            "bodyBytes": request.body_bytes,
        }
    )


def _outcome(outcome: CallOutcome) -> dict[str, Any]:
    return _given(
        {
            "executionId": outcome.execution_id,
            "httpStatus": outcome.http_status,
            "reason": None if outcome.reason is None else outcome.reason.value,
            "message": outcome.message or None,
        }
    )


def _execution(execution: Execution) -> dict[str, Any]:
    return _given(
        {
            "tenantId": execution.tenant_id,
            "callId": execution.call_id,
            "id": execution.execution_id,
            "number": execution.number,
            "status": execution.status.value,
            "startedAt": _instant(execution.started_at),
            "deadlineAt": _instant(execution.deadline_at),
            "finishedAt": _optional(execution.finished_at),
            "durationMs": execution.duration_ms,
            "method": execution.method.value,
            "url": execution.url,
            "request": _message(execution.request),
            "responseStatus": execution.response_status,
            "response": None if execution.response is None else _message(execution.response),
            "failure": None if execution.failure is None else execution.failure.value,
            "message": execution.message or None,
        }
    )


def _message(message: LoggedMessage) -> dict[str, Any]:
    return _given(
        {
            "headers": [list(pair) for pair in message.headers],
            "body": message.body,
            "bodyBytes": message.body_bytes,
            "truncated": message.is_truncated,
            "base64": message.body_is_base64,
        }
    )


def _event(stored: OutboxEvent) -> dict[str, Any]:
    event = stored.event
    return _given(
        {
            "tenantId": event.tenant_id,
            "callId": event.aggregate_id,
            "sequence": event.sequence,
            "id": event.event_id,
            "type": event.type.value,
            "occurredAt": _instant(event.occurred_at),
            "correlationId": event.correlation_id,
            "causationId": event.causation_id,
            "publishedAt": _optional(stored.published_at),
            "payloadJson": event.payload_json,
        }
    )


def _unreadable(unreadable: Unreadable) -> dict[str, Any]:
    return {"of": unreadable.of.value, "place": list(unreadable.place), "reason": unreadable.reason}


_ENCODERS: dict[Kind, Any] = {
    Kind.SECRET: _secret,
    Kind.NAMESPACE: _namespace,
    Kind.API_KEY: _api_key,
    Kind.TIMER: _timer,
    Kind.SERVICE_CALL: _call,
    Kind.EXECUTION: _execution,
    Kind.EVENT: _event,
    Kind.UNREADABLE: _unreadable,
}
