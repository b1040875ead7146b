"""DbNow: the time of the database as a SQL expression, the same instant in all statements of a unit of work.

SQLite evaluates its clock anew for each statement. So a mutation transaction begins by writing one instant into
a temporary table of its connection, and every mutation reads its lease and audit times from there. Reads keep
the database's native time or the ``now`` that is passed. One strategy per dialect, in one registry.
"""

from __future__ import annotations

from typing import Protocol

import sqlalchemy as sa
from sqlalchemy import ColumnElement

from duetime.domain.errors import InvalidSettings


class DbNowStrategy(Protocol):
    """How a dialect renders DbNow."""

    @property
    def connect_statements(self) -> tuple[str, ...]:
        """Run once on each new connection."""
        ...

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        """Fix the instant of the unit of work that begins: the database's, or the caller's where it is given.

        The instant as epoch milliseconds.
        """
        ...

    def epoch_ms(self, offset_ms: ColumnElement[int] | int = 0) -> ColumnElement[int]:
        """DbNow plus an offset, where times are stored as whole milliseconds since 1970."""
        ...

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        """DbNow plus an offset, where times are stored as text like ``2026-12-20T15:30:00.000Z``."""
        ...


_NOW = sa.table("duetime_now", sa.column("ts_epoch_ms", sa.Integer), sa.column("ts_text", sa.Text), schema="temp")
_ISO_FORMAT = "%Y-%m-%dT%H:%M:%fZ"


class SqliteDbNow:
    """A one-row temporary table per connection, replaced at the start of each mutation transaction.

    ``julianday`` has a resolution of about 20 microseconds, so rounding gives the exact millisecond. The row is
    written by a single statement, hence both columns hold the same instant.
    """

    connect_statements = (
        """
        CREATE TEMP TABLE IF NOT EXISTS duetime_now (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            ts_epoch_ms INTEGER NOT NULL,
            ts_text TEXT NOT NULL
        )
        """,
    )
    seed_statement = """
        INSERT OR REPLACE INTO temp.duetime_now (id, ts_epoch_ms, ts_text)
        SELECT 1, instant.ms, strftime('%Y-%m-%dT%H:%M:%fZ', instant.ms / 1000.0, 'unixepoch')
        FROM (
            SELECT coalesce(?, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) AS ms
        ) AS instant
        RETURNING ts_epoch_ms
    """

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        now_ms: int = connection.exec_driver_sql(self.seed_statement, (caller_now_ms,)).scalar_one()
        return now_ms

    def epoch_ms(self, offset_ms: ColumnElement[int] | int = 0) -> ColumnElement[int]:
        base = sa.select(_NOW.c.ts_epoch_ms).scalar_subquery()
        return base if isinstance(offset_ms, int) and offset_ms == 0 else base + offset_ms

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        base = sa.select(_NOW.c.ts_text).scalar_subquery()
        if isinstance(offset_seconds, int | float) and offset_seconds == 0:
            return base
        modifier = sa.func.printf(sa.literal_column("'%+.3f seconds'"), offset_seconds)
        return sa.func.strftime(sa.literal_column(f"'{_ISO_FORMAT}'"), base, modifier, type_=sa.Text)


_STRATEGIES: dict[str, DbNowStrategy] = {"sqlite": SqliteDbNow()}


def db_now_strategy(dialect_name: str) -> DbNowStrategy:
    """The strategy of a dialect. ``InvalidSettings`` for a dialect that has none."""
    try:
        return _STRATEGIES[dialect_name]
    except KeyError:
        raise InvalidSettings(f"no database time is known for the SQL dialect {dialect_name!r}") from None
