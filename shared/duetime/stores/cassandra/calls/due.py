"""The timers of calls that are due: along a shard's entries, each judged by its call."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Final

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Timer
from duetime.domain.times import from_milliseconds
from duetime.stores.cassandra.calls import codec, places
from duetime.stores.cassandra.calls.index import Entry, Index, Look
from duetime.stores.cassandra.calls.janitor import Janitor, fits
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.port.calls import CallRef
from duetime.stores.port.timers import DuePage

logger = logging.getLogger(__name__)

_CHUNK: Final = 100
_MOST_CHUNKS: Final = 20
_MAX_REPORTED: Final = 1000


class DueCalls:
    """What ``Store.due_timers`` finds of service calls. A call's timer has no row of its own: its call tells it."""

    def __init__(self, partitions: Partitions, index: Index, janitor: Janitor) -> None:
        self._partitions = partitions
        self._index = index
        self._janitor = janitor
        self._reported: set[CallRef] = set()

    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
    ) -> DuePage:
        after: tuple[str, ...] = ()
        if cursor is not None:
            after = _read_cursor(cursor)
        elif since is not None:
            after = (places.sort_before(since),)
        last_sort = places.instant_sort(until)
        bound = None if known_next is None else places.sort_before(known_next)
        beyond = Look(places.DUE, (shard_id,), (last_sort,), bound, 1)
        timers: list[Timer] = []
        for _ in range(_MOST_CHUNKS):
            wanted = min(_CHUNK, limit + 1 - len(timers))
            entries, later = self._index.read_each([Look(places.DUE, (shard_id,), after, last_sort, wanted), beyond])
            for entry, timer in self._judged(entries):
                if len(timers) == limit:
                    return DuePage(timers, cursor=json.dumps(after))
                if timer is not None:
                    timers.append(timer)
                after = (entry.place.sort, entry.tenant_id, entry.call_id)
            if len(entries) < wanted:
                # An entry that is wrong makes it too early, which costs a look.
                next_ms = places.instant_of_sort(later[0].place.sort) if later else None
                return DuePage(timers, next_attempt_at=known_next if next_ms is None else from_milliseconds(next_ms))
        return DuePage(timers, cursor=json.dumps(after))

    def get_timer(self, ref: CallRef, *, now: datetime) -> Timer | None:
        stored = self._partitions.read_state(ref)
        return self._timer(stored) if stored.is_there(now) else None

    def _judged(self, entries: list[Entry]) -> list[tuple[Entry, Timer | None]]:
        """Each place once. What is not there yet, or was never, is asked for again behind every open change."""
        read = self._partitions.read_timers(CallRef(entry.tenant_id, entry.call_id) for entry in entries)
        for entry in entries:
            stored = read[CallRef(entry.tenant_id, entry.call_id)]
            if stored.revision is None or stored.revision < entry.revision:
                read[stored.ref] = self._partitions.read_state(stored.ref, is_serial=True)
        wrong: list[tuple[Entry, Stored]] = []
        found: dict[tuple[str, CallRef], tuple[Entry, Timer | None]] = {}
        for entry in entries:
            ref = CallRef(entry.tenant_id, entry.call_id)
            at = (entry.place.sort, ref)
            if not fits(entry, read[ref]):
                wrong.append((entry, read[ref]))
                found.setdefault(at, (entry, None))
            elif found.get(at, (entry, None))[1] is None:
                found[at] = (entry, self._timer(read[ref]))
        self._janitor.clear(wrong)
        return list(found.values())

    def _timer(self, stored: Stored) -> Timer | None:
        """None for one that cannot be read, which is reported once."""
        try:
            return stored.timer()
        except codec.DECODING_ERRORS as error:
            wrong = codec.what_is_wrong(error)
        if stored.ref not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(stored.ref)
            logger.error(
                "the timer of a stored service call cannot be read: %s",
                wrong,
                extra={
                    "action": "calls.unreadable",
                    "tenant_id": stored.ref.tenant_id,
                    "call_id": stored.ref.call_id,
                },
            )
        return None


def _read_cursor(cursor: str) -> tuple[str, ...]:
    try:
        sort, tenant_id, call_id = json.loads(cursor)
    except (ValueError, TypeError):
        raise InvalidCursor("cursor", "the cursor does not belong to this list") from None
    return str(sort), str(tenant_id), str(call_id)
