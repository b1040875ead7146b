"""DbNow on SQLite: one instant for all statements of a transaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from duetime.domain.errors import InvalidSettings
from duetime.domain.times import format_instant, read_instant
from duetime.stores.backends.sql.dialects.db_now import SqliteDbNow, db_now_strategy
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.port.timers import PutMode
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import fired, leased, make_timer, seconds
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.sqlite_rows import executed

db_now = SqliteDbNow()


@pytest.mark.parametrize("offset_seconds", [0.001, 1.5, -0.25, -86_400, 31_536_000])
def test_both_storage_modes_hold_the_same_instant(store: SqlStore, offset_seconds: float) -> None:
    instant = NOW + seconds(0.123)
    with store.database.write(instant) as mutation:
        both = sa.select(db_now.epoch_ms(round(offset_seconds * 1000)), db_now.iso_text(offset_seconds))
        milliseconds, text = executed(mutation.connection, both).first()

    expected = instant + seconds(offset_seconds)
    assert text == format_instant(expected)
    assert milliseconds == round(expected.timestamp() * 1000)


@pytest.mark.parametrize("year", [1970, 2026, 9999])
def test_the_callers_instant_is_kept_to_the_millisecond(store: SqlStore, year: int) -> None:
    instant = NOW.replace(year=year, microsecond=987_000)
    with store.database.write(instant) as mutation:
        assert mutation.now == instant
        text = executed(mutation.connection, sa.select(db_now.iso_text())).scalar_one()
    assert text == format_instant(instant)


def open_with_database_time() -> SqlStore:
    store = SqlStore(open_dialect("sqlite://"))
    store.initialise()
    return store


def test_the_database_gives_the_time_in_production() -> None:
    store = open_with_database_time()
    before = datetime.now(UTC)
    with store.database.write(NOW) as mutation:
        text = executed(mutation.connection, sa.select(db_now.iso_text())).scalar_one()
    after = datetime.now(UTC)
    store.close()

    assert read_instant(text) == mutation.now
    assert before - timedelta(milliseconds=1) <= mutation.now <= after + timedelta(milliseconds=1)


def test_all_statements_of_a_transaction_see_one_instant() -> None:
    store = open_with_database_time()
    with store.database.write(NOW) as mutation:
        first = executed(mutation.connection, sa.select(db_now.epoch_ms())).scalar_one()
        # Time passes for SQLite itself between the statements.
        native = sa.text("SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)")
        while executed(mutation.connection, native).scalar_one() == first:
            pass
        second = executed(mutation.connection, sa.select(db_now.epoch_ms())).scalar_one()
    store.close()

    assert second == first


def test_each_transaction_has_an_instant_of_its_own(store: SqlStore) -> None:
    for offset in (0, 5, 3):
        with store.database.write(NOW + seconds(offset)) as mutation:
            rows = executed(
                mutation.connection, sa.select(sa.column("ts_text")).select_from(sa.table("duetime_now"))
            ).all()
        assert rows == [(format_instant(NOW + seconds(offset)),)]


def test_what_is_returned_has_the_time_that_is_stored() -> None:
    store = open_with_database_time()
    namespace, _ = store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)
    assert store.catalogue.get_namespace("n") == namespace
    assert namespace.created_at != NOW

    results = store.timers.put([make_timer(namespace)], mode=PutMode.CREATE, now=NOW)
    stored = store.timers.get(namespace, "t1", now=NOW)
    assert stored == results[0].timer
    assert stored is not None
    assert stored.created_at == stored.updated_at != NOW

    lease = claim_shard(store, 0, "w", lease_seconds=10, now=NOW)
    assert lease is not None
    (status,) = store.leases.statuses([0], now=NOW)
    assert status.claimed_at is not None
    assert status.lease_expires_at == lease.expires_at == status.claimed_at + seconds(10)
    store.close()


def test_a_callers_wrong_clock_wins_no_lease() -> None:
    store = open_with_database_time()
    assert claim_shard(store, 0, "w1", lease_seconds=60, now=NOW) is not None

    assert claim_shard(store, 0, "w2", lease_seconds=60, now=datetime(9999, 1, 1, tzinfo=UTC)) is None
    store.close()


def test_a_callers_wrong_clock_removes_nothing() -> None:
    store = open_with_database_time()
    namespace, _ = store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)
    store.timers.put([make_timer(namespace)], mode=PutMode.CREATE, now=NOW)
    lease = claim_shard(store, 0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    (timer,) = store.timers.due(0, until=NOW, limit=1).timers
    now = lease.expires_at
    store.timers.record(leased([fired(timer, at=now)], lease), now=now)
    call = steps.run(store.calls, steps.submit(store.calls, now=now), now=now)
    store.outbox.mark_published(store.outbox.unpublished(limit=100), now=now)
    wrong = datetime(9999, 1, 1, tzinfo=UTC)

    assert store.timers.prune(now=wrong, limit=5) == 0
    assert store.calls.prune(now=wrong, events_published_before=wrong - timedelta(days=1), limit=50) == 0

    assert store.timers.get(namespace, "t1", now=now) is not None
    assert steps.got(store.calls, call, now=now) == call
    assert len(store.calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)) == call.event_count
    store.close()


def test_an_unknown_dialect_has_no_strategy() -> None:
    with pytest.raises(InvalidSettings, match="nosuchdb"):
        db_now_strategy("nosuchdb")
