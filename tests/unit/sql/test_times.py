"""Which times of a mutation come from DbNow; all others are given, for the reasons of decision 0004."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlglot
from sqlglot import expressions as exp

from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.schedule_timers import after_last_attempt
from duetime.domain.timers import Rearm
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.port.timers import PutMode, TimerRef
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import failed, leased, make_timers, parked, rescheduled, retried, seconds
from duetime.testing.contract.schedules import after, make_schedule
from duetime.testing.contract.steps import claim_shard, create
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.transfer import fill
from tests.unit.sql.call_plans import LATER, POINTS, steps_of_life
from tests.unit.sql.statements import recorded_statements
from tests.unit.sql.test_plans import ACTIONS as TIMER_ACTIONS

FROM_DATABASE = {
    "INSERT namespaces.created_at",
    "INSERT occurrences.occurrence_recorded_at",
    "INSERT outbox.created_at",
    "INSERT timers.shard_claimed_at",
    "INSERT timers.shard_lease_expires_at",
    "INSERT timers.timer_created_at",
    "INSERT timers.timer_updated_at",
    "INSERT workers.worker_expires_at",
    "UPDATE occurrences.occurrence_recorded_at",
    "UPDATE outbox.published_at",
    "UPDATE timers.shard_claimed_at",
    "UPDATE timers.shard_lease_expires_at",
    "UPDATE timers.timer_updated_at",
    "UPDATE workers.worker_expires_at",
    "WHERE timers.shard_lease_expires_at",
}
"""Leases, the outbox, and when a row was made and changed."""
OR_GIVEN = {
    "INSERT namespaces.created_at",
    "INSERT occurrences.occurrence_recorded_at",
    "INSERT timers.timer_created_at",
    "INSERT timers.timer_updated_at",
    "UPDATE timers.shard_lease_expires_at",
    "UPDATE timers.timer_updated_at",
}
"""Of rows that come from another store, of the timer of a call, which says what its call says, and of a release."""


def times_of(sql: str) -> list[tuple[str, exp.Expression]]:
    (statement,) = sqlglot.parse(sql, dialect="sqlite")
    assert statement is not None
    found: list[tuple[str, exp.Expression]] = []
    if isinstance(statement, exp.Insert):
        table = statement.this.this.name
        (row,) = statement.expression.expressions
        for column, value in zip(statement.this.expressions, row.expressions, strict=True):
            found.append((f"INSERT {table}.{column.name}", value))
    if isinstance(statement, exp.Update):
        table = statement.this.name
        found += [(f"UPDATE {table}.{each.this.name}", each.expression) for each in statement.expressions]
    if isinstance(statement, exp.Update | exp.Delete):
        where = statement.args["where"]
        comparisons = where.find_all(exp.LT, exp.LTE, exp.GT, exp.GTE)
        found += [(f"WHERE {statement.this.name}.{each.this.name}", each.expression) for each in comparisons]
    return [(name, value) for name, value in found if name.endswith("_at")]


@pytest.fixture
def store() -> Iterator[SqlStore]:
    """A store with the database's time."""
    store = SqlStore(open_dialect("sqlite://"))
    store.initialise()
    yield store
    store.close()


def live(store: SqlStore) -> None:
    """Something of every mutation that there is."""
    fill(store)
    single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
    store.catalogue.update_namespace(single, if_revision=1, now=NOW)
    store.transfer.load_namespace(replace(single, name="loaded"))
    for claim_id, if_claim in (("c", None), ("d", "c")):
        record = IdempotencyRecord(key="k", claim_id=claim_id, content="{}", expires_at=NOW)
        store.catalogue.put_idempotency_record(record, if_claim=if_claim, now=NOW)
    store.timers.put(make_timers(single, 40), mode=PutMode.CREATE, now=NOW)
    for action in TIMER_ACTIONS.values():
        action(store, single)
    first, second, third, fourth = store.timers.due(0, until=NOW, limit=4).timers
    outcomes = [
        retried(first, next_attempt_at=NOW + seconds(1)),
        rescheduled(second, execute_at=NOW + seconds(1)),
        parked(third, until=NOW + seconds(1)),
        failed(fourth),
    ]
    store.timers.record(leased(outcomes), now=NOW)
    store.timers.rearm(single, [TimerRef(fourth.timer_id)], rearm=Rearm.REDRIVE, now=NOW)
    (schedule,) = create(store, make_schedule(single))
    lease = claim_shard(store, 0, "s", lease_seconds=9, now=NOW)
    assert lease is not None
    outcome = after(retried(schedule, next_attempt_at=LATER))
    store.timers.record(leased([outcome], lease), now=NOW)
    own = None if outcome.schedule is None else outcome.schedule.detached
    assert own is not None
    store.timers.record(leased([after_last_attempt(failed(own), now=NOW, started_at=NOW)], lease), now=NOW)
    claim_shard(store, 1, "v", lease_seconds=9, now=NOW)  # after a release
    store.leases.announce_worker("w", ttl_seconds=9, now=NOW)
    store.leases.announce_worker("w", ttl_seconds=9, now=NOW)
    call = steps.submit(store.calls, tags=("a",), idempotency_key="mine", due_at=LATER)
    for name in ("marking", "pruning"):
        POINTS[name][0](store, call)
    steps_of_life(store, call)
    store.calls.delete(call.tenant_id, call.call_id, now=NOW)


def test_leases_the_outbox_and_changes_have_the_times_of_the_database(store: SqlStore) -> None:
    with recorded_statements(store) as statements:
        live(store)

    from_database: set[str] = set()
    given: set[str] = set()
    for sql in {each.sql for each in statements}:
        for name, value in times_of(sql):
            if "duetime_now" in value.sql():
                from_database.add(name)
            elif value.find(exp.Placeholder) is not None:
                given.add(name)

    assert from_database == FROM_DATABASE
    assert given & from_database == OR_GIVEN
