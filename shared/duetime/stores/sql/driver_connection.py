"""A connection of SQLite's driver, with what the store asks of SQLAlchemy's.

SQLAlchemy describes the result of every statement anew, column by column, and keeps books on transactions. For a
small statement that is several times what SQLite itself needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

_DIALECT = SQLiteDialect_pysqlite(paramstyle="qmark")


class DriverConnection:
    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def exec_driver_sql(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """A cursor. A list of values runs the statement with each of them."""
        cursor = self._raw.cursor()
        return cursor.executemany(sql, values) if isinstance(values, list) else cursor.execute(sql, values)

    def execute(self, statement: sa.Executable) -> Any:
        """A cursor of a statement that is run once: it is not prepared."""
        compiled = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]
        return self.exec_driver_sql(
            str(compiled), tuple(compiled.params[name] for name in compiled.positiontup or ())
        )

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
