"""The schema on real servers: made once, whoever makes it and however often."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreNotReady
from duetime.stores.backends.sql.tables import metadata, schema_migrations
from tests.support.databases import drop_tables, open_server_store
from tests.support.sql_store import SqlStore

_HASH_PARTITIONS_OF_MYSQL = (
    "SELECT count(*) FROM information_schema.partitions WHERE table_schema = database()"
    " AND table_name = 'timers' AND partition_method = 'HASH' AND partition_expression LIKE '%shard_id%'"
)


def test_timers_are_partitioned_by_shard(server_store: SqlStore) -> None:
    if server_store.database.engine.dialect.name in ("mssql", "oracle"):
        pytest.skip("not partitioned: decision 0017")
    number, statement = {
        "postgresql": (4, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'timers'::regclass"),
        "mysql": (32, _HASH_PARTITIONS_OF_MYSQL),
    }[server_store.database.engine.dialect.name]
    with server_store.database.engine.connect() as connection:
        assert connection.execute(sa.text(statement)).scalar_one() == number


def test_ids_are_compared_byte_by_byte(server_store: SqlStore) -> None:
    for name in ("b", "B ", "b ", "B", "a"):
        server_store.catalogue.secret(name, name.encode())

    assert {name: server_store.catalogue.secret(name, b"?") for name in ("b", "B ", "b ", "B", "a")} == {
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
        store.catalogue.shard_map()
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


def test_an_incomplete_schema_is_completed(server_store: SqlStore) -> None:
    """As a process leaves it that ended between two definitions, where a server commits each."""
    server_store.catalogue.secret("kept", b"kept")
    outbox = metadata.tables["outbox"]
    with server_store.database.engine.connect() as connection:
        connection.execute(sa.delete(schema_migrations))
        next(index for index in outbox.indexes if index.name == "idx_outbox_sequence").drop(connection)
        metadata.tables["workers"].drop(connection)
        connection.commit()
    with pytest.raises(StoreNotReady, match="incomplete"):
        server_store.check()

    server_store.initialise()

    server_store.check()
    with server_store.database.engine.connect() as connection:
        inspector = sa.inspect(connection)
        assert "idx_outbox_sequence" in {index["name"] for index in inspector.get_indexes("outbox")}
        assert inspector.has_table("workers")
    assert server_store.catalogue.secret("kept", b"other") == b"kept"
