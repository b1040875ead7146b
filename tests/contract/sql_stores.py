"""SQL stores for the contract suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.backends.sql.call_tables import service_calls
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.tables import timers
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import Subject
from tests.support.databases import empty_database, shared_server_store
from tests.support.sql_store import SqlStore
from tests.support.stores import file_store, memory_store


def open_sql(url: str) -> SqlStore:
    return SqlStore(open_dialect(url), time_source=TimeSource.CALLER)


def corrupt(store: SqlStore, timer: Timer) -> None:
    """Break the tags, which are JSON."""
    with store.database.engine.connect() as connection:
        changed = connection.execute(
            sa.update(timers)
            .where(timers.c.timer_namespace == timer.namespace, timers.c.timer_id == timer.timer_id)
            .values(timer_tags="{broken")
        )
        connection.commit()
    assert changed.rowcount == 1


def corrupt_call(store: SqlStore, call: ServiceCall) -> None:
    """Break the request, which is JSON."""
    with store.database.engine.connect() as connection:
        changed = connection.execute(
            sa.update(service_calls)
            .where(service_calls.c.tenant_id == call.tenant_id, service_calls.c.service_call_id == call.call_id)
            .values(request_spec="{broken")
        )
        connection.commit()
    assert changed.rowcount == 1


@contextmanager
def subject_with(store: SqlStore, open_another: Callable[[], SqlStore] | None) -> Iterator[Subject]:
    """``store`` is initialised and empty, and stays open. ``open_another`` opens its data once more."""
    others: list[SqlStore] = []

    def reopen() -> SqlStore:
        assert open_another is not None
        others.append(open_another())
        return others[-1]

    try:
        yield Subject(
            store=store,
            corrupt=lambda timer: corrupt(store, timer),
            corrupt_call=lambda call: corrupt_call(store, call),
            reopen=reopen if open_another is not None else None,
        )
    finally:
        for other in others:
            other.close()


@contextmanager
def sqlite_file(request: pytest.FixtureRequest) -> Iterator[Subject]:
    path: Path = request.getfixturevalue("tmp_path") / "duetime.db"
    with file_store(path) as store, subject_with(store, lambda: open_sql(f"sqlite:///{path}")) as subject:
        yield subject


@contextmanager
def sqlite_memory(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with memory_store() as store, subject_with(store, None) as subject:
        yield subject


@contextmanager
def sql_server(name: str, request: pytest.FixtureRequest) -> Iterator[Subject]:
    url = empty_database(name)
    with subject_with(shared_server_store(name), lambda: open_sql(url)) as subject:
        yield subject
