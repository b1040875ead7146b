"""A connection of SQLite's driver, with what the store asks of SQLAlchemy's.

SQLAlchemy describes the result of every statement anew, column by column, and keeps books on transactions and on
connections that are lent. For a small statement that is several times what SQLite itself needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa


class DriverConnections:
    """Connections of a pool. Up to ``kept`` of them are not given back when a unit of work ends well, but kept for
    the next."""

    def __init__(self, engine: sa.Engine, *, kept: int) -> None:
        self._engine, self._kept = engine, kept
        self._idle: list[DriverConnection] = []

    def take(self) -> DriverConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return DriverConnection(self._engine.raw_connection(), self)

    def keeps(self, connection: DriverConnection) -> bool:
        if len(self._idle) >= self._kept:
            return False
        self._idle.append(connection)
        return True

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class DriverConnection:
    """A transaction that is not committed ends with nothing written."""

    def __init__(self, pooled: Any, of: DriverConnections | None = None) -> None:
        self._pooled, self._of = pooled, of
        self._raw = pooled.driver_connection

    def exec_driver_sql(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """A cursor. A list of values runs the statement with each of them."""
        cursor = self._raw.cursor()
        return cursor.executemany(sql, values) if isinstance(values, list) else cursor.execute(sql, values)

    def commit(self) -> None:
        self._raw.commit()

    def rollback(self) -> None:
        self._raw.rollback()

    def close(self) -> None:
        self._pooled.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._raw.in_transaction:
            self._raw.rollback()
        if kind is not None or self._of is None or not self._of.keeps(self):
            self.close()
