"""What a node brings back that was away for longer than tombstones are kept: deleted values, none written over."""

from __future__ import annotations

import pytest

from duetime.domain.times import to_milliseconds
from duetime.stores.cassandra.requests import Statement
from duetime.stores.cassandra.schema import DUE, TIMER
from duetime.stores.port.timers import TimerRef
from tests.contract.steps import claim, create, due, record, stored
from tests.support.builders import failed, fired, make_timer, retried, seconds
from tests.support.cassandra import store_over
from tests.support.clock import NOW

_KEY = (
    "shard_id = 0 AND row_kind = ? AND sort_at = ? AND timer_namespace = 'single' AND sort_text = '' "
    "AND timer_id = 't1'"
)
_AT = to_milliseconds(NOW)
OLD_DUE_ROW = Statement(f"UPDATE timers SET timer_size = ? WHERE {_KEY} IF timer_size = ?", (1, DUE, _AT, None))
OLD_INSTANT = Statement(
    f"UPDATE timers SET timer_execute_at = ? WHERE {_KEY} IF timer_revision > ?", (_AT, TIMER, 0, 0)
)


@pytest.mark.parametrize("end", [fired, failed])
def test_a_timer_that_has_ended_does_not_fire_again(end: object) -> None:
    assert callable(end)
    with store_over() as store:
        single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        (timer,) = create(store, make_timer(single))
        record(store, [end(timer)], claim(store))

        assert store.session.decide([OLD_DUE_ROW])
        assert due(store, single) == []
        assert store.session.decide([OLD_INSTANT])
        assert due(store, single) == []


def test_a_timer_that_waits_for_another_time_does_not_fire_at_the_old_one() -> None:
    with store_over() as store:
        single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        (timer,) = create(store, make_timer(single))
        record(store, [retried(timer, next_attempt_at=NOW + seconds(9))], claim(store))

        assert store.session.decide([OLD_DUE_ROW])
        assert due(store, single) == []
        assert due(store, single, until=NOW + seconds(9)) == [stored(store, single)]
        store.timers.delete(single, [TimerRef("t1")], now=NOW)
        assert due(store, single, until=NOW + seconds(9)) == []
