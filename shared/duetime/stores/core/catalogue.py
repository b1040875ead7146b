"""Namespaces and the shard map, API keys, idempotency records, and the secrets that all processes share."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import InvalidInput, StoreUnavailable
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.namespaces import EarlierShards, Namespace
from duetime.domain.shards import MAX_DEDICATED_SHARD, MAX_SHARED_SHARDS, ShardMap
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.stores import backend as writes
from duetime.stores.backend import Backend, Condition, Query, Write, rounds
from duetime.stores.core.catalogue_codec import (
    decode_counter,
    decode_key,
    decode_record,
    decode_secret,
    encode_key,
    encode_record,
    is_over,
)
from duetime.stores.core.cursors import read_page
from duetime.stores.core.deciding import Decision, decide
from duetime.stores.core.instants import instant
from duetime.stores.core.namespace_codec import (
    agreed,
    decode_namespace,
    earlier_text,
    encode_namespace,
    encode_new_namespace,
    secrets_text,
    settings_text,
)
from duetime.stores.entities import (
    API_KEY,
    API_KEYS_OF_TENANT,
    COUNTER,
    IDEMPOTENCY_RECORD,
    LISTED_NAMESPACES,
    NAMESPACE,
    OF_TENANT,
    SECRET,
)
from duetime.stores.entity import Row, Value
from duetime.stores.port.pages import Page

SHARED_SHARDS = "shared_shards"
DEDICATED_END = "dedicated_end"


class Catalogue:
    """Both ends of the shard map are counters, so that pollers need not look through the namespaces."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    # -- namespaces ------------------------------------------------------------------------------------------

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        """Return the namespace and whether this call made it. Idempotent.

        Shared namespaces have ``first_shard`` 0; a dedicated one gets a range of its own that never overlaps
        another. ``name`` may be internal (``domain.tenants.internal_namespace``). Raises ``NamespaceConflict`` when
        it exists with another ``num_shards`` or ``dedicated``, or belongs to another tenant: that error tells
        nothing more of it.
        """
        new = Namespace(name, num_shards, 0, dedicated, now, tenant_id=tenant_id)
        namespace, is_new = self.store_namespace(new, made_at=now)
        if is_new:
            return namespace, True
        return agreed(namespace, num_shards=num_shards, dedicated=dedicated, tenant_id=tenant_id), False

    def store_namespace(self, new: Namespace, *, made_at: datetime | None = None) -> tuple[Namespace, bool]:
        """Return the namespace that is there, or ``new`` stored with the shards that the shard map gives it; and
        whether it is new.

        ``made_at``: the caller's time, for one that is created with this write; None: it comes from another store.
        """
        for _ in rounds():
            (stored,) = self._backend.read(NAMESPACE, [(new.name,)])
            if stored is not None:
                return decode_namespace(stored), False
            first, counter = self._take_shards(new.num_shards, is_dedicated=new.dedicated)
            namespace = replace(new, first_shard=first)
            row = encode_namespace(namespace) if made_at is None else encode_new_namespace(namespace)
            batch = self._backend.atomic([[writes.insert(NAMESPACE, row), *counter]], now=made_at)
            (written,) = batch.checked()
            if written.is_written:
                if made_at is not None and batch.at_ms is not None:
                    namespace = replace(namespace, created_at=instant(batch.at_ms))
                return namespace, True
        raise StoreUnavailable("other writers created namespaces again and again")

    def _take_shards(self, num_shards: int, *, is_dedicated: bool) -> tuple[int, list[Write]]:
        """Return the first shard of a namespace, and the change of the shard map that is made with it."""
        name = DEDICATED_END if is_dedicated else SHARED_SHARDS
        (row,) = self._backend.read(COUNTER, [(name,)])
        value = _START[name] if row is None else decode_counter(row)
        first = value if is_dedicated else 0
        end = first + num_shards if is_dedicated else max(value, num_shards)
        if is_dedicated and end - 1 > MAX_DEDICATED_SHARD:
            raise InvalidInput("dedicated", f"only {MAX_DEDICATED_SHARD + 1 - first} dedicated shards are left")
        if row is None:
            return first, [writes.insert(COUNTER, (name, end))]
        if end == value:
            return first, []
        return first, [writes.update(COUNTER, (name,), {"counter_value": end}, Condition("counter_value", value))]

    def get_namespace(self, name: str) -> Namespace | None:
        """Of any tenant, internal ones too: it is for the caller to judge who may see it."""
        (row,) = self._backend.read(NAMESPACE, [(name,)])
        return None if row is None else decode_namespace(row)

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        """In order of name, without internal ones: those of a tenant, found by its key; None: of all tenants."""
        query = Query(NAMESPACE, LISTED_NAMESPACES, limit, by=(False,))
        if tenant_id is not None:
            query = Query(NAMESPACE, OF_TENANT, limit, by=(tenant_id, False))
        return read_page(self._backend, query, cursor, decode_namespace)

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:
        """Store the ``settings`` and ``secrets`` of ``namespace`` if its stored revision is ``if_revision``.

        The namespace as it is stored now, with the next revision; None when another change came first or there is
        no such namespace. What never changes stays as it is stored, whatever ``namespace`` says.
        """
        (row,) = self._backend.read(NAMESPACE, [(namespace.name,)])
        if row is None or row[NAMESPACE.places["namespace_revision"]] != if_revision:
            return None
        changes = {
            "namespace_settings": settings_text(namespace.settings),
            "namespace_secrets": secrets_text(namespace.secrets),
            "namespace_revision": if_revision + 1,
        }
        is_same = Condition("namespace_revision", if_revision)
        update = writes.update(NAMESPACE, row[:1], changes, is_same, known=writes.known(NAMESPACE, row))
        (written,) = self._backend.write([update], now=now).checked()
        return _changed(row, changes) if written.is_written else None

    def reshard_namespace(
        self, namespace: Namespace, *, num_shards: int, until: datetime, now: datetime
    ) -> Namespace | None:
        """Give a namespace other shards, to which new timers go from ``until`` on, if its stored revision is
        ``namespace.revision``. A dedicated one gets a range that is fresh.

        The namespace as it is stored now, with the next revision; None as ``update_namespace``. Raises
        ``InvalidInput`` when no dedicated shards are left.
        """
        for _ in rounds():
            (row,) = self._backend.read(NAMESPACE, [(namespace.name,)])
            if row is None or row[NAMESPACE.places["namespace_revision"]] != namespace.revision:
                return None
            stored = decode_namespace(row)
            first, counter = self._take_shards(num_shards, is_dedicated=stored.dedicated)
            earlier = EarlierShards(stored.num_shards, stored.first_shard, until)
            changes = {
                "num_shards": num_shards,
                "first_shard": first,
                "earlier_shards": earlier_text((*stored.earlier_shards, earlier)),
                "namespace_revision": namespace.revision + 1,
            }
            is_same = Condition("namespace_revision", namespace.revision)
            update = writes.update(NAMESPACE, row[:1], changes, is_same, known=writes.known(NAMESPACE, row))
            (written,) = self._backend.atomic([[update, *counter]], now=now).checked()
            if written.is_written:
                return _changed(row, changes)
        raise StoreUnavailable("other writers change the namespaces again and again")

    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        """Remove a namespace, not its timers, if its stored revision is ``if_revision``. True when it is gone, also
        when there was none. Its shards stay: others may have timers there, and a dedicated range is given to no
        other."""
        removal = writes.delete(NAMESPACE, (name,), Condition("namespace_revision", if_revision))
        (written,) = self._backend.write([removal]).results
        return written.is_written or self._backend.read(NAMESPACE, [(name,)]) == [None]

    def shard_map(self) -> ShardMap:
        """Return which shards exist now. One cheap read: pollers ask every second."""
        rows = self._backend.read(COUNTER, [(name,) for name in _START])
        values = [
            start if row is None else decode_counter(row) for start, row in zip(_START.values(), rows, strict=True)
        ]
        return ShardMap(*values)

    def secret(self, name: str, candidate: bytes) -> bytes:
        """Return the secret kept under ``name``; the first caller's ``candidate`` becomes it. For all processes
        alike."""
        for _ in rounds():
            (row,) = self._backend.read(SECRET, [(name,)])
            if row is not None:
                return decode_secret(row)
            self._backend.write([writes.insert(SECRET, (name, candidate))])
        raise StoreUnavailable("the secret is made and removed again and again")

    # -- API keys --------------------------------------------------------------------------------------------

    def create_api_key(self, key: ApiKey) -> bool:
        """Store a new key; False when its id is taken, by whichever tenant, and nothing was stored."""
        return self._backend.write([writes.insert(API_KEY, encode_key(key))]).checked()[0].is_written

    def get_api_key(self, key_id: str) -> ApiKey | None:
        """Strongly consistent. Expired keys too."""
        (row,) = self._backend.read(API_KEY, [(key_id,)])
        return None if row is None else decode_key(row)

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """In order of id, found by the tenant's key. Expired keys too."""
        query = Query(API_KEY, API_KEYS_OF_TENANT, limit, by=(tenant_id,))
        return read_page(self._backend, query, cursor, decode_key)

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        """Delete a key; return False when the tenant has no such key."""
        removal = writes.delete(API_KEY, (key_id,), Condition("tenant_id", tenant_id))
        return self._backend.write([removal]).results[0].is_written

    # -- idempotency keys ------------------------------------------------------------------------------------

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        """Store ``record``, atomically, where none is under its key, or one that yields to it.

        ``IdempotencyRecord.yields_to``: one that has expired, or that was written by the same claim or by
        ``if_claim``. What is stored under the key then: ``record``, or the one in the way. Removed some time after
        it has expired, in SQL by ``TimerStore.prune``.
        """
        new = encode_record(record)

        def judge(_: int, row: Row | None) -> Decision[IdempotencyRecord]:
            if row is None:
                return Decision(record, writes.insert(IDEMPOTENCY_RECORD, new))
            if not is_over(row, now):
                stored = decode_record(row)
                if not stored.yields_to(record, if_claim, now):
                    return Decision(stored)
            is_same = [Condition(name, row[IDEMPOTENCY_RECORD.places[name]]) for name in _CLAIM]
            known = writes.known(IDEMPOTENCY_RECORD, row)
            return Decision(record, writes.replace(IDEMPOTENCY_RECORD, new, *is_same, known=known))

        if if_claim is None:  # the usual case is that the key is new
            (written,) = self._backend.write([writes.insert(IDEMPOTENCY_RECORD, new)], now=now).checked()
            if written.is_written:
                return record
        (found,) = decide(self._backend, IDEMPOTENCY_RECORD, [(record.key,)], judge, now=now)
        return found


def _changed(row: Row, changes: dict[str, Value]) -> Namespace:
    """Return what was read with what was written: another update may have followed."""
    return decode_namespace(tuple((dict(zip(NAMESPACE.names, row, strict=True)) | changes).values()))


_START = {SHARED_SHARDS: 0, DEDICATED_END: MAX_SHARED_SHARDS}
"""The counters, and what they begin with."""
_CLAIM = ("record_claim_id", "record_expires_at")
