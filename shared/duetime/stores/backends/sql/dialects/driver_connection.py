"""A connection of the driver itself, with what the store asks of SQLAlchemy's.

SQLAlchemy describes the result of every statement anew, column by column, and keeps books on transactions and on
connections that are lent. For a small statement that is several times what the driver itself needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import event


class DriverConnections:
    """Connections of a pool. Up to ``kept`` of them are not given back when a unit of work ends well, but kept for
    the next.

    ``is_astray``: whether an error says that connections lead to where they must not: all that were made by then are
    thrown away, as those to a server that is gone are.
    """

    def __init__(self, engine: sa.Engine, *, kept: int, is_astray: Callable[[BaseException], bool]) -> None:
        self._engine, self._kept, self._is_astray = engine, kept, is_astray
        self._idle: list[DriverConnection] = []
        self.era = 0
        """How often connections were lost."""
        event.listen(engine, "connect", lambda _, record: record.info.update(made_in=self.era))

    def take(self) -> DriverConnection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = DriverConnection(self._engine.raw_connection(), self)
            if not connection.is_past():
                return connection
            connection.throw_away()

    def keeps(self, connection: DriverConnection) -> bool:
        if len(self._idle) >= self._kept:
            return False
        self._idle.append(connection)
        return True

    def failed(self, raw: Any, error: Any) -> None:
        """Note what a unit of work on ``raw`` ended with. With one that is lost, all others are likely to be."""
        if self._is_astray(error) or self._engine.dialect.is_disconnect(error, raw, None):
            self.era += 1

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class DriverConnection:
    """A transaction that is not committed ends with nothing written."""

    def __init__(self, pooled: Any, of: DriverConnections) -> None:
        self._pooled, self._of = pooled, of
        self._raw = pooled.driver_connection

    def exec_driver_sql(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement: a cursor. A list of values runs it with each of them."""
        cursor = self._raw.cursor()
        if isinstance(values, list):
            cursor.executemany(sql, values)
        else:
            cursor.execute(sql, values)
        return cursor

    def commit(self) -> None:
        self._raw.commit()

    def rollback(self) -> None:
        self._raw.rollback()

    def close(self) -> None:
        self._pooled.close()

    def is_past(self) -> bool:
        """Tell whether it was made before others were lost."""
        return bool(self._pooled.info["made_in"] != self._of.era)

    def throw_away(self) -> None:
        self._pooled.invalidate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._raw.rollback()  # sends nothing where all is committed
        else:
            self._of.failed(self._raw, error)
        if self.is_past():
            self.throw_away()
        elif kind is not None or not self._of.keeps(self):
            self.close()  # the pool ends what it was in


class Results:
    """What SQLAlchemy's results have, for cursors of drivers."""

    def first(self) -> Any:
        """Return the first row or None. The statement ends: one that has rows left would keep SQLite's log from being
        copied."""
        row = self.fetchone()  # type: ignore[attr-defined]
        self.close()  # type: ignore[attr-defined]
        return row

    def scalar(self) -> Any:
        row = self.first()
        return None if row is None else row[0]

    def scalar_one(self) -> Any:
        return self.first()[0]

    def one(self) -> Any:
        """Return the row of a statement that has one."""
        return self.first()

    def all(self) -> list[Any]:
        return self.fetchall()  # type: ignore[attr-defined,no-any-return]
