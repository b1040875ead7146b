"""What SQLAlchemy's dialect and PyMySQL leave open on MySQL, MariaDB and TiDB: requests and work that need not be."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from typing import Any

from pymysql.connections import Connection
from pymysql.constants import SERVER_STATUS
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.base import MySQLTypeCompiler
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql

DRIVER_NAME = "mysql+duetime"
"""The engine's URL begins with it."""
MAX_REQUEST_CHARACTERS = 1_000_000
"""Of statements that are sent in one go: servers take 16 MB and more (``max_allowed_packet``)."""
_VALUES = " VALUES "


class MysqlConnection(Connection):
    """Where encryption is not insisted on, PyMySQL encrypts if the server does, and trusts any certificate.

    All the same it would read those of the system for each attempt to connect, which takes it 60 ms.
    """

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | dict[str, Any]) -> ssl.SSLContext:
        if isinstance(sslp, ssl.SSLContext):
            return sslp
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class MysqlTypes(MySQLTypeCompiler):
    def visit_text(self, *_: Any, **__: Any) -> str:
        """JSON is kept as the exact text that was given, which the JSON type would not be."""
        return "MEDIUMTEXT"

    def visit_large_binary(self, type_: Any, **_: Any) -> str:
        """No BLOB: all of ours are short."""
        return f"VARBINARY({type_.length or 1024})"


class MysqlSql(MySQLDialect_pymysql):
    supports_statement_cache = True
    type_compiler_cls = MysqlTypes

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        return MysqlConnection(*args, **kwargs)

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Each answer of the server says whether a transaction is open. Reads begin none, and need no request."""
        if dbapi_connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            dbapi_connection.rollback()

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:  # noqa: ARG002
        cursor.rowcount = send_batch(cursor, statement, parameters)


def send_batch(cursor: Any, statement: str, rows: Sequence[Any]) -> int:
    """Send a batch as one request, where the driver sends one for each row; the number of rows that it changed.

    INSERTs become one statement of many rows (PyMySQL makes that only of those that hold nothing but values); each
    row of an UPDATE or a DELETE stays a statement of its own.
    """
    insert, separator, values = statement.partition(_VALUES)
    if statement.startswith("INSERT") and separator:
        parts, first, between = [cursor.mogrify(values, row) for row in rows], f"{insert}{_VALUES}", ","
    else:
        parts, first, between = [cursor.mogrify(statement, row) for row in rows], "", ";"
    found = 0
    for part in _joined(parts, between):
        cursor.execute(first + part)
        found += cursor.rowcount
        while cursor.nextset():
            found += cursor.rowcount
    return found


def _joined(parts: Sequence[str], between: str) -> Iterator[str]:
    """Join the parts up to ``MAX_REQUEST_CHARACTERS``; one that is longer goes alone."""
    waiting: list[str] = []
    length = 0
    for part in parts:
        if waiting and length + len(part) > MAX_REQUEST_CHARACTERS:
            yield between.join(waiting)
            waiting, length = [], 0
        waiting.append(part)
        length += len(part) + 1
    if waiting:
        yield between.join(waiting)


registry.register(DRIVER_NAME.replace("+", "."), __name__, MysqlSql.__name__)
