"""Steps that many contract tests take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.stores.core.store import Store
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import PutMode, PutStatus
from duetime.testing.contract.builders import NOW, fired, leased

T = TypeVar("T")


def claim_shard(
    store: Store, shard_id: int, owner_id: str, *, lease_seconds: float, now: datetime, metadata: str = "{}"
) -> Lease | None:
    """Claim a lease; None when somebody else has one."""
    (lease,) = store.leases.claim([shard_id], owner_id, lease_seconds=lease_seconds, metadata=metadata, now=now)
    return lease


def create(store: Store, *timers: Timer, now: datetime = NOW) -> list[Timer]:
    """Store new timers and hand them back."""
    results = store.timers.put(timers, mode=PutMode.CREATE, now=now)
    assert [result.status for result in results] == [PutStatus.CREATED] * len(timers)
    return list(timers)


def stored(store: Store, namespace: Namespace, timer_id: str = "t1", *, now: datetime = NOW) -> Timer:
    """Return the timer, which must be there."""
    timer = store.timers.get(namespace, timer_id, now=now)
    assert timer is not None
    return timer


def due(store: Store, namespace: Namespace, *, until: datetime = NOW) -> list[Timer]:
    """Return all due timers of the namespace's shards; few enough for one page each."""
    pages = [store.timers.due(shard_id, until=until, limit=100) for shard_id in namespace.shard_ids()]
    assert all(page.cursor is None for page in pages)
    return [timer for page in pages for timer in page.timers]


def claim(store: Store, shard_id: int = 0, owner_id: str = "w1", *, now: datetime = NOW) -> Lease:
    """Claim a lease for ten seconds, which must be free to take."""
    lease = claim_shard(store, shard_id, owner_id, lease_seconds=10, now=now)
    assert lease is not None
    return lease


def record(store: Store, outcomes: Sequence[Outcome], *leases: Lease, now: datetime = NOW) -> list[RecordStatus]:
    return store.timers.record(leased(outcomes, *leases), now=now)


def record_fired(store: Store, namespace: Namespace, *, now: datetime = NOW) -> None:
    """Fire and record all that is due in the namespace."""
    for shard_id in namespace.shard_ids():
        lease = claim(store, shard_id, now=now)
        timers = store.timers.due(shard_id, until=now, limit=100).timers
        statuses = record(store, [fired(timer, at=now) for timer in timers], lease, now=now)
        assert statuses == [RecordStatus.APPLIED] * len(timers)
        store.leases.release([lease], now=now)


def read_all(read_page: Callable[[str | None], Page[T]], *, max_pages: int = 1000) -> list[T]:
    """Read the items of all pages."""
    items: list[T] = []
    cursor: str | None = None
    for _ in range(max_pages):
        page = read_page(cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items
    raise AssertionError(f"more than {max_pages} pages")


# -- what cannot be read -----------------------------------------------------------------------------------------

_DAMAGE: Any = "many"


class LaterRole(StrEnum):
    """Of a version to come."""

    OPERATOR = "operator"


def make_unreadable(store: Store, namespace: Namespace) -> Namespace:
    """Damage the settings of ``namespace``, through the port, which writes what it is given."""
    settings = NamespaceSettings(max_in_flight=_DAMAGE)
    assert store.catalogue.update_namespace(
        replace(namespace, settings=settings), if_revision=namespace.revision, now=NOW
    )
    stored_namespace = store.catalogue.get_namespace(namespace.name)
    assert stored_namespace is not None
    return stored_namespace


def unreadable_namespace(store: Store, name: str, *, num_shards: int = 4) -> Namespace:
    namespace, _ = store.catalogue.create_namespace(name, num_shards=num_shards, dedicated=False, now=NOW)
    return make_unreadable(store, namespace)


def key_of_later_role(key_id: str, tenant_id: str, *, secret: str) -> ApiKey:
    """Return a key as a newer version would store it."""
    role: Any = LaterRole.OPERATOR
    return ApiKey(key_id=key_id, tenant_id=tenant_id, role=role, secret_hash=hash_of(secret), created_at=NOW)
