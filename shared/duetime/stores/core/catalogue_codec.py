"""Namespaces, API keys and idempotency records as rows and back."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import StoreError
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.namespaces import Namespace
from duetime.domain.tenants import is_internal
from duetime.stores.backend import NOW, Now
from duetime.stores.core.timer_codec import instant, milliseconds, optional_instant, optional_milliseconds
from duetime.stores.decoding import DECODING_ERRORS, repaired, whole
from duetime.stores.entities import API_KEY, IDEMPOTENCY_RECORD, NAMESPACE
from duetime.stores.entity import DAMAGED, Row, Value
from duetime.stores.key_reading import StoredKey, read_api_key, role_text
from duetime.stores.namespace_text import StoredNamespace, read_namespace, secrets_text, settings_text


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
        namespace.dedicated,
        created_at,
        namespace.revision,
        settings_text(namespace.settings),
        secrets_text(namespace.secrets),
        namespace.tenant_id,
        is_internal(namespace.name),
    )


def decode_namespace(row: Row) -> Namespace:
    """Return the namespace of a row; one that cannot be read says so (``Namespace.unreadable``)."""

    def read() -> StoredNamespace:
        _, num_shards, first_shard, is_dedicated, created_at, revision, settings, secrets, tenant_id, _ = _sound(row)
        return StoredNamespace(
            num_shards=num_shards,
            first_shard=first_shard,
            dedicated=is_dedicated,
            created_at=instant(created_at),
            revision=revision,
            settings=settings,
            secrets=secrets,
            tenant_id=tenant_id,
        )

    tenant_id: Value = row[NAMESPACE.places["tenant_id"]]
    return read_namespace(row[0], read, tenant_id=lambda: tenant_id)


def encode_key(key: ApiKey) -> Row:
    return (
        key.key_id,
        key.tenant_id,
        role_text(key),
        key.name,
        key.secret_hash,
        milliseconds(key.created_at),
        optional_milliseconds(key.expires_at),
    )


def decode_key(row: Row) -> ApiKey:
    """Return the API key of a row; one that cannot be read says so (``ApiKey.unreadable``)."""

    def read() -> StoredKey:
        _, tenant_id, role, name, secret_hash, created_at, expires_at = _sound(row)
        return StoredKey(
            tenant_id=tenant_id,
            role=role,
            name=name,
            secret_hash=secret_hash,
            created_at=instant(created_at),
            expires_at=optional_instant(expires_at),
        )

    tenant_id: Value = row[API_KEY.places["tenant_id"]]
    return read_api_key(row[0], read, tenant_id=lambda: tenant_id)


def encode_record(record: IdempotencyRecord) -> Row:
    return record.key, record.claim_id, record.content, milliseconds(record.expires_at)


def decode_record(row: Row) -> IdempotencyRecord:
    """Return the idempotency record of a row. Raises ``StoreError`` for one that cannot be read."""
    try:
        key, claim_id, content, expires_at = whole(_sound(row))
        return IdempotencyRecord(key=key, claim_id=claim_id, content=content, expires_at=instant(expires_at))
    except DECODING_ERRORS as error:
        raise _unreadable("idempotency record", row) from error


def is_over(row: Row, now: datetime) -> bool:
    """Tell whether an idempotency record has expired, which may be all that can be read of it."""
    expires_at: Value = row[IDEMPOTENCY_RECORD.places["record_expires_at"]]
    return expires_at is not DAMAGED and bool(expires_at <= milliseconds(now))


def decode_counter(row: Row) -> int:
    """Return the count of a row. Raises ``StoreError`` for one that cannot be read."""
    _, value = row
    if value is DAMAGED or value < 0:
        raise _unreadable("counter", row)
    return int(value)


def decode_secret(row: Row) -> bytes:
    """Return the secret of a row. Raises ``StoreError`` for one that cannot be read."""
    if DAMAGED in row:
        raise _unreadable("secret", row)
    return bytes(row[1])


def _unreadable(what: str, row: Row) -> StoreError:
    """Name the row by its key, which comes first, and quote nothing else of it."""
    return StoreError(f"the stored {what} {repaired(row[0])!r} cannot be read: it is damaged")


def _sound(row: Row) -> Row:
    if DAMAGED in row:
        raise ValueError("a value is of another type")
    return row
