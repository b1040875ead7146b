"""API keys: found by their id, listed by their tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from duetime.domain.api_keys import ApiKey
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.decoding import as_cursor, of_cursor
from duetime.stores.key_reading import StoredKey, read_api_key, role_text
from duetime.stores.port.pages import Page
from duetime.stores.sql.database import Database
from duetime.stores.sql.tables import api_keys, given, given_count

_KEY_ID = 1
"""Its place in a row."""


class ApiKeys:
    def __init__(self, database: Database) -> None:
        self._database = database
        columns = api_keys.c
        select = sa.select(
            columns.tenant_id,
            columns.key_id,
            columns.key_role,
            columns.key_name,
            columns.key_secret_hash,
            columns.key_created_at,
            columns.key_expires_at,
        )
        prepare = database.prepare
        tenant, key_id = given("tenant"), given("id")
        self._get = prepare(select.where(columns.key_id == key_id), "id")
        self._list = prepare(
            select.where(columns.tenant_id == tenant, columns.key_id > given("after"))
            .order_by(columns.key_id)
            .limit(given_count("limit")),
            "tenant",
            "after",
            "limit",
        )
        self._all = prepare(
            select.where(columns.key_id > given("after")).order_by(columns.key_id).limit(given_count("limit")),
            "after",
            "limit",
        )
        values = {column.name: given(f"new_{column.name}") for column in columns}
        self._insert = prepare(
            database.insert_if_absent(api_keys).values(values), *(f"new_{name}" for name in values)
        )
        self._delete = prepare(
            sa.delete(api_keys).where(columns.tenant_id == tenant, columns.key_id == key_id), "tenant", "id"
        )

    def create_api_key(self, key: ApiKey) -> bool:
        with self._database.write() as mutation:
            return self._insert.count(mutation.connection, *_row(key)) == 1

    def get_api_key(self, key_id: str) -> ApiKey | None:
        with self._database.read() as connection:
            row = self._get.one(connection, key_id).first()
        return None if row is None else _api_key(row)

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        with self._database.read() as connection:
            rows = self._list.one(connection, tenant_id, of_cursor(cursor or ""), limit + 1).all()
        return _page(rows, limit)

    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        with self._database.read() as connection:
            rows = self._all.one(connection, of_cursor(cursor or ""), limit + 1).all()
        return _page(rows, limit)

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        with self._database.write() as mutation:
            return self._delete.count(mutation.connection, tenant_id, key_id) == 1


def _row(key: ApiKey) -> tuple[object, ...]:
    """In the order of the table's columns."""
    return (
        key.tenant_id,
        key.key_id,
        role_text(key),
        key.name,
        key.secret_hash,
        to_milliseconds(key.created_at),
        None if key.expires_at is None else to_milliseconds(key.expires_at),
    )


def _page(rows: Sequence[Any], limit: int) -> Page[ApiKey]:
    shown = rows[:limit]
    return Page([_api_key(row) for row in shown], as_cursor(shown[-1][_KEY_ID]) if len(rows) > limit else None)


def _api_key(row: Any) -> ApiKey:
    tenant_id, key_id, role, name, secret_hash, created_at, expires_at = row

    def read() -> StoredKey:
        return StoredKey(
            tenant_id=tenant_id,
            role=role,
            name=name,
            secret_hash=bytes(secret_hash),
            created_at=from_milliseconds(created_at),
            expires_at=None if expires_at is None else from_milliseconds(expires_at),
        )

    return read_api_key(key_id, read, tenant_id=lambda: str(tenant_id))
