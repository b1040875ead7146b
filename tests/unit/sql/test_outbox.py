"""The outbox on SQL: every tenant's share of a page."""

from __future__ import annotations

from collections import Counter

from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore


def test_a_busy_tenant_leaves_room_for_the_others(store: SqlStore) -> None:
    calls = store.calls
    for _ in range(40):
        steps.submit(calls, tenant_id="busy")
    quiet = [steps.submit(calls, tenant_id=tenant_id) for tenant_id in ("alpha", "quiet", "zeta")]

    found = store.outbox.unpublished(limit=20)

    assert {call.tenant_id for call in quiet} <= {stored.event.tenant_id for stored in found}
    assert len(found) == 20


def test_more_tenants_than_a_page_holds_all_get_their_turn(store: SqlStore) -> None:
    calls = store.calls
    for number in range(12):
        steps.applied(calls, *(make.submitted(tenant_id=f"t{number:02}") for _ in range(3)))

    turns: Counter[str] = Counter()
    for _ in range(6):
        page = store.outbox.unpublished(limit=5)
        store.outbox.mark_published(page, now=NOW)
        turns.update(stored.event.tenant_id for stored in page)

    assert len(turns) == 12
