"""How API keys are made, for the API and the command line alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_bytes

from duetime.domain.api_keys import SECRET_BYTES, ApiKey, hash_of, key_text, new_secret
from duetime.domain.errors import SecretShownOnce
from duetime.domain.principals import Role
from duetime.stores.core.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey:
    """``text`` is the whole key: it can be read here and never again."""

    key: ApiKey
    text: str = field(repr=False)


def create_key(
    store: Store,
    *,
    key_id: str,
    tenant_id: str,
    role: Role,
    name: str,
    expires_at: datetime | None,
    now: datetime,
) -> CreatedKey:
    """Store a new key. Raises ``SecretShownOnce`` when this id has made one, and ``StoreError``."""
    secret = new_secret(token_bytes(SECRET_BYTES))
    key = ApiKey(
        key_id=key_id,
        tenant_id=tenant_id,
        role=role,
        name=name,
        secret_hash=hash_of(secret),
        created_at=now,
        expires_at=expires_at,
    )
    if not store.catalogue.create_api_key(key):
        raise SecretShownOnce
    return CreatedKey(key=key, text=key_text(key_id, secret))
