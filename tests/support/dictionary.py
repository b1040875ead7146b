"""A backend in a dictionary: the smallest one there can be, and one whose rows can be damaged in every way.

Nothing survives the process. It is an example for authors of backends (docs/stores.md).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cmp_to_key, partial
from typing import Final

from duetime.domain.times import MAX_INSTANT, to_milliseconds
from duetime.stores.backend import (
    GUARD_LOST,
    NOT_WRITTEN,
    WRITTEN,
    Batch,
    Change,
    Comparison,
    Condition,
    Now,
    Query,
    Scan,
    Write,
    Written,
    spelled_out,
)
from duetime.stores.core.store import Store
from duetime.stores.entities import ENTITIES, SERVICE_CALL, TIMER
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Key, Kind, Place, Row, Value
from duetime.stores.time_source import StoreTime
from duetime.testing.contract import Subject

_RESOLUTION_SECONDS = 0.001
_LAST: Final = {
    Kind.TEXT: chr(0x10FFFF),
    Kind.WHOLE: to_milliseconds(MAX_INSTANT),
    Kind.INSTANT: to_milliseconds(MAX_INSTANT),
    Kind.BYTES: b"\xff" * 32,
}
"""Damage stands behind all sound values of its field."""


class DictionaryBackend:
    """Keeps the rows of each entity by their keys, and runs one operation at a time."""

    has_clock = False

    def __init__(self) -> None:
        self._rows: dict[str, dict[Key, Row]] = {entity.name: {} for entity in ENTITIES}
        self._lock = threading.RLock()

    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        with self._lock:
            rows = self._rows[entity.name]
            found = [None if DAMAGED in key else rows.get(key) for key in keys]
        return [None if row is None else _only(entity, row, fields) for row in found]

    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        return self.atomic([[write] for write in spelled_out(writes)], now=now)

    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        now_ms = None if now is None else to_milliseconds(now)
        with self._lock:
            return Batch([self._all_or_none(group, now_ms or 0) for group in groups], now_ms)

    def _all_or_none(self, group: Sequence[Write], now_ms: int) -> Written:
        before = {write.entity.name: dict(self._rows[write.entity.name]) for write in group} if group[1:] else {}
        for write in group:
            written = self._apply(write, now_ms)
            if written is not WRITTEN:
                self._rows |= before
                return written
        return WRITTEN

    def _apply(self, write: Write, now_ms: int) -> Written:
        entity, guard = write.entity, write.guard
        rows = self._rows[entity.name]
        if guard is not None:
            row = self._rows[guard.entity.name].get(guard.key)
            if row is None or not _hold(guard.entity, row, guard.conditions, now_ms):
                return GUARD_LOST
        key = self._stored_key(write, now_ms)
        if write.change is Change.DELETE:
            if key is None:
                return NOT_WRITTEN if write.conditions else WRITTEN
            del rows[key]
            for part in ENTITIES:
                if part.part_of == entity.name:
                    of_part = self._rows[part.name]
                    self._rows[part.name] = {each: row for each, row in of_part.items() if each[: len(key)] != key}
            return WRITTEN
        if write.change is Change.INSERT and (write.key in rows or self._is_found_by_unique_path(write)):
            return NOT_WRITTEN
        if write.change in (Change.REPLACE, Change.UPDATE) and key is None:
            return NOT_WRITTEN
        new = write.row
        if write.change is Change.UPDATE:
            assert key is not None
            new = tuple((dict(zip(entity.names, rows[key], strict=True)) | dict(write.changes or {})).values())
        rows[write.key if key is None else key] = tuple(_at(value, now_ms) for value in new)
        return WRITTEN

    def _stored_key(self, write: Write, now_ms: int) -> Key | None:
        """The key of the row that is there and meets the conditions."""
        rows = self._rows[write.entity.name]
        sound = [place for place, part in enumerate(write.key) if part is not DAMAGED]
        if len(sound) == len(write.key):
            candidates = [write.key] if write.key in rows else []
        else:
            candidates = [key for key in rows if all(key[place] == write.key[place] for place in sound)]
        holding = (key for key in candidates if _hold(write.entity, rows[key], write.conditions, now_ms))
        return next(holding, None)

    def _is_found_by_unique_path(self, write: Write) -> bool:
        entity, row = write.entity, write.row
        for path in entity.paths:
            if path.is_unique and _is_on(entity, path, row):
                by = tuple(row[entity.places[name]] for name in path.by)
                place = entity.place_of(path, row)
                if any(entity.place_of(path, other) == place for other in self._on(entity, path, by)):
                    return True
        return False

    def _on(self, entity: Entity, path: AccessPath, by: Key) -> Iterator[Row]:
        for row in self._rows[entity.name].values():
            if _is_on(entity, path, row):
                values = [row[entity.places[name]] for name in path.by]
                are_texts = [entity.by_name[name].kind is Kind.TEXTS for name in path.by]
                if all(
                    value is not DAMAGED and (wanted in value if is_texts else wanted == value)
                    for value, wanted, is_texts in zip(values, by, are_texts, strict=True)
                ):
                    yield row

    def scan(self, query: Query) -> Scan:
        entity, path, after = query.entity, query.path, query.after
        with self._lock:
            placed = [(_sound_place(entity, path, row), row) for row in self._on(entity, path, query.by)]
        in_order_of = cmp_to_key(partial(_compare, path))
        in_order = sorted(
            (
                (place, row)
                for place, row in placed
                if (after is None or _compare(path, place, after) > 0) and _is_within(query, row)
            ),
            key=lambda each: in_order_of(each[0]),
        )
        page = in_order[: query.limit]
        if query.budget is not None and entity.large is not None:
            page = page[: _num_within(query.budget, [row[entity.places[entity.large]] for _, row in page])]
        end = page[-1][0] if len(page) < len(in_order) else None
        return Scan([_only(entity, row, query.fields) for _, row in page], end)

    def firsts(self, query: Query, values: Sequence[Value]) -> None:
        return None

    def damage(self, entity: Entity, key: Key, **values: Value) -> None:
        """Let the row of ``key`` hold ``values``, as a store would read them."""
        with self._lock:
            rows = self._rows[entity.name]
            row = tuple((dict(zip(entity.names, rows.pop(key), strict=True)) | values).values())
            rows[entity.key_of(row)] = row

    def time(self, *, now: datetime) -> StoreTime:
        return StoreTime(now, _RESOLUTION_SECONDS)

    def initialise(self) -> None:
        pass

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def dictionary_subject() -> Iterator[Subject]:
    backend = DictionaryBackend()
    yield Subject(
        store=Store(backend),
        corrupt=lambda timer: backend.damage(
            TIMER, (timer.shard_id, timer.namespace, timer.timer_id), timer_tags="{broken"
        ),
        corrupt_call=lambda call: backend.damage(
            SERVICE_CALL, (call.tenant_id, call.call_id), request_spec="{broken"
        ),
        reopen=lambda: Store(backend),
    )


def _only(entity: Entity, row: Row, fields: tuple[str, ...] | None) -> Row:
    return row if fields is None else tuple(row[entity.places[name]] for name in fields)


def _at(value: Value, now_ms: int) -> Value:
    return now_ms + value.plus_ms if isinstance(value, Now) else value


def _hold(entity: Entity, row: Row, conditions: Sequence[Condition], now_ms: int) -> bool:
    for name, value, test in conditions:
        stored = row[entity.places[name]]
        if test is Comparison.IS and stored != value:
            return False
        if test is Comparison.IS_PAST and stored is not None and (stored is DAMAGED or stored > _at(value, now_ms)):
            return False
    return True


def _is_on(entity: Entity, path: AccessPath, row: Row) -> bool:
    return (
        all(row[entity.places[name]] is not None for name in path.present)
        and all(row[entity.places[name]] is None for name in path.absent)
        and all(row[entity.places[name]] == value for name, value in path.where.items())
    )


def _sound_place(entity: Entity, path: AccessPath, row: Row) -> Place:
    return tuple(
        _LAST[entity.by_name[name].kind] if value is DAMAGED else value
        for name, value in zip(path.order_names, entity.place_of(path, row), strict=True)
    )


def _compare(path: AccessPath, one: Place, other: Place) -> int:
    for value, against, is_descending in zip(one, other, path.is_descending, strict=True):
        if value != against:
            return -1 if (value < against) is not is_descending else 1
    return 0


def _is_within(query: Query, row: Row) -> bool:
    since, until = query.since, query.until
    if since is None and until is None:
        return True
    value = row[query.entity.places[query.path.order_names[0]]]
    return value is not DAMAGED and (since is None or value >= since) and (until is None or value <= until)


def _num_within(budget: int, texts: Sequence[Value]) -> int:
    """How many of the texts fit the budget, one at least."""
    size = 0
    for place, text in enumerate(texts):
        size += len(text) if isinstance(text, str) else 0
        if size > budget and place:
            return place
    return len(texts)
