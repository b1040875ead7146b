"""What a node brings back that was away for longer than tombstones are kept: deleted values, none written over."""

from __future__ import annotations

import pytest

from duetime.domain.ids import timer_uuid
from duetime.domain.times import to_milliseconds
from duetime.stores.backends.cassandra.layout import place_of
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.core.store import Store
from duetime.stores.entities import DUE, TIMER
from duetime.stores.port.timers import TimerRef
from duetime.testing.contract.builders import failed, fired, make_timer, retried, seconds
from duetime.testing.contract.steps import claim, create, due, record, stored
from tests.support.cassandra import session_of, store_over
from tests.support.cassandra_rows import entry_of
from tests.support.clock import NOW

KEY = (0, "single", "t1")


def bring_back_entry(store: Store) -> None:
    """The entry by which the timer was due at first."""
    cql = "UPDATE timers SET target = ? WHERE shard_id = 0 AND row_kind = ? AND place = ? IF target = ?"
    row = {"timer_execute_at": to_milliseconds(NOW), "timer_uuid": timer_uuid("single", "t1").bytes}
    row |= dict(zip(TIMER.key, KEY, strict=True))
    place, target = entry_of(DUE, row)
    assert session_of(store).decide([Statement(cql, (target, DUE.name, place, None))])


def bring_back_instant(store: Store) -> None:
    """And the value that the end of the timer took away."""
    cql = (
        "UPDATE timers SET timer_execute_at = ? WHERE shard_id = 0 AND row_kind = ? AND place = ? "
        "IF timer_revision > ?"
    )
    values = (to_milliseconds(NOW), TIMER.name, place_of(TIMER, KEY), 0)
    assert session_of(store).decide([Statement(cql, values)])


@pytest.mark.parametrize("end", [fired, failed])
def test_a_timer_that_has_ended_does_not_fire_again(end: object) -> None:
    assert callable(end)
    with store_over() as store:
        single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        (timer,) = create(store, make_timer(single))
        record(store, [end(timer)], claim(store))

        bring_back_entry(store)
        assert due(store, single) == []
        bring_back_instant(store)
        assert due(store, single) == []


def test_a_timer_that_waits_for_another_time_does_not_fire_at_the_old_one() -> None:
    with store_over() as store:
        single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        (timer,) = create(store, make_timer(single))
        record(store, [retried(timer, next_attempt_at=NOW + seconds(9))], claim(store))

        bring_back_entry(store)
        assert due(store, single) == []
        assert due(store, single, until=NOW + seconds(9)) == [stored(store, single)]
        store.timers.delete(single, [TimerRef("t1")], now=NOW)
        assert due(store, single, until=NOW + seconds(9)) == []
