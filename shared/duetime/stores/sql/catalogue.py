"""Namespaces, the shard map, and the secrets that all processes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.errors import InvalidInput
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import MAX_DEDICATED_SHARD, MAX_SHARED_SHARDS, ShardMap
from duetime.domain.tenants import DEFAULT_TENANT, is_internal
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.decoding import as_cursor, of_cursor
from duetime.stores.namespace_text import StoredNamespace, agreed, read_namespace, secrets_text, settings_text
from duetime.stores.port.pages import Page
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.loading import status_of
from duetime.stores.sql.tables import constant, counters, given, given_count, namespaces, secrets

_SHARED_SHARDS = "shared_shards"
_DEDICATED_END = "dedicated_end"


class Catalogue:
    """Both ends of the shard map are counters, so that pollers need not look through the namespaces."""

    def __init__(self, database: Database) -> None:
        self._database = database
        columns = namespaces.c
        select = sa.select(
            columns.namespace_name,
            columns.num_shards,
            columns.first_shard,
            columns.is_dedicated,
            columns.created_at,
            columns.namespace_revision,
            columns.namespace_settings,
            columns.namespace_secrets,
            columns.tenant_id,
        )
        prepare = database.prepare
        name, value = given("name"), given("value")
        self._get = prepare(select.where(columns.namespace_name == name), "name")
        tenant = given("tenant")
        page = (
            select.where(columns.is_internal == constant(0), columns.namespace_name > given("after"))
            .order_by(columns.namespace_name)
            .limit(given_count("limit"))
        )
        self._list = prepare(page, "after", "limit")
        self._list_of_tenant = prepare(page.where(columns.tenant_id == tenant), "tenant", "after", "limit")
        all_names = select.where(columns.namespace_name > given("after"))
        self._all = prepare(all_names.order_by(columns.namespace_name).limit(given_count("limit")), "after", "limit")
        self._insert = prepare(
            database.insert_if_absent(namespaces).values(
                namespace_name=name,
                num_shards=given("shards"),
                first_shard=given("first"),
                is_dedicated=given("dedicated"),
                created_at=database.db_now.epoch_ms(),
                tenant_id=tenant,
                is_internal=given("internal"),
            ),
            "name",
            "shards",
            "first",
            "dedicated",
            "tenant",
            "internal",
        )
        loaded = {column.name: given(f"new_{column.name}") for column in columns}
        self._load = prepare(
            database.insert_if_absent(namespaces).values(loaded), *(f"new_{name}" for name in loaded)
        )
        self._update = prepare(
            sa.update(namespaces)
            .where(columns.namespace_name == name, columns.namespace_revision == given("revision"))
            .values(
                namespace_revision=columns.namespace_revision + 1,
                namespace_settings=given("settings"),
                namespace_secrets=given("secrets"),
            ),
            "name",
            "revision",
            "settings",
            "secrets",
        )
        self._delete = prepare(
            sa.delete(namespaces).where(
                columns.namespace_name == name, columns.namespace_revision == given("revision")
            ),
            "name",
            "revision",
        )
        counter = counters.c.counter_name == name
        self._counters = prepare(sa.select(counters.c.counter_name, counters.c.counter_value))
        self._counter = prepare(sa.select(counters.c.counter_value).where(counter).with_for_update(), "name")
        self._set_counter = prepare(sa.update(counters).where(counter).values(counter_value=value), "value", "name")
        self._make_counter = prepare(
            database.insert_if_absent(counters).values(counter_name=name, counter_value=value), "name", "value"
        )
        self._secret = prepare(sa.select(secrets.c.secret_value).where(secrets.c.secret_name == name), "name")
        self._secrets = prepare(sa.select(secrets.c.secret_name, secrets.c.secret_value))
        self._keep_secret = prepare(
            database.insert_if_absent(secrets).values(secret_name=name, secret_value=value), "name", "value"
        )

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        with self._database.write(now) as mutation:
            row = self._get.one(mutation.connection, name).first()
            if row is None:
                first = self._take_range(mutation, num_shards) if dedicated else 0
                if not dedicated:
                    self._grow_shared(mutation, num_shards)
                values = (name, num_shards, first, int(dedicated), tenant_id, int(is_internal(name)))
                if self._insert.count(mutation.connection, *values):
                    return Namespace(name, num_shards, first, dedicated, mutation.now, tenant_id=tenant_id), True
                mutation.connection.rollback()
                row = self._get.one(mutation.connection, name).one()  # somebody else was faster
        return agreed(_namespace(row), num_shards=num_shards, dedicated=dedicated, tenant_id=tenant_id), False

    def get_namespace(self, name: str) -> Namespace | None:
        with self._database.read() as connection:
            row = self._get.one(connection, name).first()
        return None if row is None else _namespace(row)

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        after, more = of_cursor(cursor or ""), limit + 1
        with self._database.read() as connection:
            if tenant_id is None:
                rows = self._list.one(connection, after, more).all()
            else:
                rows = self._list_of_tenant.one(connection, tenant_id, after, more).all()
        return _page(rows, limit)

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:
        settings, secrets = settings_text(namespace.settings), secrets_text(namespace.secrets)
        with self._database.write(now) as mutation:
            if not self._update.count(mutation.connection, namespace.name, if_revision, settings, secrets):
                return None
            return _namespace(self._get.one(mutation.connection, namespace.name).one())

    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        with self._database.write() as mutation:
            if self._delete.count(mutation.connection, name, if_revision):
                return True
            return self._get.one(mutation.connection, name).first() is None

    def shard_map(self) -> ShardMap:
        with self._database.read() as connection:
            values: dict[str, int] = dict(self._counters.one(connection).fetchall())  # type: ignore[arg-type]
        return ShardMap(values.get(_SHARED_SHARDS, 0), values.get(_DEDICATED_END, MAX_SHARED_SHARDS))

    def catalogue_secret(self, name: str, candidate: bytes) -> bytes:
        with self._database.read() as connection:
            kept: bytes | None = self._secret.one(connection, name).scalar()
        if kept is None:
            with self._database.write() as mutation:
                self._keep_secret.one(mutation.connection, name, candidate)
                kept = self._secret.one(mutation.connection, name).scalar_one()
        return kept

    def catalogue_secrets(self) -> dict[str, bytes]:
        with self._database.read() as connection:
            rows: list[Any] = list(self._secrets.one(connection).all())
        return {name: bytes(value) for name, value in rows}

    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        with self._database.read() as connection:
            rows = self._all.one(connection, of_cursor(cursor or ""), limit + 1).all()
        return _page(rows, limit)

    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]:
        with self._database.write() as mutation:
            row = self._get.one(mutation.connection, namespace.name).first()
            if row is None:
                if namespace.dedicated:
                    loaded = replace(namespace, first_shard=self._take_range(mutation, namespace.num_shards))
                else:
                    loaded = replace(namespace, first_shard=0)
                    self._grow_shared(mutation, namespace.num_shards)
                if self._load.count(mutation.connection, *_loaded_row(loaded)):
                    return loaded, LoadStatus.LOADED
                mutation.connection.rollback()
                row = self._get.one(mutation.connection, namespace.name).one()  # somebody else was faster
        stored = _namespace(row)
        return stored, status_of(replace(namespace, first_shard=stored.first_shard) == stored)

    def _take_range(self, mutation: Mutation, num_shards: int) -> int:
        """The first shard of a fresh dedicated range, which ends where the next one will begin."""
        first = self._lock_counter(mutation, _DEDICATED_END, MAX_SHARED_SHARDS)
        end = first + num_shards
        if end - 1 > MAX_DEDICATED_SHARD:
            raise InvalidInput("dedicated", f"only {MAX_DEDICATED_SHARD + 1 - first} dedicated shards are left")
        self._set_counter.one(mutation.connection, end, _DEDICATED_END)
        return first

    def _grow_shared(self, mutation: Mutation, num_shards: int) -> None:
        if num_shards > self._lock_counter(mutation, _SHARED_SHARDS, 0):
            self._set_counter.one(mutation.connection, num_shards, _SHARED_SHARDS)

    def _lock_counter(self, mutation: Mutation, name: str, start: int) -> int:
        """The value of a counter, which nobody else changes before the transaction ends."""
        value: int | None = self._counter.one(mutation.connection, name).scalar()
        if value is None:
            self._make_counter.one(mutation.connection, name, start)
            value = self._counter.one(mutation.connection, name).scalar_one()
        return value


def _loaded_row(namespace: Namespace) -> tuple[object, ...]:
    """In the order of the table's columns."""
    return (
        namespace.name,
        namespace.num_shards,
        namespace.first_shard,
        int(namespace.dedicated),
        to_milliseconds(namespace.created_at),
        namespace.revision,
        settings_text(namespace.settings),
        secrets_text(namespace.secrets),
        namespace.tenant_id,
        int(is_internal(namespace.name)),
    )


def _page(rows: Sequence[Any], limit: int) -> Page[Namespace]:
    shown = rows[:limit]
    return Page([_namespace(row) for row in shown], as_cursor(shown[-1][0]) if len(rows) > limit else None)


def _namespace(row: Any) -> Namespace:
    name, num_shards, first_shard, is_dedicated, created_at, revision, settings, secrets_, tenant_id = row

    def read() -> StoredNamespace:
        return StoredNamespace(
            num_shards=num_shards,
            first_shard=first_shard,
            dedicated=bool(is_dedicated),
            created_at=from_milliseconds(created_at),
            revision=revision,
            settings=settings,
            secrets=secrets_,
            tenant_id=tenant_id,
        )

    return read_namespace(name, read, tenant_id=lambda: str(tenant_id))
