"""Connections and units of work: what every part of the store runs its statements in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

import sqlalchemy as sa

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.backends.sql.dialects.db_now import db_now_strategy
from duetime.stores.backends.sql.dialects.dialect import SqlDialect
from duetime.stores.backends.sql.dialects.driver_connection import DriverConnections
from duetime.stores.backends.sql.errors import translation
from duetime.stores.backends.sql.gathered_rows import AsJson, AsRows, GatheredRows
from duetime.stores.backends.sql.given_rows import PreparedForRows, taken_from_rows
from duetime.stores.backends.sql.prepared import Prepared, PreparedList
from duetime.stores.backends.sql.schema import check_schema, create_schema
from duetime.stores.backends.sql.tables import schema_migrations
from duetime.stores.time_source import StoreTime, TimeSource

_LIST_LENGTHS = (1, 4, 16, 64)


@dataclass(frozen=True, slots=True)
class Mutation:
    """An open write transaction and its one instant, which is also what DbNow gives in its statements."""

    connection: sa.Connection
    now: datetime


class Database:
    def __init__(self, dialect: SqlDialect, *, time_source: TimeSource) -> None:
        self._dialect = dialect
        self._uses_caller_time = time_source is TimeSource.CALLER
        self.engine = dialect.engine
        self._connections = (
            DriverConnections(dialect.engine, kept=dialect.kept_connections, is_astray=dialect.is_astray)
            if dialect.driver_errors
            else None
        )
        take: Any = self.engine.connect if self._connections is None else self._connections.take
        self._connect: Callable[[], AbstractContextManager[sa.Connection]] = take
        self.streams_rows, self.keeps_plans = dialect.streams_rows, dialect.keeps_plans
        self.gathered_rows: GatheredRows = AsJson() if dialect.streams_rows else AsRows()
        self.db_now = db_now_strategy(dialect.name, time_source)

    def prepare(self, statement: sa.Executable, *names: str) -> Prepared:
        """Prepare a statement whose values will be given in the order of ``names``."""
        return self.prepare_picking(statement, {name: place for place, name in enumerate(names)})

    def prepare_picking(self, statement: sa.Executable, places: Mapping[str, int]) -> Prepared:
        """Prepare a statement that takes its values, by their names, from these places of what it will be given."""
        return Prepared(statement, self.engine.dialect, places)

    def prepare_list(self, select: sa.Select[Any], column: sa.Column[Any], *names: str) -> PreparedList:
        """Prepare ``select`` of the rows whose ``column`` is one of many keys. ``names`` as for ``prepare``."""
        statements = []
        for length in _LIST_LENGTHS:
            keys = [f"list_key_{number}" for number in range(length)]
            # With the column's type: SQL Server's compares what is made of a text.
            are_keys = column.in_([sa.bindparam(key, type_=column.type) for key in keys])
            statements.append((length, self.prepare(select.where(are_keys), *names, *keys)))
        return PreparedList(statements)

    def size_of(self, column: sa.Column[Any]) -> sa.ColumnElement[int]:
        """Return the size of a long text, in bytes or characters, told without sending it."""
        size: sa.ColumnElement[int] = getattr(sa.func, self._dialect.size_function)(column, type_=sa.BigInteger)
        return size

    def prepare_insert(self, table: sa.Table, values: Mapping[str, Any], places: Mapping[str, int]) -> Prepared:
        """Prepare an insert of rows that are not there: ``values`` by column. ``places`` as for
        ``prepare_picking``."""
        insert = self._dialect.insert_if_absent(table)
        statement = insert.values(values)
        if not self.keeps_plans:
            return self.prepare_picking(statement, places)
        of_rows = insert.from_select(list(values), taken_from_rows(sa.select(*values.values()), places))
        return PreparedForRows(statement, of_rows, self.engine.dialect, places)

    def prepare_change(self, statement: sa.Update | sa.Delete, places: Mapping[str, int]) -> Prepared:
        """Prepare an update or a delete. ``places`` as for ``prepare_picking``."""
        if not self.keeps_plans:
            return self.prepare_picking(statement, places)
        return PreparedForRows(statement, taken_from_rows(statement, places), self.engine.dialect, places)

    def read(self) -> AbstractContextManager[sa.Connection]:
        """Return a connection for reading. Each statement sees the latest committed state."""
        return _Session(self._dialect, self._connect)

    def _described(self) -> AbstractContextManager[sa.Connection]:
        """Return a connection of SQLAlchemy's, for what is not prepared."""
        return _Session(self._dialect, self.engine.connect)

    def clock_ms(self, connection: sa.Connection, now: datetime) -> int:
        """Return what the database's clock reads, outside of a unit of work: epoch milliseconds, a test's own in
        tests."""
        if self._uses_caller_time:
            return to_milliseconds(now)
        return int(connection.exec_driver_sql(self.db_now.now_statement).scalar_one())

    def store_time(self, *, now: datetime) -> StoreTime:
        with self.read() as connection:
            return StoreTime(from_milliseconds(self.clock_ms(connection, now)), resolution_seconds=0.001)

    @contextmanager
    def write(self, now: datetime | None = None) -> Iterator[Mutation]:
        """Open a write transaction, committed at the end and rolled back by any exception.

        ``now`` is the caller's; None where a test's clock does not matter.
        """
        given = to_milliseconds(now) if now is not None and self._uses_caller_time else None
        with self._dialect.write_turn(), self.read() as connection:
            yield self._begun(connection, given)
            connection.commit()

    def _begun(self, connection: sa.Connection, now_ms: int | None) -> Mutation:
        self._dialect.begin_write(connection)
        return Mutation(connection, from_milliseconds(self.db_now.seed(connection, now_ms)))

    def initialise(self) -> None:
        """Create the database and its schema. Raises ``StoreNotReady`` for any other schema."""
        self._dialect.create_database()
        with self._dialect.write_turn(), self._described() as connection:
            self._begun(connection, None)
            with self._dialect.schema_turn(connection):
                create_schema(connection, self.db_now)
            connection.commit()

    def check(self) -> None:
        """Raise ``StoreUnavailable``, ``StoreNotReady`` or ``StoreEmpty``."""
        try:
            with self._described() as connection:
                check_schema(connection)
        except StoreNotReady:
            with self._described() as connection:
                tables = sa.inspect(connection).get_table_names()
                if not tables:
                    raise StoreEmpty(
                        "the database has no tables, so no schema of Duetime; `duetime init` makes it"
                    ) from None
                if schema_migrations.name not in tables:
                    raise
                check_schema(connection)  # another process may have begun the schema since

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
        self.engine.dispose()


class _Session:
    """A connection for a unit of work; errors are translated. A generator would cost more than a small read."""

    __slots__ = ("_connect", "_dialect", "_opened")

    def __init__(self, dialect: SqlDialect, connect: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._dialect, self._connect = dialect, connect

    def __enter__(self) -> sa.Connection:
        try:
            self._opened = self._connect()
            return self._opened.__enter__()
        except Exception as error:
            self._translate(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._opened.__exit__(kind, error, trace)
        except Exception as another:
            self._translate(another)
            raise
        if isinstance(error, Exception):
            self._translate(error)

    def _translate(self, error: Exception) -> None:
        translated = translation(self._dialect.classify, error, self._dialect.driver_errors)
        if translated is not None:
            raise translated from error
