"""The entries of one partition of ``catalogue``: by name, and those of a tenant in a list of its own."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from duetime.stores.cassandra.requests import Requests, Row, Statement

NAMED: Final = 1
INTERNAL: Final = 2
"""Named as well; in no list."""
OF_TENANT: Final = 3
"""A copy of a NAMED one, in the list of its tenant."""
SHARDS: Final = 4
"""Which shards namespaces have taken."""
MOST_AT_ONCE: Final = 1000

_COLUMNS = "tenant_id, entry_name, entry_body, entry_bytes, write_id"
_KEY = "catalogue_part = ? AND row_kind = ? AND tenant_id = ? AND entry_name = ?"
_FIND = f"SELECT {_COLUMNS} FROM catalogue WHERE {_KEY}"
_READ = (
    f"SELECT {_COLUMNS} FROM catalogue WHERE catalogue_part = ? AND row_kind = ? AND tenant_id = ? "
    "AND entry_name > ? LIMIT ?"
)
_PUT = f"UPDATE catalogue SET entry_body = ?, write_id = ? WHERE {_KEY} IF write_id = ?"
_PUT_OF_TENANT = f"UPDATE catalogue SET entry_body = ? WHERE {_KEY}"
_KEEP = f"UPDATE catalogue SET entry_bytes = ?, write_id = ? WHERE {_KEY} IF write_id = ?"
_REMOVE = f"DELETE FROM catalogue WHERE {_KEY}"


class Entries:
    def __init__(self, requests: Requests, part: str) -> None:
        self._requests = requests
        self._part = part

    def find(self, kind: int, name: str, *, is_serial: bool = False) -> Row | None:
        rows = self._requests.read(Statement(_FIND, (self._part, kind, "", name)), is_serial=is_serial)
        return rows[0] if rows else None

    def read(self, kind: int, tenant_id: str, *, after: str, limit: int) -> list[Row]:
        """In order of name."""
        return self._requests.read(Statement(_READ, (self._part, kind, tenant_id, after, limit)))

    def put(self, kind: int, name: str, body: str, *, write_id: UUID, if_write_id: UUID | None) -> Statement:
        """If the stored entry was written by ``if_write_id`` (None: if there is none)."""
        return Statement(_PUT, (body, write_id, self._part, kind, "", name, if_write_id))

    def put_of_tenant(self, tenant_id: str, name: str, body: str) -> Statement:
        """Goes with the ``put`` of the same entry."""
        return Statement(_PUT_OF_TENANT, (body, self._part, OF_TENANT, tenant_id, name))

    def keep_bytes(self, name: str, value: bytes, *, write_id: UUID) -> Statement:
        """If there is none yet."""
        return Statement(_KEEP, (value, write_id, self._part, NAMED, "", name, None))

    def remove(self, name: str, *, if_write_id: UUID) -> Statement:
        return Statement(f"{_REMOVE} IF write_id = ?", (self._part, NAMED, "", name, if_write_id))

    def remove_of_tenant(self, tenant_id: str, name: str) -> Statement:
        """Goes with the ``remove`` of the same entry."""
        return Statement(_REMOVE, (self._part, OF_TENANT, tenant_id, name))
