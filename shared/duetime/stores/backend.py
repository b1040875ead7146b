"""What a database must be able to do for a store. A backend knows entities and their paths, and nothing of timers.

The rules of the product stand above it, in ``stores.core``. A backend is synchronous and thread-safe; its errors are
those of ``stores.port`` (``StoreUnavailable``, ``StoreNotReady``, ``StoreEmpty``, ``StoreError``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol

from duetime.domain.errors import StoreError, StoreThrottled, StoreUnavailable
from duetime.stores.entity import AccessPath, Entity, Key, Place, Row, Value
from duetime.stores.time_source import StoreTime


@dataclass(frozen=True, slots=True)
class Now:
    """In a write: the time of its unit of work, and ``plus_ms`` milliseconds.

    It is the database's time where the database has one that a write can use, and of every entity that is a lease,
    else the caller's ``now``.
    """

    plus_ms: int = 0


NOW: Final = Now()


@dataclass(frozen=True, slots=True)
class Plus:
    """In a change: what is stored, and ``amount``."""

    amount: int = 1


class Comparison(Enum):
    IS = "is"
    """The field has this value; None: it has none; ``DAMAGED``: what it has is not of its kind."""
    IS_PAST = "is_past"
    """The field has no value, or one that is not after this one, which may be ``NOW``."""


class Condition(NamedTuple):
    """Of the row that is stored, in a write."""

    name: str
    value: Value
    comparison: Comparison = Comparison.IS


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition of another row than the one that is written. Where the database cannot hold both it is read just
    before. Writes of one batch share theirs: a guard equals itself alone."""

    entity: Entity
    key: Key
    conditions: tuple[Condition, ...]

    def holds(self, row: Row | None) -> bool:
        """Tell by the whole row that is stored. Such conditions are of values that are given."""
        places = self.entity.places
        return row is not None and all(row[places[each.name]] == each.value for each in self.conditions)


class Change(Enum):
    INSERT = "insert"
    """``row`` is new: neither its key nor what a unique path finds it by is taken."""
    PUT = "put"
    """``row`` takes the place of what there is, or of nothing."""
    REPLACE = "replace"
    """``row`` takes the place of a row that is there."""
    UPDATE = "update"
    """``changes`` of a row that is there; None takes a value away. A part of the key that is ``DAMAGED``, or a
    text that cannot be stored, is not compared: the conditions tell the row."""
    DELETE = "delete"
    """The row is removed, and those of entities that are a part of it. Without conditions there need be none."""


Known = Callable[[], Mapping[str, Value]]
"""What a row holds as long as the conditions of the write hold, as far as the writer knows it. A backend that keeps
index entries itself asks for it, and reads what is not known; others never ask."""


def known(entity: Entity, row: Row) -> Known:
    """``row``, or the first of its fields."""
    return lambda: dict(zip(entity.names, row, strict=False))


class Write(NamedTuple):
    """One row's change, made only if all ``conditions`` and the ``guard`` hold. Made by the functions below.

    A batch makes hundreds: a named tuple is made in a quarter of the time that a frozen dataclass takes.
    """

    change: Change
    entity: Entity
    key: Key
    row: Row = ()
    changes: Mapping[str, Value] | None = None
    conditions: tuple[Condition, ...] = ()
    guard: Guard | None = None
    is_new: bool = False
    """PUT only: the row is likely not there. Tells nothing but what to try first."""
    like: str | Alike | None = None
    """Writes with the same one differ in nothing but their values: a backend may prepare them once."""
    known: Known | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Updates of the same fields on conditions of the same fields, which hot paths make by the hundred.

    Their values stand in ``Write.row``, those of ``changed`` before those of ``expected``, and ``changes`` and
    ``conditions`` are empty. What is expected is a value: not None, ``DAMAGED`` or ``NOW``. A change is None or
    ``NOW`` in all of them or in none.

    Of a PUT, whose row is whole: the others of its fields are as they are stored, where it is.
    """

    entity: Entity
    changed: tuple[str, ...]
    expected: tuple[str, ...]

    def update(self, key: Key, values: Row, *, guard: Guard | None = None, known: Known | None = None) -> Write:
        return Write(Change.UPDATE, self.entity, key, values, None, (), guard, False, self, known)


def spelled_out(writes: Iterable[Write]) -> list[Write]:
    """Return ``writes`` with their changes and conditions, for a backend that does not prepare those that are
    alike."""
    return [
        _spelled_out(write, write.like) if isinstance(write.like, Alike) and write.change is Change.UPDATE else write
        for write in writes
    ]


def _spelled_out(write: Write, alike: Alike) -> Write:
    changes = dict(zip(alike.changed, write.row, strict=False))
    conditions = tuple(map(Condition, alike.expected, write.row[len(changes) :]))
    return write._replace(row=(), changes=changes, conditions=conditions, like=None)


class WriteStatus(StrEnum):
    WRITTEN = "written"
    NOT_WRITTEN = "not_written"
    """A condition does not hold, the row is not there, or its key is taken."""
    GUARD_LOST = "guard_lost"
    REFUSED = "refused"
    """The database refuses it for good."""
    UNAVAILABLE = "unavailable"
    """Where it belongs nothing can be written for now, unlike the others."""


class PartitionUnavailable(StoreThrottled):
    """Where all that was to be written belongs nothing can be for now. The rest of the database may answer."""


@dataclass(frozen=True, slots=True)
class Written:
    """``error``: why it was REFUSED."""

    status: WriteStatus
    error: StoreError | None = None

    @property
    def is_written(self) -> bool:
        return self.status is WriteStatus.WRITTEN


WRITTEN: Final = Written(WriteStatus.WRITTEN)
NOT_WRITTEN: Final = Written(WriteStatus.NOT_WRITTEN)
GUARD_LOST: Final = Written(WriteStatus.GUARD_LOST)


@dataclass(frozen=True, slots=True)
class Batch:
    """A result per write, or per group, in order.

    ``at_ms``: what ``NOW`` was; None where the database did not tell.
    """

    results: list[Written]
    at_ms: int | None

    def checked(self) -> list[Written]:
        """Return the results. Raises the error of the first that was refused, or ``StoreUnavailable``."""
        for written in self.results:
            if written.error is not None:
                raise written.error
            if written.status is WriteStatus.UNAVAILABLE:
                raise StoreUnavailable("some rows cannot be written for now")
        return self.results


class Query(NamedTuple):
    """Up to ``limit`` rows with the values ``by`` of ``path.by``, in the path's order.

    ``fields`` None: whole rows. ``after``: those behind this place. ``since`` and ``until``, both inclusive,
    bound the first field of the order: a row where that is ``DAMAGED`` is out of bounds. ``budget``: the most
    characters of the entity's ``large`` field on the page, which has one row at least.
    ``shards``: those with rows, where the path does not begin with a shard.
    """

    entity: Entity
    path: AccessPath
    limit: int
    by: Key = ()
    fields: tuple[str, ...] | None = None
    after: Place | None = None
    since: Value = None
    until: Value = None
    budget: int | None = None
    shards: Sequence[int] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.entity.names if self.fields is None else self.fields


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of the fields that were asked for, in the path's order.

    ``end``: the place of the last row that was read, when there may be more behind it; ``rows`` is without that row
    if it was just being changed. Nothing in ``end`` is ``DAMAGED``: the value next to one that is stands for it.
    """

    rows: list[Row]
    end: Place | None = None


class Backend(Protocol):
    @property
    def has_clock(self) -> bool:
        """Whether the database's own time decides in writes what is past; else it is the caller's ``now``."""
        ...

    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        """Rows of ``fields`` (None: whole ones), in the order of ``keys``; strongly consistent. A key with a
        part that is ``DAMAGED``, or a text that cannot be stored, finds nothing."""
        ...

    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        """Make writes. Each applies or fails alone; no two are of one row. They may be ``Alike``.

        A write that was made by an earlier try whose answer was lost is WRITTEN. Raises only if nothing was written,
        as far as is known. ``now`` None: no write has ``NOW``.
        """
        ...

    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        """All writes of a group are made, or none. The groups apply or fail alone; no two write to one row."""
        ...

    def scan(self, query: Query) -> Scan:
        """Read a page of an access path. Strongly consistent on a path that begins with the key's first field."""
        ...

    def firsts(self, query: Query, values: Sequence[Value]) -> list[Value] | None:
        """Return what the first row of ``query`` has in the field that its path's order begins with, or None, for
        each of ``values`` of the path's one ``by``. Strongly consistent. None in place of the list: it takes a
        request for each."""
        ...

    def time(self, *, now: datetime) -> StoreTime:
        """Return what the database's clock reads, or ``now``."""
        ...

    def initialise(self) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...


def insert(entity: Entity, row: Row, *, guard: Guard | None = None, like: str | None = None) -> Write:
    return Write(Change.INSERT, entity, entity.key_of(row), row, None, (), guard, False, like)


def put(
    entity: Entity,
    row: Row,
    *,
    is_new: bool = False,
    guard: Guard | None = None,
    known: Known | None = None,
    like: str | Alike | None = None,
) -> Write:
    return Write(Change.PUT, entity, entity.key_of(row), row, None, (), guard, is_new, like, known)


def replace(
    entity: Entity, row: Row, *conditions: Condition, known: Known | None = None, like: str | None = None
) -> Write:
    return Write(Change.REPLACE, entity, entity.key_of(row), row, None, conditions, None, False, like, known)


def update(
    entity: Entity,
    key: Key,
    changes: Mapping[str, Value],
    *conditions: Condition,
    guard: Guard | None = None,
    like: str | None = None,
    known: Known | None = None,
) -> Write:
    return Write(Change.UPDATE, entity, key, (), changes, conditions, guard, False, like, known)


def difference(entity: Entity, stored: Row, row: Row, *conditions: Condition) -> Write:
    """Return the write that puts ``row`` in the place of ``stored``: only what differs is written."""
    names = entity.names
    changes = {names[place]: new for place, (old, new) in enumerate(zip(stored, row, strict=True)) if new != old}
    return update(entity, entity.key_of(row), changes, *conditions, known=known(entity, stored))


def delete(
    entity: Entity, key: Key, *conditions: Condition, known: Known | None = None, like: str | None = None
) -> Write:
    return Write(Change.DELETE, entity, key, conditions=conditions, like=like, known=known)


_MOST_ROUNDS = 100
_PATIENT_ROUNDS = 3
_LONGEST_WAIT_SECONDS = 0.05


def rounds() -> Iterator[int]:
    """Count attempts from 0 while another writer is faster: at once at first, then after waits of a random
    length."""
    for turn in range(_MOST_ROUNDS):
        if turn > _PATIENT_ROUNDS:
            time.sleep(random.uniform(0, _LONGEST_WAIT_SECONDS))
        yield turn
