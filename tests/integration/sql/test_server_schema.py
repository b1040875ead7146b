"""The schema on real servers: what tables.py says, whoever makes it and however often."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreNotReady
from duetime.stores.sql.store import SqlStore
from duetime.stores.sql.tables import metadata
from tests.support.databases import drop_tables, open_server_store


def columns_of(connection: sa.Connection, table: str) -> dict[str, tuple[str, bool]]:
    found = sa.inspect(connection).get_columns(table)
    return {column["name"]: (_kind(column["type"]), column["nullable"]) for column in found}


def _kind(type_: Any) -> str:
    """A type without what differs by design: lengths of blobs and texts, collations; on SQL Server more (0017)."""
    if isinstance(type_, sa.types.TypeDecorator):
        return _kind(type_.impl_instance)
    if isinstance(type_, sa.LargeBinary | sa.types._Binary):
        return "bytes"
    if isinstance(type_, sa.String):
        return "text" if isinstance(type_, sa.Text) or type_.length is None else f"varchar({type_.length})"
    return type(type_.as_generic()).__name__


def _loosely(columns: dict[str, tuple[str, bool]]) -> dict[str, tuple[str, bool]]:
    """Texts have room for what ends them and for pairs of units; small numbers are as large as literals."""
    return {
        name: ("text" if kind.startswith("varchar") else kind.replace("SmallInteger", "Integer"), nullable)
        for name, (kind, nullable) in columns.items()
    }


def _untyped(columns: dict[str, tuple[str, bool]]) -> dict[str, tuple[str, bool]]:
    """Oracle has one type of numbers."""
    return {name: ("", nullable) for name, (_, nullable) in columns.items()}


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_columns_and_keys_are_those_of_the_tables(server_store: SqlStore, table: str) -> None:
    wanted = metadata.tables[table]
    dialect = server_store.database.engine.dialect
    with server_store.database.read() as connection:
        columns = columns_of(connection, table)
        key = sa.inspect(connection).get_pk_constraint(table)["constrained_columns"]
        foreign = sa.inspect(connection).get_foreign_keys(table)

    expected = {
        column.name: (_kind(column.type.dialect_impl(dialect)), bool(column.nullable)) for column in wanted.columns
    }
    if dialect.name == "mssql":
        columns, expected = _loosely(columns), _loosely(expected)
    if dialect.name == "oracle":
        columns, expected = _untyped(columns), _untyped(expected)
    assert columns == expected
    assert key == [column.name for column in wanted.primary_key.columns]
    found = [(each["constrained_columns"], each["referred_table"], each["options"]["ondelete"]) for each in foreign]
    assert found == [
        ([column.name for column in each.columns], each.referred_table.name, each.ondelete)
        for each in wanted.foreign_key_constraints
    ]


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_indexes_serve_the_same_ends(server_store: SqlStore, table: str) -> None:
    """Unique ones are alike; where indexes have no conditions, others have a column that stands for one."""
    dialect = server_store.database.engine.dialect.name
    with server_store.database.read() as connection:
        found = {index["name"]: index for index in sa.inspect(connection).get_indexes(table)}

    for index in metadata.tables[table].indexes:
        if dialect in ("mysql", "oracle") and index.name == "idx_outbox_published":
            assert found["idx_outbox_unpublished"]["column_names"][0] == "published_at"
            continue
        assert index.name in found
        assert bool(found[index.name]["unique"]) == bool(index.unique)
        # On Oracle an expression, which leaves out the rows without a key.
        if index.unique and (dialect, index.name) != ("oracle", "idx_service_calls_idempotency"):
            assert found[index.name]["column_names"] == [column.name for column in index.columns]


def test_timers_are_partitioned_by_shard(server_store: SqlStore) -> None:
    if server_store.database.engine.dialect.name in ("mssql", "oracle"):
        pytest.skip("not partitioned: decision 0017")
    statement = {
        "postgresql": "SELECT count(*) FROM pg_inherits WHERE inhparent = 'timers'::regclass",
        "mysql": "SELECT count(*) FROM information_schema.partitions WHERE table_schema = database()"
        " AND table_name = 'timers' AND partition_method = 'HASH' AND partition_expression LIKE '%shard_id%'",
    }[server_store.database.engine.dialect.name]
    with server_store.database.read() as connection:
        assert connection.execute(sa.text(statement)).scalar_one() == 32


def test_ids_are_compared_byte_by_byte(server_store: SqlStore) -> None:
    for name in ("b", "B ", "b ", "B", "a"):
        server_store.catalogue_secret(name, name.encode())

    assert {name: server_store.catalogue_secret(name, b"?") for name in ("b", "B ", "b ", "B", "a")} == {
        name: name.encode() for name in ("b", "B ", "b ", "B", "a")
    }


def test_processes_that_start_at_once_make_one_schema(server: str) -> None:
    drop_tables(server)
    stores = [open_server_store(server) for _ in range(4)]
    errors: list[BaseException] = []

    def start(store: SqlStore) -> None:
        try:
            store.initialise()
            store.check()
        except BaseException as error:  # shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=start, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()

    assert errors == []


def test_a_database_without_schema_is_not_ready(server: str) -> None:
    drop_tables(server)
    store = open_server_store(server)

    with pytest.raises(StoreNotReady, match="duetime init"):
        store.check()
    with pytest.raises(StoreNotReady):
        store.shard_map()
    store.close()


def test_a_newer_schema_is_not_touched(server_store: SqlStore) -> None:
    with server_store.database.write() as mutation:
        mutation.connection.exec_driver_sql("INSERT INTO schema_migrations VALUES (99, 'later', '')")
    try:
        with pytest.raises(StoreNotReady, match="version 99"):
            server_store.initialise()
    finally:
        with server_store.database.write() as mutation:
            mutation.connection.exec_driver_sql("DELETE FROM schema_migrations WHERE migration_version = 99")
