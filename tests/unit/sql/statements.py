"""The statements that a store runs, and how SQLite will run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

from duetime.stores.backends.sql.dialects.driver_connection import DriverConnection
from tests.support.sql_store import SqlStore


@dataclass(frozen=True)
class Ran:
    sql: str
    parameters: Any
    """Of one execution; for a batch, of its first."""


@contextmanager
def recorded_statements(store: SqlStore) -> Iterator[list[Ran]]:
    """Collects what the store runs meanwhile, except transaction control and DbNow's seeding."""
    ran: list[Ran] = []

    def note(_connection: Any, sql: str, values: Any = ()) -> None:
        if sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE") and "temp.duetime_now (" not in sql:
            ran.append(Ran(sql, values[0] if isinstance(values, list) else values))

    def note_of_server(_: Any, _cursor: Any, sql: str, values: Any, _context: Any, is_batch: bool) -> None:
        note(_, sql, [values[0]] if is_batch else values)

    listened = (store.database.engine, "before_cursor_execute", note_of_server)
    with before_each_statement(note):
        sa.event.listen(*listened)
        try:
            yield ran
        finally:
            sa.event.remove(*listened)


@contextmanager
def before_each_statement(note: Callable[..., None]) -> Iterator[None]:
    """``note`` is called with the connection, the statement and its values, those of a batch as a list."""
    run = DriverConnection.exec_driver_sql

    def noted(connection: DriverConnection, sql: str, values: Any = ()) -> Any:
        note(connection, sql, values)
        return run(connection, sql, values)

    with patch.object(DriverConnection, "exec_driver_sql", noted):
        yield


def query_plan(store: SqlStore, statement: Ran) -> list[str]:
    """The steps of the plan, without DbNow's one-row table and without the gathering of a subquery's rows."""
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement.sql}", statement.parameters).all()
    steps = [row[3] for row in rows]
    gathered = [step.removeprefix("CO-ROUTINE ") for step in steps if step.startswith("CO-ROUTINE")]
    passed_over = {f"{word} {name}" for name in gathered for word in ("CO-ROUTINE", "SCAN")}
    return [
        step
        for step in steps
        if "duetime_now" not in step
        and not step.startswith("SCALAR SUBQUERY")
        and step != "SCAN CONSTANT ROW"
        and step not in passed_over
    ]
