"""The schema is made once, whoever makes it and however often; another one is refused and left as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreNotReady
from duetime.domain.times import format_instant
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.schema import VERSION
from duetime.stores.backends.sql.tables import metadata
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore


def test_every_table_is_there_and_strict(store: SqlStore) -> None:
    with store.database.read() as connection:
        strict = connection.exec_driver_sql("SELECT name FROM pragma_table_list WHERE strict").all()

    assert {name for (name,) in strict} == set(metadata.tables)


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_checking_a_row_makes_no_table(store: SqlStore, table: str) -> None:
    values = ", ".join("1" for _ in metadata.tables[table].columns)
    with store.database.read() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN INSERT INTO {table} VALUES ({values})").all()

    assert "OpenEphemeral" not in {step[1] for step in steps}


def test_its_version_is_noted(store: SqlStore) -> None:
    with store.database.read() as connection:
        ((version, name, applied_at),) = connection.exec_driver_sql("SELECT * FROM schema_migrations")

    assert (version, name) == (VERSION, "initial")
    assert len(applied_at) == len(format_instant(NOW))


def test_initialising_again_changes_nothing(store: SqlStore) -> None:
    def stored() -> list[object]:
        with store.database.read() as connection:
            made = connection.exec_driver_sql("SELECT * FROM sqlite_schema").all()
            return [*made, *connection.exec_driver_sql("SELECT * FROM schema_migrations")]

    before = stored()

    store.initialise()

    assert stored() == before


def test_tables_of_somebody_else_are_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE workers (x)")
        connection.commit()
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    with pytest.raises(StoreNotReady, match="'workers' that Duetime did not make"):
        store.initialise()

    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("workers",)]


def test_a_file_without_schema_is_not_ready(path: Path) -> None:
    sqlite3.connect(path).close()
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    with pytest.raises(StoreNotReady, match="schema"):
        store.check()
    with pytest.raises(StoreNotReady):
        store.catalogue.shard_map()
    store.close()


def test_a_newer_schema_is_not_touched(store: SqlStore) -> None:
    with store.database.write() as mutation:
        mutation.connection.exec_driver_sql("INSERT INTO schema_migrations VALUES (99, 'later', '')")

    with pytest.raises(StoreNotReady, match="version 99"):
        store.check()
    with pytest.raises(StoreNotReady, match="version 99"):
        store.initialise()


def test_an_incomplete_schema_is_completed(store: SqlStore) -> None:
    """As a process leaves it that ended between two definitions, on a server that commits each."""
    with store.database.write() as mutation:
        for statement in ("DROP INDEX idx_timer_expiry", "DROP TABLE outbox", "DELETE FROM schema_migrations"):
            mutation.connection.exec_driver_sql(statement)
    with pytest.raises(StoreNotReady, match="incomplete"):
        store.check()

    store.initialise()

    store.check()
    with store.database.engine.connect() as connection:
        inspector = sa.inspect(connection)
        assert "idx_timer_expiry" in {index["name"] for index in inspector.get_indexes("timers")}
        assert len(inspector.get_indexes("outbox")) == 3
