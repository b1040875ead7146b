"""Answers as JSON text. What a client gave as JSON is spliced in as the text that it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from duetime.app.api_keys import CreatedKey
from duetime.app.namespaces import CreatedSecret
from duetime.domain.api_keys import ApiKey
from duetime.domain.attempts import AttemptRecord
from duetime.domain.namespaces import EncryptedSecret, Namespace
from duetime.domain.principals import Principal
from duetime.domain.retry import RetryPolicy, policy_in_force, retry_policy_json
from duetime.domain.shards import ShardStatus
from duetime.domain.timers import Failure, Timer
from duetime.domain.times import format_duration, format_instant

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

encode_ascii = json.JSONEncoder(separators=(",", ":")).encode
"""For text that strangers wrote: whatever control characters are in it reach a client as escapes."""


def timer_json(timer: Timer, namespace_policy: RetryPolicy) -> str:
    """``namespace_policy`` holds for a timer without a retry policy of its own."""
    content = timer.content
    policy = policy_in_force(content.retry_policy_json, namespace_policy)
    members = {
        "id": timer.timer_id,
        "namespace": timer.namespace,
        "state": timer.state,
        "revision": timer.revision,
        "attempts": timer.attempts,
        "executeAt": format_instant(content.execute_at),
        "nextAttemptAt": instant_json(timer.next_attempt_at),
        "firedAt": instant_json(timer.fired_at),
        "createdAt": format_instant(timer.created_at),
        "updatedAt": format_instant(timer.updated_at),
        "failure": None if timer.failure is None else failure_members(timer.failure),
        "callbackUrl": content.callback_url,
        "callbackTimeoutSeconds": content.callback_timeout_seconds,
        "expireAfter": None if content.expire_after_ms is None else format_duration(content.expire_after_ms),
        "correlationId": content.correlation_id,
        "tags": content.tags,
    }
    spliced = (
        f',"headers":{content.headers_json or "null"},"retryPolicy":{retry_policy_json(policy)}'
        f',"payload":{content.payload_json or "null"}}}'
    )
    return encode(members)[:-1] + spliced


def attempt_json(attempt: AttemptRecord) -> str:
    return encode_ascii(
        {
            "number": attempt.number,
            "firingId": attempt.firing_id,
            "startedAt": format_instant(attempt.started_at),
            "endedAt": format_instant(attempt.ended_at),
            "durationMs": attempt.duration_ms,
            "outcome": attempt.outcome,
            "status": attempt.status,
            "reason": attempt.reason,
            "errorClass": attempt.error_class,
            "message": attempt.message or None,
            "headers": attempt.headers,
            "body": attempt.body,
            "bodyBytes": attempt.body_bytes,
            "bodyTruncated": attempt.body_truncated,
        }
    )


def list_json(items: Iterable[str], next_cursor: str | None) -> str:
    """A page of items that are JSON already."""
    return f'{{"items":[{",".join(items)}],"nextCursor":{encode(next_cursor)}}}'


def namespace_json(namespace: Namespace) -> str:
    settings = namespace.settings
    rate = settings.rate_limit_per_second
    members = {
        "name": namespace.name,
        "tenantId": namespace.tenant_id,
        "revision": namespace.revision,
        "numShards": namespace.num_shards,
        "dedicated": namespace.dedicated,
        "firstShard": namespace.first_shard,
        "createdAt": format_instant(namespace.created_at),
        "maxInFlight": settings.max_in_flight,
        "rateLimit": int(rate) if rate is not None and rate.is_integer() else rate,
        "misfire": settings.misfire,
        "state": namespace.state,
        "pausedAt": None if settings.pause is None else format_instant(settings.pause.at),
        "pauseReason": None if settings.pause is None else settings.pause.reason,
        "unreadable": namespace.unreadable,
    }
    return f'{encode(members)[:-1]},"retryPolicy":{settings.retry_policy_json or "null"}}}'


def secret_json(secret: EncryptedSecret) -> str:
    return encode(_secret(secret))


def created_secret_json(created: CreatedSecret) -> str:
    previous = None if created.previous is None else _secret(created.previous)
    return encode(_secret(created.secret) | {"secret": created.text, "previous": previous})


def _secret(secret: EncryptedSecret) -> dict[str, Any]:
    """What may be told of a secret."""
    return {
        "id": secret.secret_id,
        "createdAt": format_instant(secret.created_at),
        "expiresAt": instant_json(secret.expires_at),
    }


def api_key_json(key: ApiKey) -> str:
    return encode(_api_key(key))


def created_key_json(created: CreatedKey) -> str:
    return encode(_api_key(created.key) | {"key": created.text})


def principal_json(principal: Principal | None) -> str:
    if principal is None:
        return encode({"tenantId": None, "role": None, "keyId": None})
    return encode({"tenantId": principal.tenant_id, "role": principal.role, "keyId": principal.key_id})


def _api_key(key: ApiKey) -> dict[str, Any]:
    """What may be told of a key."""
    return {
        "id": key.key_id,
        "tenantId": key.tenant_id,
        "role": key.role,
        "name": key.name,
        "createdAt": format_instant(key.created_at),
        "expiresAt": instant_json(key.expires_at),
        "unreadable": key.unreadable,
    }


def shard_json(shard: ShardStatus) -> str:
    return encode(
        {
            "shardId": shard.shard_id,
            "version": shard.version,
            "ownerId": shard.owner_id,
            "claimedAt": instant_json(shard.claimed_at),
            "leaseExpiresAt": instant_json(shard.lease_expires_at),
            "live": not shard.is_free,
            "owner": _owner(shard),
        }
    )


def _owner(shard: ShardStatus) -> dict[str, Any] | None:
    """What the owner told of itself; None where there is none, and of what was told by something else."""
    try:
        facts = json.loads(shard.metadata or "null")
    except ValueError:
        return None
    if shard.owner_id is None or not isinstance(facts, dict):
        return None
    kinds = {"processId": int, "serviceVersion": str, "host": str}
    return {name: facts[name] if isinstance(facts.get(name), kind) else None for name, kind in kinds.items()}


def instant_json(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def failure_members(failure: Failure) -> dict[str, Any]:
    return {
        "reason": failure.reason,
        "message": failure.message,
        "status": failure.status,
        "at": format_instant(failure.at),
    }
