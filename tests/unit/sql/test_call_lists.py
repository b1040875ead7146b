"""What lists of service calls promise beyond the port, on SQL."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duetime.stores.core.call_lists import LOOKED_AT_PER_PAGE
from duetime.stores.port.calls import CallFilter, CallOrder
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.steps import read_all
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import recorded_statements

RARE = CallFilter(tags=("a", "b"))


def test_a_filter_that_leaves_out_much_costs_a_bounded_page(store: SqlStore) -> None:
    for _ in range(12):
        steps.applied(store.calls, *(make.submitted(tags=("a",)) for _ in range(LOOKED_AT_PER_PAGE // 10)))
    wanted = steps.submit(store.calls, tags=("a", "b"), now=NOW - timedelta(hours=1))

    with recorded_statements(store) as statements:
        page = store.calls.list(make.TENANT, RARE, cursor=None, limit=10, now=NOW)

    assert page.items == []
    assert page.next_cursor is not None
    assert len(statements) == 4
    found = read_all(lambda cursor: store.calls.list(make.TENANT, RARE, cursor=cursor, limit=10, now=NOW))
    assert [call.call_id for call in found] == [wanted.call_id]


def test_a_list_by_one_condition_is_one_statement(store: SqlStore) -> None:
    for tags in ((), ("a",), ("a", "b")):
        steps.submit(store.calls, tags=tags)

    with recorded_statements(store) as statements:
        page = store.calls.list(make.TENANT, CallFilter(tags=("a",)), cursor=None, limit=10, now=NOW)

    assert (len(page.items), len(statements)) == (2, 1)


def test_by_due_time_there_are_only_scheduled_calls(store: SqlStore) -> None:
    with pytest.raises(ValueError, match="Scheduled"):
        store.calls.list(make.TENANT, CallFilter(order=CallOrder.DUE), cursor=None, limit=1, now=NOW)
