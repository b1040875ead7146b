"""The statements that a store runs, and how SQLite will run them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from duetime.stores.sql.store import SqlStore


@dataclass(frozen=True)
class Ran:
    sql: str
    parameters: Any
    """Of one execution; for a batch, of its first."""


@contextmanager
def recorded_statements(store: SqlStore) -> Iterator[list[Ran]]:
    """Collects what the store runs meanwhile, except transaction control and DbNow's seeding."""
    ran: list[Ran] = []

    def note(_connection: Any, _cursor: Any, sql: str, parameters: Any, _context: Any, is_batch: bool) -> None:
        if sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE") and "temp.duetime_now (" not in sql:
            ran.append(Ran(sql, parameters[0] if is_batch else parameters))

    sa.event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        yield ran
    finally:
        sa.event.remove(store.database.engine, "before_cursor_execute", note)


def query_plan(store: SqlStore, statement: Ran) -> list[str]:
    """The steps of the plan, without DbNow's one-row table."""
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement.sql}", statement.parameters).all()
    steps = [row[3] for row in rows]
    return [step for step in steps if "duetime_now" not in step and not step.startswith("SCALAR SUBQUERY")]
