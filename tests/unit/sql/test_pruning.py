"""What the janitor removes, when rows are changed between its reading and its deleting, or are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.backends.sql.dialects.driver_connection import DriverConnection
from duetime.stores.backends.sql.tables import RowType
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import RETENTION, fired, make_timer, seconds
from duetime.testing.contract.steps import claim, record
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import before_each_statement

EXPIRY = NOW + RETENTION


@pytest.fixture
def ended(store: SqlStore, single: Namespace) -> Timer:
    """A timer that has fired and that is to be pruned at ``EXPIRY``."""
    timer = make_timer(single)
    store.timers.put([timer], mode=PutMode.CREATE, now=NOW)
    lease = claim(store)
    record(store, [fired(timer)], lease)
    return timer


@contextmanager
def before_deleting(change: str, *values: object) -> Iterator[None]:
    """Make ``change`` after the janitor has chosen what to delete."""

    def interfere(connection: DriverConnection, sql: str, _values: Any = ()) -> None:
        if sql.startswith("DELETE FROM timers"):
            connection.exec_driver_sql(change, values)

    with before_each_statement(interfere):
        yield


def count(store: SqlStore) -> int:
    with store.database.read() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM timers WHERE row_type <> 1").scalar_one())


def test_a_timer_that_has_ended_anew_meanwhile_keeps_its_history(store: SqlStore, ended: Timer) -> None:
    later = to_milliseconds(EXPIRY + seconds(1))
    with before_deleting("UPDATE timers SET timer_expires_at = ? WHERE timer_id = ?", later, ended.timer_id):
        assert store.timers.prune(now=EXPIRY, limit=5) == 0
    assert count(store) == 1


def test_a_timer_that_waits_again_meanwhile_is_not_pruned(store: SqlStore, ended: Timer) -> None:
    change = "UPDATE timers SET row_type = ?, timer_state = 'Scheduled' WHERE timer_id = ?"
    with before_deleting(change, RowType.TIMER.value, ended.timer_id):
        assert store.timers.prune(now=EXPIRY, limit=5) == 0
    assert count(store) == 1


def test_a_waiting_timer_with_an_end_is_never_pruned_and_is_in_no_others_way(store: SqlStore, ended: Timer) -> None:
    """Damage, since only what has finished has an end: it is the oldest, and the one that a page holds."""
    waits = make_timer(Namespace("single", 1, 0, False, NOW), "waits")
    store.timers.put([waits], mode=PutMode.CREATE, now=NOW)
    with store.database.write() as mutation:
        mutation.connection.exec_driver_sql("UPDATE timers SET timer_expires_at = 1 WHERE timer_id = 'waits'")

    assert store.timers.prune(now=EXPIRY, limit=1) == 1
    assert store.timers.prune(now=EXPIRY, limit=1) == 0
    assert count(store) == 1
