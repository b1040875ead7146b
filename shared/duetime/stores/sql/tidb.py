"""TiDB 8.5 or newer, by PyMySQL: MySQL's dialect with what TiDB has besides, by its documentation.

No TiDB has run it. Reasons: decision 0017.
"""

from __future__ import annotations

from typing import Any

import pymysql
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.mysqldb import MySQLCompiler_mysqldb
from sqlalchemy.sql.visitors import iterate

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.mysql import MysqlDialect, read_url
from duetime.stores.sql.mysql_sql import MysqlSql

_INDEXES = {
    "timers": {
        "timer_correlation_id": "idx_timer_correlation",
        "timer_namespace": "idx_timer_lookup",
        "timer_execute_at": "PRIMARY",
        "timer_expires_at": "idx_timer_expiry",
    },
    "service_calls": {
        "name": "idx_service_calls_name",
        "correlation_id": "idx_service_calls_correlation",
        "due_at": "idx_service_calls_due",
        "status": "idx_service_calls_status",
        "is_starred": "idx_service_calls_starred",
        "expires_at": "idx_service_calls_expiry",
        "service_call_id": "PRIMARY",
    },
    "idempotency_records": {"record_expires_at": "idx_idempotency_record_expiry"},
    "service_call_tags": {"tag": "idx_service_call_tags_tag"},
    "http_execution_log": {"execution_number": "idx_http_execution_log_number"},
    "outbox": {"published_at": "idx_outbox_unpublished", "tenant_id": "idx_outbox_sequence"},
}
"""By table: the index for ranges whose condition has the column; the first one counts."""

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


class TidbCompiler(MySQLCompiler_mysqldb):
    def visit_select(self, select_stmt: sa.Select[Any], *args: Any, **kwargs: Any) -> str:
        """Ranges say by which index they are read: statistics that are missing or old must not decide it."""
        index = _index_of(select_stmt) if select_stmt._limit_clause is not None else None
        if index is not None:
            table, name = index
            select_stmt = select_stmt.prefix_with(sa.text(f"/*+ USE_INDEX({table}, {name}) */"))
        text: str = super().visit_select(select_stmt, *args, **kwargs)  # type: ignore[no-untyped-call]
        return text


def _index_of(select: sa.Select[Any]) -> tuple[str, str] | None:
    """The table that a range begins with, and its index for the range. None for a table that is read by its key."""
    condition = select.whereclause
    columns = [each for each in iterate(condition) if isinstance(each, sa.Column)] if condition is not None else []
    tables = [column.table.name for column in columns]
    if not tables or tables[0] not in _INDEXES:
        return None
    names = {column.name for column in columns if column.table.name == tables[0]}
    found = [index for column, index in _INDEXES[tables[0]].items() if column in names]
    return (tables[0], found[0]) if found else None


_KEYS = (
    "SET SESSION foreign_key_checks = ON"
    " /*T!, tidb_constraint_check_in_place_pessimistic = ON, tidb_enable_clustered_index = ON */"
)
"""Keys that are taken are found by the insert, and not by the commit. Rows stand in the order of their key, whatever
the server's default is. In a comment that only TiDB executes: the dialect's tests run on MySQL and MariaDB too."""


class TidbSql(MysqlSql):
    supports_statement_cache = True
    statement_compiler = TidbCompiler


class TidbDialect(MysqlDialect):
    """Transactions are pessimistic: only those are READ COMMITTED, and lock what they read for it."""

    engine_name = "mysql+duetimetidb"
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
    """``tidb://user:password@host:4000/database``; ``?tls=on`` encrypts."""
    parsed, is_encrypted = read_url(url)
    return TidbDialect(parsed.set(port=parsed.port or 4000), is_encrypted=is_encrypted)


registry.register(TidbDialect.engine_name.replace("+", "."), __name__, TidbSql.__name__)
