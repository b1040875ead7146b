"""SQLite: a file shared by threads and processes (WAL), or one database in memory."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import sqlite as sqlite_sql
from sqlalchemy.pool import QueuePool

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores import private_files
from duetime.stores.backends.sql.dialects.db_now import SqliteDbNow
from duetime.stores.backends.sql.dialects.engines import pool_options
from duetime.stores.backends.sql.dialects.sqlite_texts import Connection

BUSY_TIMEOUT_SECONDS = 5.0
"""How long a statement waits for other processes, a thread for its turn to write, and for a connection."""
MAX_CONNECTIONS = 32
_WAL_SWITCH_TRIES = 100
_WAL_SWITCH_PAUSE_SECONDS = 0.05

# A larger log than the default of 1000 pages: recording touches pages all over the table, and each one is
# copied back once per checkpoint instead of once per thousand. 16 MiB of cache per connection.
_PRAGMAS = (
    "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA cache_size=-16384",
)
_KEPT_CONNECTIONS = 4
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "the database is locked",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_IOERR: "the database file cannot be read or written",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_NOMEM: "memory ran out",
    sqlite3.SQLITE_READONLY: "the database file is read-only",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted",
}


class Synchronous(StrEnum):
    """When a commit reaches the disk. A crash of the process alone takes nothing; both stay consistent."""

    NORMAL = "normal"
    """With the next checkpoint: a power loss may take the last commits before it."""
    FULL = "full"
    """At once: a power loss takes nothing, and each commit waits for the disk."""


class SqliteDialect:
    """``path`` None is a database in memory: one connection that the threads take turns on.

    The driver commits by itself (``isolation_level=None``) and transactions are begun explicitly: reads outside
    of any, writes with BEGIN IMMEDIATE, which waits for the write lock at once instead of failing in the middle.
    """

    name = "sqlite"
    streams_rows = True
    keeps_plans = False
    driver_errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    size_function = "length"

    def __init__(self, path: Path | None, *, synchronous: Synchronous = Synchronous.NORMAL) -> None:
        self._path = path
        self._pragmas = (*_PRAGMAS, f"PRAGMA synchronous={synchronous}")
        self._turn = threading.Lock()
        connections = 1 if path is None else MAX_CONNECTIONS
        self.kept_connections = 0 if path is None else _KEPT_CONNECTIONS
        self.engine = sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=QueuePool,
            **pool_options(connections, BUSY_TIMEOUT_SECONDS),
        )
        self._file: tuple[int, int] | None = None
        sa.event.listen(self.engine, "checkout", lambda *_: self._refuse_another_file())

    def _connect(self) -> sqlite3.Connection:
        if self._file is not None:
            self._refuse_another_file()
        # Only create_database makes the file: a mistyped path is an error, not an empty database.
        target = ":memory:" if self._path is None else f"file:{quote(str(self._path))}?mode=rw"
        connection = sqlite3.connect(
            target,
            uri=True,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
        try:
            for statement in (*self._pragmas, *SqliteDbNow.connect_statements):
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        self._file = self._file or self._file_at_path()
        return connection

    def _file_at_path(self) -> tuple[int, int] | None:
        try:
            found = None if self._path is None else self._path.stat()
        except OSError:
            found = None
        return None if found is None else (found.st_dev, found.st_ino)

    def _refuse_another_file(self) -> None:
        """Raise ``StoreUnavailable`` where the file that is open has been removed or replaced.

        SQLite goes on with it. What is written then would be gone with the process, and others have another file.
        """
        if self._file_at_path() != self._file:
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while in use: stop all that use it, and start again"
            )

    def create_database(self) -> None:
        if self._path is None:
            return
        try:
            private_files.make_folder(self._path.parent)
            private_files.make_file(self._path)  # SQLite gives its -wal and -shm files the same mode
            with closing(self._connect()) as connection:
                _switch_to_wal(connection)
        except OSError as error:
            raise InvalidSettings(f"cannot make {self._path}: {error.strerror}") from error
        except sqlite3.Error as error:
            raise self.classify(error) from error

    def begin_write(self, connection: sa.Connection) -> None:
        self._refuse_another_file()
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    @contextmanager
    def write_turn(self) -> Iterator[None]:
        # SQLite's own waiting polls with growing pauses and is not fair; within a process a lock is both.
        if not self._turn.acquire(timeout=BUSY_TIMEOUT_SECONDS):
            raise StoreUnavailable("the database is busy with other writes")
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:  # noqa: ARG002  # its transaction holds the lock
        yield

    def is_astray(self, error: BaseException) -> bool:  # noqa: ARG002  # a file is where it is
        return False

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        return sqlite_sql.insert(table).on_conflict_do_nothing().inline()

    def classify(self, error: BaseException) -> StoreError:
        # The low byte is the primary code; the rest details it.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _UNAVAILABLE:
            return StoreUnavailable(_UNAVAILABLE[code])
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreNotReady(f"{self._path} does not exist or cannot be opened; `duetime init` makes it")
        if code == sqlite3.SQLITE_NOTADB:
            return StoreNotReady(f"{self._path} is not an SQLite database")
        if code == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column")):
            return StoreNotReady(f"the database has no Duetime schema of this version: {error}")
        return StoreError(f"SQLite refused a statement: {getattr(error, 'sqlite_errorname', type(error).__name__)}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode, which the file keeps. Processes that do it together may find it locked at once."""
    for _ in range(_WAL_SWITCH_TRIES):
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        else:
            if mode == "wal":
                return
        time.sleep(_WAL_SWITCH_PAUSE_SECONDS)
    raise StoreUnavailable("the database is locked and cannot be switched to WAL")


def open_dialect(url: str) -> SqliteDialect:
    """``sqlite:///relative.db``, ``sqlite:////absolute.db``, or ``sqlite://`` for memory; ``?synchronous=full``."""
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError:
        raise InvalidSettings("an SQLite URL is like sqlite:///path/to/file.db, or sqlite:// for memory") from None
    if parsed.host or parsed.username or parsed.port:
        raise InvalidSettings("an SQLite URL has a path and no host: sqlite:///path/to/file.db (three slashes)")
    options = dict(parsed.query)
    try:
        synchronous = Synchronous(str(options.pop("synchronous", Synchronous.NORMAL)))
    except ValueError:
        raise InvalidSettings(f"synchronous in an SQLite URL is one of {', '.join(Synchronous)}") from None
    if options:
        raise InvalidSettings("an SQLite URL has one option: ?synchronous=full")
    database = parsed.database
    return SqliteDialect(None if database in (None, "", ":memory:") else Path(database), synchronous=synchronous)
