"""What SQLAlchemy's dialect for SQL Server leaves open, for all statements at once. Reasons: decision 0017.

It drops FOR UPDATE, which is not there; pymssql commits nothing in the mode in which connections commit by
themselves; and no INSERT passes over a row whose key is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mssql.base import MSSQLCompiler, MSTypeCompiler
from sqlalchemy.dialects.mssql.pymssql import MSDialect_pymssql

from duetime.domain.errors import StoreError

DRIVER_NAME = "mssql+duetime"
"""The engine's URL begins with it."""
_BINARY = "COLLATE Latin1_General_100_BIN2"
_LOCKED = "WITH (UPDLOCK, ROWLOCK)"
_LOCKED_OR_ABSENT = "WITH (UPDLOCK, ROWLOCK, HOLDLOCK)"
_IN_TRANSACTION = "duetime_in_transaction"
_CONTINUED = re.compile(r"\\[\r\n]")
"""T-SQL continues a literal behind a backslash at the end of a line, and drops both. Such a text goes as its UTF-16,
which is converted where it is stored; only bodies and messages can have one, and none of these is compared."""


class Utf16(bytearray):
    """A text as the server keeps it."""


class SqlServerCompiler(MSSQLCompiler):
    def visit_select(self, select_stmt: sa.Select[Any], *args: Any, **kwargs: Any) -> str:
        """Compile a SELECT. A locking read locks by hints on its tables."""
        if select_stmt._for_update_arg is not None:
            for table in select_stmt.get_final_froms():
                select_stmt = select_stmt.with_hint(table, _LOCKED, "mssql")
        text: str = super().visit_select(select_stmt, *args, **kwargs)  # type: ignore[no-untyped-call]
        return text

    def _use_top(self, select: sa.Select[Any]) -> bool:
        """OFFSET ... FETCH, the other form of a limit, needs an ORDER BY."""
        return select._limit_clause is not None and select._offset_clause is None

    def get_select_precolumns(self, select: sa.Select[Any], **kw: Any) -> str:
        text = "DISTINCT " if select._distinct else ""
        limit = select._limit_clause
        return f"{text}TOP ({self.process(limit, **kw)}) " if limit is not None and self._use_top(select) else text


class SqlServerTypes(MSTypeCompiler):
    """Texts are Unicode, compared by their bits, with two units of UTF-16 for each of their characters."""

    def visit_string(self, type_: Any, **_: Any) -> str:
        return f"NVARCHAR({min(2 * type_.length, 4000)}) {_BINARY}"

    def visit_unicode(self, type_: Any, **_: Any) -> str:
        """Has room for what ends an exact text (column_types.py)."""
        return f"NVARCHAR({2 * type_.length + 1}) {_BINARY}"

    def visit_text(self, *_: Any, **__: Any) -> str:
        return "NVARCHAR(MAX)"

    def visit_large_binary(self, type_: Any, **_: Any) -> str:
        return f"VARBINARY({type_.length or 1024})"

    def visit_small_integer(self, *_: Any, **__: Any) -> str:
        """Use the type of literals."""
        return "INT"


class SqlServerSql(MSDialect_pymssql):
    """Transactions are begun, committed and rolled back by statements: pymssql does neither in its autocommit mode.

    Connections are marked while they are in one, so that to give back another takes no request.
    """

    supports_statement_cache = True
    statement_compiler = SqlServerCompiler
    type_compiler_cls = SqlServerTypes

    def begin(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN TRANSACTION")
        if (info := connection.connection.record_info) is not None:
            info[_IN_TRANSACTION] = True

    def do_commit(self, dbapi_connection: Any) -> None:
        try:
            # What the server has ended by itself cannot be committed, which is an error then.
            _end(dbapi_connection, "COMMIT TRANSACTION")
        except Exception:
            # SQLAlchemy takes a failed commit for the end of the transaction, and keeps the connection.
            with suppress(Exception):
                self.do_rollback(dbapi_connection)
            raise

    def do_rollback(self, dbapi_connection: Any) -> None:
        _end(dbapi_connection, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:  # noqa: ARG002
        cursor.execute(statement, _as_sent(parameters))

    def do_executemany(
        self,
        cursor: Any,
        statement: str,
        parameters: Any,
        context: Any = None,  # noqa: ARG002
    ) -> None:
        # Row by row, and its count is then that of all rows.
        cursor.executemany(statement, [_as_sent(each) for each in parameters])


def _end(connection: Any, statement: str) -> None:
    """End the transaction. ``connection`` is the pool's; a bare one is in no transaction that is ours."""
    info = getattr(connection, "record_info", None)
    if info is not None and info.get(_IN_TRANSACTION, False):
        cursor = connection.cursor()
        try:
            cursor.execute(statement)
        finally:
            cursor.close()
        del info[_IN_TRANSACTION]


def _as_sent(parameters: Any) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _literal(value) for name, value in parameters.items()}
    return tuple(map(_literal, parameters))


def _literal(value: Any) -> Any:
    """pymssql writes values into the text of the statement, where it takes bytes for a text if they could be one."""
    if isinstance(value, bytes):
        return bytearray(value)
    if isinstance(value, str) and "\0" in value:
        # The text of a statement ends there.
        raise StoreError("a text has the character U+0000, which the database does not take")
    if isinstance(value, str) and _CONTINUED.search(value):
        return Utf16(value.encode("utf-16-le"))
    return value


class InsertIfAbsent(sa.Insert):
    """An insert that does nothing when a unique key is taken, whoever takes it at the same time.

    Each key is looked for with its place locked until the end of the transaction, there or not there.
    """

    inherit_cache = True

    def values(self, *args: Any, **kwargs: Any) -> sa.Insert:  # type: ignore[override]
        table: Any = self.table
        given = {str(getattr(key, "name", key)): value for key, value in (dict(*args) | kwargs).items()}
        absent = [
            ~sa.exists(
                sa.select(sa.literal_column("1"))
                .select_from(table)
                .with_hint(table, _LOCKED_OR_ABSENT, "mssql")
                .where(*(table.c[name] == given[name] for name in key))
            )
            for key in _unique_keys(table, given.keys())
        ]
        rows = sa.select(*(sa.type_coerce(value, table.c[name].type).label(name) for name, value in given.items()))
        return sa.insert(table).from_select(list(given), rows.where(*absent))


def _unique_keys(table: sa.Table, given: Any) -> list[list[str]]:
    """Return the columns of the table's unique keys that ``given`` has completely."""
    unique = {str(index.name): index.columns.keys() for index in table.indexes if index.unique and _is_plain(index)}
    indexes = [unique[name] for name in sorted(unique)]
    keys = [key for key in [list(table.primary_key.columns.keys()), *indexes] if set(key) <= set(given)]
    assert keys, f"an insert into {table.name} has no key"
    # A timer's place in the primary key ends with what namespace and id make: one key is taken when the other is.
    return keys[1:] if table.name == "timers" and len(keys) > 1 else keys


def _is_plain(index: sa.Index) -> bool:
    """Tell whether an index is one of columns. One of expressions is another dialect's, of the same name."""
    return all(isinstance(each, sa.Column) for each in index.expressions)


registry.register(DRIVER_NAME.replace("+", "."), __name__, SqlServerSql.__name__)
