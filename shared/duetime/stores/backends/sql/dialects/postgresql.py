"""PostgreSQL 14 or newer, by psycopg 3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors
from psycopg.pq import Conninfo
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql as postgresql_sql

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects.driver_connection import Results
from duetime.stores.backends.sql.dialects.engines import (
    CONNECT_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    MAX_CONNECTIONS,
    ServerDialect,
    is_address,
    server_engine,
)
from duetime.stores.backends.sql.errors import TransactionAborted

STATEMENT_TIMEOUT_SECONDS = 15

_SESSION = {
    "lock_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
    "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS}s",
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
    # Whatever the server's, the database's or the user's default is.
    "default_transaction_isolation": "read committed",
    # Every statement goes by a declared path, whatever its values. A plan for each execution costs the server more
    # than the rows: it begins with all partitions.
    "plan_cache_mode": "force_generic_plan",
    # For a handful of given rows, too, it would read whole partitions to hash or merge them.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
}
PREPARE_SESSION = (
    "SELECT "
    + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SESSION.items())
    + ", current_setting('server_encoding')"
)
"""A statement, for poolers refuse such settings among the parameters with which a connection begins."""
_OPTIONS = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "application_name": "duetime",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds: what was sent meets silence. Keepalives are for who waits in silence
}
"""Unless the URL says otherwise."""

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
_NO_SCHEMA = (errors.UndefinedTable, errors.UndefinedColumn)
_REFUSED = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName)


class _Cursor(Results, psycopg.Cursor[Any]):
    """Statements are prepared when they are first run (``prepare_threshold``). The server would plan one that is not
    for all partitions, and then use the plan once."""


class PostgresqlDialect(ServerDialect):
    """Connections commit by themselves; writes begin a transaction explicitly (READ COMMITTED, with row locks)."""

    name = "postgresql"
    driver_errors = (psycopg.Error,)
    keeps_plans = True
    kept_connections = MAX_CONNECTIONS // 2
    size_function = "octet_length"

    def __init__(self, url: sa.URL) -> None:
        host = url.host or url.query.get("host") or "localhost"
        self._where = f"{host}:{url.port or 5432}/{url.database or ''}"
        options = {name: value for name, value in _OPTIONS.items() if name not in url.query}
        self.engine = server_engine(
            url.set(drivername="postgresql+psycopg"),
            # Whatever the environment says: texts are Unicode.
            {**options, "client_encoding": "UTF8", "prepare_threshold": 0, "cursor_factory": _Cursor},
            is_astray=self.is_astray,
            isolation_level="AUTOCOMMIT",
            paramstyle="format",
        )
        event.listen(self.engine, "connect", _prepare_session)

    def begin_write(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
        yield

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        return postgresql_sql.insert(table).on_conflict_do_nothing().inline()

    def is_astray(self, error: BaseException) -> bool:
        return isinstance(error, errors.ReadOnlySqlTransaction)

    def classify(self, error: BaseException) -> StoreError:
        if isinstance(error, _REFUSED) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None):
            return StoreUnavailable(f"PostgreSQL at {self._where} cannot be used: {_reason(error)}")
        if isinstance(error, _ABORTED):
            return TransactionAborted(f"PostgreSQL asks to try again: {type(error).__name__}")
        if isinstance(error, _TRY_AGAIN):
            return StoreUnavailable(f"PostgreSQL asks to try again: {type(error).__name__}")
        if isinstance(error, _NO_SCHEMA):
            return StoreNotReady("the database has no Duetime schema of this version; `duetime init` makes it")
        if isinstance(error, errors.InvalidSchemaName):
            return StoreNotReady(
                f"PostgreSQL at {self._where} has no schema to make tables in: no schema that the user's search_path"
                " names is there, or the user may not use it. Make one (CREATE SCHEMA), or name one that there is"
                " (ALTER ROLE ... SET search_path)"
            )
        if isinstance(error, errors.InsufficientPrivilege):
            said = error.diag.message_primary or type(error).__name__
            return StoreUnavailable(f"PostgreSQL at {self._where} does not let the user do this: {said}")
        if isinstance(error, psycopg.OperationalError):
            return StoreUnavailable(f"PostgreSQL failed for now: {type(error).__name__}")
        return StoreError(f"PostgreSQL refused a statement: {type(error).__name__}")


def _prepare_session(connection: psycopg.Connection[Any], _: object) -> None:
    with connection.cursor() as cursor:
        row = cursor.execute(PREPARE_SESSION).fetchone()
    encoding = row[-1] if row else None
    if encoding != "UTF8":
        raise StoreNotReady(f"the database needs the encoding UTF8, and has {encoding}")


def _reason(error: BaseException) -> str:
    """Return what libpq, or the server through it, says of a connection that was not made, without what it
    repeats."""
    lines = str(error).splitlines()
    return lines[0].rpartition("failed: ")[2].strip() if lines else type(error).__name__


_SCHEMA_LOCK = 0x64756574  # "duet"


def open_dialect(url: str) -> PostgresqlDialect:
    """``postgresql://user:password@host:5432/database?sslmode=verify-full``: libpq's parameters go into the query."""
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        parsed = None
    if parsed is None or not is_address(parsed):
        raise InvalidSettings("a PostgreSQL URL is like postgresql://user@host:5432/database")
    if not parsed.database:
        raise InvalidSettings("a PostgreSQL URL names a database: postgresql://user@host:5432/database")
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    if unknown := sorted(set(parsed.query) - known):
        raise InvalidSettings(f"a PostgreSQL URL has options of libpq, such as sslmode; {unknown[0]!r} is none")
    return PostgresqlDialect(parsed)
