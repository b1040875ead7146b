"""The schema is the sum of its migrations, whoever applies them and however often."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.domain.shards import shard_index
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.domain.times import format_instant
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.migrations import Migration, check_version
from duetime.stores.sql.sqlite_migrations import MIGRATIONS, TRACKING_TABLE
from duetime.stores.sql.store import SqlStore
from duetime.stores.sql.tables import metadata
from tests.support.clock import NOW


def described(connection: sa.Connection) -> dict[str, Any]:
    """Tables with their columns, keys, options and checks, and indexes with their columns and conditions."""
    inspector = sa.inspect(connection)
    return {
        table: {
            "columns": [
                {name: str(value) for name, value in column.items()} for column in inspector.get_columns(table)
            ],
            "primary key": inspector.get_pk_constraint(table)["constrained_columns"],
            "foreign keys": [
                (key["constrained_columns"], key["referred_table"], key["referred_columns"], key["options"])
                for key in inspector.get_foreign_keys(table)
            ],
            "checks": sorted(
                (check["name"] or "", " ".join(check["sqltext"].split()))
                for check in inspector.get_check_constraints(table)
            ),
            "indexes": [
                (
                    index["name"],
                    index["column_names"],
                    index["unique"],
                    str(index["dialect_options"].get("sqlite_where")),
                )
                for index in sorted(inspector.get_indexes(table), key=lambda index: str(index["name"]))
            ],
            "strict": connection.exec_driver_sql(f"PRAGMA table_list('{table}')").one()[5],
        }
        for table in inspector.get_table_names()
    }


def test_the_schema_is_the_sum_of_the_migrations(store: SqlStore) -> None:
    expected = sa.create_engine("sqlite://")
    metadata.create_all(expected)

    with store.database.read() as migrated, expected.connect() as created:
        assert described(migrated) == described(created)
        assert {table["strict"] for table in described(migrated).values()} == {1}
    expected.dispose()


def test_versions_count_from_one_without_gaps() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_what_was_applied_is_noted(store: SqlStore) -> None:
    with store.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM schema_migrations ORDER BY 1").all()

    assert [(version, name) for version, name, _ in rows] == [(each.version, each.name) for each in MIGRATIONS]
    assert all(len(applied_at) == len(format_instant(NOW)) for _, _, applied_at in rows)


def test_initialising_again_applies_nothing(store: SqlStore) -> None:
    with store.database.read() as connection:
        before = connection.exec_driver_sql("SELECT * FROM schema_migrations").all()

    store.initialise()

    with store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM schema_migrations").all() == before


def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        # A foreign table of the last migration's name: its statement fails after others have run.
        connection.execute("CREATE TABLE workers (x)")
        connection.commit()
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    with pytest.raises(StoreError) as raised:
        store.initialise()
    assert not isinstance(raised.value, StoreUnavailable | StoreNotReady)

    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("workers",)]


def test_a_file_without_schema_is_not_ready(path: Path) -> None:
    sqlite3.connect(path).close()
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    with pytest.raises(StoreNotReady, match="schema"):
        store.check()
    with pytest.raises(StoreNotReady):
        store.shard_map()
    store.close()


def test_what_the_first_version_stored_stays(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TRACKING_TABLE)
        for statement in MIGRATIONS[0].statements:
            connection.execute(statement)
        connection.execute("INSERT INTO schema_migrations VALUES (1, 'timers', '')")
        connection.execute("INSERT INTO namespaces VALUES ('orders', 4, 0, 0, 0)")
        connection.execute(
            "INSERT INTO timers (shard_id, row_type, timer_execute_at, timer_uuid, timer_namespace, timer_id,"
            " timer_state, timer_due_at, timer_revision, timer_firing_id, timer_attempts, timer_created_at,"
            " timer_updated_at, timer_digest, timer_callback_timeout_seconds, timer_callback_url)"
            " VALUES (?, 2, 7, x'00', 'orders', 't1', 'scheduled', 7, 1, 'f', 0, 1, 1, 'd', 30, 'http://r.test/')",
            (shard_index("t1", 4),),
        )
        connection.commit()
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    store.initialise()

    orders = store.get_namespace("orders")
    assert orders is not None
    assert orders.tenant_id == DEFAULT_TENANT
    assert store.list_namespaces(cursor=None, limit=5, tenant_id=DEFAULT_TENANT).items == [orders]
    timer = store.get_timer(orders, "t1", now=NOW)
    assert timer is not None
    assert (timer.revision, timer.content.expire_after_ms, timer.rearmed_at, timer.attempt_log) == (
        1,
        None,
        None,
        None,
    )
    store.close()


def test_an_older_schema_is_not_ready(store: SqlStore) -> None:
    with store.database.write() as mutation:
        mutation.connection.exec_driver_sql("DELETE FROM schema_migrations")

    with pytest.raises(StoreNotReady, match=f"needs {MIGRATIONS[-1].version}"):
        store.check()


def test_a_newer_schema_is_not_touched(store: SqlStore) -> None:
    with store.database.write() as mutation:
        mutation.connection.exec_driver_sql("INSERT INTO schema_migrations VALUES (99, 'later', '')")

    with pytest.raises(StoreNotReady, match="version 99"):
        store.check()
    with pytest.raises(StoreNotReady, match="version 99"):
        store.initialise()


@pytest.mark.parametrize("current", [1, 4, 6])
def test_a_schema_in_one_piece_is_of_its_version_or_not_there(current: int) -> None:
    migrations = [Migration(5, "whole_schema", ())]
    check_version(0, migrations)
    check_version(5, migrations)

    with pytest.raises(StoreNotReady, match=f"version {current}"):
        check_version(current, migrations)


def test_calls_keep_their_tags_and_executions_when_their_table_is_made_anew(tmp_path: Path) -> None:
    """A check of SQLite cannot be changed, and a table that is dropped takes along what refers to it."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(TRACKING_TABLE)
        for migration in MIGRATIONS[:4]:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_migrations VALUES (?, ?, '2026-01-01T00:00:00.000Z')",
                (migration.version, migration.name),
            )
        connection.execute(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, is_starred, submitted_at, due_at,"
            " registered_at, wake_at, updated_at, shard_id, call_revision, attempts, event_count, timeout_seconds,"
            " correlation_id, call_digest, request_spec)"
            " VALUES ('a', 'c', 'n', 'Scheduled', 0, '', '', '', 'w', '', 0, 1, 0, 0, 1, '', '', '')"
        )
        connection.execute("INSERT INTO service_call_tags VALUES ('a', 'c', 'tag')")
        connection.execute(
            "INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, execution_number,"
            " execution_status, started_at, deadline_at, request_method, request_url, request_headers,"
            " request_body_meta) VALUES ('a', 'c', 'e', 1, 'Running', '', '', 'GET', '', '', '')"
        )
        connection.commit()
    store = SqlStore(open_dialect(f"sqlite:///{path}"))
    store.initialise()
    store.close()

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        tables = ("service_calls", "service_call_tags", "http_execution_log")
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables]
        assert counts == [(1,), (1,), (1,)]
        connection.execute(
            "UPDATE service_calls SET status = 'Cancelled', wake_at = NULL, finished_at = 'f' WHERE tenant_id = 'a'"
        )
        connection.execute("DELETE FROM service_calls")
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables]
        assert counts == [(0,), (0,), (0,)]
