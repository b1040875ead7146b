"""DbNow on real servers: one instant for all statements of a transaction, in both storage modes."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.times import format_instant, to_milliseconds
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import seconds
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW
from tests.support.databases import open_server_store
from tests.support.sql_store import SqlStore

_ORACLE_AGE = "SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00'"
NATIVE_MS = {
    "oracle": "SELECT EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000"
    " + EXTRACT(MINUTE FROM age) * 60000 + FLOOR(EXTRACT(SECOND FROM age) * 1000)"
    f" FROM (SELECT {_ORACLE_AGE} age FROM dual)",
    "postgresql": "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)",
    "mssql": "SELECT DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), SYSUTCDATETIME())",
    "mysql": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


@pytest.fixture
def timed_store(server: str) -> SqlStore:
    """A store with the database's times, as in production."""
    return open_server_store(server, time_source=TimeSource.DATABASE)


def test_all_statements_of_a_transaction_see_one_instant(timed_store: SqlStore) -> None:
    database = timed_store.database
    instant = database.prepare(sa.select(database.db_now.epoch_ms(), database.db_now.iso_text()))
    with database.write(NOW) as mutation:
        connection = mutation.connection
        first: Any = instant.one(connection).one()
        native = NATIVE_MS[database.engine.dialect.name]
        while connection.exec_driver_sql(native).scalar_one() <= first[0]:
            pass  # until time has passed for the server itself
        second = instant.one(connection).one()
    timed_store.close()

    assert second == first
    assert to_milliseconds(mutation.now) == first[0]
    assert first[1] == format_instant(mutation.now)


def test_the_next_transaction_of_a_connection_has_a_later_instant(timed_store: SqlStore) -> None:
    seen = []
    for _ in range(3):
        with timed_store.database.write(NOW) as mutation:
            seen.append(mutation.now)
            native = NATIVE_MS[timed_store.database.engine.dialect.name]
            while mutation.connection.exec_driver_sql(native).scalar_one() <= to_milliseconds(mutation.now):
                pass
    timed_store.close()

    assert seen == sorted(set(seen))


def test_the_database_gives_the_time_in_production(timed_store: SqlStore) -> None:
    before = datetime.now(UTC)
    with timed_store.database.write(NOW) as mutation:
        pass
    after = datetime.now(UTC)
    timed_store.close()

    slack = timedelta(seconds=5)  # the server may have a clock of its own
    assert before - slack <= mutation.now <= after + slack


@pytest.mark.parametrize("offset_seconds", [0, 0.001, 1.5, -0.25, -86_400, 31_536_000])
def test_both_storage_modes_hold_the_same_instant(server_store: SqlStore, offset_seconds: float) -> None:
    instant, database = NOW + seconds(0.123), server_store.database
    milliseconds_of = database.db_now.epoch_ms(round(offset_seconds * 1000))
    statement = database.prepare(sa.select(milliseconds_of, database.db_now.iso_text(offset_seconds)))
    with database.write(instant) as mutation:
        found: Any = statement.one(mutation.connection).one()

    expected = instant + seconds(offset_seconds)
    assert tuple(found) == (round(expected.timestamp() * 1000), format_instant(expected))


def test_offsets_may_be_given_with_each_execution(server_store: SqlStore) -> None:
    db_now = server_store.database.db_now
    statement = server_store.database.prepare(
        sa.select(db_now.epoch_ms(sa.bindparam("ms", type_=sa.BigInteger))), "ms"
    )
    with server_store.database.write(NOW) as mutation:
        found = [statement.one(mutation.connection, offset).scalar_one() for offset in (0, 1500, -1500)]

    assert found == [to_milliseconds(NOW) + offset for offset in (0, 1500, -1500)]


def test_a_callers_wrong_clock_wins_no_lease(timed_store: SqlStore) -> None:
    assert claim_shard(timed_store, 0, "w1", lease_seconds=60, now=NOW) is not None

    assert claim_shard(timed_store, 0, "w2", lease_seconds=60, now=datetime(2037, 1, 1, tzinfo=UTC)) is None
    timed_store.close()


def test_a_callers_wrong_clock_removes_nothing(timed_store: SqlStore) -> None:
    calls, now = timed_store.calls, datetime.now(UTC).replace(microsecond=0)
    call = steps.run(calls, steps.submit(calls, now=now), now=now)
    timed_store.outbox.mark_published(timed_store.outbox.unpublished(limit=100), now=now)
    wrong = datetime(2037, 1, 1, tzinfo=UTC)

    assert calls.prune(now=wrong, events_published_before=wrong - timedelta(days=1), limit=50) == 0
    assert calls.prune(now=wrong, events_published_before=wrong + timedelta(days=1), limit=50) == call.event_count
    assert steps.got(calls, call, now=now) == call
    timed_store.close()


def test_transactions_at_one_time_have_instants_of_their_own(server_store: SqlStore) -> None:
    """Connections do not see each other's instant."""
    inside, done = threading.Barrier(2), threading.Barrier(2)
    seen: dict[int, list[int]] = {}

    def work(number: int) -> None:
        with server_store.database.write(NOW + seconds(number)) as mutation:
            inside.wait(10)
            statement = server_store.database.prepare(sa.select(server_store.database.db_now.epoch_ms()))
            seen[number] = [statement.one(mutation.connection).scalar_one() for _ in range(2)]
            done.wait(10)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {number: [to_milliseconds(NOW + seconds(number))] * 2 for number in range(2)}
