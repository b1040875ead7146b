"""The first start on an empty database makes its tables; any other schema is refused, and left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from moto import mock_aws

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.runtime.wiring import make_ready
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.sql.tables import metadata, schema_migrations
from duetime.stores.open import open_store
from tests.support.databases import database_url, drop_tables, server_urls, shared_server_store
from tests.support.dynamodb import dynamodb_store

SERVERS: list[Any] = sorted(server_urls()) or [pytest.param("", marks=pytest.mark.skip("no server"))]


@pytest.fixture(params=SERVERS)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server with an empty database."""
    name: str = request.param
    drop_tables(name)
    yield name
    shared_server_store(name).initialise()


def tables(name: str) -> set[str]:
    with shared_server_store(name).database.engine.connect() as connection:
        return set(sa.inspect(connection).get_table_names())


def execute(name: str, *statements: str) -> None:
    with shared_server_store(name).database.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()


def test_an_empty_database_gets_its_tables(name: str) -> None:
    store = shared_server_store(name)
    with pytest.raises(StoreEmpty, match="duetime init"):
        store.check()
    make_ready(store, database_url(name))
    store.check()
    assert tables(name) >= set(metadata.tables)


def test_a_database_of_somebody_else_is_refused_and_left_alone(name: str) -> None:
    execute(name, "CREATE TABLE somebody_elses (a INT)")
    try:
        with pytest.raises(StoreNotReady, match="duetime init") as refused:
            make_ready(shared_server_store(name), database_url(name))
        assert not isinstance(refused.value, StoreEmpty)
        assert not tables(name) & set(metadata.tables)
    finally:
        execute(name, "DROP TABLE somebody_elses")


def test_a_schema_that_another_process_has_begun_is_completed(name: str) -> None:
    store = shared_server_store(name)
    with store.database.engine.connect() as connection:
        schema_migrations.create(connection)
        connection.commit()
    with pytest.raises(StoreEmpty, match="incomplete; `duetime init` completes it"):
        store.check()
    make_ready(store, database_url(name))
    store.check()
    assert tables(name) >= set(metadata.tables)


def test_first_starts_at_the_same_time_all_succeed(name: str) -> None:
    stores = [open_store(database_url(name)) for _ in range(4)]
    try:
        with ThreadPoolExecutor(len(stores)) as pool:
            list(pool.map(lambda store: make_ready(store, database_url(name)), stores))
        for store in stores:
            store.check()
    finally:
        for store in stores:
            store.close()


def test_postgresql_without_a_schema_to_make_tables_in_says_so() -> None:
    if "postgresql" not in server_urls():
        pytest.skip("no server")
    url = sa.make_url(database_url("postgresql")).update_query_dict({"options": "-csearch_path=nowhere"})
    store = open_store(url.render_as_string(hide_password=False))
    try:
        for act in (store.initialise, lambda: make_ready(store, "postgresql://")):
            with pytest.raises(StoreNotReady, match=r"search_path.*CREATE SCHEMA") as refused:
                act()
            assert "duetime init" not in refused.value.message
    finally:
        store.close()


def test_tables_on_dynamodb_are_made_when_there_are_none() -> None:
    with mock_aws():
        client = make_client(region="us-east-1")
        store = dynamodb_store(client, "timers", batch_statements=False)
        with pytest.raises(StoreEmpty):
            store.check()
        make_ready(store, "dynamodb://timers")
        store.check()
        client.delete_table(TableName="timers")
        with pytest.raises(StoreNotReady, match="none of timers") as refused:
            make_ready(store, "dynamodb://timers")
        assert not isinstance(refused.value, StoreEmpty)


def test_postgresql_makes_tables_in_the_first_schema_whatever_others_hold() -> None:
    if "postgresql" not in server_urls():
        pytest.skip("no server")
    shared_server_store("postgresql").initialise()
    execute("postgresql", "DROP SCHEMA IF EXISTS own CASCADE", "CREATE SCHEMA own")
    url = sa.make_url(database_url("postgresql")).update_query_dict({"options": "-csearch_path=own,public"})
    store = open_store(url.render_as_string(hide_password=False))
    try:
        store.initialise()
        store.check()
        with shared_server_store("postgresql").database.engine.connect() as connection:
            assert set(sa.inspect(connection).get_table_names("own")) >= set(metadata.tables)
    finally:
        store.close()
        execute("postgresql", "DROP SCHEMA own CASCADE")
