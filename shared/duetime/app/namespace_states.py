"""Namespaces that are paused, resumed, resharded and deleted, for the API and the command line alike.

Pollers and other API processes know of a namespace what it was up to ``NAMESPACE_SECONDS`` ago. So a pause takes that
long, and a deletion ends only when nobody can still be creating timers: ``DELETION_SETTLED`` after it began.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from duetime.app.namespaces import NamespaceAccess, check_revision, kept, with_settings
from duetime.app.revisions import Revisions
from duetime.domain.errors import NamespaceConflict, NamespaceNotEmpty, StoreUnavailable
from duetime.domain.namespaces import (
    DELETION_SETTLED,
    MAX_EARLIER_SHARDS,
    RESHARD_AFTER,
    Namespace,
    NamespaceState,
    Pause,
)
from duetime.domain.times import format_instant
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, TimerFilter, TimerRef

log = logging.getLogger(__name__)

_TRIES = 5
_PAGE = 500
_PAGES_AT_ONCE = 10
_EVERYTHING = TimerFilter()


@dataclass(frozen=True, slots=True)
class Deletion:
    """One step of a deletion: how many timers it removed, and whether the namespace is gone."""

    removed: int
    is_done: bool
    wait_seconds: int = 0
    """Before the next step can do anything."""


def paused(access: NamespaceAccess, name: str, *, reason: str | None, wanted: Revisions | None = None) -> Namespace:
    """Pause a namespace: nothing of it is fired from now on. One that is paused stays as it is, with its reason.

    Raises ``NamespaceNotFound`` and ``NamespaceDeleting``.
    """

    def change(namespace: Namespace) -> Namespace:
        check_revision(namespace, wanted)
        is_paused = kept(namespace).settings.pause is not None
        return namespace if is_paused else with_settings(namespace, pause=Pause(access.now, reason))

    return _logged({"action": "namespace.paused"}, access.change(name, change), access)


def resumed(access: NamespaceAccess, name: str, *, wanted: Revisions | None = None) -> Namespace:
    """Resume a namespace: its timers are fired again, and its ``misfire`` says what becomes of the late ones.

    Raises ``NamespaceNotFound`` and ``NamespaceDeleting``.
    """

    def change(namespace: Namespace) -> Namespace:
        check_revision(namespace, wanted)
        is_paused = kept(namespace).settings.pause is not None
        return with_settings(namespace, pause=None, resumed_at=access.now) if is_paused else namespace

    return _logged({"action": "namespace.resumed"}, access.change(name, change), access)


def resharded(access: NamespaceAccess, name: str, num_shards: int, *, wanted: Revisions | None = None) -> Namespace:
    """Give a namespace another number of shards: new timers go there after ``RESHARD_AFTER``. The others stay.

    One that has so many is left as it is. Raises ``NamespaceNotFound``, ``NamespaceDeleting``, ``RevisionMismatch``,
    ``InvalidInput`` when no dedicated shards are left, and ``NamespaceConflict`` before the switch of an earlier
    reshard, and after ``MAX_EARLIER_SHARDS``.
    """
    now = access.now
    for _ in range(_TRIES):
        namespace = kept(access.found(name))
        check_revision(namespace, wanted)
        if namespace.num_shards == num_shards:
            return namespace
        if namespace.is_resharding(now):
            at = format_instant(namespace.earlier_shards[-1].until)
            raise NamespaceConflict(f"namespace {name!r} goes over to {namespace.num_shards} shards at {at}")
        if len(namespace.earlier_shards) == MAX_EARLIER_SHARDS:
            raise NamespaceConflict(f"namespace {name!r} was resharded {MAX_EARLIER_SHARDS} times, which is the most")
        until = now + RESHARD_AFTER
        stored = access.store.catalogue.reshard_namespace(namespace, num_shards=num_shards, until=until, now=now)
        if stored is not None:
            return _logged({"action": "namespace.resharded"}, stored, access)
    raise StoreUnavailable(f"namespace {name!r} is being changed all the time")


def delete_some(access: NamespaceAccess, name: str, *, is_forced: bool, wanted: Revisions | None = None) -> Deletion:
    """Take one bounded step towards the end of a namespace, to be repeated until it ``is_done``.

    The first step marks it, so that nothing is fired and nothing created any more; the steps remove its timers and at
    last itself. Whoever dies on the way, the next one goes on. Without ``is_forced`` a namespace with timers keeps
    them, and is not deleted: a deletion that had begun is given up.

    Raises ``NamespaceNotFound``, also when it is gone already, and ``NamespaceNotEmpty``.
    """
    store, now = access.store, access.now
    namespace = access.found(name)
    if namespace.state is not NamespaceState.DELETING:
        check_revision(namespace, wanted)  # what it is while it is being deleted is for nobody to keep up with
    if not is_forced and _has_timers(store, namespace, now):
        access.change(name, lambda found: with_settings(found, deleting_since=None))
        raise NamespaceNotEmpty(name)
    if namespace.state is not NamespaceState.DELETING:
        namespace = access.change(name, lambda found: with_settings(found, deleting_since=now))
        _logged({"action": "namespace.deleting"}, namespace, access)
    removed, is_empty = _remove_timers(store, namespace, now)
    if removed:
        log.info(
            "timers of a namespace that is being deleted were removed",
            extra={"action": "namespace.timers_removed", "namespace": name, "timers": removed},
        )
    if not is_empty:
        return Deletion(removed, is_done=False)
    assert namespace.settings.deleting_since is not None
    left = namespace.settings.deleting_since + DELETION_SETTLED - now
    if left > timedelta(0):
        return Deletion(removed, is_done=False, wait_seconds=max(1, round(left.total_seconds())))
    is_done = store.catalogue.delete_namespace(name, if_revision=namespace.revision)
    if is_done:
        _logged({"action": "namespace.deleted"}, namespace, access)
    return Deletion(removed, is_done)


def _logged(event: dict[str, str], namespace: Namespace, access: NamespaceAccess) -> Namespace:
    key_id = None if access.principal is None else access.principal.key_id
    facts = {"namespace": namespace.name, "revision": namespace.revision, "key_id": key_id}
    log.info("a namespace was changed", extra=event | facts)
    return namespace


def _has_timers(store: Store, namespace: Namespace, now: datetime) -> bool:
    cursor: str | None = None
    while True:
        page = store.timers.list(namespace, _EVERYTHING, cursor=cursor, limit=1, now=now)
        if page.items or page.next_cursor is None:
            return bool(page.items)
        cursor = page.next_cursor


def _remove_timers(store: Store, namespace: Namespace, now: datetime) -> tuple[int, bool]:
    """Remove the timers of a bounded number of pages; return how many went, and whether no timer is left."""
    removed, cursor = 0, None
    for _ in range(_PAGES_AT_ONCE):
        page = store.timers.list(namespace, _EVERYTHING, cursor=cursor, limit=_PAGE, now=now)
        results = store.timers.delete(namespace, [TimerRef(timer.timer_id) for timer in page.items], now=now)
        # One whose id is damaged in the store has no name to remove it by: it expires.
        removed += sum(result.status is ChangeStatus.APPLIED for result in results)
        cursor = page.next_cursor
        if cursor is None:
            return removed, removed == 0
    return removed, False
