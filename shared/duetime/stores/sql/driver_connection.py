"""A connection of SQLite's driver, with what the store asks of SQLAlchemy's.

SQLAlchemy describes the result of every statement anew, column by column, and keeps books on transactions. For a
small statement that is several times what SQLite itself needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


class DriverConnection:
    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def exec_driver_sql(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """A cursor. A list of values runs the statement with each of them."""
        cursor = self._raw.cursor()
        return cursor.executemany(sql, values) if isinstance(values, list) else cursor.execute(sql, values)

    def commit(self) -> None:
        self._raw.commit()

    def rollback(self) -> None:
        self._raw.rollback()


@contextmanager
def driver_connection(engine: sa.Engine) -> Iterator[Any]:
    """A connection of the pool; a transaction that is not committed ends with nothing written."""
    fairy = engine.raw_connection()
    try:
        yield DriverConnection(fairy.driver_connection)
    finally:
        if fairy.driver_connection is not None and fairy.driver_connection.in_transaction:
            fairy.driver_connection.rollback()
        fairy.close()
