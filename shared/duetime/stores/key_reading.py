"""API keys as every store reads them: one that cannot be read is shown, lets nobody in, and hides no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.api_keys import ApiKey
from duetime.domain.principals import Role
from duetime.domain.times import MIN_INSTANT
from duetime.stores.decoding import DECODING_ERRORS, is_text, repaired, what_is_wrong, whole

_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """The values of a row, each of the type that it must have."""

    tenant_id: str
    role: str
    name: str
    secret_hash: bytes
    created_at: datetime
    expires_at: datetime | None


def read_api_key(key_id: str, read: Callable[[], StoredKey], *, tenant_id: Callable[[], str]) -> ApiKey:
    """The key ``key_id`` of the row that ``read`` decodes. ``tenant_id`` reads the tenant alone."""
    try:
        _, stored = whole((key_id, read()))
    except DECODING_ERRORS as error:
        return ApiKey(
            key_id=repaired(key_id),
            tenant_id=read_or_empty(tenant_id),
            role=None,
            secret_hash=b"",
            created_at=MIN_INSTANT,
            unreadable=f"the stored API key cannot be read: {what_is_wrong(error)}",
        )
    role = _ROLES.get(stored.role)
    return ApiKey(
        key_id=key_id,
        tenant_id=stored.tenant_id,
        role=role,
        name=stored.name,
        secret_hash=stored.secret_hash,
        created_at=stored.created_at,
        expires_at=stored.expires_at,
        unreadable="its role is none that this version knows" if role is None else None,
    )


def role_text(key: ApiKey) -> str:
    """What is stored of the role of a new key, which has one."""
    assert key.role is not None
    return key.role.value


def read_or_empty(read: Callable[[], str]) -> str:
    """An empty text is the id of no tenant."""
    try:
        text = read()
    except DECODING_ERRORS:
        return ""
    return text if isinstance(text, str) and is_text(text) else ""
