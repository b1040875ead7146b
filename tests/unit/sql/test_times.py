"""Where each time comes from that a mutation writes or compares: DbNow, or given for the reasons of decision 0004."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import expressions as exp

from duetime.stores.sql.dialects import open_dialect
from duetime.stores.time_source import TimeSource
from tests.unit.sql.test_every_statement import statements_of

FROM_DATABASE = {
    "INSERT namespaces.created_at",
    "INSERT outbox.created_at",
    "INSERT timers.timer_created_at",
    "INSERT timers.timer_updated_at",
    "INSERT workers.worker_expires_at",
    "UPDATE outbox.published_at",
    "UPDATE timers.shard_claimed_at",
    "UPDATE timers.shard_lease_expires_at",
    "UPDATE timers.timer_updated_at",
    "UPDATE workers.worker_expires_at",
    "WHERE timers.shard_lease_expires_at",
    "WHERE timers.timer_expires_at",
    "WHERE workers.worker_expires_at",
}
"""Leases, the outbox, when a row was made and changed, and which one has expired."""
MOVED_AS_THEY_ARE = {
    "INSERT api_keys.key_created_at",
    "INSERT namespaces.created_at",
    "INSERT outbox.published_at",
    "INSERT timers.timer_created_at",
    "INSERT timers.timer_expires_at",
    "INSERT timers.timer_updated_at",
}
"""Rows of another store, and API keys, which are made outside and stored once."""
ASKED_FOR_OR_JUDGED_BY_THE_CALLER = {
    "INSERT api_keys.key_expires_at",
    "INSERT idempotency_records.record_expires_at",
    "UPDATE idempotency_records.record_expires_at",
    "WHERE idempotency_records.record_expires_at",
    "INSERT timers.timer_due_at",
    "INSERT timers.timer_execute_at",
    "INSERT timers.timer_fired_at",
    "INSERT timers.timer_rearmed_at",
    "UPDATE timers.timer_due_at",
    "UPDATE timers.timer_execute_at",
    "UPDATE timers.timer_expires_at",
    "UPDATE timers.timer_fired_at",
    "UPDATE timers.timer_rearmed_at",
    # The old one, which the caller has read.
    "UPDATE timers.timer_created_at",
}
OF_A_TRANSITION = {
    # The timer of a call is what its call says.
    "INSERT timers.timer_created_at",
    "INSERT timers.timer_updated_at",
    "UPDATE timers.timer_created_at",
    "UPDATE timers.timer_updated_at",
    *(
        f"INSERT service_calls.{name}_at"
        for name in ("submitted", "due", "started", "finished", "registered", "reached", "wake", "updated", "expires")
    ),
    *(
        f"UPDATE service_calls.{name}_at"
        for name in ("due", "started", "finished", "registered", "reached", "wake", "updated", "expires")
    ),
    *(f"INSERT http_execution_log.{name}_at" for name in ("started", "deadline", "finished")),
    *(f"UPDATE http_execution_log.{name}_at" for name in ("started", "deadline", "finished")),
    "INSERT outbox.occurred_at",
}
"""Of a call, its executions and events alike: they tell one instant, and the events hold it in their JSON."""


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


def test_every_time_of_a_mutation_is_the_database_s_or_given_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from_database: set[str] = set()
    given: set[str] = set()
    for sql in statements_of(open_dialect("sqlite://"), monkeypatch, TimeSource.DATABASE):
        for name, value in times_of(sql):
            if "duetime_now" in value.sql():
                from_database.add(name)
            elif value.find(exp.Placeholder) is not None:
                given.add(name)

    assert from_database == FROM_DATABASE
    assert given == MOVED_AS_THEY_ARE | ASKED_FOR_OR_JUDGED_BY_THE_CALLER | OF_A_TRANSITION
