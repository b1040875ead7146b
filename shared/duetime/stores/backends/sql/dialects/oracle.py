"""Oracle Database, by python-oracledb without Oracle's client libraries (thin mode)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oracledb
import sqlalchemy as sa

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects import oracle_sql
from duetime.stores.backends.sql.dialects.engines import (
    CONNECT_TIMEOUT_SECONDS,
    ServerDialect,
    encryption_problem,
    read_server_url,
    server_engine,
)
from duetime.stores.backends.sql.errors import ErrorCodes, by_code

SCHEMA_TURN_SECONDS = 15
"""Less than a statement may take, or the driver would give up first."""
DEFAULT_PORT = 1521

_TURN_TABLE = (
    "BEGIN EXECUTE IMMEDIATE 'CREATE TABLE schema_turn (turn_id NUMBER(1))';"
    " EXCEPTION WHEN OTHERS THEN IF SQLCODE = -955 THEN NULL; ELSE RAISE; END IF; END;"
)
"""Does nothing where the table exists: another process may be creating it."""
_TURN = f"LOCK TABLE schema_turn IN EXCLUSIVE MODE WAIT {SCHEMA_TURN_SECONDS}"
_READ_ONLY = 16000
_CODES = ErrorCodes(
    aborted=by_code(
        {
            "a deadlock": (60,),
            "a conflict with another transaction": (8177,),
            "a snapshot that is too old": (1555,),
            "a deadlock over the schema": (4020,),
        }
    ),
    try_again=by_code(
        {
            "a lock that was not released in time": (54, 30006),
            "a statement that took too long": (1013,),
            "too many sessions": (18, 2391),
            "too many processes": (20, 12516, 12519, 12520),
            "a start or a shutdown": (1033, 1034, 1089, 1090, 1109),
            "a full archive of its log": (257,),
            "a quota that is used up": (1536,),
            "a full tablespace": (1653, 1654, 1683, 1688, 1691, 1692, 30036),
            "a lack of memory": (4030, 4031),
            "a read-only database": (_READ_ONLY,),
            "a change of the schema": (4068,),
        }
    ),
    refused=by_code(
        {
            "refuses the user or the password": (1005, 1017),
            "has locked the user": (28000,),
            "says that the password has expired": (28001,),
            "does not let the user make sessions": (1045,),
            "does not let the user do this": (1031,),
            "gives the user no room in its tablespace": (1950,),
            "has no such service": (12505, 12514, 12521),
            "does not let the user in now": (12526, 12528),
        }
    ),
    no_schema=frozenset({904, 942}),
)
_OF_DRIVER = {
    "DPY-3010": "is too old for the driver",
    "DPY-3015": "has a kind of password that the driver does not know",
    "DPY-4000": "is not known by that name",
    "DPY-4001": "wants a user and a password",
    "DPY-4024": "took too long",
    "DPY-6001": "has no such service",
    "DPY-6003": "has no such service",
}
_UNREACHABLE = ("DPY-1001", "DPY-4011", "DPY-6")


class OracleDialect(ServerDialect):
    """A write is a transaction that its first change begins (READ COMMITTED, with row locks)."""

    name = "oracle"
    # Oracle begins a statement again whose row has changed; a second look costs little and relies on nothing.
    size_function = "length"

    def __init__(self, url: sa.URL, *, is_encrypted: bool) -> None:
        port = url.port or DEFAULT_PORT
        self._where = f"{url.host}:{port}/{url.database}"
        arguments: dict[str, Any] = {
            "user": url.username,
            "password": url.password,
            "host": url.host,
            "port": port,
            "service_name": url.database,
            "protocol": "tcps" if is_encrypted else "tcp",
            "tcp_connect_timeout": float(CONNECT_TIMEOUT_SECONDS),
            # The driver would try other addresses and again by itself; callers do.
            "retry_count": 0,
            # Minutes after which a peer that is gone is noticed.
            "expire_time": 1,
            "program": "duetime",
        }
        self.engine = server_engine(
            sa.URL.create(oracle_sql.DRIVER_NAME, host=url.host, port=port, database=url.database),
            arguments,
            is_astray=self.is_astray,
            # Profiles and firewalls close what has been idle.
            recycle_seconds=900,
            # Look for tables in every tablespace.
            exclude_tablespaces=(),
        )

    def begin_write(self, connection: sa.Connection) -> None:
        """Nothing to send: reads of READ COMMITTED begin no transaction, and the first change does."""

    @contextmanager
    def schema_turn(self, connection: sa.Connection) -> Iterator[None]:
        """Held by a connection of its own: definitions commit the transaction of theirs, and its locks with it."""
        connection.exec_driver_sql(_TURN_TABLE)
        with self.engine.connect() as turn:
            turn.exec_driver_sql(_TURN)
            yield
            turn.rollback()

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        return oracle_sql.insert_if_absent(table)

    def is_astray(self, error: BaseException) -> bool:
        return _codes_of(error)[0] == _READ_ONLY

    def classify(self, error: BaseException) -> StoreError:
        if isinstance(error, oracle_sql.WrongCharacterSet):
            return StoreNotReady(str(error))
        if isinstance(error, oracle_sql.NoAnswer):
            return StoreUnavailable(f"the database at {self._where} cannot be reached")
        if reason := encryption_problem(error):
            return StoreUnavailable(f"the database at {self._where} cannot be used: {reason}")
        number, code = _codes_of(error)
        if known := _CODES.meaning(number, self._where):
            return known
        if code in _OF_DRIVER:
            return StoreUnavailable(f"the server of {self._where} {_OF_DRIVER[code]}")
        if code.startswith(_UNREACHABLE) or 12150 <= number < 12700:
            return StoreUnavailable(f"the database at {self._where} cannot be reached")
        if isinstance(error, oracledb.OperationalError | oracledb.InterfaceError):
            return StoreUnavailable(f"the database failed for now: error {code or number}")
        return StoreError(f"the database refused a statement: error {code or number}")


def _codes_of(error: BaseException) -> tuple[int, str]:
    """Return the server's number of an error, 0 for none, and its whole code, which may be the driver's
    (``DPY-4011``)."""
    detail: Any = error.args[0] if error.args else None
    return getattr(detail, "code", 0) or 0, getattr(detail, "full_code", "") or ""


def open_dialect(url: str) -> OracleDialect:
    """Open ``oracle://user:password@host:1521/service``; ``?tls=on`` encrypts and verifies the server."""
    shape = "an Oracle URL is like oracle://user:password@host:1521/service, with ?tls=on to encrypt"
    parsed, is_encrypted = read_server_url(url, ("oracle",), shape)
    if not (parsed.host and parsed.username and parsed.password):
        raise InvalidSettings(shape)
    return OracleDialect(parsed, is_encrypted=is_encrypted)
