"""Service calls, executions and events as rows, what the schema refuses, and what damaged rows do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.errors import CallUnreadable, StoreError
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import (
    CallFailure,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
    timer_of,
)
from duetime.domain.times import MIN_INSTANT
from duetime.stores.backends.sql.call_tables import http_execution_log, outbox, service_call_tags, service_calls
from duetime.stores.backends.sql.tables import timers
from duetime.stores.port.calls import CallFilter, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import seconds
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.sqlite_rows import executed

LATER = NOW + seconds(60)


def change(store: SqlStore, table: sa.Table, values: Mapping[str, Any]) -> None:
    with store.database.write() as mutation:
        executed(mutation.connection, sa.update(table).values(values))


def count(store: SqlStore, table: sa.Table) -> int:
    with store.database.read() as connection:
        number: int = executed(connection, sa.select(sa.func.count()).select_from(table)).scalar_one()
    return number


# -- damaged rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tags", "{broken"),
        ("tags", "[1]"),
        ("outcome_meta", "{}"),
        ("outcome_meta", "[]"),
        ("outcome_meta", '{"executionId":"e","httpStatus":null,"reason":"Nonsense","message":""}'),
        ("request_spec", "[" * 100_000),
        ("request_spec", "{}"),
        ("request_spec", '{"method":"BREW","url":"","headers":null,"bodyBytes":0}'),
        ("submitted_at", "yesterday"),
        ("due_at", "2026-12-20T15:30:00.000+01:00"),
        ("updated_at", ""),
        ("started_at", "nonsense"),
        ("expires_at", "9"),
    ],
)
def test_what_can_be_read_of_a_damaged_call_is_listed(store: SqlStore, column: str, value: str) -> None:
    call = steps.submit(store.calls, tags=("x",), idempotency_key="k", rerun_of="r")
    change(store, service_calls, {column: value})

    with pytest.raises(CallUnreadable, match="the stored service call cannot be read"):
        steps.got(store.calls, call)
    (shown,) = store.calls.list(make.TENANT, CallFilter(), cursor=None, limit=5, now=NOW).items

    assert shown.outcome is not None
    assert shown.outcome.reason is CallFailure.UNREADABLE
    empty: dict[str, Any] = {
        "tags": {"tags": ()},
        "request_spec": {"request": RequestSpec(method=Method.GET, url="")},
        "submitted_at": {"submitted_at": MIN_INSTANT},
        "due_at": {"due_at": MIN_INSTANT},
        "updated_at": {"updated_at": MIN_INSTANT, "finished_at": MIN_INSTANT},
    }
    expected = replace(
        call,
        request=call.request.without_body(),
        status=CallStatus.FAILED,
        wake_at=None,
        finished_at=call.updated_at,
        outcome=shown.outcome,
    )
    assert shown == replace(expected, **empty.get(column, {}))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("execution_status", "Nonsense"),
        ("started_at", "nonsense"),
        ("response_status", "two hundred"),
        ("failure_reason", "Nonsense"),
        ("request_headers", "{broken"),
        ("request_headers", "[1]"),
        ("request_body_meta", "[1]"),
        ("response_body_meta", None),
    ],
)
def test_a_damaged_execution_is_shown_as_failed(store: SqlStore, column: str, value: str | None) -> None:
    call = steps.run(store.calls, steps.submit(store.calls))
    change(store, http_execution_log, {column: value})

    (shown,) = store.calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5).items

    assert (shown.status, shown.failure, shown.number) == (ExecutionStatus.FAILED, CallFailure.UNREADABLE, 1)
    assert store.calls.get_execution(make.TENANT, call.call_id, shown.execution_id) == shown


@pytest.mark.parametrize(("column", "value"), [("event_type", "Nonsense"), ("occurred_at", "nonsense")])
def test_a_damaged_event_holds_up_its_call_alone(
    store: SqlStore, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    bad, good = steps.submit(store.calls), steps.submit(store.calls)
    other = steps.submit(store.calls, tenant_id="zeta")
    with store.database.write() as mutation:
        is_second = sa.and_(outbox.c.aggregate_id == bad.call_id, outbox.c.event_sequence == 2)
        executed(mutation.connection, sa.update(outbox).where(is_second).values({column: value}))

    with caplog.at_level(logging.ERROR):
        for limit in (1, 2, 5, 100):
            found = store.outbox.unpublished(limit=limit)
            assert len(found) == min(limit, 5)

    assert [(stored.event.aggregate_id, stored.event.sequence) for stored in found] == [
        (bad.call_id, 1),
        *((call.call_id, sequence) for call in (good, other) for sequence in (1, 2)),
    ]
    (told,) = [record for record in caplog.records if getattr(record, "action", "") == "outbox.unreadable"]
    assert (told.tenant_id, told.call_id, told.sequence) == (make.TENANT, bad.call_id, 2)  # type: ignore[attr-defined]
    assert [event.sequence for event in store.calls.list_events(make.TENANT, bad.call_id, after=0, limit=9)] == [1]
    assert len(store.outbox.unpublished_of(CallRef(make.TENANT, bad.call_id), limit=9)) == 1


# -- the timer ----------------------------------------------------------------------------------------------------


def test_a_lost_timer_comes_back_with_the_next_step(store: SqlStore) -> None:
    call = steps.submit(store.calls, due_at=LATER)
    with store.database.write() as mutation:
        executed(mutation.connection, sa.delete(timers))

    starred = steps.applied(store.calls, make.amended(call, starred=True))

    steps.assert_waits(store, starred)


def test_a_timer_that_was_taken_aside_comes_back_with_the_next_step(store: SqlStore) -> None:
    call = steps.submit(store.calls, due_at=NOW)
    change(store, timers, {"timer_tags": "{broken"})
    rows = store.timers.due(call.shard_id, until=NOW, limit=5).unreadable
    store.timers.quarantine(rows, now=NOW, expires_at=LATER)
    change(store, timers, {"timer_tags": None})

    moved = steps.applied(store.calls, make.amended(call, due_at=LATER))

    (timer,) = store.timers.due(call.shard_id, until=LATER, limit=5).timers
    assert timer == timer_of(moved)
    assert store.timers.prune(now=LATER, limit=5) == 0


# -- the schema ---------------------------------------------------------------------------------------------------


@pytest.fixture
def ended(store: SqlStore) -> ServiceCall:
    return steps.run(store.calls, steps.submit(store.calls, tags=("a", "b")))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE service_calls SET status = 'Nonsense'",
        "UPDATE service_calls SET status = 'Scheduled'",
        "UPDATE service_calls SET finished_at = NULL",
        "UPDATE service_calls SET wake_at = updated_at",
        "UPDATE service_calls SET attempts = 'many'",
        "UPDATE service_calls SET tenant_id = 'other'",
        "UPDATE service_call_tags SET tenant_id = 'other'",
        "UPDATE http_execution_log SET tenant_id = 'other'",
        "UPDATE http_execution_log SET request_method = 'BREW'",
        "UPDATE outbox SET event_sequence = 1",
        "INSERT INTO service_call_tags VALUES ('other', 'x', 'a')",
    ],
)
def test_the_schema_refuses_what_would_be_nonsense(store: SqlStore, ended: ServiceCall, statement: str) -> None:
    assert ended.status is CallStatus.SUCCEEDED
    with store.database.engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.exec_driver_sql(statement)


def test_foreign_keys_remove_what_hangs_on_a_call(store: SqlStore, ended: ServiceCall) -> None:
    assert [count(store, table) for table in (service_call_tags, http_execution_log)] == [2, 1]

    with store.database.write() as mutation:
        executed(mutation.connection, sa.delete(service_calls))

    assert [count(store, table) for table in (service_call_tags, http_execution_log)] == [0, 0]
    assert count(store, outbox) == ended.event_count


def test_an_event_that_is_there_already_is_an_error_and_writes_nothing(store: SqlStore) -> None:
    call = steps.submit(store.calls)
    behind = replace(call, event_count=0)

    with pytest.raises(StoreError, match="outbox"):
        steps.apply(store.calls, make.begun(behind))

    assert steps.got(store.calls, call) == call
    assert store.calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5).items == []


def test_a_removed_calls_id_is_free_when_its_events_are_gone(store: SqlStore) -> None:
    call = steps.submit(store.calls)
    store.calls.delete(make.TENANT, call.call_id, now=NOW)
    again = make.submitted(call_id=call.call_id)
    assert steps.apply(store.calls, again) == ["exists"]

    store.outbox.mark_published(store.outbox.unpublished(limit=9), now=NOW)
    store.calls.prune(now=LATER, events_published_before=LATER, limit=9)

    assert steps.apply(store.calls, again) == ["applied"]


def test_marking_an_event_in_anothers_place_does_nothing(store: SqlStore) -> None:
    steps.submit(store.calls)
    first, second = store.outbox.unpublished(limit=9)

    misplaced = replace(first.event, sequence=second.event.sequence)
    store.outbox.mark_published([replace(first, event=misplaced)], now=NOW)

    assert store.outbox.unpublished(limit=9) == [first, second]
