"""Batches on real servers: exact counts, and connections that are good after a failure in the middle."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreError
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.stores.port import PutMode, TimerRef
from duetime.stores.sql.store import SqlStore
from duetime.stores.sql.tables import timers
from tests.support.builders import fired, make_timers
from tests.support.clock import NOW


@pytest.fixture
def requests(server_store: SqlStore) -> list[str]:
    """What is sent to the server from now on: one entry for a batch."""
    sent: list[str] = []

    @sa.event.listens_for(server_store.database.engine, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        sent.append(sql.split()[0])

    return sent


def test_recording_a_batch_takes_a_fixed_number_of_requests(
    server_store: SqlStore, single: Namespace, requests: list[str]
) -> None:
    lease = server_store.claim_shard(0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    counts = []
    for number in (2, 300):
        server_store.put_timers(make_timers(single, number, prefix=f"{number}-"), mode=PutMode.CREATE, now=NOW)
        due = server_store.due_timers(0, until=NOW, limit=500).timers
        requests.clear()
        statuses = server_store.record([fired(timer) for timer in due], leases={0: lease}, now=NOW)
        assert statuses == [RecordStatus.APPLIED] * number
        counts.append(requests.copy())
    assert counts[0] == counts[1]


def test_one_that_is_gone_among_many_is_told_apart(server_store: SqlStore, single: Namespace) -> None:
    lease = server_store.claim_shard(0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    server_store.put_timers(make_timers(single, 50), mode=PutMode.CREATE, now=NOW)
    due = server_store.due_timers(0, until=NOW, limit=50).timers
    server_store.delete_timers(single, [TimerRef(due[20].timer_id)], now=NOW)

    statuses = server_store.record([fired(timer) for timer in due], leases={0: lease}, now=NOW)

    assert [index for index, status in enumerate(statuses) if status is RecordStatus.SUPERSEDED] == [20]
    assert statuses.count(RecordStatus.APPLIED) == 49


def test_a_failure_in_the_middle_of_a_batch_undoes_it_and_spoils_no_connection(
    server_store: SqlStore, single: Namespace
) -> None:
    server_store.put_timers(make_timers(single, 5), mode=PutMode.CREATE, now=NOW)
    row = timers.c
    database = server_store.database
    statement = database.prepare(
        sa.update(timers)
        .where(row.timer_namespace == "single", row.shard_id == 0, row.timer_id == sa.bindparam("id"))
        .values(timer_state=sa.bindparam("state")),
        "id",
        "state",
    )
    too_long = "x" * 5000

    for _ in range(3):
        with pytest.raises(StoreError), database.write(NOW) as mutation:
            statement.many(
                mutation.connection, [("t0000", "fired"), ("t0001", too_long), ("t0002", "fired"), ("t0003", "fired")]
            )
        assert len(server_store.due_timers(0, until=NOW, limit=10).timers) == 5
