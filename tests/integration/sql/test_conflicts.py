"""Transactions that meet on the same rows, as servers really treat them: deadlocks, and rows that move away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import oracledb
import psycopg
import pymssql
import pymysql
import pytest
import sqlalchemy as sa
from pymysql.constants import ER

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.times import to_milliseconds
from duetime.stores.backends.sql.backend import MAX_TRIES
from duetime.stores.backends.sql.database import Mutation
from duetime.stores.backends.sql.tables import timers
from duetime.stores.port.timers import ChangeStatus, PutMode, TimerRef
from duetime.testing.contract.builders import make_timer, make_timers
from tests.support.clock import NOW
from tests.support.databases import is_tidb
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import before_each_statement

PATIENCE_SECONDS = 20
_WAITERS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database()",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx AS waiting "
    "JOIN information_schema.processlist AS process ON process.id = waiting.trx_mysql_thread_id "
    "WHERE waiting.trx_state = 'LOCK WAIT' AND process.db = database()",
    "oracle": "SELECT count(*) FROM v$session WHERE blocking_session IS NOT NULL AND username = USER",
    "mssql": "SELECT count(*) FROM sys.dm_exec_requests WHERE wait_type LIKE 'LCK%' AND database_id = DB_ID()",
}
_TIDB_WAITERS = "SELECT count(*) FROM information_schema.data_lock_waits"
_DEADLOCKS = {
    "postgresql": psycopg.errors.DeadlockDetected(),
    "mysql": pymysql.OperationalError(ER.LOCK_DEADLOCK, "deadlock"),
    "mssql": pymssql.OperationalError(1205, b"deadlock"),
    "oracle": oracledb.DatabaseError(SimpleNamespace(code=60, full_code="ORA-00060")),
}


def test_a_deadlock_is_nobodys_error(server_store: SqlStore, single: Namespace) -> None:
    server_store.timers.put(make_timers(single, 40), mode=PutMode.CREATE, now=NOW)
    ids = sorted(timer.timer_id for timer in make_timers(single, 40))
    first, last = ids[0], ids[-1]
    suspect_deadlocks_after(server_store, seconds=3)

    with (
        ThreadPoolExecutor(1) as pool,
        count_aborted(server_store) as aborted,
        server_store.database.write(NOW) as other,
    ):
        # MySQL ends the transaction that has less to lose, PostgreSQL the first to suspect a deadlock: the store's.
        suspect_later(server_store, other)
        for timer_id in ids[1:]:
            touch(server_store, other, timer_id)
        deletion = pool.submit(server_store.timers.delete, single, [TimerRef(first), TimerRef(last)], now=NOW)
        wait_for_a_waiter(server_store)
        touch(server_store, other, first)
        other.connection.commit()
        results = deletion.result(PATIENCE_SECONDS)

    assert [result.status for result in results] == [ChangeStatus.APPLIED] * 2
    assert server_store.timers.get(single, first, now=NOW) is None
    # PostgreSQL may give the row that the end of one deadlock frees to the store again, which makes another.
    assert 1 <= len(aborted) < MAX_TRIES


@pytest.mark.parametrize("days", [-1, 1])
def test_a_timer_that_others_move_is_not_missed(server_store: SqlStore, single: Namespace, days: int) -> None:
    """The due time is a part of the primary key: while a change waits for the row it may go elsewhere."""
    timer = make_timer(single, "t")
    server_store.timers.put([timer], mode=PutMode.CREATE, now=NOW)
    elsewhere = to_milliseconds(timer.content.execute_at + timedelta(days=days))

    with ThreadPoolExecutor(1) as pool, server_store.database.write(NOW) as other:
        touch(server_store, other, "t")
        deletion = pool.submit(server_store.timers.delete, single, [TimerRef("t")], now=NOW)
        wait_for_a_waiter(server_store)
        touch(server_store, other, "t", timer_execute_at=elsewhere)
        other.connection.commit()
        (result,) = deletion.result(PATIENCE_SECONDS)

    assert result.status is ChangeStatus.APPLIED
    assert server_store.timers.get(single, "t", now=NOW) is None


def test_what_is_aborted_again_and_again_may_be_asked_for_later(server_store: SqlStore, single: Namespace) -> None:
    engine = server_store.database.engine
    deadlock = _DEADLOCKS[engine.dialect.name]

    def abort(*_args: Any, **_named: Any) -> None:
        raise deadlock

    sa.event.listen(engine, "do_execute", abort, named=True)
    with (
        count_aborted(server_store) as aborted,
        before_each_statement(abort),
        pytest.raises(StoreUnavailable, match="try again"),
    ):
        server_store.timers.put([make_timer(single, "t")], mode=PutMode.CREATE, now=NOW)
    assert len(aborted) == MAX_TRIES


def suspect_deadlocks_after(store: SqlStore, *, seconds: int) -> None:
    """What the store's transactions wait for on PostgreSQL before they look for a deadlock: long enough that a busy
    machine has closed the circle by then, since they look only once. Asks for a superuser."""
    if store.database.engine.dialect.name == "postgresql":

        @sa.event.listens_for(store.database.engine, "connect")
        def set_timeout(connection: Any, _: object) -> None:
            connection.execute(f"SET deadlock_timeout = '{seconds}s'")

        store.close()  # what is connected


def suspect_later(store: SqlStore, other: Mutation) -> None:
    """PostgreSQL ends the transaction that finds the deadlock: not this one."""
    if store.database.engine.dialect.name == "postgresql":
        other.connection.exec_driver_sql("SET LOCAL deadlock_timeout = '1min'")


def touch(store: SqlStore, other: Mutation, timer_id: str, **values: int) -> None:
    """A timer of the namespace ``single``."""
    row = timers.c
    key = (row.timer_namespace == "single") & (row.shard_id == 0) & (row.timer_id == timer_id)
    update = sa.update(timers).where(key).values(values or {"timer_updated_at": 0})
    assert store.database.prepare(update).count(other.connection) == 1


@contextmanager
def count_aborted(store: SqlStore) -> Iterator[list[StoreError]]:
    """Collects what the server's errors meanwhile mean."""
    errors: list[StoreError] = []
    dialect = store.database._dialect
    classify = dialect.classify

    def note(error: BaseException) -> StoreError:
        errors.append(classify(error))
        return errors[-1]

    with patch.object(dialect, "classify", note):
        yield errors


def wait_for_a_waiter(store: SqlStore) -> None:
    """Until a transaction of the test's database waits for a lock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with store.database.engine.connect() as connection:
        question = sa.text(_TIDB_WAITERS if is_tidb(connection) else _WAITERS[connection.dialect.name])
        while not connection.execute(question).scalar():
            assert time.monotonic() < deadline, "nobody waits for a lock"
            time.sleep(0.2)  # InnoDB shows the state at the first look within a tenth of a second, again and again
