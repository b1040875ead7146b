"""API keys: found by their id, listed by their tenant."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Final
from uuid import UUID

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import StoreUnavailable
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.cassandra.changes import new_write_id
from duetime.stores.cassandra.entries import NAMED, OF_TENANT, Entries
from duetime.stores.cassandra.requests import Requests, Row, Unsettled
from duetime.stores.key_reading import StoredKey, read_api_key, role_text
from duetime.stores.port.pages import Page
from duetime.stores.rounds import rounds

_PART: Final = "api_keys"


class ApiKeys:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._entries = Entries(requests, _PART)

    def create_api_key(self, key: ApiKey) -> bool:
        body = _body(key)
        write_id = new_write_id()
        statements = [
            self._entries.put(NAMED, key.key_id, body, write_id=write_id, if_write_id=None),
            self._entries.put_of_tenant(key.tenant_id, key.key_id, body),
        ]
        try:
            return self._requests.decide(statements)
        except Unsettled:
            row = self._entries.find(NAMED, key.key_id, is_serial=True)
            if row is None:  # a serial read has ended it: it was not carried out and will not be
                raise
            return bool(row["write_id"] == write_id)

    def get_api_key(self, key_id: str) -> ApiKey | None:
        row = self._entries.find(NAMED, key_id)
        return None if row is None else _api_key(row)

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        return _page(self._entries.read(OF_TENANT, tenant_id, after=cursor or "", limit=limit + 1), limit)

    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        return _page(self._entries.read(NAMED, "", after=cursor or "", limit=limit + 1), limit)

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        sent: UUID | None = None
        for _ in rounds():
            row = self._entries.find(NAMED, key_id, is_serial=sent is not None)
            if row is None or _api_key(row).tenant_id != tenant_id:
                # One that an unanswered removal was for, and that is gone, is removed.
                return sent is not None and row is None
            statements = [
                self._entries.remove(key_id, if_write_id=row["write_id"]),
                self._entries.remove_of_tenant(tenant_id, key_id),
            ]
            try:
                if self._requests.decide(statements):
                    return True
            except Unsettled:
                sent = row["write_id"]
        raise StoreUnavailable("the API key is being changed too often")


def _page(rows: list[Row], limit: int) -> Page[ApiKey]:
    items = [_api_key(row) for row in rows[:limit]]
    return Page(items, items[-1].key_id if len(rows) > limit else None)


def _body(key: ApiKey) -> str:
    return json.dumps(
        {
            "tenantId": key.tenant_id,
            "role": role_text(key),
            "name": key.name,
            "secretHash": b64encode(key.secret_hash).decode(),
            "createdAt": to_milliseconds(key.created_at),
            "expiresAt": None if key.expires_at is None else to_milliseconds(key.expires_at),
        }
    )


def _api_key(row: Row) -> ApiKey:
    return read_api_key(
        row["entry_name"], lambda: _stored(row), tenant_id=lambda: str(json.loads(row["entry_body"])["tenantId"])
    )


def _stored(row: Row) -> StoredKey:
    values: dict[str, Any] = json.loads(row["entry_body"])
    expires_at = values["expiresAt"]
    return StoredKey(
        tenant_id=values["tenantId"],
        role=values["role"],
        name=values["name"],
        secret_hash=b64decode(values["secretHash"]),
        created_at=from_milliseconds(values["createdAt"]),
        expires_at=None if expires_at is None else from_milliseconds(expires_at),
    )
