"""SQL Server 2017 or newer and Azure SQL Database, by pymssql."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymssql
import sqlalchemy as sa
from sqlalchemy import event

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects.engines import (
    CONNECT_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    ServerDialect,
    read_server_url,
    server_engine,
)
from duetime.stores.backends.sql.dialects.sqlserver_sql import DRIVER_NAME, InsertIfAbsent, SqlServerSql
from duetime.stores.backends.sql.errors import ErrorCodes, by_code

QUERY_TIMEOUT_SECONDS = 20
SCHEMA_TURN_SECONDS = 15
"""Less than a query may take, or the driver would give up first."""

_SESSION = (
    # What indexes with a condition ask of each session that writes their table.
    "SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON;",
    "SET CONCAT_NULL_YIELDS_NULL ON; SET QUOTED_IDENTIFIER ON; SET NUMERIC_ROUNDABORT OFF;",
    "SET ANSI_NULL_DFLT_ON ON; SET TEXTSIZE 2147483647; SET IMPLICIT_TRANSACTIONS OFF;",
    # Statements say how many rows they changed, whatever the server's default is.
    "SET NOCOUNT OFF;",
    # What fails, or is given up by the client, leaves no open transaction behind.
    "SET XACT_ABORT ON;",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;",
    f"SET LOCK_TIMEOUT {LOCK_TIMEOUT_SECONDS * 1000};",
)
_READS_VERSIONS = "SELECT is_read_committed_snapshot_on FROM sys.databases WHERE database_id = DB_ID()"
_TURN = f"""
    DECLARE @turn INT;
    EXEC @turn = sp_getapplock @Resource = N'duetime_schema', @LockMode = 'Exclusive', @LockOwner = 'Transaction',
        @LockTimeout = {SCHEMA_TURN_SECONDS * 1000};
    SELECT @turn
"""

_ASTRAY = frozenset({3906, 976, 983})
"""A database that has become read-only, and replicas that do not serve."""
_CODES = ErrorCodes(
    aborted=by_code(
        {
            "a deadlock": (1205,),
            "a conflict with another transaction": (3960, 41302, 41305, 41325),
            "a conflict with a change of the schema": (3961,),
            "a transaction that the server has ended": (3902,),
        }
    ),
    try_again=by_code(
        {
            "a lock that was not released in time": (1222,),
            "a statement that took too long": (20003,),
            "a lack of memory": (701, 802, 8645, 8651),
            "a lack of locks": (1204,),
            "a full disk": (1101, 1105),
            "a full transaction log": (9002,),
            "a database that has reached its size": (40544,),
            "a read-only database": (3906,),
            "a database that recovers": (3908,),
            "a shutdown": (6005,),
            "a replica that does not serve": (976, 983),
            "too many requests": (10928, 10929, 40501, 49918, 49919, 49920),
            "a failover": (40197, 40613),
            "too many connections": (17809,),
        }
    ),
    refused=by_code(
        {
            "refuses the user or the password": (18452, 18456),
            "has locked the user": (18486,),
            "says that the password has expired": (18487,),
            "says that the password must be changed": (18488,),
            "has no such database, or does not let the user use it": (4060,),
            "does not let the user use the database": (916,),
            "does not let the user do this in the database": (229, 262),
            "does not let this address in": (40615,),
        }
    ),
    no_schema=frozenset({207, 208}),
)
_UNREACHABLE = frozenset({20002, 20004, 20006, 20009, 20012, 20013, 20017, 20047, 10053, 10054, 233})


class SqlServerDialect(ServerDialect):
    """Connections commit by themselves; writes begin a transaction explicitly (READ COMMITTED, with row locks)."""

    name = "mssql"
    # As for InnoDB: the row is found by one index and locked by another, and may have moved between.
    size_function = "datalength"

    def __init__(self, url: sa.URL, *, is_encrypted: bool) -> None:
        self._where = f"{url.host}:{url.port or 1433}/{url.database}"
        arguments: dict[str, Any] = {
            "autocommit": True,
            "charset": "UTF-8",
            "tds_version": "7.4",
            "login_timeout": CONNECT_TIMEOUT_SECONDS,
            "timeout": QUERY_TIMEOUT_SECONDS,
            "appname": "duetime",
            "conn_properties": " ".join(_SESSION),
        }
        if is_encrypted:
            arguments["encryption"] = "require"
        self.engine = server_engine(
            url.set(drivername=DRIVER_NAME, port=url.port or 1433),
            arguments,
            is_astray=self.is_astray,
            # Azure closes what has been idle for half an hour.
            recycle_seconds=900,
            isolation_level="AUTOCOMMIT",
            # One question less at the first connection.
            supports_comments=False,
        )
        event.listen(self.engine, "connect", _check_database)

    def begin_write(self, connection: sa.Connection) -> None:
        assert isinstance(connection.dialect, SqlServerSql)
        connection.dialect.begin(connection)

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:
        if connection.exec_driver_sql(_TURN).scalar_one() < 0:
            raise StoreUnavailable("another process has been making the schema for too long")
        yield

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        return InsertIfAbsent(table)

    def is_astray(self, error: BaseException) -> bool:
        return _number_of(error) in _ASTRAY

    def classify(self, error: BaseException) -> StoreError:
        number = _number_of(error)
        if known := _CODES.meaning(number, self._where):
            return known
        if number in _UNREACHABLE or (number == 0 and isinstance(error, pymssql.InterfaceError)):
            return StoreUnavailable(f"the database at {self._where} cannot be reached")
        if isinstance(error, pymssql.InterfaceError):
            return StoreUnavailable(f"the database failed for now: error {number}")
        return StoreError(f"the database refused a statement: error {number}")


def _number_of(error: BaseException) -> int:
    """Return the server's or the driver's number of an error; 0 for none. It stands alone or in a tuple with the
    text."""
    argument: Any = error.args[0] if error.args else 0
    if isinstance(argument, tuple):
        argument = argument[0] if argument else 0
    return argument if isinstance(argument, int) else 0


def _check_database(connection: Any, _: object) -> None:
    """Without versions, readers and writers would wait for each other, and in circles."""
    cursor = connection.cursor()
    cursor.execute(_READS_VERSIONS)
    row = cursor.fetchone()
    cursor.close()
    if row is None or not row[0]:
        raise StoreNotReady(
            "the database needs READ_COMMITTED_SNAPSHOT: ALTER DATABASE ... SET READ_COMMITTED_SNAPSHOT ON"
        )


def open_dialect(url: str) -> SqlServerDialect:
    """Open ``sqlserver://`` or ``mssql://`` and ``user:password@host:1433/database``; ``?tls=on`` encrypts."""
    shape = "a SQL Server URL is like sqlserver://user:password@host:1433/database, with ?tls=on to encrypt"
    parsed, is_encrypted = read_server_url(url, ("sqlserver", "mssql"), shape)
    if not parsed.host:
        raise InvalidSettings(shape)
    return SqlServerDialect(parsed, is_encrypted=is_encrypted)
