"""TiDB 8.5 or newer, by PyMySQL: MySQL's dialect with what TiDB has besides, by its documentation.

No TiDB has run it. Reasons: decision 0017.
"""

from __future__ import annotations

import pymysql
import sqlalchemy as sa

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.stores.backends.sql.dialects.mysql import MysqlDialect, read_url
from duetime.stores.backends.sql.errors import TransactionAborted

_ABORTED = {
    8002: "a conflict with another transaction",
    8005: "a conflict with another transaction",
    8022: "a commit that failed",
    8028: "a change of the schema",
    9007: "a conflict with another transaction",
}
_TRY_AGAIN = {
    8001: "a lack of memory",
    8027: "a server that does not know the schema's latest version",
    8055: "a transaction that took too long",
    8120: "a placement driver that does not answer",
    8175: "a lack of memory",
    8176: "a lack of memory",
    8252: "a resource group that has used up its share",
    9001: "a placement driver that does not answer",
    9002: "a storage node that does not answer",
    9003: "a storage node that is busy",
    9004: "a conflict with another transaction",
    9005: "a region that does not serve",
    9006: "a transaction that took too long",
}
_TOO_LARGE = {8004: "a transaction", 8025: "a row"}


_KEYS = (
    "SET SESSION foreign_key_checks = ON"
    " /*T!, tidb_constraint_check_in_place_pessimistic = ON, tidb_enable_clustered_index = ON */"
)
"""Keys that are taken are found by the insert, and not by the commit. Rows stand in the order of their key, whatever
the server's default is. In a comment that only TiDB executes: the dialect's tests run on MySQL and MariaDB too."""


class TidbDialect(MysqlDialect):
    """Transactions are pessimistic: only those are READ COMMITTED, and lock what they read for it."""

    session = (
        *MysqlDialect.session,
        _KEYS,
    )

    def begin_write(self, connection: sa.Connection) -> None:
        # A cluster that was once older than 3.0.8 begins optimistic ones otherwise.
        connection.exec_driver_sql("BEGIN /*T! PESSIMISTIC */")

    def classify(self, error: BaseException) -> StoreError:
        code = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else 0
        if code in _ABORTED:
            return TransactionAborted(f"the database asks to try again: {_ABORTED[code]}")
        if code in _TRY_AGAIN:
            return StoreUnavailable(f"the database asks to try again: {_TRY_AGAIN[code]}")
        if code in _TOO_LARGE:
            return StoreError(f"{_TOO_LARGE[code]} is larger than the database takes")
        return super().classify(error)


def open_dialect(url: str) -> TidbDialect:
    """Open ``tidb://user:password@host:4000/database``; ``?tls=on`` encrypts."""
    parsed, is_encrypted = read_url(url)
    return TidbDialect(parsed.set(port=parsed.port or 4000), is_encrypted=is_encrypted)
