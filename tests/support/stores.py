"""Stores for tests that are not about stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.store import SqlStore
from duetime.stores.time_source import TimeSource


@dataclass(frozen=True)
class _Unused:
    """A store that nobody uses any more, and what it was made of."""

    store: SqlStore
    made_of: dict[str, object]

    def is_as_it_was_made(self) -> bool:
        """Not if a test has put something of its own in the place of a part."""
        return _made_of(self.store) == self.made_of


_unused: list[_Unused] = []
"""Those of this process. A store builds a hundred statements, which takes longer than most tests that need one."""


def _made_of(store: SqlStore) -> dict[str, object]:
    parts = {"store": store, "calls": store.calls, "database": store.database}
    return {f"{part}.{name}": value for part, of in parts.items() for name, value in vars(of).items()}


@contextmanager
def memory_store(image: bytes | None = None) -> Iterator[SqlStore]:
    """An empty SQLite store in memory that takes its times from the caller; or what ``image_of`` another one shows.

    Its statements may have served another test; its database is new. Who listens to its engine removes the listener.
    """
    if _unused:
        used = _unused.pop()
    else:
        store = SqlStore(open_dialect("sqlite://"), time_source=TimeSource.CALLER)
        used = _Unused(store, _made_of(store))
    try:
        _fill(used.store, image or _empty_database())
        yield used.store
    finally:
        is_free = used.store.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        used.store.close()
    if is_free and used.is_as_it_was_made():
        _unused.append(used)


def _fill(store: SqlStore, image: bytes) -> None:
    connection = store.database.engine.raw_connection()
    try:
        connection.driver_connection.deserialize(image)  # type: ignore[union-attr]
    finally:
        connection.close()


def image_of(store: SqlStore) -> bytes:
    """All that is in a store in memory."""
    connection = store.database.engine.raw_connection()
    try:
        image: bytes = connection.driver_connection.serialize()  # type: ignore[union-attr]
    finally:
        connection.close()
    return image


@cache
def _empty_database() -> bytes:
    """What migrations make of an empty file."""
    store = SqlStore(open_dialect("sqlite://"), time_source=TimeSource.CALLER)
    store.initialise()
    image = image_of(store)
    store.close()
    return image
