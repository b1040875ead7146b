"""Batches on real servers: exact counts, and connections that are good after a failure in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
from pymysql.connections import Connection

from duetime.domain.errors import StoreError
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Rearm, Timer
from duetime.stores.backends.sql.dialects import mysql_sql
from duetime.stores.backends.sql.tables import timers
from duetime.stores.port.timers import ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import fired, leased, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import Ran, recorded_statements


@pytest.fixture
def requests(server_store: SqlStore) -> Iterator[list[Ran]]:
    """What is sent to the server from now on: one entry for a batch."""
    with recorded_statements(server_store) as sent:
        yield sent


@dataclass(frozen=True)
class Batch:
    """Timers of one shard, that are due, and leases."""

    store: SqlStore
    namespace: Namespace
    timers: Sequence[Timer]
    leases: dict[int, Lease]

    @property
    def refs(self) -> list[TimerRef]:
        return [TimerRef(timer.timer_id) for timer in self.timers]


def record(batch: Batch) -> None:
    outcomes = [fired(timer) for timer in batch.timers]
    assert set(batch.store.timers.record(leased(outcomes, *batch.leases.values()), now=NOW)) == {RecordStatus.APPLIED}


def replace(batch: Batch) -> None:
    others = [make_timer(batch.namespace, timer.timer_id, payload_json="2") for timer in batch.timers]
    results = batch.store.timers.put(others, mode=PutMode.REPLACE, now=NOW)
    assert {result.status for result in results} == {PutStatus.REPLACED}


def fire_now(batch: Batch) -> None:
    later = [TimerRef(f"{timer.timer_id}-later") for timer in batch.timers]
    results = batch.store.timers.rearm(batch.namespace, later, rearm=Rearm.FIRE, now=NOW)
    assert {result.status for result in results} == {ChangeStatus.APPLIED}


def delete(batch: Batch) -> None:
    results = batch.store.timers.delete(batch.namespace, batch.refs, now=NOW)
    assert {result.status for result in results} == {ChangeStatus.APPLIED}


def renew(batch: Batch) -> None:
    assert all(batch.store.leases.renew(list(batch.leases.values()), lease_seconds=60, now=NOW))


BATCHES: dict[str, tuple[Callable[[Batch], object], int]] = {
    "record": (record, 2),
    "create again": (
        lambda batch: batch.store.timers.put(batch.timers, mode=PutMode.CREATE, now=NOW),
        2,
    ),
    "replace": (replace, 3),
    "fire now": (fire_now, 2),
    "delete": (delete, 2),
    "renew": (renew, 1),
    "statuses": (lambda batch: batch.store.leases.statuses(list(batch.leases), now=NOW), 1),
}
"""Besides, each write begins, commits and asks for its instant."""


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_takes_the_same_few_requests_whatever_its_size(
    server_store: SqlStore, single: Namespace, requests: list[Ran], name: str
) -> None:
    action, expected = BATCHES[name]
    for size in (2, 60):
        claimed = [claim_shard(server_store, shard, "w", lease_seconds=60, now=NOW) for shard in range(size)]
        leases = {lease.shard_id: lease for lease in claimed if lease}
        timers = make_timers(single, size, prefix=f"{size}-")
        later = [make_timer(single, f"{timer.timer_id}-later", execute_at=NOW + seconds(60)) for timer in timers]
        server_store.timers.put([*timers, *later], mode=PutMode.CREATE, now=NOW)
        stored = server_store.timers.due(0, until=NOW, limit=500).timers
        batch = Batch(server_store, single, [each for each in stored if each.timer_id.startswith(f"{size}-")], leases)
        assert len(batch.timers) == len(leases) == size

        requests.clear()
        action(batch)

        assert sum("timers" in each.sql for each in requests) == expected
        server_store.leases.release(list(leases.values()), now=NOW)


def test_mysql_is_sent_one_request_for_a_batch_and_one_for_a_read(
    server_store: SqlStore, single: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver, that is: it makes of a batch what it likes, and of the end of a read."""
    if server_store.database.engine.dialect.name != "mysql":
        pytest.skip("PyMySQL's")
    sent: list[str] = []
    driver: Any = Connection
    execute = driver._execute_command

    def note(connection: Connection[Any], command: int, sql: Any) -> None:
        sent.append(sql.decode(errors="replace") if isinstance(sql, bytes) else sql)
        execute(connection, command, sql)

    monkeypatch.setattr(Connection, "_execute_command", note)

    server_store.timers.put(make_timers(single, 60), mode=PutMode.CREATE, now=NOW)
    begin, *rest = [sql.split()[0] for sql in sent]
    assert begin in ("START", "BEGIN")
    assert rest == ["SET", "INSERT", "COMMIT"]
    sent.clear()
    assert server_store.timers.get(single, "t0059", now=NOW) is not None
    assert [sql.split()[0] for sql in sent] == ["SELECT"]


def test_a_batch_that_mysql_takes_in_several_requests_is_one_batch(
    server_store: SqlStore, single: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_sql, "MAX_REQUEST_CHARACTERS", 3000)
    created = server_store.timers.put(make_timers(single, 60), mode=PutMode.CREATE, now=NOW)
    assert [each.status for each in created] == [PutStatus.CREATED] * 60
    lease = claim_shard(server_store, 0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    outcomes = [fired(timer) for timer in server_store.timers.due(0, until=NOW, limit=500).timers]

    assert server_store.timers.record(leased(outcomes, lease), now=NOW) == [RecordStatus.APPLIED] * 60


def test_one_that_is_gone_among_many_is_told_apart(server_store: SqlStore, single: Namespace) -> None:
    lease = claim_shard(server_store, 0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    server_store.timers.put(make_timers(single, 50), mode=PutMode.CREATE, now=NOW)
    due = server_store.timers.due(0, until=NOW, limit=50).timers
    server_store.timers.delete(single, [TimerRef(due[20].timer_id)], now=NOW)

    statuses = server_store.timers.record(leased([fired(timer) for timer in due], lease), now=NOW)

    assert [index for index, status in enumerate(statuses) if status is RecordStatus.SUPERSEDED] == [20]
    assert statuses.count(RecordStatus.APPLIED) == 49


def test_a_failure_in_the_middle_of_a_batch_undoes_it_and_spoils_no_connection(
    server_store: SqlStore, single: Namespace
) -> None:
    server_store.timers.put(make_timers(single, 5), mode=PutMode.CREATE, now=NOW)
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
        assert len(server_store.timers.due(0, until=NOW, limit=10).timers) == 5
