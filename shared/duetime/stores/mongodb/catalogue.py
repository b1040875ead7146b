"""Namespaces, the shard map, and the secrets that all processes share."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from duetime.domain.errors import InvalidInput
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import MAX_DEDICATED_SHARD, MAX_SHARED_SHARDS, ShardMap
from duetime.domain.tenants import DEFAULT_TENANT, is_internal
from duetime.stores.mongodb.database import COUNTERS, NAMESPACES, SECRETS, Database, Session
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import flag, instant, optional, text, whole, without_none
from duetime.stores.namespace_text import StoredNamespace, agreed, read_namespace, secrets_text, settings_text
from duetime.stores.port.pages import Page
from duetime.stores.port.transfer import LoadStatus

_SHARDS = "shards"


class Catalogue:
    """Both ends of the shard map are one document, so that pollers need not look through the namespaces."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespaces = database[NAMESPACES]
        self._counters = database[COUNTERS]
        self._secrets = database[SECRETS]

    @translated
    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        def create(session: Session) -> tuple[Namespace, bool]:
            stored = self._namespaces.find_one({"_id": name}, session=session)
            if stored is not None:
                namespace = _namespace(stored)
                return agreed(namespace, num_shards=num_shards, dedicated=dedicated, tenant_id=tenant_id), False
            first = self._take_range(num_shards, session) if dedicated else 0
            if not dedicated:
                self._grow_shared(num_shards, session)
            new = Namespace(name, num_shards, first, dedicated, now, tenant_id=tenant_id)
            self._namespaces.insert_one(_document(new), session=session)
            return new, True

        try:
            return self._database.transact(create)
        except DuplicateKeyError:  # made in the same moment: now it is there to be read
            return self._database.transact(create)

    def _take_range(self, num_shards: int, session: Session) -> int:
        """The first shard of a fresh dedicated range, which ends where the next one will begin."""
        shards = self._counters.find_one({"_id": _SHARDS}, session=session) or {}
        first = int(shards.get("dedicated_end", MAX_SHARED_SHARDS))
        end = first + num_shards
        if end - 1 > MAX_DEDICATED_SHARD:
            raise InvalidInput("dedicated", f"only {MAX_DEDICATED_SHARD + 1 - first} dedicated shards are left")
        change = {"$set": {"dedicated_end": end}}
        self._counters.update_one({"_id": _SHARDS}, change, upsert=True, session=session)
        return first

    def _grow_shared(self, num_shards: int, session: Session) -> None:
        change = {"$max": {"shared_shards": num_shards}}
        self._counters.update_one({"_id": _SHARDS}, change, upsert=True, session=session)

    @translated
    def get_namespace(self, name: str) -> Namespace | None:
        document = self._namespaces.find_one({"_id": name})
        return None if document is None else _namespace(document)

    @translated
    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        wanted: Document = {} if tenant_id is None else {"tenant_id": tenant_id}
        wanted |= {"is_internal": False, "_id": {"$gt": cursor or ""}}
        found = read(self._namespaces, wanted, order=[("_id", 1)], limit=limit + 1)
        items = [_namespace(document) for document in found[:limit]]
        return Page(items, items[-1].name if len(found) > limit else None)

    @translated
    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        found = read(self._namespaces, {"_id": {"$gt": cursor or ""}}, order=[("_id", 1)], limit=limit + 1)
        items = [_namespace(document) for document in found[:limit]]
        return Page(items, items[-1].name if len(found) > limit else None)

    @translated
    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]:
        def load(session: Session) -> tuple[Namespace, LoadStatus]:
            document = self._namespaces.find_one({"_id": namespace.name}, session=session)
            if document is not None:
                stored = _namespace(document)
                is_same = replace(namespace, first_shard=stored.first_shard) == stored
                return stored, LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
            first = self._take_range(namespace.num_shards, session) if namespace.dedicated else 0
            if not namespace.dedicated:
                self._grow_shared(namespace.num_shards, session)
            loaded = replace(namespace, first_shard=first)
            self._namespaces.insert_one(_document(loaded), session=session)
            return loaded, LoadStatus.LOADED

        try:
            return self._database.transact(load)
        except DuplicateKeyError:  # made in the same moment: now it is there to be read
            return self._database.transact(load)

    @translated
    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:  # noqa: ARG002
        texts = {
            "namespace_settings": settings_text(namespace.settings),
            "namespace_secrets": secrets_text(namespace.secrets),
        }
        gone = {name: "" for name, value in texts.items() if value is None}
        change: Document = {"$inc": {"namespace_revision": 1}}
        change |= {"$set": without_none(texts)} if len(gone) < len(texts) else {}
        change |= {"$unset": gone} if gone else {}
        document = self._namespaces.find_one_and_update(
            {"_id": namespace.name, "namespace_revision": if_revision}, change, return_document=ReturnDocument.AFTER
        )
        return None if document is None else _namespace(document)

    @translated
    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        if self._namespaces.delete_one({"_id": name, "namespace_revision": if_revision}).deleted_count:
            return True
        return self._namespaces.find_one({"_id": name}, {"_id": 1}) is None

    @translated
    def shard_map(self) -> ShardMap:
        shards = self._counters.find_one({"_id": _SHARDS}) or {}
        return ShardMap(int(shards.get("shared_shards", 0)), int(shards.get("dedicated_end", MAX_SHARED_SHARDS)))

    @translated
    def catalogue_secret(self, name: str, candidate: bytes) -> bytes:
        kept = self._secrets.find_one({"_id": name})
        if kept is None:
            with suppress(DuplicateKeyError):  # another caller was first
                self._secrets.insert_one({"_id": name, "secret_value": candidate})
            kept = self._secrets.find_one({"_id": name}) or {}
        return bytes(kept["secret_value"])

    @translated
    def catalogue_secrets(self) -> dict[str, bytes]:
        return {document["_id"]: bytes(document["secret_value"]) for document in self._secrets.find({})}


def _document(namespace: Namespace) -> Document:
    document = {
        "_id": namespace.name,
        "num_shards": namespace.num_shards,
        "first_shard": namespace.first_shard,
        "is_dedicated": namespace.dedicated,
        "created_at": namespace.created_at,
        "namespace_revision": namespace.revision,
        "tenant_id": namespace.tenant_id,
        "is_internal": is_internal(namespace.name),
        "namespace_settings": settings_text(namespace.settings),
        "namespace_secrets": secrets_text(namespace.secrets),
    }
    return without_none(document)


def _namespace(document: Document) -> Namespace:
    return read_namespace(document["_id"], lambda: _stored(document), tenant_id=lambda: text(document, "tenant_id"))


def _stored(document: Document) -> StoredNamespace:
    return StoredNamespace(
        num_shards=whole(document, "num_shards"),
        first_shard=whole(document, "first_shard"),
        dedicated=flag(document, "is_dedicated"),
        created_at=instant(document, "created_at"),
        revision=whole(document, "namespace_revision"),
        settings=optional(text, document, "namespace_settings"),
        secrets=optional(text, document, "namespace_secrets"),
        tenant_id=text(document, "tenant_id"),
    )
