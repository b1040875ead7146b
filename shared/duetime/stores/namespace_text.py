"""What is the same of namespaces in every store: the changeable part as JSON text, of which only what differs from
the default is stored, and what an attempt to create one again comes to.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import datetime
from typing import Any

from duetime.domain.call_events import CallEventType
from duetime.domain.errors import NamespaceConflict, StoreError
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import Namespace, NamespaceSettings, SealedSecret
from duetime.domain.times import format_instant, read_instant

_NAMES = {
    "retryPolicy": "retry_policy_json",  # text within text: it is kept exactly as it was given
    "maxInFlight": "max_in_flight",
    "rateLimit": "rate_limit_per_second",
}


def settings_text(settings: NamespaceSettings) -> str | None:
    """None when nothing is set."""
    values = {name: getattr(settings, field) for name, field in _NAMES.items()}
    given = {name: value for name, value in values.items() if value is not None}
    if settings.webhook is not None:
        given["webhook"] = _webhook_row(settings.webhook)
    return json.dumps(given) if given else None


def secrets_text(secrets: tuple[SealedSecret, ...]) -> str | None:
    """None when there are none."""
    rows = [
        {
            "id": secret.secret_id,
            "sealed": b64encode(secret.sealed).decode(),
            "createdAt": format_instant(secret.created_at),
            "expiresAt": None if secret.expires_at is None else format_instant(secret.expires_at),
        }
        for secret in secrets
    ]
    return json.dumps(rows) if rows else None


def read_namespace(
    *,
    name: str,
    num_shards: int,
    first_shard: int,
    dedicated: bool,
    created_at: datetime,
    revision: int,
    settings: str | None,
    secrets: str | None,
    tenant_id: str,
) -> Namespace:
    """The namespace with ``settings`` and ``secrets`` from their text. ``StoreError`` for text of another form."""
    try:
        return Namespace(
            name=name,
            num_shards=num_shards,
            first_shard=first_shard,
            dedicated=dedicated,
            created_at=created_at,
            settings=_settings({} if settings is None else json.loads(settings)),
            secrets=tuple(_secret(row) for row in ([] if secrets is None else json.loads(secrets))),
            revision=revision,
            tenant_id=tenant_id,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        # The text is not quoted: it holds secrets, sealed as they are.
        raise StoreError(f"what is stored of namespace {name!r} cannot be read: {type(error).__name__}") from None


def agreed(stored: Namespace, *, num_shards: int, dedicated: bool, tenant_id: str) -> Namespace:
    """``stored``, which was to be created with these values. Raises ``NamespaceConflict``."""
    if stored.tenant_id != tenant_id:
        raise NamespaceConflict(f"the name {stored.name!r} is not available")
    if (stored.num_shards, stored.dedicated) != (num_shards, dedicated):
        kind = "dedicated" if stored.dedicated else "shared"
        raise NamespaceConflict(f"namespace {stored.name!r} exists with {stored.num_shards} {kind} shards")
    return stored


def _settings(row: dict[str, Any]) -> NamespaceSettings:
    webhook = row.get("webhook")
    return NamespaceSettings(
        **{field: row.get(name) for name, field in _NAMES.items()},
        webhook=None if webhook is None else _webhook(webhook),
    )


def _webhook_row(webhook: EventWebhook) -> dict[str, Any]:
    types = None if webhook.event_types is None else [str(event_type) for event_type in webhook.event_types]
    return {"url": webhook.url, "eventTypes": types, "enabled": webhook.is_enabled}


def _webhook(row: dict[str, Any]) -> EventWebhook:
    types = row["eventTypes"]
    return EventWebhook(
        url=row["url"],
        event_types=None if types is None else tuple(map(CallEventType, types)),
        is_enabled=row["enabled"],
    )


def _secret(row: dict[str, Any]) -> SealedSecret:
    expires_at = row["expiresAt"]
    return SealedSecret(
        secret_id=row["id"],
        sealed=b64decode(row["sealed"], validate=True),
        created_at=read_instant(row["createdAt"]),
        expires_at=None if expires_at is None else read_instant(expires_at),
    )
