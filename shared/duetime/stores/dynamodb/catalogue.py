"""The catalogue partition ``shard_id = -1``: namespaces, the shard counter, workers and shared secrets.

A namespace has two items: itself, and under its tenant's key a pointer that lists find it by. An internal one has
a prefix of its own and no pointer, so that no list meets it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import MAX_DEDICATED_SHARD, MAX_SHARED_SHARDS, ShardMap
from duetime.domain.tenants import DEFAULT_TENANT, is_internal
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.changes import Change, Item, as_update, text, whole
from duetime.stores.dynamodb.cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.items import item_key, time_to_live
from duetime.stores.dynamodb.table import QueryPage, Table, back_offs
from duetime.stores.namespace_text import StoredNamespace, agreed, read_namespace, secrets_text, settings_text
from duetime.stores.port.pages import Page
from duetime.stores.port.transfer import LoadStatus

CATALOGUE_SHARD = -1
_NAMESPACE = "NAMESPACE#"
_INTERNAL = "INTERNAL#"
_WORKER = "WORKER#"
_SECRET = "SECRET#"  # noqa: S105  # a key prefix
_COUNTER_KEY = item_key(CATALOGUE_SHARD, "COUNTER#SHARDS")
_CREATE_TRIES = 12
_FIRST_REVISION = 1
_PAGE = 100


class Catalogue:
    _table: Table

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        for back_off in back_offs(_CREATE_TRIES):
            stored, counter = self._table.get_many([_namespace_key(name), _COUNTER_KEY], consistent=True)
            if stored is not None:
                namespace = _namespace(stored)
                return agreed(namespace, num_shards=num_shards, dedicated=dedicated, tenant_id=tenant_id), False
            shard_map = _shard_map(counter)
            namespace = Namespace(
                name=name,
                num_shards=num_shards,
                first_shard=shard_map.dedicated_end if dedicated else 0,
                dedicated=dedicated,
                created_at=now,
                tenant_id=tenant_id,
            )
            if self._insert_namespace(namespace, shard_map, is_first=counter is None):
                return namespace, True
            time.sleep(back_off)
        raise StoreUnavailable("too many namespaces are being created at once")

    def _insert_namespace(self, namespace: Namespace, seen: ShardMap, *, is_first: bool) -> bool:
        """Store ``namespace`` and count its shards in one transaction; False when another one came first."""
        dedicated_end = seen.dedicated_end + (namespace.num_shards if namespace.dedicated else 0)
        if dedicated_end > MAX_DEDICATED_SHARD:
            raise StoreError("no dedicated shards are left")
        shared_shards = seen.shared_shards if namespace.dedicated else max(seen.shared_shards, namespace.num_shards)
        counter = {
            **_COUNTER_KEY,
            "row_type": text("COUNTER"),
            "shared_shards": whole(shared_shards),
            "dedicated_end": whole(dedicated_end),
        }
        put_counter: dict[str, object] = {"TableName": self._table.name, "Item": counter}
        if is_first:
            put_counter["ConditionExpression"] = "attribute_not_exists(sortKey)"
        else:
            put_counter["ConditionExpression"] = "shared_shards = :shared AND dedicated_end = :dedicated"
            put_counter["ExpressionAttributeValues"] = {
                ":shared": whole(seen.shared_shards),
                ":dedicated": whole(seen.dedicated_end),
            }
        put_namespace = {
            "TableName": self._table.name,
            "Item": {
                **_namespace_key(namespace.name),
                "row_type": text("NAMESPACE"),
                "namespace_name": text(namespace.name),
                "namespace_num_shards": whole(namespace.num_shards),
                "namespace_first_shard": whole(namespace.first_shard),
                "namespace_dedicated": {"BOOL": namespace.dedicated},
                "namespace_created_at": text(format_instant(namespace.created_at)),
                "namespace_tenant_id": text(namespace.tenant_id),
                **_changeable(namespace),
            },
            "ConditionExpression": "attribute_not_exists(sortKey)",
        }
        puts: list[dict[str, Any]] = [{"Put": put_counter}, {"Put": put_namespace}]
        if not is_internal(namespace.name):
            pointer = _pointer(namespace.tenant_id, namespace.name)
            puts.append({"Put": {"TableName": self._table.name, "Item": pointer}})
        return self._table.transact(puts)

    def get_namespace(self, name: str) -> Namespace | None:
        stored = self._table.get(_namespace_key(name), consistent=True)
        return None if stored is None else _namespace(stored)

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        prefix = _NAMESPACE if tenant_id is None else tenant_prefix(tenant_id, _NAMESPACE)
        page = read_page(self._table, prefix, cursor=cursor, limit=limit)
        names = [item["sortKey"]["S"].removeprefix(prefix) for item in page.items]
        items: Sequence[Item | None] = page.items
        if tenant_id is not None:
            items = self._table.get_many([_namespace_key(name) for name in names], consistent=True)
        namespaces = [_namespace(item) for item in items if item is not None]
        return Page(namespaces, write_cursor(names[-1]) if page.last_key and names else None)

    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        """The internal ones first: their keys have a prefix of their own."""
        prefix, after = (_INTERNAL, None) if cursor is None else read_cursor(cursor, str, str)
        page = read_page(self._table, prefix, cursor=write_cursor(after) if after else None, limit=limit)
        namespaces = [_namespace(item) for item in page.items]
        if page.last_key and namespaces:
            return Page(namespaces, write_cursor(prefix, namespaces[-1].name))
        return Page(namespaces, write_cursor(_NAMESPACE, "") if prefix == _INTERNAL else None)

    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]:
        for back_off in back_offs(_CREATE_TRIES):
            item, counter = self._table.get_many([_namespace_key(namespace.name), _COUNTER_KEY], consistent=True)
            if item is not None:
                stored = _namespace(item)
                is_same = replace(namespace, first_shard=stored.first_shard) == stored
                return stored, LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
            shard_map = _shard_map(counter)
            loaded = replace(namespace, first_shard=shard_map.dedicated_end if namespace.dedicated else 0)
            if self._insert_namespace(loaded, shard_map, is_first=counter is None):
                return loaded, LoadStatus.LOADED
            time.sleep(back_off)
        raise StoreUnavailable("too many namespaces are being created at once")

    def point_to_namespaces(self) -> None:
        """Give the namespaces of a table that is older than tenants what lists find them by."""
        cursor: str | None = None
        while True:
            page = read_page(self._table, _NAMESPACE, cursor=cursor, limit=_PAGE)
            for item in page.items:
                if "namespace_tenant_id" in item:
                    continue
                self._table.put(_pointer(DEFAULT_TENANT, item["namespace_name"]["S"]))
                key = {"shard_id": item["shard_id"], "sortKey": item["sortKey"]}
                sets = {"namespace_tenant_id": text(DEFAULT_TENANT)}
                self._table.apply_one(Change(key=key, sets=sets, unchanged={"namespace_tenant_id": None}))
            if page.last_key is None:
                return
            cursor = write_cursor(page.items[-1]["namespace_name"]["S"])

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:  # noqa: ARG002
        texts = {
            "namespace_settings": settings_text(namespace.settings),
            "namespace_secrets": secrets_text(namespace.secrets),
        }
        change = Change(
            key=_namespace_key(namespace.name),
            sets={
                "namespace_revision": whole(if_revision + 1),
                **{name: text(value) for name, value in texts.items() if value is not None},
            },
            removes=tuple(name for name, value in texts.items() if value is None),
            unchanged={
                "namespace_name": text(namespace.name),
                **_revision(if_revision),
            },
        )
        written = self._table.update(**as_update(change), ReturnValues="ALL_NEW")
        if written.item is None or not (written.is_applied or written.is_own_work(change)):
            return None
        return _namespace(written.item)

    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        for back_off in back_offs(_CREATE_TRIES):
            stored = self.get_namespace(name)
            if stored is None:
                return True
            if stored.revision != if_revision:
                return False
            update = as_update(Change(key=_namespace_key(name), sets={}, unchanged=_revision(if_revision)))
            condition = {
                each: update[each] for each in ("ConditionExpression", "ExpressionAttributeValues") if update[each]
            }
            itself = {"TableName": self._table.name, "Key": _namespace_key(name), **condition}
            pointer = _pointer(stored.tenant_id, name)
            key = {part: pointer[part] for part in ("shard_id", "sortKey")}
            if self._table.transact([{"Delete": itself}, {"Delete": {"TableName": self._table.name, "Key": key}}]):
                return True
            time.sleep(back_off)
        raise StoreUnavailable("the namespace is being changed too often")

    def shard_map(self) -> ShardMap:
        return _shard_map(self._table.get(_COUNTER_KEY, consistent=False))

    def catalogue_secret(self, name: str, candidate: bytes) -> bytes:
        item = {
            **item_key(CATALOGUE_SHARD, _SECRET + name),
            "row_type": text("SECRET"),
            "secret_value": {"B": candidate},
        }
        written = self._table.put(item, ConditionExpression="attribute_not_exists(sortKey)")
        if written.is_applied:
            return candidate
        if written.item is None:
            raise StoreError(f"secret {name!r} was removed while it was read")
        value: bytes = written.item["secret_value"]["B"]
        return value

    def catalogue_secrets(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        cursor: str | None = None
        while True:
            page = read_page(self._table, _SECRET, cursor=cursor, limit=_PAGE)
            names = [item["sortKey"]["S"].removeprefix(_SECRET) for item in page.items]
            found |= {name: bytes(item["secret_value"]["B"]) for name, item in zip(names, page.items, strict=True)}
            if page.last_key is None:
                return found
            cursor = write_cursor(names[-1])

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        expires_at = now + timedelta(seconds=ttl_seconds)
        self._table.put(
            {
                **item_key(CATALOGUE_SHARD, _WORKER + worker_id),
                "row_type": text("WORKER"),
                "worker_id": text(worker_id),
                "worker_expires_at": text(format_instant(expires_at)),
                "expires_at": time_to_live(expires_at),
            }
        )
        workers: list[str] = []
        start: Item | None = None
        while True:
            page = self._table.query(
                "shard_id = :shard AND begins_with(sortKey, :prefix)",
                {":shard": whole(CATALOGUE_SHARD), ":prefix": text(_WORKER), ":now": text(format_instant(now))},
                FilterExpression="worker_expires_at > :now",
                ConsistentRead=True,
                **({"ExclusiveStartKey": start} if start else {}),
            )
            workers += [item["worker_id"]["S"] for item in page.items]
            start = page.last_key
            if start is None:
                return sorted(workers)

    def withdraw_worker(self, worker_id: str) -> None:
        self._table.delete(item_key(CATALOGUE_SHARD, _WORKER + worker_id))


def next_internal_name(table: Table, *, after: str) -> str | None:
    """The name of the first internal namespace that comes after the name ``after``."""
    page = read_page(table, _INTERNAL, cursor=write_cursor(after), limit=1)
    return page.items[0]["sortKey"]["S"].removeprefix(_INTERNAL) if page.items else None


def tenant_prefix(tenant_id: str, kind: str) -> str:
    """What the sort keys of a tenant's items of one ``kind`` (``NAMESPACE#``) begin with: its id has no ``#``."""
    return f"TENANT#{tenant_id}#{kind}"


def read_page(table: Table, prefix: str, *, cursor: str | None, limit: int) -> QueryPage:
    """Items of the catalogue whose sort key begins with ``prefix``; a cursor has the rest of the last one's."""
    parameters: dict[str, object] = {"Limit": limit, "ConsistentRead": True}
    if cursor is not None:
        (after,) = read_cursor(cursor, str)
        parameters["ExclusiveStartKey"] = item_key(CATALOGUE_SHARD, prefix + after)
    return table.query(
        "shard_id = :shard AND begins_with(sortKey, :prefix)",
        {":shard": whole(CATALOGUE_SHARD), ":prefix": text(prefix)},
        **parameters,
    )


def _namespace_key(name: str) -> Item:
    return item_key(CATALOGUE_SHARD, (_INTERNAL if is_internal(name) else _NAMESPACE) + name)


def _changeable(namespace: Namespace) -> Item:
    """What a namespace that comes from another store may have already, and a new one has not."""
    texts = {
        "namespace_settings": settings_text(namespace.settings),
        "namespace_secrets": secrets_text(namespace.secrets),
    }
    item = {name: text(value) for name, value in texts.items() if value is not None}
    if namespace.revision != _FIRST_REVISION:
        item["namespace_revision"] = whole(namespace.revision)
    return item


def _revision(revision: int) -> Item:
    """For ``Change.unchanged``. A namespace that was never changed has no revision stored."""
    return {"namespace_revision": whole(revision) if revision != _FIRST_REVISION else None}


def _pointer(tenant_id: str, name: str) -> Item:
    return {
        **item_key(CATALOGUE_SHARD, tenant_prefix(tenant_id, _NAMESPACE) + name),
        "row_type": text("NAMESPACE_OF_TENANT"),
    }


def _namespace(item: Item) -> Namespace:
    # Its key was checked when it was written.
    name = item["sortKey"]["S"].removeprefix(_INTERNAL).removeprefix(_NAMESPACE)
    return read_namespace(name, lambda: _stored(item), tenant_id=lambda: _tenant_of(item))


def _stored(item: Item) -> StoredNamespace:
    return StoredNamespace(
        num_shards=int(item["namespace_num_shards"]["N"]),
        first_shard=int(item["namespace_first_shard"]["N"]),
        dedicated=item["namespace_dedicated"]["BOOL"],
        created_at=read_instant(item["namespace_created_at"]["S"]),
        revision=int(item["namespace_revision"]["N"]) if "namespace_revision" in item else _FIRST_REVISION,
        settings=item["namespace_settings"]["S"] if "namespace_settings" in item else None,
        secrets=item["namespace_secrets"]["S"] if "namespace_secrets" in item else None,
        tenant_id=_tenant_of(item),
    )


def _tenant_of(item: Item) -> str:
    return str(item["namespace_tenant_id"]["S"]) if "namespace_tenant_id" in item else DEFAULT_TENANT


def _shard_map(counter: Item | None) -> ShardMap:
    if counter is None:
        return ShardMap(shared_shards=0, dedicated_end=MAX_SHARED_SHARDS)
    return ShardMap(
        shared_shards=int(counter["shared_shards"]["N"]), dedicated_end=int(counter["dedicated_end"]["N"])
    )
