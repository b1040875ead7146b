"""The partition of one call, where its truth is: read at once, changed at once, each change fenced by the last.

``barred``: attempts up to and including this one are refused. Whoever finds an entry of an attempt that may still be
under way bars it before removing the entry (``janitor.py``), so the attempt fails and begins again with new entries.
A call that is gone leaves ``barred`` behind for a day, longer than any request is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import ServiceCall, timer_of
from duetime.domain.timers import Timer
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.cassandra.calls import codec
from duetime.stores.cassandra.calls.documents import (
    decode_call,
    encode_call,
    event_position,
    execution_position,
)
from duetime.stores.cassandra.calls.places import (
    LISTS,
    STARRED_LIST,
    Place,
    places_of,
    read_places,
    write_places,
)
from duetime.stores.cassandra.calls.tables import EVENT, EXECUTION
from duetime.stores.cassandra.requests import Requests, Row, Statement, Unsettled
from duetime.stores.port.calls import CallRef
from duetime.stores.timer_check import checked

_BARRED_SECONDS: Final = 86_400
_TRIES: Final = 8
_REFS_PER_READ: Final = 50
_KEY: Final = "tenant_id = ? AND call_id = ?"
_STATE: Final = (
    "revision, attempt, barred, shard_id, status, expires_ms, idempotency_key, places, timer, document, body"
)
_WITHOUT_BODY: Final = _STATE.removesuffix(", body")
_WHAT_WAKES: Final = "revision, places, timer"
_CHANGE: Final = (
    "UPDATE service_calls SET revision = ?, attempt = ?, shard_id = ?, status = ?, expires_ms = ?, "
    f"idempotency_key = ?, places = ?, timer = ?, document = ? WHERE {_KEY}"
)
_EVENT: Final = (
    "UPDATE service_calls SET content = ?, event_id = ?, of_revision = ? "
    f"WHERE {_KEY} AND kind = '{EVENT}' AND position = ?"
)
_EXECUTION: Final = f"UPDATE service_calls SET content = ? WHERE {_KEY} AND kind = '{EXECUTION}' AND position = ?"
_EVENTS: Final = (
    "SELECT position, content, event_id, published_ms, of_revision FROM service_calls "
    f"WHERE {_KEY} AND kind = '{EVENT}' AND position > ?"
)
_EVENTS_AT_ONCE: Final = 100
_NEW_CONDITION: Final = "IF revision = ? AND barred = ?"
_NEXT_CONDITION: Final = "IF revision = ? AND barred < ?"


@dataclass(frozen=True)
class Stored:
    """What is stored of a call; ``row`` has the columns that were asked for. ``revision`` None: there is no call."""

    ref: CallRef
    row: Row

    @property
    def revision(self) -> int | None:
        found: int | None = self.row.get("revision")
        return found

    @property
    def attempt(self) -> str | None:
        found: str | None = self.row.get("attempt")
        return found

    @property
    def barred(self) -> str | None:
        found: str | None = self.row.get("barred")
        return found

    @property
    def idempotency_key(self) -> str | None:
        found: str | None = self.row.get("idempotency_key")
        return found

    @cached_property
    def places(self) -> frozenset[Place]:
        return read_places(self.row.get("places"))

    @property
    def is_starred(self) -> bool:
        return any(place.table == LISTS and place.partition[0] == STARRED_LIST for place in self.places)

    def is_there(self, now: datetime) -> bool:
        """There is such a call, and it has not expired."""
        expires_ms: int | None = self.row.get("expires_ms")
        return self.revision is not None and (expires_ms is None or from_milliseconds(expires_ms) > now)

    def call(self) -> ServiceCall:
        """Raises ``CallUnreadable``."""
        return decode_call(self.row.get("document"), body_json=self.row.get("body"))

    def timer(self) -> Timer:
        """Raises one of ``codec.DECODING_ERRORS``."""
        return checked(codec.decode(Timer, self.row["timer"] or ""))


class Partitions:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    # -- reads -----------------------------------------------------------------------------------------------

    def read(self, ref: CallRef, *, is_serial: bool = False) -> Stored:
        """With the body."""
        return self._read_one(ref, _STATE, is_serial=is_serial)

    def read_whole(self, refs: Sequence[CallRef]) -> list[Stored]:
        """As ``read``, of several calls side by side."""
        cql = f"SELECT {_STATE} FROM service_calls WHERE {_KEY} LIMIT 1"
        answers = self._requests.read_each([Statement(cql, (ref.tenant_id, ref.call_id)) for ref in refs])
        return [Stored(ref, rows[0] if rows else {}) for ref, rows in zip(refs, answers, strict=True)]

    def read_state(self, ref: CallRef, *, is_serial: bool = False) -> Stored:
        """Without the body. ``is_serial``: no change that was under way before can still succeed unseen."""
        return self._read_one(ref, _WITHOUT_BODY, is_serial=is_serial)

    def _read_one(self, ref: CallRef, columns: str, *, is_serial: bool) -> Stored:
        cql = f"SELECT {columns} FROM service_calls WHERE {_KEY} LIMIT 1"
        rows = self._requests.read(Statement(cql, (ref.tenant_id, ref.call_id)), is_serial=is_serial)
        return Stored(ref, rows[0] if rows else {})

    def read_many(self, refs: Iterable[CallRef]) -> dict[CallRef, Stored]:
        """Without bodies."""
        return self._read_many(refs, _WITHOUT_BODY)

    def read_timers(self, refs: Iterable[CallRef]) -> dict[CallRef, Stored]:
        return self._read_many(refs, _WHAT_WAKES)

    def _read_many(self, refs: Iterable[CallRef], columns: str) -> dict[CallRef, Stored]:
        found = {ref: Stored(ref, {}) for ref in refs}
        ids_of: dict[str, list[str]] = {}
        for ref in found:
            ids_of.setdefault(ref.tenant_id, []).append(ref.call_id)
        cql = (
            f"SELECT call_id, {columns} FROM service_calls WHERE tenant_id = ? AND call_id IN ? PER PARTITION LIMIT 1"
        )
        for tenant_id, ids in ids_of.items():
            for at in range(0, len(ids), _REFS_PER_READ):
                for row in self._requests.read(Statement(cql, (tenant_id, ids[at : at + _REFS_PER_READ]))):
                    ref = CallRef(tenant_id, row["call_id"])
                    found[ref] = Stored(ref, row)
        return found

    # -- changes ---------------------------------------------------------------------------------------------

    def change(self, transition: Transition, *, attempt: str, barred: str | None) -> bool:
        """Store a transition, if its call is as it was before, and the attempt is not barred. Raises ``Unsettled``.

        ``barred``: of a new call, as it was read.
        """
        before, after = transition.before, transition.after
        key = (after.tenant_id, after.call_id)
        values = (*_state_values(after, attempt), *key)
        if before is None:
            statements = [
                Statement(f"{_CHANGE} {_NEW_CONDITION}", (*values, None, barred)),
                Statement(f"UPDATE service_calls SET barred = ? WHERE {_KEY}", ("", *key)),
            ]
        else:
            statements = [Statement(f"{_CHANGE} {_NEXT_CONDITION}", (*values, before.revision, attempt))]
        if before is None or before.request != after.request:
            statements.append(
                Statement(f"UPDATE service_calls SET body = ? WHERE {_KEY}", (after.request.body_json, *key))
            )
        for execution in transition.executions:
            position = execution_position(execution.number, execution.execution_id)
            statements.append(Statement(_EXECUTION, (codec.encode(execution), *key, position)))
        for event in transition.events:
            content = (codec.encode(event), event.event_id, after.revision)
            statements.append(Statement(_EVENT, (*content, *key, event_position(event.sequence))))
        return self._requests.decide(statements)

    def remove(self, ref: CallRef, *, revision: int, attempt: str, event: CallEvent | None = None) -> bool:
        """Remove a call and its executions, if its revision is this one and the attempt is not barred. Its events
        stay, and ``event`` is added to them. Raises ``Unsettled``."""
        key = (ref.tenant_id, ref.call_id)
        columns = ", ".join(name for name in _STATE.split(", ") if name != "barred")
        statements = [
            Statement(
                f"DELETE {columns} FROM service_calls WHERE {_KEY} {_NEXT_CONDITION}", (*key, revision, attempt)
            ),
            Statement(
                f"UPDATE service_calls USING TTL {_BARRED_SECONDS} SET barred = ? WHERE {_KEY}", (attempt, *key)
            ),
            Statement(f"DELETE FROM service_calls WHERE {_KEY} AND kind = '{EXECUTION}'", key),
        ]
        if event is not None:
            content = (codec.encode(event), event.event_id, revision + 1)
            statements.append(Statement(_EVENT, (*content, *key, event_position(event.sequence))))
        return self._requests.decide(statements)

    def bar(self, ref: CallRef, attempt: str) -> Stored:
        """The call as it is once ``attempt`` and all before it can change nothing of it any more."""
        key = (ref.tenant_id, ref.call_id)
        for _ in range(_TRIES):
            stored = self.read_state(ref, is_serial=True)
            if stored.barred is not None and stored.barred >= attempt:
                return stored
            seen = (stored.revision, stored.barred)
            ttl = f"USING TTL {_BARRED_SECONDS} " if stored.revision is None else ""
            cql = f"UPDATE service_calls {ttl}SET barred = ? WHERE {_KEY} {_NEW_CONDITION}"
            try:
                if self._requests.decide([Statement(cql, (attempt, *key, *seen))]):
                    return stored
            except Unsettled:
                continue
        raise StoreUnavailable("the service call is being changed too often")

    def has_event(self, ref: CallRef, position: str, event_id: str) -> bool:
        cql = f"SELECT event_id FROM service_calls WHERE {_KEY} AND kind = '{EVENT}' AND position = ?"
        rows = self._requests.read(Statement(cql, (ref.tenant_id, ref.call_id, position)), is_serial=True)
        return bool(rows) and rows[0]["event_id"] == event_id

    # -- rows ------------------------------------------------------------------------------------------------

    def events(self, ref: CallRef, *, after: int = 0, limit: int | None = None) -> list[Row]:
        values = (ref.tenant_id, ref.call_id, event_position(after))
        if limit is None:
            return self._requests.read(Statement(_EVENTS, values))
        return self._requests.read(Statement(f"{_EVENTS} LIMIT ?", (*values, limit)))

    def events_of(self, refs: Sequence[CallRef]) -> list[list[Row]]:
        """All events of each, side by side."""
        first = [Statement(f"{_EVENTS} LIMIT ?", (*_key_of(ref), event_position(0), _EVENTS_AT_ONCE)) for ref in refs]
        return [
            rows if len(rows) < _EVENTS_AT_ONCE else self.events(ref)
            for ref, rows in zip(refs, self._requests.read_each(first), strict=True)
        ]


def _key_of(ref: CallRef) -> tuple[str, str]:
    return ref.tenant_id, ref.call_id


def _state_values(call: ServiceCall, attempt: str) -> tuple[object, ...]:
    expires_ms = None if call.expires_at is None else to_milliseconds(call.expires_at)
    return (
        call.revision,
        attempt,
        call.shard_id,
        call.status.value,
        expires_ms,
        call.idempotency_key,
        write_places(places_of(call)),
        codec.encode(timer_of(call)),
        encode_call(call),
    )
