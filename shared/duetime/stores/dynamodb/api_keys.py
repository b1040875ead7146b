"""API keys in the catalogue partition. A key never changes, so it has two items of the same content: one under its
id, which requests are checked with, and one under its tenant, for lists.
"""

from __future__ import annotations

import time

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import StoreUnavailable
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.catalogue import CATALOGUE_SHARD, read_page, tenant_prefix
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.dynamodb.cursors import write_cursor
from duetime.stores.dynamodb.items import item_key
from duetime.stores.dynamodb.table import Table, back_offs
from duetime.stores.key_reading import StoredKey, read_api_key, role_text
from duetime.stores.port.pages import Page

_API_KEY = "APIKEY#"
_DELETE_TRIES = 5


class ApiKeys:
    _table: Table

    def create_api_key(self, key: ApiKey) -> bool:
        puts = [
            {
                "Put": {
                    "TableName": self._table.name,
                    "Item": {**item, **_attributes(key)},
                    "ConditionExpression": "attribute_not_exists(sortKey)",
                }
            }
            for item in _keys(key.tenant_id, key.key_id)
        ]
        if self._table.transact(puts):
            return True
        if self.get_api_key(key.key_id) is None:
            raise StoreUnavailable("the API key was being changed by another request")
        return False

    def get_api_key(self, key_id: str) -> ApiKey | None:
        item = self._table.get(item_key(CATALOGUE_SHARD, _API_KEY + key_id), consistent=True)
        return None if item is None else _api_key(item)

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        page = read_page(self._table, tenant_prefix(tenant_id, _API_KEY), cursor=cursor, limit=limit)
        keys = [_api_key(item) for item in page.items]
        return Page(keys, write_cursor(keys[-1].key_id) if page.last_key and keys else None)

    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        page = read_page(self._table, _API_KEY, cursor=cursor, limit=limit)
        keys = [_api_key(item) for item in page.items]
        return Page(keys, write_cursor(keys[-1].key_id) if page.last_key and keys else None)

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        """The tenant's item must be there: an id alone, of whichever tenant, deletes nothing."""
        by_id, of_tenant = _keys(tenant_id, key_id)
        deletes = [
            {
                "Delete": {
                    "TableName": self._table.name,
                    "Key": of_tenant,
                    "ConditionExpression": "attribute_exists(sortKey)",
                }
            },
            {"Delete": {"TableName": self._table.name, "Key": by_id}},
        ]
        for back_off in back_offs(_DELETE_TRIES):
            if self._table.transact(deletes):
                return True
            if self._table.get(of_tenant, consistent=True) is None:
                return False
            time.sleep(back_off)
        raise StoreUnavailable("the API key is being changed by another request")


def _keys(tenant_id: str, key_id: str) -> tuple[Item, Item]:
    """Under the id, and under the tenant."""
    return (
        item_key(CATALOGUE_SHARD, _API_KEY + key_id),
        item_key(CATALOGUE_SHARD, tenant_prefix(tenant_id, _API_KEY) + key_id),
    )


def _attributes(key: ApiKey) -> Item:
    attributes: Item = {
        "row_type": text("APIKEY"),
        "key_id": text(key.key_id),
        "key_tenant_id": text(key.tenant_id),
        "key_role": text(role_text(key)),
        "key_secret_hash": {"B": key.secret_hash},
        "key_created_at": text(format_instant(key.created_at)),
    }
    if key.name:
        attributes["key_name"] = text(key.name)
    if key.expires_at is not None:
        attributes["key_expires_at"] = text(format_instant(key.expires_at))
    return attributes


def _api_key(item: Item) -> ApiKey:
    """From either of its items: both sort keys end with its id, which has no ``#``."""
    key_id = item["sortKey"]["S"].rpartition("#")[2]
    return read_api_key(key_id, lambda: _stored(item), tenant_id=lambda: str(item["key_tenant_id"]["S"]))


def _stored(item: Item) -> StoredKey:
    return StoredKey(
        tenant_id=item["key_tenant_id"]["S"],
        role=item["key_role"]["S"],
        name=item["key_name"]["S"] if "key_name" in item else "",
        secret_hash=bytes(item["key_secret_hash"]["B"]),
        created_at=read_instant(item["key_created_at"]["S"]),
        expires_at=read_instant(item["key_expires_at"]["S"]) if "key_expires_at" in item else None,
    )
