"""Namespaces as rows of ``entities.NAMESPACE`` and back.

The changeable part is JSON text. Only what differs from the default is stored.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Any

from duetime.domain.errors import NamespaceConflict, NamespaceUnreadable
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import EarlierShards, EncryptedSecret, Misfire, Namespace, NamespaceSettings, Pause
from duetime.domain.retry import read_retry_policy
from duetime.domain.tenants import is_internal
from duetime.domain.times import MIN_INSTANT, format_instant, read_instant
from duetime.stores.backend import NOW, Now
from duetime.stores.core.calendar_codec import calendar_row, read_calendar
from duetime.stores.core.instants import instant, milliseconds
from duetime.stores.decoding import DECODING_ERRORS, repaired, sound, text_or_empty, what_is_wrong, whole
from duetime.stores.entity import Row

_NAMES = {
    "retryPolicy": "retry_policy_json",  # text within text: it is kept exactly as it was given
    "maxInFlight": "max_in_flight",
    "rateLimit": "rate_limit_per_second",
    "misfire": "misfire",
    "minScheduleInterval": "min_schedule_interval_ms",
}
_TIMES = {"resumedAt": "resumed_at", "deletingSince": "deleting_since"}
_KNOWN = frozenset({*_NAMES, *_TIMES, "webhook", "calendars", "pausedAt", "pauseReason"})
_KNOWN_OF_WEBHOOK = frozenset({"url", "eventTypes", "enabled"})


def settings_text(settings: NamespaceSettings) -> str | None:
    """Return the text of settings; None when nothing is set."""
    values = {name: getattr(settings, field) for name, field in _NAMES.items()}
    instants = {name: getattr(settings, field) for name, field in _TIMES.items()}
    if settings.pause is not None:
        values["pauseReason"], instants["pausedAt"] = settings.pause.reason, settings.pause.at
    values |= {name: None if at is None else format_instant(at) for name, at in instants.items()}
    given = {name: value for name, value in values.items() if value is not None}
    if settings.webhook is not None:
        given["webhook"] = _webhook_row(settings.webhook)
    if settings.calendars:
        given["calendars"] = {each.name: calendar_row(each) for each in settings.calendars}
    given = _unknown(settings.unknown_json) | given
    return json.dumps(given) if given else None


def secrets_text(secrets: tuple[EncryptedSecret, ...]) -> str | None:
    """Return the text of secrets; None when there are none."""
    rows = [
        {
            "id": secret.secret_id,
            "sealed": b64encode(secret.ciphertext).decode(),
            "createdAt": format_instant(secret.created_at),
            "expiresAt": None if secret.expires_at is None else format_instant(secret.expires_at),
        }
        for secret in secrets
    ]
    return json.dumps(rows) if rows else None


def earlier_text(earlier: tuple[EarlierShards, ...]) -> str | None:
    """Return the text of earlier shards; None when there are none."""
    rows = [
        {"numShards": each.num_shards, "firstShard": each.first_shard, "until": format_instant(each.until)}
        for each in earlier
    ]
    return json.dumps(rows) if rows else None


def encode_namespace(namespace: Namespace) -> Row:
    """Return the row of a namespace, with its own time."""
    return _encode(namespace, milliseconds(namespace.created_at))


def encode_new_namespace(namespace: Namespace) -> Row:
    """Return the row of a namespace that is created with this write."""
    return _encode(namespace, NOW)


def _encode(namespace: Namespace, created_at: int | Now) -> Row:
    return (
        namespace.name,
        namespace.num_shards,
        namespace.first_shard,
        earlier_text(namespace.earlier_shards),
        namespace.dedicated,
        created_at,
        namespace.revision,
        settings_text(namespace.settings),
        secrets_text(namespace.secrets),
        namespace.tenant_id,
        is_internal(namespace.name),
    )


def decode_namespace(row: Row) -> Namespace:
    """Return the namespace of a row. One that cannot be read says so (``Namespace.unreadable``): in a list it must
    not be in the way of others."""
    name, num_shards, first_shard, earlier, is_dedicated, created_at, revision, settings, secrets, tenant_id, _ = row
    try:
        whole(sound(row))
        if num_shards < 1 or first_shard < 0:
            raise ValueError("there are no such shards")
        namespace = Namespace(
            name,
            num_shards,
            first_shard,
            is_dedicated,
            instant(created_at),
            revision=revision,
            earlier_shards=() if earlier is None else tuple(map(_earlier, json.loads(earlier))),
        )
    except DECODING_ERRORS as error:
        unreadable = Namespace(repaired(name), 0, 0, False, MIN_INSTANT, tenant_id=text_or_empty(tenant_id))
        return replace(unreadable, unreadable=_reason(error))
    namespace = replace(namespace, tenant_id=tenant_id)
    try:
        return replace(
            namespace,
            settings=_settings({} if settings is None else json.loads(settings)),
            secrets=tuple(map(_secret, [] if secrets is None else json.loads(secrets))),
        )
    except DECODING_ERRORS as error:
        return replace(namespace, unreadable=_reason(error))


def _earlier(row: dict[str, Any]) -> EarlierShards:
    num_shards, first_shard = row["numShards"], row["firstShard"]
    if not isinstance(num_shards, int) or not isinstance(first_shard, int) or num_shards < 1 or first_shard < 0:
        raise ValueError("there are no such earlier shards")
    return EarlierShards(num_shards, first_shard, read_instant(row["until"]))


def _reason(error: Exception) -> str:
    """Return what is wrong. The text is not quoted: it holds encrypted secrets."""
    return f"the stored namespace cannot be read: {what_is_wrong(error)}"


def agreed(stored: Namespace, *, num_shards: int, dedicated: bool, tenant_id: str) -> Namespace:
    """Return ``stored``, which was to be created with these values.

    Raises ``NamespaceConflict`` and ``NamespaceUnreadable``.
    """
    if stored.tenant_id != tenant_id:
        raise NamespaceConflict(f"the name {stored.name!r} is not available")
    if stored.unreadable is not None:
        raise NamespaceUnreadable(stored.name)
    if (stored.num_shards, stored.dedicated) != (num_shards, dedicated):
        kind = "dedicated" if stored.dedicated else "shared"
        raise NamespaceConflict(f"namespace {stored.name!r} exists with {stored.num_shards} {kind} shards")
    return stored


def _settings(row: dict[str, Any]) -> NamespaceSettings:
    webhook, policy, misfire = row.get("webhook"), _text(row, "retryPolicy"), _text(row, "misfire")
    paused_at = _instant(row, "pausedAt")
    if policy is not None:
        read_retry_policy(policy)
    return NamespaceSettings(
        retry_policy_json=policy,
        max_in_flight=_number(row, "maxInFlight", int),
        rate_limit_per_second=_number(row, "rateLimit", int | float),
        webhook=None if webhook is None else _webhook(webhook),
        calendars=tuple(read_calendar(name, each) for name, each in sorted(row.get("calendars", {}).items())),
        min_schedule_interval_ms=_number(row, "minScheduleInterval", int),
        misfire=None if misfire is None else Misfire(misfire),
        pause=None if paused_at is None else Pause(paused_at, _text(row, "pauseReason")),
        resumed_at=_instant(row, "resumedAt"),
        deleting_since=_instant(row, "deletingSince"),
        unknown_json=_unknown_text(row, _KNOWN),
    )


def _webhook_row(webhook: EventWebhook) -> dict[str, Any]:
    types = None if webhook.event_types is None else [str(event_type) for event_type in webhook.event_types]
    known = {"url": webhook.url, "eventTypes": types, "enabled": webhook.is_enabled}
    return _unknown(webhook.unknown_json) | known


def _webhook(row: dict[str, Any]) -> EventWebhook:
    url, types, is_enabled = row["url"], row["eventTypes"], row["enabled"]
    are_texts = all(isinstance(each, str) for each in (url, *(types or ())))
    if not are_texts or not isinstance(is_enabled, bool):
        raise TypeError
    return EventWebhook(
        url=url,
        event_types=None if types is None else tuple(types),
        is_enabled=is_enabled,
        unknown_json=_unknown_text(row, _KNOWN_OF_WEBHOOK),
    )


def _text(row: dict[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value


def _instant(row: dict[str, Any], name: str) -> datetime | None:
    value = _text(row, name)
    return None if value is None else read_instant(value)


def _number(row: dict[str, Any], name: str, kind: Any) -> Any:
    value = row.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < inf):
        raise TypeError
    return value


def _unknown_text(row: dict[str, Any], known: frozenset[str]) -> str | None:
    """Return what a newer version has put beside what is ``known``, as text; None for nothing."""
    unknown = {name: value for name, value in row.items() if name not in known}
    return json.dumps(unknown, sort_keys=True) if unknown else None


def _unknown(unknown_json: str | None) -> dict[str, Any]:
    unknown: dict[str, Any] = {} if unknown_json is None else json.loads(unknown_json)
    return unknown


def _secret(row: dict[str, Any]) -> EncryptedSecret:
    expires_at = row["expiresAt"]
    return EncryptedSecret(
        secret_id=row["id"],
        ciphertext=b64decode(row["sealed"], validate=True),
        created_at=read_instant(row["createdAt"]),
        expires_at=None if expires_at is None else read_instant(expires_at),
    )
