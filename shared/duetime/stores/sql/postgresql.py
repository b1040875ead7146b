"""PostgreSQL 14 or newer, by psycopg 3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy as sa
from psycopg import errors
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql as postgresql_sql

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.postgresql_migrations import MIGRATIONS, TRACKING_TABLE

MAX_CONNECTIONS = 16
CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_SECONDS = 15
LOCK_TIMEOUT_SECONDS = 5
"""How long a statement waits for other transactions, and a thread for a connection."""

_SESSION = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "lock_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
        "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
        "idle_in_transaction_session_timeout": "30s",
        "timezone": "UTC",
    }.items()
)

_ABORTED = (errors.DeadlockDetected, errors.SerializationFailure)
_TRY_AGAIN = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.TooManyConnections,
    errors.OutOfMemory,
    errors.DiskFull,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
)
_NO_SCHEMA = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
_REFUSED = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName)


class PostgresqlDialect:
    """Connections commit by themselves; writes begin a transaction explicitly (READ COMMITTED, with row locks)."""

    name = "postgresql"
    migrations = MIGRATIONS
    tracking_table = TRACKING_TABLE
    locking_reads_miss_moved_rows = False

    def __init__(self, url: sa.URL) -> None:
        self._where = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"
        self.engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="AUTOCOMMIT",
            pool_size=MAX_CONNECTIONS,
            max_overflow=0,
            pool_timeout=LOCK_TIMEOUT_SECONDS,
            pool_use_lifo=True,
            # Values are payloads and headers; an error that is logged must not show them.
            hide_parameters=True,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "application_name": "duetime",
                "options": _SESSION,
                "keepalives_idle": 15,
                "keepalives_interval": 5,
                "keepalives_count": 3,
            },
        )

    def create_database(self) -> None:
        """The database itself belongs to its operator."""

    def begin_write(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    @contextmanager
    def write_turn(self) -> Iterator[None]:
        yield

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        yield

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        return postgresql_sql.insert(table).on_conflict_do_nothing().inline()

    def classify(self, error: BaseException) -> StoreError:
        if isinstance(error, _REFUSED) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None):
            return StoreUnavailable(f"PostgreSQL at {self._where} cannot be used: {_reason(error)}")
        if isinstance(error, _ABORTED):
            return TransactionAborted(f"PostgreSQL asks to try again: {type(error).__name__}")
        if isinstance(error, _TRY_AGAIN):
            return StoreUnavailable(f"PostgreSQL asks to try again: {type(error).__name__}")
        if isinstance(error, _NO_SCHEMA):
            return StoreNotReady("the database has no Duetime schema of this version; `duetime init` makes it")
        if isinstance(error, psycopg.OperationalError):
            return StoreUnavailable(f"PostgreSQL failed for now: {type(error).__name__}")
        return StoreError(f"PostgreSQL refused a statement: {type(error).__name__}")


def _reason(error: BaseException) -> str:
    """What libpq, or the server through it, says of a connection that was not made, without what it repeats."""
    lines = str(error).splitlines()
    return lines[0].rpartition("failed: ")[2].strip() if lines else type(error).__name__


_MIGRATION_LOCK = 0x64756574  # "duet"


def open_dialect(url: str) -> PostgresqlDialect:
    """``postgresql://user:password@host:5432/database?sslmode=verify-full``: libpq's parameters go into the query."""
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise InvalidSettings("a PostgreSQL URL is like postgresql://user@host:5432/database") from None
    if not parsed.database:
        raise InvalidSettings("a PostgreSQL URL names a database: postgresql://user@host:5432/database")
    return PostgresqlDialect(parsed)
