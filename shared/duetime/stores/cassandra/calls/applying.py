"""Transitions are stored: first the entries that lead to the call, then the call, then old entries go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreUnavailable
from duetime.domain.shards import Lease
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.documents import event_position
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.keys import Keys
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.cassandra.calls.places import Place, outbox_place, places_of
from duetime.stores.cassandra.requests import Unsettled
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.stores.side_by_side import Workers

_TRIES: Final = 6
LostLeases = Callable[[Iterable[Lease | None]], set[Lease | None]]
"""Those leases that are not the stored ones."""


class Applying:
    _partitions: Partitions
    _index: Index
    _keys: Keys
    _attempts: Attempts
    _workers: Workers
    _lost_leases: LostLeases

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        # No transaction spans a shard's row and a call's partition: the revision is the fence. Looking at the leases
        # first only saves a worker that has lost a shard from changing what the new owner is about to.
        lost = self._lost_leases(each.fence for each in transitions)

        def apply_one(transition: Transition) -> ApplyStatus:
            if transition.fence in lost:
                return ApplyStatus.LEASE_LOST
            return self._apply_one(transition, now)

        return self._workers.map(apply_one, transitions)

    def _apply_one(self, transition: Transition, now: datetime) -> ApplyStatus:
        before, after = transition.before, transition.after
        ref = CallRef(after.tenant_id, after.call_id)
        key = after.idempotency_key if before is None else None
        added, removed = _difference(transition)
        attempt = self._attempts.next()
        barred: str | None = None
        written: list[Entry] = []
        attempts = set[str]()
        is_unsettled = False
        for _ in range(_TRIES):
            if key is not None and not self._keys.claim(ref, key, attempt=attempt, now=now):
                self._forget(written)
                return ApplyStatus.EXISTS
            entries = [Entry(place, *_of(ref), after.revision, attempt) for place in added]
            self._index.put(entries)
            written += entries
            attempts.add(attempt)
            try:
                if self._partitions.change(transition, attempt=attempt, barred=barred):
                    self._clean_up(transition, removed)
                    return ApplyStatus.APPLIED
            except Unsettled:
                is_unsettled = True
            stored = self._partitions.read_state(ref, is_serial=True)
            if _is_decided(transition, stored):
                is_mine = stored.revision == after.revision and stored.attempt in attempts
                if is_mine or (is_unsettled and self._has_events(transition)):
                    self._clean_up(transition, removed)
                    return ApplyStatus.APPLIED
                self._forget(written)
                return ApplyStatus.EXISTS if before is None else ApplyStatus.SUPERSEDED
            if stored.barred is not None and stored.barred != barred:
                barred = stored.barred
                if stored.barred >= attempt or before is None:
                    attempt = self._attempts.next(above=stored.barred)
        raise StoreUnavailable("the service call is being changed too often")

    def _has_events(self, transition: Transition) -> bool:
        """The change was made and its answer was lost; others have changed the call since."""
        if not transition.events:
            return False
        event = transition.events[-1]
        ref = CallRef(event.tenant_id, event.aggregate_id)
        return self._partitions.has_event(ref, event_position(event.sequence), event.event_id)

    def _forget(self, written: Sequence[Entry]) -> None:
        """Entries of a change that will never be made; what fails here, readers make good."""
        with suppress(StoreUnavailable):
            self._index.remove(written)

    def _clean_up(self, transition: Transition, removed: frozenset[Place]) -> None:
        """What fails here, readers make good: the change is stored."""
        before, after = transition.before, transition.after
        if before is None or not removed:
            return
        with suppress(StoreUnavailable):
            self._index.remove_until(
                removed, tenant_id=after.tenant_id, call_id=after.call_id, revision=before.revision
            )


def _difference(transition: Transition) -> tuple[list[Place], frozenset[Place]]:
    """The places that the change leads to, and those that it leaves. Every change with events goes to the outbox."""
    before, after = transition.before, transition.after
    old = frozenset() if before is None else places_of(before)
    new = places_of(after)
    added = sorted(new - old)
    if transition.events:
        added.append(outbox_place(after.tenant_id))
    return added, old - new


def _is_decided(transition: Transition, stored: Stored) -> bool:
    """Nothing can make this transition's change any more."""
    before = transition.before
    return stored.revision != (None if before is None else before.revision)


def _of(ref: CallRef) -> tuple[str, str]:
    return ref.tenant_id, ref.call_id
