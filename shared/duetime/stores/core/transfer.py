"""Everything there is, for another store, and what another store held, stored as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from duetime.domain.api_keys import ApiKey
from duetime.domain.executions import Execution
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import PastOccurrence
from duetime.domain.timers import Timer
from duetime.stores import backend as writes
from duetime.stores.backend import Backend, Query, Write
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.core.catalogue_codec import decode_key, decode_secret
from duetime.stores.core.cursors import cursor_of, place_of, read_page
from duetime.stores.core.deciding import Decision, decide
from duetime.stores.core.event_codec import READ, decode_event, encode_event, shown_key
from duetime.stores.core.execution_codec import decode_or_salvage_execution, encode_execution
from duetime.stores.core.namespace_codec import decode_namespace
from duetime.stores.core.schedules import encode_past
from duetime.stores.core.timer_changes import unchanged
from duetime.stores.core.timer_codec import decode, decode_or_salvage, encode, key_of
from duetime.stores.decoding import UnreadableError, repaired
from duetime.stores.entities import (
    ALL_API_KEYS,
    ALL_EVENTS,
    ALL_NAMESPACES,
    ALL_SECRETS,
    API_KEY,
    EVENT,
    EXECUTION,
    NAMESPACE,
    OCCURRENCE,
    SECRET,
    TIMER,
)
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Row
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.pages import Page
from duetime.stores.port.transfer import EventPage, LoadStatus, UnreadableEvent

T = TypeVar("T")
_MOST_SECRETS = 1000


class TransferStore:
    """These operations read all there is, of all tenants, and they store what another store held exactly as it was:
    every revision, state, time, hash and encrypted secret. Nothing is made anew but what a database allots itself:
    the shards of a dedicated namespace.

    What is loaded is never written over what is there: ``LoadStatus`` tells whether that is the same. So loading the
    same again changes nothing, and a load that was cut short is completed by a repeat.

    The caller makes sure that neither database is served meanwhile. Service calls need no operation of their own:
    ``CallStore.apply`` stores one in any state with ``before`` None.
    """

    def __init__(self, backend: Backend, catalogue: Catalogue) -> None:
        self._backend = backend
        self._catalogue = catalogue

    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        """Of all tenants, internal ones too, in any stable order; each once."""
        return self._all(NAMESPACE, ALL_NAMESPACES, decode_namespace, cursor, limit)

    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """Of all tenants, expired ones too, in any stable order; each once.

        ``Catalogue.create_api_key`` loads one.
        """
        return self._all(API_KEY, ALL_API_KEYS, decode_key, cursor, limit)

    def _all(
        self, entity: Entity, path: AccessPath, decode_row: Callable[[Row], T], cursor: str | None, limit: int
    ) -> Page[T]:
        return read_page(self._backend, Query(entity, path, limit), cursor, decode_row)

    def secrets(self) -> dict[str, bytes | None]:
        """Return all secrets that ``Catalogue.secret`` keeps, by name: a handful. That operation loads one.

        None: the stored secret cannot be read.
        """
        rows = self._backend.scan(Query(SECRET, ALL_SECRETS, limit=_MOST_SECRETS)).rows
        return {repaired(row[0]): None if DAMAGED in row else decode_secret(row) for row in rows}

    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]:
        """Store ``namespace`` as it is, but for ``first_shard``: a dedicated one gets a fresh range.

        The namespace as it is stored now. PRESENT when that is equal to ``namespace`` in all but ``first_shard``. The
        shard map counts its shards, as after ``Catalogue.create_namespace``. Raises what that does when shards run
        out.
        """
        stored, is_new = self._catalogue.store_namespace(namespace)
        if is_new:
            return stored, LoadStatus.LOADED
        is_same = replace(namespace, first_shard=stored.first_shard) == stored
        return stored, LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT

    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]:
        """Store ``timers`` as they are, in any state: due, waiting, parked, finished.

        ``shard_id`` is by the namespace that this store has. PRESENT when the stored timer is equal. An expired timer
        counts as absent. None of ``timers`` has expired.
        """
        inserts = [writes.insert(TIMER, encode(timer)) for timer in timers]
        known = self._not_inserted(inserts, now)

        def judge(place: int, row: Row | None) -> Decision[LoadStatus]:
            timer = timers[known[place]]
            if row is None:
                return Decision(LoadStatus.LOADED, writes.insert(TIMER, encode(timer)))
            if decode_or_salvage(row).is_expired(now):
                stored = writes.known(TIMER, row)
                return Decision(LoadStatus.LOADED, writes.replace(TIMER, encode(timer), unchanged(row), known=stored))
            return Decision(LoadStatus.PRESENT if _is(row, timer) else LoadStatus.CONFLICT)

        keys = [key_of(timers[place]) for place in known]
        statuses = dict(zip(known, decide(self._backend, TIMER, keys, judge, now=now), strict=True))
        return [statuses.get(place, LoadStatus.LOADED) for place in range(len(timers))]

    def _not_inserted(self, inserts: Sequence[Write], now: datetime | None = None) -> list[int]:
        """Return the places of those that are not written, since something is under their key. Raises for a
        refusal."""
        if not inserts:
            return []
        results = self._backend.write(inserts, now=now).results
        for written in results:
            if written.error is not None:
                raise written.error
        return [place for place, written in enumerate(results) if not written.is_written]

    def load_occurrences(self, occurrences: Sequence[PastOccurrence]) -> list[LoadStatus]:
        """Store lines of histories as they are. No two are in each other's place."""
        rows = [encode_past(each) for each in occurrences]
        known = self._not_inserted([writes.insert(OCCURRENCE, row) for row in rows])
        stored = self._backend.read(OCCURRENCE, [OCCURRENCE.key_of(rows[place]) for place in known]) if known else []
        statuses = [LoadStatus.LOADED] * len(rows)
        for place, row in zip(known, stored, strict=True):
            statuses[place] = LoadStatus.PRESENT if row == rows[place] else LoadStatus.CONFLICT
        return statuses

    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]:
        """Store ``executions`` as they are. Their calls are there."""
        known = self._not_inserted([writes.insert(EXECUTION, encode_execution(each)) for each in executions])
        keys = [(each.tenant_id, each.call_id, each.execution_id) for each in (executions[place] for place in known)]
        rows = self._backend.read(EXECUTION, keys) if keys else []
        statuses = [LoadStatus.LOADED] * len(executions)
        for place, row in zip(known, rows, strict=True):
            # None: its number is that of another one.
            is_same = row is not None and decode_or_salvage_execution(row) == executions[place]
            statuses[place] = LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
        return statuses

    def all_events(self, *, cursor: str | None, limit: int) -> EventPage:
        """Every stored event, published or not, of all tenants, removed calls' too.

        Those of one call stand together, in order of ``sequence``. What cannot be decoded is in ``unreadable`` and
        hides nothing. A page has about ``limit``.
        """
        after = None if cursor is None else place_of(cursor, EVENT, ALL_EVENTS)
        scan = self._backend.scan(Query(EVENT, ALL_EVENTS, fields=READ, after=after, limit=limit))
        events: list[OutboxEvent] = []
        unreadable: list[UnreadableEvent] = []
        for row in scan.rows:
            try:
                events.append(decode_event(row))
            except UnreadableError as error:
                unreadable.append(UnreadableEvent(*shown_key(row), str(error)))
        return EventPage(events, None if scan.end is None else cursor_of(scan.end), tuple(unreadable))

    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]:
        """Store ``events`` with their ``published_at``. Those of one call are in order, and one call's are loaded
        before the next one's.

        Unpublished ones are then handed out by ``Outbox.unpublished``. Published ones are kept as long as any from
        then on; a store that removes them by a time to live counts it from ``now``.
        """
        inserts = [writes.insert(EVENT, encode_event(each.event, published_at=each.published_at)) for each in events]
        known = self._not_inserted(inserts, now)
        rows = self._backend.read(EVENT, [inserts[place].key for place in known], fields=READ) if known else []
        statuses = [LoadStatus.LOADED] * len(events)
        for place, row in zip(known, rows, strict=True):
            is_same = row is not None and _is_event(row, events[place])
            statuses[place] = LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
        return statuses


def _is(row: Row, timer: Timer) -> bool:
    try:
        return decode(row) == timer
    except UnreadableError:
        return False


def _is_event(row: Row, wanted: OutboxEvent) -> bool:
    try:
        stored = decode_event(row)
    except UnreadableError:
        return False
    return (stored.event, stored.published_at) == (wanted.event, wanted.published_at)
