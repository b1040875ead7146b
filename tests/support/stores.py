"""Stores for tests that are not about stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from duetime.stores.backends.sql.dialects.sqlite import SqliteDialect
from duetime.stores.core.store import Store
from duetime.stores.time_source import TimeSource
from tests.support.sql_store import SqlStore


class _Dialect(SqliteDialect):
    """In one test after the other."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self.kept_connections = 0  # so that the pool tells whether a test still has one

    def move(self, path: Path) -> None:
        self._path, self._file = path, None


@dataclass(frozen=True)
class _Lent:
    """A store, and what it was made of."""

    store: SqlStore
    dialect: _Dialect
    made_of: dict[str, object]

    def can_be_lent_again(self) -> bool:
        """Not if a test has put something of its own in the place of a part, or still has a connection."""
        return _parts(self.store) == self.made_of and self.dialect.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


_unused: dict[bool, list[_Lent]] = {True: [], False: []}
"""Those of this process, by whether they are in memory.

A store builds a hundred statements, which takes longer than most tests that need one.
"""


def _parts(store: SqlStore) -> dict[str, object]:
    parts = {"backend": store.backend, "database": store.database}
    return {f"{part}.{name}": value for part, of in parts.items() for name, value in vars(of).items()}


class _SameStatements(SqlStore):
    """A store on the database and the statements of another one."""

    def __init__(self, other: SqlStore) -> None:
        self.database = other.database
        Store.__init__(self, other.backend)


def _made(path: Path | None) -> _Lent:
    dialect = _Dialect(path)
    store = SqlStore(dialect, time_source=TimeSource.CALLER)
    return _Lent(store, dialect, _parts(store))


@contextmanager
def _lent(path: Path | None) -> Iterator[_Lent]:
    unused = _unused[path is None]
    lent = unused.pop() if unused else _made(path)
    if path is not None:
        lent.dialect.move(path)
    try:
        yield lent
    finally:
        can_be_lent_again = lent.can_be_lent_again()
        lent.store.close()
    if can_be_lent_again:
        unused.append(lent)


@contextmanager
def memory_store(image: bytes | None = None) -> Iterator[SqlStore]:
    """An empty SQLite store in memory that takes its times from the caller; or what ``image_of`` another one shows.

    Its statements may have served another test; its database is new. Who listens to its engine removes the listener.
    """
    with _lent(None) as lent:
        connection = lent.dialect.engine.raw_connection()
        try:
            connection.driver_connection.deserialize(image or _empty_database())  # type: ignore[union-attr]
        finally:
            connection.close()
        yield _SameStatements(lent.store)


@contextmanager
def file_store(path: Path) -> Iterator[SqlStore]:
    """The same in a new file."""
    path.write_bytes(_empty_database())
    with _lent(path) as lent:
        lent.dialect.create_database()
        yield _SameStatements(lent.store)


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
    """An empty file with the schema."""
    made = _made(None)
    made.store.initialise()
    image = image_of(made.store)
    made.store.close()
    return image
