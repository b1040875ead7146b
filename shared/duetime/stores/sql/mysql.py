"""MySQL 8 and MariaDB 10.6 or newer, by PyMySQL."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
import sqlalchemy as sa
from pymysql.constants import CLIENT, CR, ER
from sqlalchemy import event, exc

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.sql.db_now import MysqlDbNow
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.mysql_migrations import MIGRATIONS, TRACKING_TABLE

MAX_CONNECTIONS = 16
CONNECT_TIMEOUT_SECONDS = 5
LOCK_TIMEOUT_SECONDS = 5
"""How long a statement waits for other transactions, and a thread for a connection."""
SOCKET_TIMEOUT_SECONDS = 20
SCHEMA_TURN_SECONDS = 60
MAX_REQUEST_CHARACTERS = 1_000_000
"""Of statements that are sent in one go: servers take 16 MB and more (``max_allowed_packet``)."""

_SESSION = (
    # Row locks alone: the gaps that REPEATABLE READ locks would make writers of different timers wait for each other.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}",
    # Text that does not fit is an error and never cut.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
)
_ABORTED = {
    ER.LOCK_DEADLOCK: "a deadlock",
    # MariaDB: a row was changed after the transaction's snapshot.
    ER.CHECKREAD: "a conflict with another transaction",
}
_TRY_AGAIN = {
    ER.LOCK_WAIT_TIMEOUT: "a lock that was not released in time",
    ER.CON_COUNT_ERROR: "too many connections",
    ER.SERVER_SHUTDOWN: "a shutdown",
    ER.OPTION_PREVENTS_STATEMENT: "a read-only server",
    ER.RECORD_FILE_FULL: "a full disk",
    ER.DISK_FULL: "a full disk",
    ER.OUTOFMEMORY: "a lack of memory",
}
_NO_SCHEMA = frozenset({ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR})
_REFUSED = {
    ER.ACCESS_DENIED_ERROR: "refuses the user or the password",
    ER.DBACCESS_DENIED_ERROR: "does not let the user use the database",
    ER.BAD_DB_ERROR: "has no such database: make it first",
    ER.HANDSHAKE_ERROR: "does not speak the protocol",
}
_UNREACHABLE = frozenset(
    {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}
)
_SCHEMES = ("mysql", "mariadb", "tidb")


class MysqlDialect:
    """Connections commit by themselves; writes begin a transaction explicitly (READ COMMITTED, with row locks)."""

    name = "mysql"
    engine_name = "mysql+pymysql"
    session: tuple[str, ...] = _SESSION
    migrations = MIGRATIONS
    tracking_table = TRACKING_TABLE
    # Seen on MariaDB 10.11, with eight writers of one timer: the index has the old and the new place of its row.
    locking_reads_miss_moved_rows = True

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
        if is_encrypted:
            arguments["ssl"] = ssl.create_default_context()
        self.engine = sa.create_engine(
            url.set(drivername=self.engine_name),
            isolation_level="AUTOCOMMIT",
            pool_size=MAX_CONNECTIONS,
            max_overflow=0,
            pool_timeout=LOCK_TIMEOUT_SECONDS,
            pool_use_lifo=True,
            # The server closes what has been idle for hours.
            pool_recycle=1800,
            # Values are payloads and headers; an error that is logged must not show them.
            hide_parameters=True,
            connect_args=arguments,
        )
        event.listen(self.engine, "connect", self._prepare_session)
        event.listen(self.engine, "do_executemany", send_batch)

    def _prepare_session(self, connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            for statement in (*self.session, *MysqlDbNow.connect_statements):
                cursor.execute(statement)

    def create_database(self) -> None:
        """The database itself belongs to its operator."""

    def begin_write(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("START TRANSACTION")

    @contextmanager
    def write_turn(self) -> Iterator[None]:
        yield

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:
        # Names of locks have up to 64 characters, as those of databases have.
        lock = sa.func.left(sa.func.concat("duetime_schema.", sa.func.database()), 64)
        if not connection.execute(sa.select(sa.func.get_lock(lock, SCHEMA_TURN_SECONDS))).scalar():
            raise StoreUnavailable("another process has been migrating the schema for too long")
        try:
            yield
        finally:
            connection.execute(sa.select(sa.func.release_lock(lock)))

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        # IGNORE also passes over values that do not fit, which never reach this far, and over failed checks.
        return sa.insert(table).prefix_with("IGNORE").inline()

    def classify(self, error: BaseException) -> StoreError:
        code = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else 0
        if code in _ABORTED:
            return TransactionAborted(f"the database asks to try again: {_ABORTED[code]}")
        if code in _TRY_AGAIN:
            return StoreUnavailable(f"the database asks to try again: {_TRY_AGAIN[code]}")
        if code in _NO_SCHEMA:
            return StoreNotReady("the database has no Duetime schema of this version; `duetime init` makes it")
        if code in _REFUSED:
            return StoreUnavailable(f"the server of {self._where} {_REFUSED[code]}")
        if code in _UNREACHABLE:
            return StoreUnavailable(f"the database at {self._where} cannot be reached")
        if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
            return StoreUnavailable(f"the database failed for now: error {code}")
        return StoreError(f"the database refused a statement: error {code}")


def send_batch(cursor: Any, statement: str, rows: Sequence[Any], _: object) -> bool:
    """A batch of updates as one request instead of one for each row; False leaves the batch to PyMySQL.

    It makes one statement of many INSERTs by itself. Each row stays a statement of its own, and the number of rows
    that they find is the sum.
    """
    if statement.lstrip().startswith("INSERT"):
        return False
    found = 0
    for request in _requests([cursor.mogrify(statement, row) for row in rows]):
        cursor.execute(request)
        found += cursor.rowcount
        while cursor.nextset():
            found += cursor.rowcount
    cursor.rowcount = found
    return True


def _requests(statements: Sequence[str]) -> Iterator[str]:
    """The statements, joined up to ``MAX_REQUEST_CHARACTERS``; one that is longer goes alone."""
    waiting: list[str] = []
    length = 0
    for statement in statements:
        if waiting and length + len(statement) > MAX_REQUEST_CHARACTERS:
            yield ";".join(waiting)
            waiting, length = [], 0
        waiting.append(statement)
        length += len(statement) + 1
    if waiting:
        yield ";".join(waiting)


def open_dialect(url: str) -> MysqlDialect:
    """``mysql://`` or ``mariadb://`` and ``user:password@host:3306/database``; ``?tls=on`` encrypts."""
    parsed, is_encrypted = read_url(url)
    return MysqlDialect(parsed, is_encrypted=is_encrypted)


def read_url(url: str) -> tuple[sa.URL, bool]:
    """The URL without options, and whether to encrypt. Raises ``InvalidSettings``."""
    shape = "a MySQL URL is like mysql://user:password@host:3306/database, with ?tls=on to encrypt"
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise InvalidSettings(shape) from None
    options = dict(parsed.query)
    tls = options.pop("tls", "off")
    if parsed.drivername not in _SCHEMES or not parsed.database or options or tls not in ("on", "off"):
        raise InvalidSettings(shape)
    return parsed.set(query={}), tls == "on"
