"""Batches of which some cannot be written: each timer has its own result, in a few transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.stores.backends.sql.backend import SqlBackend
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import fired, leased, make_timer, make_timers
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW
from tests.support.databases import empty_database, open_server_store, server_urls
from tests.support.stores import memory_store

NOT_UNICODE = "\ud800"
"""Half of a pair: no encoding has it, so every driver or database refuses the text."""


@contextmanager
def store_on(name: str) -> Iterator[Store]:
    if name == "sqlite":
        with memory_store() as store:
            yield Store(SqlBackend(store.database))
        return
    empty_database(name)
    with closing(open_server_store(name)) as server_store:
        yield Store(SqlBackend(server_store.database))


@pytest.fixture(params=["sqlite", *sorted(server_urls())])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with store_on(request.param) as store:
        yield store


@pytest.fixture
def single(store: Store) -> Namespace:
    """A namespace whose timers are all on shard 0."""
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


@pytest.fixture
def transactions(store: Store, single: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each that begins from now on."""
    begun: list[Any] = []
    assert isinstance(store.backend, SqlBackend)
    write = store.backend.database.write

    def noted(now: Any = None) -> Any:
        begun.append(now)
        return write(now)

    monkeypatch.setattr(store.backend.database, "write", noted)
    return begun


def test_known_and_new_timers_in_one_batch(store: Store, single: Namespace, transactions: list[Any]) -> None:
    known, new = make_timers(single, 60, prefix="known"), make_timers(single, 60, prefix="new")
    store.timers.put(known, mode=PutMode.CREATE, now=NOW)
    transactions.clear()

    results = store.timers.put(
        [each for pair in zip(known, new, strict=True) for each in pair], mode=PutMode.CREATE, now=NOW
    )

    assert [each.status for each in results] == [PutStatus.UNCHANGED, PutStatus.CREATED] * 60
    assert len(transactions) == 2


def test_a_timer_that_the_database_refuses_is_refused_alone(
    store: Store, single: Namespace, transactions: list[Any]
) -> None:
    known, new = make_timer(single, "known"), make_timers(single, 60)
    store.timers.put([known], mode=PutMode.CREATE, now=NOW)
    refused = make_timer(single, "refused", correlation_id=NOT_UNICODE)
    transactions.clear()

    results = store.timers.put([*new, refused, known], mode=PutMode.CREATE, now=NOW)

    assert [each.status for each in results] == [PutStatus.CREATED] * 60 + [PutStatus.REFUSED, PutStatus.UNCHANGED]
    assert len(store.timers.due(0, until=NOW, limit=100).timers) == 61
    assert len(transactions) < 20, "halves are tried, not each by itself"


def test_outcomes_of_timers_that_are_gone(store: Store, single: Namespace, transactions: list[Any]) -> None:
    store.timers.put(make_timers(single, 60), mode=PutMode.CREATE, now=NOW)
    lease = claim_shard(store, 0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    due = store.timers.due(0, until=NOW, limit=100).timers
    store.timers.delete(single, [TimerRef(each.timer_id) for each in due[10:20]], now=NOW)
    transactions.clear()

    statuses = store.timers.record(leased([fired(each) for each in due], lease), now=NOW)

    assert Counter(statuses) == {RecordStatus.APPLIED: 50, RecordStatus.SUPERSEDED: 10}
    assert len(transactions) == 2
