"""Timers as rows and back, and what is left of rows that do not decode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.domain.times import MIN_INSTANT
from duetime.stores.backends.sql.tables import timers
from duetime.stores.core import timer_codec
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.sqlite_rows import executed


@pytest.mark.parametrize("text", ["{broken", "{}", "[1]", '"a"', "null", ""])
def test_other_texts_are_no_tags(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        timer_codec.decode_tags(text)
    assert timer_codec.readable_tags(text) == ()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("timer_tags", "{broken"),
        ("timer_tags", "[1]"),
        ("timer_failure", "[]"),
        ("timer_failure", '["nonsense", "m", "2026-12-20T15:30:00.000Z", null]'),
        ("timer_due_at", 2**62),
        ("timer_created_at", -(2**62)),
        ("timer_updated_at", 2**62),
        ("timer_fired_at", 2**62),
    ],
)
def test_what_can_be_read_of_an_unreadable_row_is_shown(
    store: SqlStore, single: Namespace, column: str, value: Any
) -> None:
    timer = make_timer(single, payload_json="[1]", correlation_id="c", tags=("x",))
    store.timers.put([timer], mode=PutMode.CREATE, now=NOW)
    with store.database.write() as mutation:
        executed(mutation.connection, sa.update(timers).values({column: value}))

    shown = store.timers.get(single, "t1", now=NOW)

    assert shown is not None
    assert shown.failure is not None
    assert shown.failure.reason is FailureReason.UNREADABLE
    assert "the stored timer cannot be read" in shown.failure.message
    empty: dict[str, Any] = {
        "timer_tags": {"content": replace(timer.content, tags=())},
        "timer_due_at": {"content": replace(timer.content, execute_at=MIN_INSTANT)},
        "timer_created_at": {"created_at": MIN_INSTANT},
        "timer_updated_at": {"updated_at": MIN_INSTANT},
    }
    unreadable = replace(timer, state=TimerState.FAILED, next_attempt_at=None, failure=shown.failure)
    assert shown == replace(unreadable, **empty.get(column, {}))


@pytest.mark.parametrize("column", ["timer_created_at", "timer_due_at", "timer_tags", "timer_failure"])
def test_a_replacement_heals_every_column(store: SqlStore, single: Namespace, column: str) -> None:
    store.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)
    with store.database.write() as mutation:
        value: Any = "{broken" if column in ("timer_tags", "timer_failure") else 2**62
        executed(mutation.connection, sa.update(timers).values({column: value}))

    (result,) = store.timers.put([make_timer(single)], mode=PutMode.REPLACE, now=NOW)

    stored: Timer | None = store.timers.get(single, "t1", now=NOW)
    assert stored == result.timer
    assert stored is not None
    assert stored.state is TimerState.SCHEDULED


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE timers SET timer_state = 'nonsense'",
        "UPDATE timers SET row_type = 3",
        "UPDATE timers SET row_type = 4",
        "UPDATE timers SET timer_state = 'Fired'",
        "UPDATE timers SET timer_id = NULL",
        "UPDATE timers SET timer_revision = NULL",
        "UPDATE timers SET timer_attempts = 'many'",
        "UPDATE timers SET timer_execute_at = NULL",
    ],
)
def test_the_schema_refuses_what_would_be_nonsense(store: SqlStore, single: Namespace, statement: str) -> None:
    store.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)

    with store.database.engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.exec_driver_sql(statement)
