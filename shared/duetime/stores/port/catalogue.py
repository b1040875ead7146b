"""The part of the store port with namespaces, secrets, API keys and idempotency records."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from duetime.domain.api_keys import ApiKey
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import ShardMap
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.stores.port.pages import Page


class Catalogue(Protocol):
    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        """The namespace and whether this call made it. Idempotent.

        Shared namespaces have ``first_shard`` 0; a dedicated one gets a range of its own that never overlaps
        another. ``name`` may be internal (``domain.tenants.internal_namespace``). Raises ``NamespaceConflict`` when
        it exists with another ``num_shards`` or ``dedicated``, or belongs to another tenant: that error tells
        nothing more of it.
        """
        ...

    def get_namespace(self, name: str) -> Namespace | None:
        """Of any tenant, internal ones too: it is for the caller to judge who may see it."""
        ...

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        """In order of name, without internal ones: those of a tenant, found by its key; None: of all tenants."""
        ...

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:
        """Store the ``settings`` and ``secrets`` of ``namespace`` if its stored revision is ``if_revision``.

        The namespace as it is stored now, with the next revision; None when another change came first or there is
        no such namespace. What never changes stays as it is stored, whatever ``namespace`` says.
        """
        ...

    def reshard_namespace(
        self, namespace: Namespace, *, num_shards: int, until: datetime, now: datetime
    ) -> Namespace | None:
        """Give a namespace other shards, to which new timers go from ``until`` on, if its stored revision is
        ``namespace.revision``. A dedicated one gets a range that is fresh.

        The namespace as it is stored now, with the next revision; None as ``update_namespace``. Raises
        ``InvalidInput`` when no dedicated shards are left.
        """
        ...

    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        """Remove a namespace, not its timers, if its stored revision is ``if_revision``. True when it is gone, also
        when there was none. Its shards stay: others may have timers there, and a dedicated range is given to no
        other."""
        ...

    def shard_map(self) -> ShardMap:
        """Which shards exist now. One cheap read: pollers ask every second."""
        ...

    def secret(self, name: str, candidate: bytes) -> bytes:
        """The secret kept under ``name``; the first caller's ``candidate`` becomes it. For all processes alike."""
        ...

    def create_api_key(self, key: ApiKey) -> bool:
        """Store a new key; False when its id is taken, by whichever tenant, and nothing was stored."""
        ...

    def get_api_key(self, key_id: str) -> ApiKey | None:
        """Strongly consistent. Expired keys too."""
        ...

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """In order of id, found by the tenant's key. Expired keys too."""
        ...

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        """False when the tenant has no such key."""
        ...

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        """Store ``record``, atomically, where none is under its key, or one that yields to it.

        ``IdempotencyRecord.yields_to``: one that has expired, or that was written by the same claim or by
        ``if_claim``. What is stored under the key then: ``record``, or the one in the way. Removed some time after
        it has expired, in SQL by ``TimerStore.prune``.
        """
        ...
