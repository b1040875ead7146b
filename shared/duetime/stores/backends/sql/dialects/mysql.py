"""MySQL 8 and MariaDB 10.6 or newer, by PyMySQL."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import sqlalchemy as sa
from pymysql.constants import CLIENT, CR, ER
from sqlalchemy import event

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects import mysql_sql
from duetime.stores.backends.sql.dialects.db_now import MysqlDbNow
from duetime.stores.backends.sql.dialects.engines import (
    CONNECT_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    ServerDialect,
    encryption_problem,
    read_server_url,
    server_engine,
)
from duetime.stores.backends.sql.errors import ErrorCodes

SOCKET_TIMEOUT_SECONDS = 20
SCHEMA_TURN_SECONDS = 15
"""Less than a socket may be silent, or the driver would give up first."""
IDLE_SECONDS = 60
"""After which the server ends an idle session, and with it the transaction of a machine that is gone."""
RECYCLE_SECONDS = 50
"""After which the pool makes a connection anew: before the server ends it."""

_SESSION = (
    # Row locks alone: the gaps that REPEATABLE READ locks would make writers of different timers wait for each other.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Of rows; and of tables, whose definition somebody changes.
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}, lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}",
    f"SET SESSION wait_timeout = {IDLE_SECONDS}",
    # Text that does not fit is an error and never cut.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
)
_ABORTED = {
    ER.LOCK_DEADLOCK: "a deadlock",
    # MariaDB: a row was changed after the transaction's snapshot.
    ER.CHECKREAD: "a conflict with another transaction",
}
_READ_ONLY = frozenset({ER.OPTION_PREVENTS_STATEMENT, 1836})
_TIMESTAMP_REFUSED = frozenset({ER.OPTION_PREVENTS_STATEMENT, ER.SPECIFIC_ACCESS_DENIED_ERROR})
_TRY_AGAIN = {
    ER.LOCK_WAIT_TIMEOUT: "a lock that was not released in time",
    ER.CON_COUNT_ERROR: "too many connections",
    ER.TOO_MANY_USER_CONNECTIONS: "too many connections of the user",
    ER.USER_LIMIT_REACHED: "a limit of the user",
    ER.SERVER_SHUTDOWN: "a shutdown",
    ER.QUERY_INTERRUPTED: "a statement that was ended",
    1927: "a connection that was ended",
    ER.UNKNOWN_COM_ERROR: "a node that has not joined its cluster",
    ER.RECORD_FILE_FULL: "a full disk",
    ER.DISK_FULL: "a full disk",
    ER.ERROR_ON_WRITE: "a file that cannot be written, as on a full disk",
    ER.GET_ERRNO: "its storage, as on a full disk",
    ER.ERROR_DURING_COMMIT: "a commit that failed",
    ER.OUTOFMEMORY: "a lack of memory",
    ER.OUT_OF_RESOURCES: "a lack of memory",
} | dict.fromkeys(_READ_ONLY, "a read-only server")
_NO_SCHEMA = frozenset({ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR})
_NOT_ALLOWED = "does not let the user do this in the database"
_REFUSED = {
    ER.ACCESS_DENIED_ERROR: "refuses the user or the password",
    1698: "refuses the user or the password",
    ER.DBACCESS_DENIED_ERROR: "does not let the user use the database",
    ER.TABLEACCESS_DENIED_ERROR: _NOT_ALLOWED,
    ER.COLUMNACCESS_DENIED_ERROR: _NOT_ALLOWED,
    ER.SPECIFIC_ACCESS_DENIED_ERROR: _NOT_ALLOWED,
    ER.BAD_DB_ERROR: "has no such database: make it first",
    ER.HANDSHAKE_ERROR: "does not speak the protocol",
    ER.HOST_NOT_PRIVILEGED: "does not let this address in",
    ER.HOST_IS_BLOCKED: "does not let this address in, after too many failures",
    1820: "says that the password must be changed",
    1862: "says that the password must be changed",
    3118: "has locked the user",
    4151: "has locked the user",
    3159: "wants encryption: ?tls=on",
    CR.CR_SSL_CONNECTION_ERROR: "does not encrypt, which ?tls=on asks for",
}
_CODES = ErrorCodes(_ABORTED, _TRY_AGAIN, _REFUSED, _NO_SCHEMA)
_UNREACHABLE = frozenset(
    {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}
)


class MysqlDialect(ServerDialect):
    """Connections commit by themselves; writes begin a transaction explicitly (READ COMMITTED, with row locks)."""

    name = "mysql"
    session: tuple[str, ...] = _SESSION
    # Seen on MariaDB 10.11, with eight writers of one timer: the index has the old and the new place of its row.
    size_function = "octet_length"

    def __init__(self, url: sa.URL, *, is_encrypted: bool) -> None:
        self._where = f"{url.host or 'localhost'}:{url.port or 3306}/{url.database}"
        arguments: dict[str, Any] = {
            "charset": "utf8mb4",
            "connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "read_timeout": SOCKET_TIMEOUT_SECONDS,
            "write_timeout": SOCKET_TIMEOUT_SECONDS,
            "program_name": "duetime",
            # Rows found, not only changed, as SQLAlchemy wants it; and several statements in one request.
            "client_flag": CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
        }
        if url.password is not None:
            # The driver would make Latin-1 of it, where accounts are made with UTF-8.
            arguments["password"] = url.password.encode()
        if is_encrypted:
            arguments["ssl"] = ssl.create_default_context()
        self.engine = server_engine(
            url.set(drivername=mysql_sql.DRIVER_NAME),
            arguments,
            is_astray=self.is_astray,
            recycle_seconds=RECYCLE_SECONDS,
            isolation_level="AUTOCOMMIT",
        )
        event.listen(self.engine, "connect", self._prepare_session)

    def _prepare_session(self, connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            for statement in (*self.session, *MysqlDbNow.connect_statements):
                cursor.execute(statement)
            try:
                MysqlDbNow.check_clock(cursor)
            except pymysql.OperationalError as error:
                if _code_of(error) not in _TIMESTAMP_REFUSED:
                    raise
                raise StoreNotReady("the server must let sessions set timestamp (secure_timestamp=NO)") from error

    def begin_write(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("START TRANSACTION")

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:
        # Names of locks have up to 64 characters, as those of databases have.
        lock = sa.func.left(sa.func.concat("duetime_schema.", sa.func.database()), 64)
        if not connection.execute(sa.select(sa.func.get_lock(lock, SCHEMA_TURN_SECONDS))).scalar():
            raise StoreUnavailable("another process has been making the schema for too long")
        try:
            yield
        finally:
            if not connection.invalidated:  # or it has been released, and what went wrong is not to be hidden
                connection.execute(sa.select(sa.func.release_lock(lock)))

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        # IGNORE also passes over values that do not fit, which never reach this far, and over failed checks.
        return sa.insert(table).prefix_with("IGNORE").inline()

    def is_astray(self, error: BaseException) -> bool:
        return _code_of(error) in _READ_ONLY

    def classify(self, error: BaseException) -> StoreError:
        code = _code_of(error)
        if known := _CODES.meaning(code, self._where):
            return known
        if reason := encryption_problem(error):
            return StoreUnavailable(f"the database at {self._where} cannot be used: {reason}")
        if code in _UNREACHABLE:
            return StoreUnavailable(f"the database at {self._where} cannot be reached")
        if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
            return StoreUnavailable(f"the database failed for now: error {code}")
        return StoreError(f"the database refused a statement: error {code}")


def _code_of(error: BaseException) -> int:
    code: Any = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else 0
    return code if isinstance(code, int) else 0


def open_dialect(url: str) -> MysqlDialect:
    """Open ``mysql://`` or ``mariadb://`` and ``user:password@host:3306/database``; ``?tls=on`` encrypts."""
    parsed, is_encrypted = read_url(url)
    return MysqlDialect(parsed, is_encrypted=is_encrypted)


def read_url(url: str) -> tuple[sa.URL, bool]:
    """Return the URL without options, and whether to encrypt. Raises ``InvalidSettings``."""
    shape = "a MySQL URL is like mysql://user:password@host:3306/database, with ?tls=on to encrypt"
    return read_server_url(url, ("mysql", "mariadb", "tidb"), shape)
