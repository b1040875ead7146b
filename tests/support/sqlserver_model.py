"""A model of SQL Server: SQLite, which reads the store's T-SQL by translation and ignores blanks at the end of texts.

It shows that the statements do what they should: keys, conditions, numbers of rows, what is read back. It shows
nothing of SQL Server's locks, plans, types and messages; a writer has the whole database.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pymssql
import sqlalchemy as sa
import sqlglot
from sqlglot import expressions as exp

from duetime.domain.times import format_instant, from_milliseconds
from duetime.stores.sql.db_now import SqlServerDbNow
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.sqlserver_sql import Utf16
from duetime.stores.sql.store import SqlStore
from duetime.stores.time_source import TimeSource
from tests.support.sqlite_checks import alter_check

BUSY_SECONDS = 10
_HINTS = re.compile(r" WITH \((?:UPDLOCK|ROWLOCK|HOLDLOCK)[^)]*\)")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_CONNECTED = {
    "@@version": "Microsoft SQL Server 2019 - 15.0.4223.1 (X64)",
    "schema_name": "dbo",
    "sys.system_views": "dm_exec_sessions",
    "transaction_isolation_level": "READ COMMITTED",
    "test max support": "test max support",
    "is_read_committed_snapshot_on": 1,
    "sp_getapplock": 0,
}
"""What a new connection and who migrates ask for, and the answers."""
_DEFINITIONS = (
    (r"IF OBJECT_ID\(N'\w+'\) IS NULL\s+CREATE TABLE", "CREATE TABLE IF NOT EXISTS"),
    (r"(id) BIGINT IDENTITY\(1, 1\) NOT NULL", r"\1 INTEGER PRIMARY KEY AUTOINCREMENT"),
    (r",\s+CONSTRAINT outbox_key PRIMARY KEY CLUSTERED \(id\)", ""),
    (r"PRIMARY KEY CLUSTERED", "PRIMARY KEY"),
    # RTRIM compares byte by byte, without the blanks at the end: as Latin1_General_100_BIN2 does.
    (r"NVARCHAR\(\w+\) COLLATE Latin1_General_100_BIN2", "TEXT COLLATE RTRIM"),
    (r"NVARCHAR\(MAX\)", "TEXT"),
    (r"(?:VAR)?BINARY\(\d+\)", "BLOB"),
    (r" INCLUDE \(\w+\)", ""),
    (r"N'", "'"),
)


_CONTINUATION = re.compile(r"\\\r?\n")
"""What SQL Server drops of a literal."""


def _compiled(expression: sa.ColumnElement[Any]) -> str:
    dialect = open_dialect("mssql://model/x").engine.dialect
    return str(expression.compile(dialect=dialect))


_ISO_TEXT = _compiled(SqlServerDbNow().iso_text())


@cache
def translated(sql: str) -> str:
    """A statement of T-SQL in SQLite's SQL, with ``:name`` for its values."""
    text = _PLACEHOLDER.sub(r"@\1", _HINTS.sub("", sql)).replace(_ISO_TEXT, "MODEL_ISO_TEXT()")
    (statement,) = sqlglot.parse(text, read="tsql", error_level=sqlglot.ErrorLevel.RAISE)
    assert statement is not None
    return statement.transform(_in_sqlite).sql("sqlite").replace("@", ":")


def _in_sqlite(node: exp.Expression) -> exp.Expression:
    """What sqlglot leaves as it was: ``N'text'``, LEFT, and ``+`` for texts."""
    if isinstance(node, exp.National):
        return exp.Literal.string(node.name)
    if isinstance(node, exp.Left):
        return exp.Anonymous(this="SUBSTR", expressions=[node.this, exp.Literal.number(1), node.expression])
    if isinstance(node, exp.Add) and node.expression.sql("tsql") in ("NCHAR(1)", "CHAR(1)"):
        return exp.DPipe(this=node.this, expression=exp.Anonymous(this="CHAR", expressions=[exp.Literal.number(1)]))
    return node


class ModelConnection:
    """pymssql's connection, as far as the store uses it."""

    def __init__(self, path: Path) -> None:
        self.now_ms = 0
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA foreign_keys = ON")
        # Two bytes for each character, as NVARCHAR has them.
        self.database.create_function("DATALENGTH", 1, lambda text: None if text is None else 2 * len(text))
        self.database.create_function("SESSION_CONTEXT", 1, lambda _: self.now_ms)
        self.database.create_function("MODEL_ISO_TEXT", 0, lambda: format_instant(from_milliseconds(self.now_ms)))

    def cursor(self) -> ModelCursor:
        return ModelCursor(self)

    def autocommit(self, _: bool) -> None:
        pass

    def commit(self) -> None:
        """As pymssql does when it commits by itself: nothing."""

    def rollback(self) -> None:
        """Likewise."""

    def close(self) -> None:
        self.database.close()


class ModelCursor:
    arraysize = 1

    def __init__(self, connection: ModelConnection) -> None:
        self._connection = connection
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.description: Any = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Any = ()) -> None:
        self.description, self._rows = None, iter(())
        try:
            self._run(" ".join(sql.split()), sql, parameters)
        except sqlite3.IntegrityError as error:
            raise pymssql.IntegrityError(2627, str(error).encode()) from error
        except sqlite3.OperationalError as error:
            number = 208 if "no such table" in str(error) else 1222 if "locked" in str(error) else 102
            raise pymssql.OperationalError(number, str(error).encode()) from error

    def executemany(self, sql: str, rows: Sequence[Any]) -> None:
        """As pymssql: one after the other, and the number of rows is the sum."""
        total = 0
        for row in rows:
            self.execute(sql, row)
            total += self.rowcount
        self.rowcount = total

    def _run(self, line: str, sql: str, parameters: Any) -> None:
        database = self._connection.database
        answer = next((answer for part, answer in _CONNECTED.items() if part in line), None)
        if answer is not None:
            self._answer(answer)
        elif line == "BEGIN TRANSACTION":
            database.execute("BEGIN IMMEDIATE")
        elif line == "COMMIT TRANSACTION":
            database.execute("COMMIT")
        elif line.startswith("IF @@TRANCOUNT > 0"):
            if database.in_transaction:
                database.execute("ROLLBACK")
        elif line.startswith("DECLARE @now_ms"):
            given = parameters["now_ms"]
            self._connection.now_ms = given if given is not None else time.time_ns() // 1_000_000
            self._answer(self._connection.now_ms)
        elif re.match(r"CREATE |IF OBJECT_ID", line):
            for pattern, replacement in _DEFINITIONS:
                line = re.sub(pattern, replacement, line)
            database.execute(line)
        elif line.startswith("ALTER TABLE"):  # another one changes how it locks
            alter_check(database, line.replace("N'", "'"))
        else:
            self._translate_and_run(sql, parameters)

    def _answer(self, value: Any) -> None:
        self.description = [("", None, None, None, None, None, None)]
        self._rows = iter([(value,)])

    def _translate_and_run(self, sql: str, parameters: Any) -> None:
        values = parameters if isinstance(parameters, Mapping) else {}
        values = {name: _as_read(value) for name, value in values.items()}
        found = self._connection.database.execute(translated(sql), values)
        self.rowcount = found.rowcount
        if found.description is not None:
            self.description = found.description
            self._rows = iter(found)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())


def _as_read(value: Any) -> Any:
    """What a value is that went as a literal."""
    if isinstance(value, Utf16):
        return value.decode("utf-16-le")
    return _CONTINUATION.sub("", value) if isinstance(value, str) else value


def open_model(path: Path, *, time_source: TimeSource = TimeSource.CALLER) -> SqlStore:
    """A store that takes the file for a SQL Server."""
    dialect = open_dialect("sqlserver://model/duetime")

    @sa.event.listens_for(dialect.engine, "do_connect")
    def connect(*_: object) -> ModelConnection:
        return ModelConnection(path)

    return SqlStore(dialect, time_source=time_source)
