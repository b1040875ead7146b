"""Statements that are built by SQLAlchemy once and then run as text.

Compiling and parameter processing cost several times what SQLite needs for a small statement, even with
SQLAlchemy's cache. All values are integers, texts and bytes (tables.py), so there is nothing to process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """``arrange`` makes of values, in the order of their names, what the driver takes."""

    sql: str
    arrange: Callable[[Values], Any]


class Prepared:
    """A statement for one dialect. Values are given by position, in the order of ``names``.

    It is compiled when it is first run: a store has a hundred statements, and most who open one need a few.
    """

    def __init__(self, statement: sa.Executable, dialect: Dialect, names: Sequence[str]) -> None:
        self._statement = statement
        self._dialect = dialect
        self._names = list(names)
        self._made: _Compiled | None = None

    @property
    def sql(self) -> str:
        return self._compiled().sql

    def one(self, connection: sa.Connection, *values: Any) -> sa.CursorResult[Any]:
        """Run with one set of values."""
        compiled = self._made or self._compiled()
        return connection.exec_driver_sql(compiled.sql, compiled.arrange(values))

    def count(self, connection: sa.Connection, *values: Any) -> int:
        """Run a mutation with one set of values; the number of rows that it changed."""
        return self.one(connection, *values).rowcount

    def many(self, connection: sa.Connection, rows: list[Values]) -> int:
        """Run a mutation with each set of values; the number of rows changed in all."""
        if not rows:
            return 0
        compiled = self._made or self._compiled()
        return connection.exec_driver_sql(compiled.sql, list(map(compiled.arrange, rows))).rowcount

    def _compiled(self) -> _Compiled:
        """Two threads may both compile it: they make the same."""
        if self._made is None:
            compiled = self._statement.compile(dialect=self._dialect)  # type: ignore[attr-defined]
            # Oracle's parameters cannot have all names: there they are bound by others.
            bound_as = compiled.escaped_bind_names
            names = [bound_as.get(name, name) for name in self._names]
            # What SQLAlchemy binds by itself, such as the OFFSET 0 that some dialects want.
            constants = {name: value for name, value in compiled.params.items() if name not in names}
            if None in constants.values() or not set(names) <= compiled.params.keys():
                raise AssertionError(f"{sorted(compiled.params)} are bound, {sorted(names)} are given")
            self._made = _Compiled(str(compiled), _arrangement(names, constants, compiled.positiontup))
        return self._made


class PreparedList:
    """A read of the rows of many keys: each statement has a list of them. Made by ``Database.prepare_list``.

    Lists have a few lengths only, so that there are few statements; what a list has room for asks for its last key
    again.
    """

    def __init__(self, statements: Sequence[tuple[int, Prepared]]) -> None:
        """``statements`` by the length of their lists, the shortest first."""
        self._statements = statements
        self._longest = statements[-1][0]

    def rows(self, connection: sa.Connection, keys: Sequence[Any], *values: Any) -> list[Any]:
        """The rows of ``keys``, list after list; ``values`` are the statement's others."""
        found: list[Any] = []
        for start in range(0, len(keys), self._longest):
            part = tuple(keys[start : start + self._longest])
            length, statement = next(each for each in self._statements if len(part) <= each[0])
            padding = part[-1:] * (length - len(part))
            found += statement.one(connection, *values, *part, *padding).fetchall()
        return found


def _arrangement(names: list[str], constants: dict[str, Any], positions: list[str] | None) -> Callable[[Values], Any]:
    """From values in the order of ``names`` to what the driver takes."""
    if positions is None:
        return lambda values: constants | dict(zip(names, values, strict=True))
    if positions == names:
        return tuple
    extra = tuple(constants.values())
    places = [[*names, *constants].index(name) for name in positions]
    if extra or len(places) == 1:
        return lambda values: tuple([(*values, *extra)[place] for place in places])
    return itemgetter(*places)
