"""Statements that are built by SQLAlchemy once and then run as text.

Compiling and parameter processing cost several times what SQLite needs for a small statement, even with
SQLAlchemy's cache. All values are integers, texts and bytes (tables.py), so there is nothing to process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

Values = Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """``arrange`` makes of what the statement is given what the driver takes."""

    sql: str
    arrange: Callable[[Values], Any]


class Prepared:
    """A statement for one dialect. ``places``: where in what it is given the value of each name stands.

    It is compiled when it is first run: a store has a hundred statements, and most who open one need a few.
    """

    def __init__(self, statement: sa.Executable, dialect: Dialect, places: Mapping[str, int]) -> None:
        self._statement = statement
        self._dialect = dialect
        self._places = places
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
            places = {bound_as.get(name, name): place for name, place in self._places.items()}
            # What SQLAlchemy binds by itself, such as the OFFSET 0 that some dialects want.
            constants = {name: value for name, value in compiled.params.items() if name not in places}
            if None in constants.values() or not places.keys() <= compiled.params.keys():
                raise AssertionError(f"{sorted(compiled.params)} are bound, {sorted(places)} are given")
            self._made = _Compiled(str(compiled), _arrangement(places, constants, compiled.positiontup))
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
        """Return the rows of ``keys``, list after list; ``values`` are the statement's others."""
        found: list[Any] = []
        for start in range(0, len(keys), self._longest):
            part = tuple(keys[start : start + self._longest])
            length, statement = next(each for each in self._statements if len(part) <= each[0])
            padding = part[-1:] * (length - len(part))
            found += statement.one(connection, *values, *part, *padding).fetchall()
        return found


def _arrangement(
    given: Mapping[str, int], constants: Mapping[str, Any], positions: Sequence[str] | None
) -> Callable[[Values], Any]:
    """From what a statement is given to what the driver takes: in the order of ``positions``; None: by name."""
    extra = tuple(constants.values())
    behind = {name: place - len(extra) for place, name in enumerate(constants)}
    names = [*given, *constants] if positions is None else positions
    pick = _picker([behind[name] if name in behind else given[name] for name in names])
    arrange = (lambda values: pick((*values, *extra))) if extra else pick
    return arrange if positions is not None else lambda values: dict(zip(names, arrange(values), strict=True))


def _picker(places: list[int]) -> Callable[[Values], Values]:
    """Return what takes the values at ``places``."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple([values[place] for place in places])
