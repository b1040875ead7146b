"""API keys: found by their id, listed by their tenant."""

from __future__ import annotations

from pymongo.errors import DuplicateKeyError

from duetime.domain.api_keys import ApiKey
from duetime.stores.key_reading import StoredKey, read_api_key, role_text
from duetime.stores.mongodb.database import API_KEYS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import instant, optional, text, without_none
from duetime.stores.port.pages import Page


class ApiKeys:
    def __init__(self, database: Database) -> None:
        self._collection = database[API_KEYS]

    @translated
    def create_api_key(self, key: ApiKey) -> bool:
        try:
            self._collection.insert_one(_document(key))
        except DuplicateKeyError:
            return False
        return True

    @translated
    def get_api_key(self, key_id: str) -> ApiKey | None:
        document = self._collection.find_one({"_id": key_id})
        return None if document is None else _api_key(document)

    @translated
    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        wanted = {"tenant_id": tenant_id, "_id": {"$gt": cursor or ""}}
        found = read(self._collection, wanted, order=[("_id", 1)], limit=limit + 1)
        items = [_api_key(document) for document in found[:limit]]
        return Page(items, items[-1].key_id if len(found) > limit else None)

    @translated
    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        found = read(self._collection, {"_id": {"$gt": cursor or ""}}, order=[("_id", 1)], limit=limit + 1)
        items = [_api_key(document) for document in found[:limit]]
        return Page(items, items[-1].key_id if len(found) > limit else None)

    @translated
    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        return self._collection.delete_one({"_id": key_id, "tenant_id": tenant_id}).deleted_count == 1


def _document(key: ApiKey) -> Document:
    return without_none(
        {
            "_id": key.key_id,
            "tenant_id": key.tenant_id,
            "key_role": role_text(key),
            "key_name": key.name,
            "key_secret_hash": key.secret_hash,
            "key_created_at": key.created_at,
            "key_expires_at": key.expires_at,
        }
    )


def _api_key(document: Document) -> ApiKey:
    return read_api_key(document["_id"], lambda: _stored(document), tenant_id=lambda: text(document, "tenant_id"))


def _stored(document: Document) -> StoredKey:
    return StoredKey(
        tenant_id=text(document, "tenant_id"),
        role=text(document, "key_role"),
        name=text(document, "key_name"),
        secret_hash=bytes(document["key_secret_hash"]),
        created_at=instant(document, "key_created_at"),
        expires_at=optional(instant, document, "key_expires_at"),
    )
