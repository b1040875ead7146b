"""Transactions that meet on the same rows, as servers really treat them: deadlocks, and rows that move away."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import oracledb
import psycopg
import pymssql
import pymysql
import pytest
import sqlalchemy as sa
from pymysql.constants import ER

from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.times import to_milliseconds
from duetime.stores.backends.sql.backend import MAX_TRIES
from duetime.stores.backends.sql.tables import timers
from duetime.stores.port.timers import ChangeStatus, PutMode, TimerRef
from duetime.testing.contract.builders import make_timer, make_timers
from tests.support.clock import NOW
from tests.support.databases import is_tidb
from tests.support.sql_store import SqlStore

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
    aborted = count_aborted(server_store)
    suspect_deadlocks_after(server_store, seconds=3)

    with ThreadPoolExecutor(1) as pool, server_store.database.write(NOW) as other:
        # MySQL ends the transaction that has less to lose, PostgreSQL the first to suspect a deadlock: the store's.
        suspect_later(other.connection)
        for timer_id in ids[1:]:
            touch(other.connection, single.name, timer_id)
        deletion = pool.submit(server_store.timers.delete, single, [TimerRef(first), TimerRef(last)], now=NOW)
        wait_for_a_waiter(server_store)
        touch(other.connection, single.name, first)
        other.connection.commit()
        results = deletion.result(PATIENCE_SECONDS)

    assert [result.status for result in results] == [ChangeStatus.APPLIED] * 2
    assert server_store.timers.get(single, first, now=NOW) is None
    # PostgreSQL may give the row that the end of one deadlock frees to the store again, which makes another.
    assert 1 <= aborted() < MAX_TRIES


@pytest.mark.parametrize("days", [-1, 1])
def test_a_timer_that_others_move_is_not_missed(server_store: SqlStore, single: Namespace, days: int) -> None:
    """The due time is a part of the primary key: while a change waits for the row it may go elsewhere."""
    timer = make_timer(single, "t")
    server_store.timers.put([timer], mode=PutMode.CREATE, now=NOW)
    elsewhere = to_milliseconds(timer.content.execute_at + timedelta(days=days))

    with ThreadPoolExecutor(1) as pool, server_store.database.write(NOW) as other:
        touch(other.connection, single.name, "t")
        deletion = pool.submit(server_store.timers.delete, single, [TimerRef("t")], now=NOW)
        wait_for_a_waiter(server_store)
        touch(other.connection, single.name, "t", timer_execute_at=elsewhere)
        other.connection.commit()
        (result,) = deletion.result(PATIENCE_SECONDS)

    assert result.status is ChangeStatus.APPLIED
    assert server_store.timers.get(single, "t", now=NOW) is None


def test_what_is_aborted_again_and_again_may_be_asked_for_later(server_store: SqlStore, single: Namespace) -> None:
    engine = server_store.database.engine
    aborted = count_aborted(server_store)
    deadlock = _DEADLOCKS[engine.dialect.name]

    @sa.event.listens_for(engine, "do_execute", named=True)
    def abort(**_: Any) -> None:
        raise deadlock

    with pytest.raises(StoreUnavailable, match="try again"):
        server_store.timers.put([make_timer(single, "t")], mode=PutMode.CREATE, now=NOW)
    assert aborted() == MAX_TRIES


def suspect_deadlocks_after(store: SqlStore, *, seconds: int) -> None:
    """What the store's transactions wait for on PostgreSQL before they look for a deadlock: long enough that a busy
    machine has closed the circle by then, since they look only once. Asks for a superuser."""
    if store.database.engine.dialect.name == "postgresql":

        @sa.event.listens_for(store.database.engine, "begin")
        def set_timeout(connection: sa.Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL deadlock_timeout = '{seconds}s'")


def suspect_later(connection: sa.Connection) -> None:
    """PostgreSQL ends the transaction that finds the deadlock: not this one."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL deadlock_timeout = '1min'")


def touch(connection: sa.Connection, namespace: str, timer_id: str, **values: int) -> None:
    row = timers.c
    key = (row.timer_namespace == namespace) & (row.shard_id == 0) & (row.timer_id == timer_id)
    assert connection.execute(sa.update(timers).where(key).values(values or {"timer_updated_at": 0})).rowcount == 1


def count_aborted(store: SqlStore) -> Callable[[], int]:
    """Counts the errors that the server answers from now on."""
    errors: list[BaseException] = []

    @sa.event.listens_for(store.database.engine, "handle_error")
    def note(context: sa.engine.ExceptionContext) -> None:
        errors.append(context.original_exception)

    return lambda: len(errors)


def wait_for_a_waiter(store: SqlStore) -> None:
    """Until a transaction of the test's database waits for a lock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with store.database.read() as connection:
        question = sa.text(_TIDB_WAITERS if is_tidb(connection) else _WAITERS[connection.dialect.name])
        while not connection.execute(question).scalar():
            assert time.monotonic() < deadline, "nobody waits for a lock"
            time.sleep(0.2)  # InnoDB shows the state at the first look within a tenth of a second, again and again
