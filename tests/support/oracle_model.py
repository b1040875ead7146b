"""A stand-in for Oracle Database behind the driver's interface: what is sent is translated for SQLite and run by it.

It knows what of Oracle's rules other databases do not have: '' is NULL, definitions commit, a unique index takes keys
that are partly NULL as equal, widths are in characters, long values stand in VALUES and SET only, each parameter
is given and none more, a batch goes on behind a row that is refused. Of plans, waits and locks it knows nothing: a
writer has the database to itself. So it shows that the statements mean what they should, by SQLite's reading of them.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import oracledb
from oracledb.errors import _Error

from duetime.domain.times import format_instant, from_milliseconds
from tests.support.sqlite_checks import alter_check

_MAX_SHORT_BYTES = 4000
_PARAMETER = re.compile(r"(?<![:\w'])(?<!\d):([a-z_]\w*)")
_INSTANT = re.compile(
    r"to_char\(TIMESTAMP '1970-01-01 00:00:00' \+ numtodsinterval\((.*?) / 1000, 'SECOND'\), '[^']*'\)"
)
_LOCKED_FEW = re.compile(r" (?:AND|WHERE) ROWNUM <= (:\w+)(.*?) FOR UPDATE WAIT \d+$", re.DOTALL)
_DEFINITION = re.compile(r"^BEGIN .*?EXECUTE IMMEDIATE q'\[(.*?)\]'.*END;$", re.DOTALL)
_TEXT_COLUMN = re.compile(r"(\w+) VARCHAR2\((\d+) CHAR\)")
_UNIQUE_INDEX = re.compile(r"CREATE UNIQUE INDEX (\w+)\s+ON (\w+) \((.*)\)$", re.DOTALL)
_NUMBERS = {
    "UNIQUE": 1,
    "NOT NULL": 1400,
    "CHECK": 2290,
    "FOREIGN KEY": 2291,
    "no such table": 942,
    "no such column": 904,
    "already exists": 955,
    "database is locked": 54,
}


@dataclass
class OracleModel:
    """One database. ``connect`` stands for ``oracledb.connect``."""

    path: Path
    turn: threading.Lock = field(default_factory=threading.Lock)

    def connect(self, *_: object, **__: object) -> ModelConnection:
        return ModelConnection(self)


class Variable:
    """``cursor.var``: a value of a block, or how a column is read."""

    def __init__(self, outconverter: Callable[[Any], Any] | None = None) -> None:
        self.outconverter = outconverter
        self.value: str | None = None

    def getvalue(self) -> str | None:
        return self.value


class ModelConnection:
    call_timeout = 0
    outputtypehandler: Callable[[Any, Any], Variable | None] | None = None

    def __init__(self, model: OracleModel) -> None:
        self.model = model
        self.has_turn = False
        self.client_info = ""
        self.sqlite = sqlite3.connect(model.path, isolation_level=None, timeout=20, check_same_thread=False)
        self.sqlite.execute("PRAGMA journal_mode = WAL")
        self.sqlite.execute("PRAGMA synchronous = OFF")
        self.sqlite.execute("PRAGMA foreign_keys = ON")
        self.sqlite.create_function("CLIENT_INFO_MS", 0, lambda: int(self.client_info))
        self.sqlite.create_function("ISO_TEXT", 1, lambda ms: format_instant(from_milliseconds(round(ms))))

    @property
    def transaction_in_progress(self) -> bool:
        return self.sqlite.in_transaction or self.has_turn

    def cursor(self, *_: object, **__: object) -> ModelCursor:
        return ModelCursor(self)

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, how: str) -> None:
        if self.sqlite.in_transaction:
            self.sqlite.execute(how)
        if self.has_turn:
            self.has_turn = False
            self.model.turn.release()

    def close(self) -> None:
        self.rollback()
        self.sqlite.close()


class ModelCursor:
    arraysize = 100

    def __init__(self, connection: ModelConnection) -> None:
        self.connection = connection
        self._sqlite = connection.sqlite.cursor()
        self._refused: list[_Error] = []
        self._is_closed = False
        self._num_changed = -1

    def var(self, *_: object, outconverter: Callable[[Any], Any] | None = None, **__: object) -> Variable:
        return Variable(outconverter)

    def setinputsizes(self, **_: object) -> None:
        """SQLite takes values as they are."""

    @property
    def rowcount(self) -> int:
        return -1 if self._is_closed else self._num_changed

    @property
    def description(self) -> Any:
        return self._sqlite.description

    def execute(self, sql: str, parameters: dict[str, Any] | None = None) -> None:
        given = parameters or {}
        _check_parameters(sql, given)
        if sql.lstrip().startswith(("BEGIN", "DECLARE")):
            self._run_block(sql.strip(), given)
        elif sql.startswith("LOCK TABLE"):
            self.connection.has_turn = self.connection.model.turn.acquire(timeout=20)
        else:
            self._num_changed = self._run(sql, given)

    def executemany(self, sql: str, rows: Sequence[dict[str, Any]], *, batcherrors: bool = False) -> None:
        self._refused, self._num_changed = [], 0
        for offset, row in enumerate(rows):
            _check_parameters(sql, row)
            try:
                self._num_changed += self._run(sql, row)
            except oracledb.DatabaseError as error:
                if not batcherrors:
                    raise
                self._refused.append(error.args[0])
                self._refused[-1].offset = offset

    def getbatcherrors(self) -> list[_Error]:
        return self._refused

    def _run(self, sql: str, given: dict[str, Any]) -> int:
        text, locks = translated(sql)
        if locks and not self.connection.sqlite.in_transaction:
            self._sqlite.execute("BEGIN IMMEDIATE")
        values = {name: None if value == "" else value for name, value in given.items()}
        try:
            self._sqlite.execute(text, values)
        except sqlite3.Error as error:
            raise _as_driver(error) from error
        return self._sqlite.rowcount

    def _run_block(self, sql: str, given: dict[str, Any]) -> None:
        definition = _DEFINITION.match(sql)
        if definition is not None:
            self.connection.commit()
            try:
                if not alter_check(self._sqlite, definition[1]):
                    self._sqlite.execute(definition_for_sqlite(definition[1].strip()))
            except sqlite3.Error as error:
                if _as_driver(error).args[0].code != 955:
                    raise _as_driver(error) from error
        elif "language" in given:
            given["language"].value = "AMERICAN_AMERICA.AL32UTF8"
        elif "now_ms" in given:
            self.connection.client_info = given["now_ms"]
        else:
            now = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
            self.connection.client_info = str(self._sqlite.execute(now).fetchone()[0])
            given["seeded"].value = self.connection.client_info

    def _read(self, row: Sequence[Any]) -> tuple[Any, ...]:
        handler = self.connection.outputtypehandler
        assert handler is not None
        values = []
        for value in row:
            if isinstance(value, str):
                column = SimpleNamespace(type_code=oracledb.DB_TYPE_VARCHAR, internal_size=len(value), precision=0)
                variable = handler(self, column)
                assert variable is not None
                assert variable.outconverter is not None
                value = variable.outconverter(value)
            values.append(value)
        return tuple(values)

    def fetchone(self) -> tuple[Any, ...] | None:
        row = self._sqlite.fetchone()
        return None if row is None else self._read(row)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        return [self._read(row) for row in self._sqlite.fetchmany(size)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [self._read(row) for row in self._sqlite.fetchall()]

    def close(self) -> None:
        self._is_closed = True
        self._sqlite.close()


@lru_cache(maxsize=1024)
def translated(sql: str) -> tuple[str, bool]:
    """The same for SQLite, and whether it begins a transaction."""
    text = sql.replace("TO_NUMBER(SYS_CONTEXT('USERENV', 'CLIENT_INFO'))", "CLIENT_INFO_MS()")
    text = _INSTANT.sub(r"ISO_TEXT(\1)", text)
    text = _LOCKED_FEW.sub(r"\2 LIMIT \1", text)
    text = re.sub(r" FOR UPDATE WAIT \d+$", "", text)
    text = re.sub(r"FETCH FIRST (\S+) ROWS ONLY", r"LIMIT \1", text)
    if "current_schema" in text:
        text = "SELECT 'DUETIME'"
    return text, not sql.startswith("SELECT") or " FOR UPDATE " in sql


def definition_for_sqlite(definition: str) -> str:
    index = _UNIQUE_INDEX.match(definition)
    if index is not None:
        # NULLs are equal, unless all of them are NULL.
        keys = re.split(r", (?![^(]*\))", index[3])
        places = ", ".join(f"ifnull({key}, x'00')" for key in keys)
        some = " OR ".join(f"({key}) IS NOT NULL" for key in keys)
        return f"CREATE UNIQUE INDEX {index[1]} ON {index[2]} ({places}) WHERE {some}"
    text = definition.replace(" USING INDEX LOCAL", "")
    text = re.sub(r" PARTITION BY HASH \(\w+\) PARTITIONS \d+", "", text)
    text = text.replace("id NUMBER(19) GENERATED ALWAYS AS IDENTITY (ORDER) NOT NULL", "id INTEGER")
    text = _TEXT_COLUMN.sub(
        rf"\1 TEXT CHECK (length(\1) <= \2 AND length(CAST(\1 AS BLOB)) <= {_MAX_SHORT_BYTES})", text
    )
    text = re.sub(r"RAW\(\d+\)", "BLOB", text)
    return re.sub(r"NUMBER\(\d+\)", "INTEGER", text).replace("CLOB", "TEXT")


def _check_parameters(sql: str, given: dict[str, Any]) -> None:
    names = set(_PARAMETER.findall(re.sub(r"'[^']*'", "''", sql)))
    if names != set(given):
        raise _error(1008, f"{sorted(names)} are bound, {sorted(given)} are given")
    condition = sql.partition(" WHERE ")[2] or sql.partition("\nWHERE ")[2]
    for name, value in given.items():
        is_long = isinstance(value, str) and len(value.encode()) > _MAX_SHORT_BYTES
        if is_long and re.search(rf":{name}\b", condition):
            raise _error(1461, "can bind a LONG value only for insert into a LONG column")


def _as_driver(error: sqlite3.Error) -> oracledb.DatabaseError:
    text = str(error)
    number = next((number for part, number in _NUMBERS.items() if part in text), 900)
    return _error(number, text)


def _error(number: int, text: str) -> oracledb.DatabaseError:
    detail = _Error(f"ORA-{number:05}: {text}", code=number)
    error: oracledb.DatabaseError = detail.exc_type(detail)
    return error
