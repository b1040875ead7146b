"""The catalogue partition ``shard_id = -1``: namespaces, the shard counter, workers and shared secrets."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from duetime.domain.errors import NamespaceConflict, StoreError, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import MAX_DEDICATED_SHARD, MAX_SHARED_SHARDS, ShardMap
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.changes import Change, Item, as_update, text, whole
from duetime.stores.dynamodb.cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.items import item_key, time_to_live
from duetime.stores.dynamodb.table import Table, back_offs
from duetime.stores.namespace_text import read_namespace, secrets_text, settings_text
from duetime.stores.port import Page

CATALOGUE_SHARD = -1
_NAMESPACE = "NAMESPACE#"
_WORKER = "WORKER#"
_SECRET = "SECRET#"  # noqa: S105  # a key prefix
_COUNTER_KEY = item_key(CATALOGUE_SHARD, "COUNTER#SHARDS")
_CREATE_TRIES = 12
_FIRST_REVISION = 1


class Catalogue:
    _table: Table

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime
    ) -> tuple[Namespace, bool]:
        for back_off in back_offs(_CREATE_TRIES):
            stored, counter = self._table.get_many(
                [item_key(CATALOGUE_SHARD, _NAMESPACE + name), _COUNTER_KEY], consistent=True
            )
            if stored is not None:
                namespace = _namespace(stored)
                if (namespace.num_shards, namespace.dedicated) != (num_shards, dedicated):
                    raise NamespaceConflict(
                        f"namespace {name!r} exists with {namespace.num_shards} "
                        f"{'dedicated' if namespace.dedicated else 'shared'} shards"
                    )
                return namespace, False
            shard_map = _shard_map(counter)
            namespace = Namespace(
                name=name,
                num_shards=num_shards,
                first_shard=shard_map.dedicated_end if dedicated else 0,
                dedicated=dedicated,
                created_at=now,
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
                **item_key(CATALOGUE_SHARD, _NAMESPACE + namespace.name),
                "row_type": text("NAMESPACE"),
                "namespace_name": text(namespace.name),
                "namespace_num_shards": whole(namespace.num_shards),
                "namespace_first_shard": whole(namespace.first_shard),
                "namespace_dedicated": {"BOOL": namespace.dedicated},
                "namespace_created_at": text(format_instant(namespace.created_at)),
            },
            "ConditionExpression": "attribute_not_exists(sortKey)",
        }
        return self._table.transact([{"Put": put_counter}, {"Put": put_namespace}])

    def get_namespace(self, name: str) -> Namespace | None:
        stored = self._table.get(item_key(CATALOGUE_SHARD, _NAMESPACE + name), consistent=True)
        return None if stored is None else _namespace(stored)

    def list_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        parameters: dict[str, object] = {"Limit": limit, "ConsistentRead": True}
        if cursor is not None:
            (after,) = read_cursor(cursor, str)
            parameters["ExclusiveStartKey"] = item_key(CATALOGUE_SHARD, _NAMESPACE + after)
        page = self._table.query(
            "shard_id = :shard AND begins_with(sortKey, :prefix)",
            {":shard": whole(CATALOGUE_SHARD), ":prefix": text(_NAMESPACE)},
            **parameters,
        )
        namespaces = [_namespace(item) for item in page.items]
        return Page(namespaces, write_cursor(namespaces[-1].name) if page.last_key and namespaces else None)

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:  # noqa: ARG002
        texts = {
            "namespace_settings": settings_text(namespace.settings),
            "namespace_secrets": secrets_text(namespace.secrets),
        }
        change = Change(
            key=item_key(CATALOGUE_SHARD, _NAMESPACE + namespace.name),
            sets={
                "namespace_revision": whole(if_revision + 1),
                **{name: text(value) for name, value in texts.items() if value is not None},
            },
            removes=tuple(name for name, value in texts.items() if value is None),
            unchanged={
                "namespace_name": text(namespace.name),
                # A namespace that was never changed has no revision stored.
                "namespace_revision": whole(if_revision) if if_revision != _FIRST_REVISION else None,
            },
        )
        written = self._table.update(**as_update(change), ReturnValues="ALL_NEW")
        if written.item is None or not (written.is_applied or written.is_own_work(change)):
            return None
        return _namespace(written.item)

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


def _namespace(item: Item) -> Namespace:
    return read_namespace(
        name=item["namespace_name"]["S"],
        num_shards=int(item["namespace_num_shards"]["N"]),
        first_shard=int(item["namespace_first_shard"]["N"]),
        dedicated=item["namespace_dedicated"]["BOOL"],
        created_at=read_instant(item["namespace_created_at"]["S"]),
        revision=int(item["namespace_revision"]["N"]) if "namespace_revision" in item else _FIRST_REVISION,
        settings=item["namespace_settings"]["S"] if "namespace_settings" in item else None,
        secrets=item["namespace_secrets"]["S"] if "namespace_secrets" in item else None,
    )


def _shard_map(counter: Item | None) -> ShardMap:
    if counter is None:
        return ShardMap(shared_shards=0, dedicated_end=MAX_SHARED_SHARDS)
    return ShardMap(
        shared_shards=int(counter["shared_shards"]["N"]), dedicated_end=int(counter["dedicated_end"]["N"])
    )
