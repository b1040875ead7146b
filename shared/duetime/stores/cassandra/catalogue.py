"""Namespaces, API keys, and the secrets that all processes share.

Each of the three is one partition of ``catalogue``, so a conditional batch changes it as one: a namespace is made
together with the shards that it takes, and a tenant's list never differs from what is found by name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from duetime.domain.errors import InvalidInput, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import MAX_DEDICATED_SHARD, MAX_SHARED_SHARDS, ShardMap
from duetime.domain.tenants import DEFAULT_TENANT, is_internal
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.cassandra import entries
from duetime.stores.cassandra.changes import new_write_id
from duetime.stores.cassandra.entries import INTERNAL, NAMED, OF_TENANT, SHARDS, Entries
from duetime.stores.cassandra.requests import Requests, Row, Unsettled
from duetime.stores.namespace_text import StoredNamespace, agreed, read_namespace, secrets_text, settings_text
from duetime.stores.port.pages import Page
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.rounds import rounds

_PART: Final = "namespaces"
_SECRETS: Final = "secrets"


class Catalogue:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._entries = Entries(requests, _PART)
        self._secrets = Entries(requests, _SECRETS)

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        new = Namespace(name, num_shards, 0, dedicated, now, tenant_id=tenant_id)
        stored, is_new = self._make(new)
        if is_new:
            return stored, True
        return agreed(stored, num_shards=num_shards, dedicated=dedicated, tenant_id=tenant_id), False

    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]:
        stored, is_new = self._make(namespace)
        if is_new:
            return stored, LoadStatus.LOADED
        is_same = replace(namespace, first_shard=stored.first_shard) == stored
        return stored, LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT

    def _make(self, wanted: Namespace) -> tuple[Namespace, bool]:
        """The namespace as it is stored now, and whether it was made: with the shards it takes, in one batch."""
        sent: set[UUID] = set()
        for turn in rounds():
            is_serial = turn > 0
            row = self._entries.find(_kind(wanted.name), wanted.name, is_serial=is_serial)
            if row is not None:
                return _namespace(row), row["write_id"] in sent
            shards = self._entries.find(SHARDS, "", is_serial=is_serial)
            new, shard_map = _with_shards(wanted, _shard_map(shards))
            write_id = new_write_id()
            sent.add(write_id)
            body = _body(new)
            seen = None if shards is None else shards["write_id"]
            statements = [
                self._entries.put(_kind(new.name), new.name, body, write_id=write_id, if_write_id=None),
                self._entries.put_of_tenant(new.tenant_id, new.name, body) if not is_internal(new.name) else None,
                self._entries.put(SHARDS, "", _shards_body(shard_map), write_id=write_id, if_write_id=seen),
            ]
            try:
                if self._requests.decide([each for each in statements if each is not None]):
                    return new, True
            except Unsettled:
                continue  # the next serial read tells
        raise StoreUnavailable("namespaces are being made too often")

    def get_namespace(self, name: str) -> Namespace | None:
        row = self._entries.find(_kind(name), name)
        return None if row is None else _namespace(row)

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        place = (NAMED, "") if tenant_id is None else (OF_TENANT, tenant_id)
        rows = self._entries.read(*place, after=cursor or "", limit=limit + 1)
        items = [_namespace(row) for row in rows[:limit]]
        return Page(items, items[-1].name if len(rows) > limit else None)

    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        """First those that have a name of a client's, then internal ones."""
        rows: list[Row] = []
        if cursor is None or not is_internal(cursor):
            rows = self._entries.read(NAMED, "", after=cursor or "", limit=limit + 1)
        if len(rows) <= limit:
            after = cursor if cursor is not None and is_internal(cursor) else ""
            rows += self._entries.read(INTERNAL, "", after=after, limit=limit + 1 - len(rows))
        items = [_namespace(row) for row in rows[:limit]]
        return Page(items, items[-1].name if len(rows) > limit else None)

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:  # noqa: ARG002
        sent: set[UUID] = set()
        for _ in rounds():
            row = self._entries.find(_kind(namespace.name), namespace.name, is_serial=bool(sent))
            if row is None:
                return None
            stored = _namespace(row)
            if row["write_id"] in sent:
                return stored
            if stored.revision != if_revision:
                return None
            changed = replace(
                stored, settings=namespace.settings, secrets=namespace.secrets, revision=stored.revision + 1
            )
            write_id = new_write_id()
            sent.add(write_id)
            body = _body(changed)
            change = self._entries.put(
                _kind(changed.name), changed.name, body, write_id=write_id, if_write_id=row["write_id"]
            )
            of_tenant = self._entries.put_of_tenant(changed.tenant_id, changed.name, body)
            try:
                if self._requests.decide([change] if is_internal(changed.name) else [change, of_tenant]):
                    return changed
            except Unsettled:
                continue
        raise StoreUnavailable("the namespace is being changed too often")

    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        is_sent = False
        for _ in rounds():
            row = self._entries.find(_kind(name), name, is_serial=is_sent)
            if row is None:
                return True
            stored = _namespace(row)
            if stored.revision != if_revision:
                return False
            statements = [
                self._entries.remove(name, if_write_id=row["write_id"]),
                self._entries.remove_of_tenant(stored.tenant_id, name),
            ]
            try:
                if self._requests.decide(statements):
                    return True
            except Unsettled:
                is_sent = True
        raise StoreUnavailable("the namespace is being changed too often")

    def shard_map(self) -> ShardMap:
        return _shard_map(self._entries.find(SHARDS, ""))

    def catalogue_secret(self, name: str, candidate: bytes) -> bytes:
        row = self._secrets.find(NAMED, name)
        if row is None:
            keep = self._secrets.keep_bytes(name, candidate, write_id=new_write_id())
            self._requests.decide([keep])  # where another was first, that one's is kept
            row = self._secrets.find(NAMED, name, is_serial=True)
        if row is None:
            raise StoreUnavailable("a secret of the catalogue was removed while it was being made")
        return bytes(row["entry_bytes"])

    def catalogue_secrets(self) -> dict[str, bytes]:
        rows = self._secrets.read(NAMED, "", after="", limit=entries.MOST_AT_ONCE)
        return {row["entry_name"]: bytes(row["entry_bytes"]) for row in rows}


def _kind(name: str) -> int:
    return INTERNAL if is_internal(name) else NAMED


def _with_shards(wanted: Namespace, shards: ShardMap) -> tuple[Namespace, ShardMap]:
    """The namespace on shards of its own or on shared ones, and which shards there are then."""
    if not wanted.dedicated:
        shared = max(shards.shared_shards, wanted.num_shards)
        return replace(wanted, first_shard=0), replace(shards, shared_shards=shared)
    first = shards.dedicated_end
    end = first + wanted.num_shards
    if end - 1 > MAX_DEDICATED_SHARD:
        raise InvalidInput("dedicated", f"only {MAX_DEDICATED_SHARD + 1 - first} dedicated shards are left")
    return replace(wanted, first_shard=first), replace(shards, dedicated_end=end)


def _shard_map(row: Row | None) -> ShardMap:
    if row is None:
        return ShardMap()
    values: dict[str, Any] = json.loads(row["entry_body"])
    return ShardMap(values.get("sharedShards", 0), values.get("dedicatedEnd", MAX_SHARED_SHARDS))


def _shards_body(shards: ShardMap) -> str:
    return json.dumps({"sharedShards": shards.shared_shards, "dedicatedEnd": shards.dedicated_end})


def _body(namespace: Namespace) -> str:
    return json.dumps(
        {
            "numShards": namespace.num_shards,
            "firstShard": namespace.first_shard,
            "dedicated": namespace.dedicated,
            "createdAt": to_milliseconds(namespace.created_at),
            "revision": namespace.revision,
            "tenantId": namespace.tenant_id,
            "settings": settings_text(namespace.settings),
            "secrets": secrets_text(namespace.secrets),
        }
    )


def _namespace(row: Row) -> Namespace:
    return read_namespace(
        row["entry_name"], lambda: _stored(row), tenant_id=lambda: str(json.loads(row["entry_body"])["tenantId"])
    )


def _stored(row: Row) -> StoredNamespace:
    values: dict[str, Any] = json.loads(row["entry_body"])
    return StoredNamespace(
        num_shards=values["numShards"],
        first_shard=values["firstShard"],
        dedicated=values["dedicated"],
        created_at=from_milliseconds(values["createdAt"]),
        revision=values["revision"],
        settings=values["settings"],
        secrets=values["secrets"],
        tenant_id=values["tenantId"],
    )
