"""API keys, idempotency records, counters and secrets as rows and back."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import StoreError
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.principals import Role
from duetime.domain.times import MIN_INSTANT
from duetime.stores.core.instants import instant, milliseconds, optional_instant, optional_milliseconds
from duetime.stores.decoding import DECODING_ERRORS, repaired, sound, text_or_empty, what_is_wrong, whole
from duetime.stores.entities import IDEMPOTENCY_RECORD
from duetime.stores.entity import DAMAGED, Row, Value

_ROLES = {role.value: role for role in Role}


def encode_key(key: ApiKey) -> Row:
    """Return the row of a new key, which has a role."""
    assert key.role is not None
    return (
        key.key_id,
        key.tenant_id,
        key.role.value,
        key.name,
        key.secret_hash,
        milliseconds(key.created_at),
        optional_milliseconds(key.expires_at),
    )


def decode_key(row: Row) -> ApiKey:
    """Return the API key of a row. One that cannot be read says so (``ApiKey.unreadable``): it lets nobody in, and
    hides no other."""
    key_id, tenant_id, role_text, name, secret_hash, created_at, expires_at = row
    try:
        whole(sound(row))
        role = _ROLES.get(role_text)
        return ApiKey(
            key_id=key_id,
            tenant_id=tenant_id,
            role=role,
            name=name,
            secret_hash=secret_hash,
            created_at=instant(created_at),
            expires_at=optional_instant(expires_at),
            unreadable="its role is none that this version knows" if role is None else None,
        )
    except DECODING_ERRORS as error:
        return ApiKey(
            key_id=repaired(key_id),
            tenant_id=text_or_empty(tenant_id),
            role=None,
            secret_hash=b"",
            created_at=MIN_INSTANT,
            unreadable=f"the stored API key cannot be read: {what_is_wrong(error)}",
        )


def encode_record(record: IdempotencyRecord) -> Row:
    return record.key, record.claim_id, record.content, milliseconds(record.expires_at)


def decode_record(row: Row) -> IdempotencyRecord:
    """Return the idempotency record of a row. Raises ``StoreError`` for one that cannot be read."""
    try:
        key, claim_id, content, expires_at = whole(sound(row))
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
