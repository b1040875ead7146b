"""DbNow: the time of the database as a SQL expression, the same instant in all statements of a unit of work.

Every mutation takes its lease and audit times from it; reads keep the database's native time or the ``now`` that is
passed. One strategy per dialect, in one registry. Where a dialect evaluates its clock anew for each statement, the
strategy fixes the instant when the transaction begins (``seed``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import ColumnElement

from duetime.domain.errors import InvalidSettings, StoreNotReady
from duetime.stores.time_source import TimeSource


class DbNowStrategy(Protocol):
    """How a dialect renders DbNow."""

    @property
    def connect_statements(self) -> tuple[str, ...]:
        """Run once on each new connection."""
        ...

    @property
    def now_statement(self) -> str:
        """Reads the clock as it is, whatever was seeded: epoch milliseconds."""
        ...

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        """Fix the instant of the unit of work that begins: the database's, or the caller's where it is given.

        The instant as epoch milliseconds. ``caller_now_ms`` is given only to a strategy for ``TimeSource.CALLER``.
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


def _is_zero(offset: ColumnElement[Any] | float) -> bool:
    return isinstance(offset, int | float) and offset == 0


class SqliteDbNow:
    """A one-row temporary table per connection, replaced at the start of each mutation transaction.

    SQLite evaluates its clock anew for each statement. ``julianday`` has a resolution of about 20 microseconds, so
    rounding gives the exact millisecond. The row is written by a single statement, hence both columns hold the same
    instant.
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
    now_statement = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
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
        return base if _is_zero(offset_ms) else base + offset_ms

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        base = sa.select(_NOW.c.ts_text).scalar_subquery()
        if _is_zero(offset_seconds):
            return base
        modifier = sa.func.printf(sa.literal_column("'%+.3f seconds'"), offset_seconds)
        return sa.func.strftime(sa.literal_column(f"'{_ISO_FORMAT}'"), base, modifier, type_=sa.Text)


class _ServerDbNow:
    """An expression of the server gives the instant: epoch milliseconds."""

    _epoch_ms: str

    def epoch_ms(self, offset_ms: ColumnElement[int] | int = 0) -> ColumnElement[int]:
        base: ColumnElement[int] = sa.literal_column(self._epoch_ms, type_=sa.BigInteger)
        return base if _is_zero(offset_ms) else base + offset_ms


class PostgresqlDbNow(_ServerDbNow):
    """``CURRENT_TIMESTAMP``: the start of the transaction, for all its statements.

    Where the caller's time is wanted, a setting that ends with the transaction holds it.
    """

    connect_statements: tuple[str, ...] = ()
    now_statement = "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"
    setting = "duetime.now_ms"

    def __init__(self, time_source: TimeSource) -> None:
        self._epoch_ms = "CAST(floor(extract(epoch FROM CURRENT_TIMESTAMP) * 1000) AS BIGINT)"
        self._instant = "date_trunc('milliseconds', CURRENT_TIMESTAMP)"
        if time_source is TimeSource.CALLER:
            given = f"CAST(nullif(current_setting('{self.setting}', true), '') AS BIGINT)"
            self._epoch_ms = f"coalesce({given}, {self._epoch_ms})"
            self._instant = f"to_timestamp({self._epoch_ms} / 1000.0)"

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        if caller_now_ms is not None:
            connection.exec_driver_sql(f"SELECT set_config('{self.setting}', %s, true)", (str(caller_now_ms),))
            return caller_now_ms
        now_ms: int = connection.exec_driver_sql(f"SELECT {self._epoch_ms}").scalar_one()
        return now_ms

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        instant: ColumnElement[Any] = sa.literal_column(self._instant, type_=sa.DateTime(timezone=True))
        if not _is_zero(offset_seconds):
            # Years, months, weeks, days, hours and minutes; then come the seconds.
            larger_units: tuple[Any, ...] = (sa.literal_column("0"),) * 6
            instant = instant + sa.func.make_interval(*larger_units, offset_seconds, type_=sa.Interval)
        utc = sa.func.timezone(sa.literal_column("'UTC'"), instant)
        return sa.func.to_char(utc, sa.literal_column("""'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'"""), type_=sa.Text)


class MysqlDbNow(_ServerDbNow):
    """``CURRENT_TIMESTAMP(3)``, held still for a whole transaction by the session variable ``timestamp``.

    By itself it is the same within one statement only. MySQL, MariaDB and TiDB all have the variable; SYSDATE is what
    it does not hold. Connections have the time zone UTC, for local time is ambiguous once a year.
    """

    connect_statements = ("SET SESSION time_zone = '+00:00'",)
    now_statement = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)"
    clock_statements = ("SET timestamp = 1", "SELECT UNIX_TIMESTAMP(SYSDATE())", "SET timestamp = DEFAULT")
    """Once on each new connection: whether the variable can be set, and SYSDATE goes on."""
    _epoch_ms = "CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(3)) * 1000 AS SIGNED)"
    _ISO_FORMAT = "'%Y-%m-%dT%H:%i:%s.%f'"

    @classmethod
    def check_clock(cls, cursor: Any) -> None:
        """Raise ``StoreNotReady`` for a server whose SYSDATE is NOW: each connection's clock would stand still."""
        hold, ask, let_go = cls.clock_statements
        cursor.execute(hold)
        cursor.execute(ask)
        (seconds,) = cursor.fetchone()
        cursor.execute(let_go)
        if seconds == 1:
            raise StoreNotReady("the server's SYSDATE stands still with NOW: it must run without sysdate-is-now")

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        if caller_now_ms is not None:
            connection.exec_driver_sql(f"SET timestamp = {caller_now_ms // 1000}.{caller_now_ms % 1000:03}")
            return caller_now_ms
        connection.exec_driver_sql("SET timestamp = UNIX_TIMESTAMP(SYSDATE(3))")
        now_ms: int = connection.exec_driver_sql(f"SELECT {self._epoch_ms}").scalar_one()
        return now_ms

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        instant: ColumnElement[Any] = sa.literal_column("CURRENT_TIMESTAMP(3)")
        if not _is_zero(offset_seconds):
            microseconds = sa.cast(sa.func.round(sa.literal_column("1000000") * offset_seconds), sa.BigInteger)
            instant = sa.func.timestampadd(sa.literal_column("MICROSECOND"), microseconds, instant)
        text = sa.func.date_format(instant, sa.literal_column(self._ISO_FORMAT))
        return sa.func.concat(sa.func.left(text, sa.literal_column("23")), sa.literal_column("'Z'"), type_=sa.Text)


class SqlServerDbNow(_ServerDbNow):
    """An instant in the session's context, replaced when a mutation transaction begins.

    SYSUTCDATETIME moves from statement to statement. A value in the context needs no table and no rights; it is of
    no type of its own, hence the casts. DATEDIFF_BIG counts milliseconds that are over.
    """

    connect_statements: tuple[str, ...] = ()
    _EPOCH = "CAST('1970-01-01' AS DATETIME2(3))"
    _epoch_ms = "CAST(SESSION_CONTEXT(N'duetime.now_ms') AS BIGINT)"
    now_statement = f"SELECT DATEDIFF_BIG(MILLISECOND, {_EPOCH}, SYSUTCDATETIME())"
    _DAY_MS = 24 * 60 * 60 * 1000
    seed_statement = f"""
        DECLARE @now_ms BIGINT = COALESCE(%(now_ms)s, DATEDIFF_BIG(MILLISECOND, {_EPOCH}, SYSUTCDATETIME()));
        EXEC sp_set_session_context @key = N'duetime.now_ms', @value = @now_ms;
        SELECT @now_ms
    """

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        now_ms: int = connection.exec_driver_sql(self.seed_statement, {"now_ms": caller_now_ms}).scalar_one()
        return now_ms

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        milliseconds: ColumnElement[Any] = sa.literal_column(self._epoch_ms, type_=sa.BigInteger)
        if not _is_zero(offset_seconds):
            offset_ms = sa.func.round(sa.literal_column("1000") * offset_seconds, sa.literal_column("0"))
            milliseconds = (milliseconds + sa.cast(offset_ms, sa.BigInteger)).self_group()
        # DATEADD counts in ints, and the milliseconds since 1970 are too many of them: days first.
        day_ms = sa.literal_column(str(self._DAY_MS), type_=sa.BigInteger)
        days = sa.cast(milliseconds.op("/")(day_ms), sa.Integer)
        rest = sa.cast(milliseconds.op("%")(day_ms), sa.Integer)
        day = sa.func.dateadd(sa.literal_column("DAY"), days, sa.literal_column(self._EPOCH))
        instant = sa.func.dateadd(sa.literal_column("MILLISECOND"), rest, day)
        # Style 121 has blanks where style 126 has a T, but always three digits behind the second.
        text = sa.func.convert(sa.literal_column("NVARCHAR(23)"), instant, sa.literal_column("121"))
        with_t = sa.func.replace(text, sa.literal_column("N' '"), sa.literal_column("N'T'"), type_=sa.Unicode)
        return with_t.concat(sa.literal_column("N'Z'"))


class OracleDbNow(_ServerDbNow):
    """A text of the session, its CLIENT_INFO, replaced when a mutation transaction begins.

    SYSTIMESTAMP moves from statement to statement. The text needs no table and no rights, and outlives the commits
    that come with definitions. Milliseconds are counted from the parts of an interval, which are exact.
    """

    connect_statements: tuple[str, ...] = ()
    _epoch_ms = "TO_NUMBER(SYS_CONTEXT('USERENV', 'CLIENT_INFO'))"
    _EPOCH = "TIMESTAMP '1970-01-01 00:00:00'"
    _ISO_FORMAT = """'YYYY-MM-DD"T"HH24:MI:SS.FF3"Z"'"""
    _AGE = f"SYS_EXTRACT_UTC(SYSTIMESTAMP) - {_EPOCH}"
    _AGE_MS = (
        "EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000"
        " + EXTRACT(MINUTE FROM age) * 60000 + FLOOR(EXTRACT(SECOND FROM age) * 1000)"
    )
    now_statement = f"SELECT {_AGE_MS} FROM (SELECT {_AGE} AS age FROM DUAL)"  # noqa: S608  # constants
    seed_statement = f"""
        DECLARE
            age INTERVAL DAY(9) TO SECOND(9) := {_AGE};
            now_ms VARCHAR2(19);
        BEGIN
            now_ms := TO_CHAR({_AGE_MS}, 'TM9');
            DBMS_APPLICATION_INFO.SET_CLIENT_INFO(now_ms);
            :seeded := now_ms;
        END;
    """
    seed_given_statement = "BEGIN DBMS_APPLICATION_INFO.SET_CLIENT_INFO(:now_ms); END;"

    def seed(self, connection: sa.Connection, caller_now_ms: int | None) -> int:
        if caller_now_ms is not None:
            connection.exec_driver_sql(self.seed_given_statement, {"now_ms": str(caller_now_ms)})
            return caller_now_ms
        seeded = connection.connection.cursor().var(str)
        connection.exec_driver_sql(self.seed_statement, {"seeded": seeded})
        return int(seeded.getvalue())

    def iso_text(self, offset_seconds: ColumnElement[float] | float = 0) -> ColumnElement[str]:
        milliseconds: ColumnElement[Any] = sa.literal_column(self._epoch_ms, type_=sa.BigInteger)
        if not _is_zero(offset_seconds):
            offset_ms = sa.func.round(sa.literal_column("1000") * offset_seconds, type_=sa.BigInteger)
            milliseconds = (milliseconds + offset_ms).self_group()
        # Numbers are decimal, so that this division is exact.
        seconds = milliseconds.op("/")(sa.literal_column("1000"))
        age = sa.func.numtodsinterval(seconds, sa.literal_column("'SECOND'"))
        instant = sa.literal_column(self._EPOCH).op("+")(age)
        return sa.func.to_char(instant, sa.literal_column(self._ISO_FORMAT), type_=sa.Text)


_STRATEGIES: dict[str, Callable[[TimeSource], DbNowStrategy]] = {
    "sqlite": lambda _: SqliteDbNow(),
    "mssql": lambda _: SqlServerDbNow(),
    "mysql": lambda _: MysqlDbNow(),
    "oracle": lambda _: OracleDbNow(),
    "postgresql": PostgresqlDbNow,
}


def db_now_strategy(dialect_name: str, time_source: TimeSource = TimeSource.DATABASE) -> DbNowStrategy:
    """Return the strategy of a dialect. ``InvalidSettings`` for a dialect that has none."""
    try:
        return _STRATEGIES[dialect_name](time_source)
    except KeyError:
        raise InvalidSettings(f"no database time is known for the SQL dialect {dialect_name!r}") from None
