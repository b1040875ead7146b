"""Pages: the work of each is bounded, and a cursor of something else is refused."""

from __future__ import annotations

import pytest

from duetime.domain.errors import InvalidCursor
from duetime.domain.namespaces import Namespace
from duetime.stores.core import lists
from duetime.stores.port.timers import PutMode, TimerFilter
from duetime.testing.contract.builders import make_timer, make_timers
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import recorded_statements


def test_a_filtered_page_looks_at_a_bounded_number_of_rows(
    store: SqlStore, single: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LOOKED_AT_PER_PAGE", 10)
    store.timers.put(make_timers(single, 25), mode=PutMode.CREATE, now=NOW)
    store.timers.put([make_timer(single, "zz", tags=("rare",))], mode=PutMode.CREATE, now=NOW)
    rare = TimerFilter(tag="rare")

    first = store.timers.list(single, rare, cursor=None, limit=5, now=NOW)
    second = store.timers.list(single, rare, cursor=first.next_cursor, limit=5, now=NOW)
    third = store.timers.list(single, rare, cursor=second.next_cursor, limit=5, now=NOW)

    assert (first.items, second.items) == ([], [])
    assert first.next_cursor is not None
    assert [timer.timer_id for timer in third.items] == ["zz"]
    assert third.next_cursor is None


def test_a_filter_does_not_read_the_payloads_that_it_leaves_out(store: SqlStore, single: Namespace) -> None:
    store.timers.put(make_timers(single, 25), mode=PutMode.CREATE, now=NOW)

    with recorded_statements(store) as statements:
        store.timers.list(single, TimerFilter(tag="none"), cursor=None, limit=5, now=NOW)

    assert statements
    assert not [each for each in statements if "timer_payload" in each.sql]


@pytest.mark.parametrize("cursor", ["", "x", "x:y", "-1:y", "1"])
def test_a_list_refuses_a_cursor_of_something_else(store: SqlStore, single: Namespace, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        store.timers.list(single, TimerFilter(), cursor=cursor, limit=5, now=NOW)


@pytest.mark.parametrize("cursor", ["", "x", "1:xyz", "x:00"])
def test_due_timers_refuse_a_cursor_of_something_else(store: SqlStore, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        store.timers.due(0, until=NOW, limit=5, cursor=cursor)
