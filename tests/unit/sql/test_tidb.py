"""TiDB without a server: what its dialect has besides MySQL's."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.dialects.tidb import TidbDialect
from duetime.stores.backends.sql.errors import TransactionAborted
from duetime.stores.backends.sql.schema import ddl_statements
from duetime.stores.backends.sql.tables import timers
from duetime.stores.open import open_store
from duetime.stores.time_source import TimeSource
from tests.unit.sql.test_every_statement import statements_of

STATEMENTS = ddl_statements("mysql+duetime")
HINT = re.compile(r"\bFROM (\w+) FORCE INDEX \((\w+)\)")


@pytest.fixture
def dialect() -> TidbDialect:
    dialect = open_dialect("tidb://root@db/x")
    assert isinstance(dialect, TidbDialect)
    return dialect


def test_transactions_are_pessimistic(dialect: TidbDialect) -> None:
    """Optimistic ones are never READ COMMITTED, and find out at their commit what others have done."""
    sent: list[str] = []

    connection: Any = SimpleNamespace(exec_driver_sql=sent.append)
    dialect.begin_write(connection)

    assert sent == ["BEGIN /*T! PESSIMISTIC */"]
    assert "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED" in dialect.session
    assert re.search(r"/\*T!.*tidb_constraint_check_in_place_pessimistic = ON.*\*/", dialect.session[-1])


def test_its_port_is_its_own(dialect: TidbDialect) -> None:
    assert dialect.engine.url.port == 4000
    with pytest.raises(InvalidSettings, match="database"):
        open_store("tidb://db")


def test_each_range_names_its_index_as_on_mysql(dialect: TidbDialect) -> None:
    ranges = [sql for sql in statements_of(dialect, TimeSource.DATABASE) if " LIMIT " in sql]

    assert len(ranges) > 20
    for sql in ranges:
        match = HINT.search(sql)
        assert match is not None, sql
        table, index = match.groups()
        if index != "PRIMARY":
            assert f" ON {table} (" in STATEMENTS[index]
    due = [sql for sql in ranges if "timers.row_type = 2" in sql.partition("WHERE")[2]]
    assert due
    assert all("FROM timers FORCE INDEX (PRIMARY)" in sql for sql in due)


def test_a_named_index_begins_with_what_is_asked_for_or_sorted_by(dialect: TidbDialect) -> None:
    """Or the whole index would be read."""
    for sql in statements_of(dialect, TimeSource.DATABASE):
        if match := HINT.search(sql):
            table, index = match.groups()
            key = "PRIMARY KEY" if index == "PRIMARY" else f" ON {table}"
            found = re.search(rf"{key} \((\w+)", STATEMENTS[table if index == "PRIMARY" else index])
            assert found is not None
            assert f"{table}.{found[1]}" in sql.partition("FROM ")[2]


def test_what_is_read_by_its_key_needs_no_hint(dialect: TidbDialect) -> None:
    statements = statements_of(dialect, TimeSource.DATABASE)

    assert not [sql for sql in statements if "FORCE INDEX" in sql and " LIMIT " not in sql]


def test_all_servers_of_a_cluster_number_events_in_one_order() -> None:
    """By default each has 30,000 numbers of its own, and the events of a call would be sorted wrongly."""
    assert "AUTO_ID_CACHE=1" in STATEMENTS["outbox"]
    assert "AUTO_RANDOM" not in " ".join(STATEMENTS.values())


def test_rows_stand_in_the_order_of_their_key_whatever_the_server_s_default(dialect: TidbDialect) -> None:
    assert re.search(r"/\*T!.*tidb_enable_clustered_index = ON \*/", dialect.session[-1])


def test_every_unique_key_of_the_partitioned_table_has_the_shard() -> None:
    unique = [index for index in timers.indexes if index.unique]

    assert len(unique) == 1
    assert all(
        "shard_id" in columns for columns in (timers.primary_key.columns, *(index.columns for index in unique))
    )
    assert not timers.foreign_keys


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (8002, TransactionAborted),  # SELECT FOR UPDATE conflict
        (8022, TransactionAborted),  # commit failed, rolled back
        (8028, TransactionAborted),  # schema changed
        (9007, TransactionAborted),  # write conflict
        (1213, TransactionAborted),  # deadlock, as on MySQL
        (9001, StoreUnavailable),  # PD
        (9005, StoreUnavailable),  # region
        (8252, StoreUnavailable),  # resource group
        (1205, StoreUnavailable),  # lock
        (1146, StoreNotReady),
        (8025, StoreError),  # a row that is too large
        (8004, StoreError),  # a transaction that is too large
    ],
)
def test_what_its_errors_mean(dialect: TidbDialect, code: int, kind: type[Any]) -> None:
    assert type(dialect.classify(pymysql.err.OperationalError(code, "text"))) is kind
