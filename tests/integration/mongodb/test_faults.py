"""Servers that are down, not ready or not what is needed: one clear line each, and in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from duetime.domain.errors import StoreEmpty, StoreError, StoreNotReady, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import TimerChange
from duetime.runtime.wiring import make_ready
from duetime.stores.backends.mongodb.backend import MongoDbBackend
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.backends.mongodb.schema import SCHEMA_VERSION
from duetime.stores.core.store import Store
from duetime.stores.entities import DUE
from duetime.stores.open import open_store
from duetime.stores.port.calls import CallFilter, CallRef
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import fired, leased, make_namespace, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim, claim_shard, create, due, record, stored
from tests.support.clock import NOW
from tests.support.mongodb import database_of, with_database
from tests.support.ports import reserved_port
from tests.support.servers import own_server

CALLS: dict[str, Callable[[Store, Namespace], object]] = {
    "check": lambda store, ns: store.check(),
    "initialise": lambda store, ns: store.initialise(),
    "shard_map": lambda store, ns: store.catalogue.shard_map(),
    "create_namespace": lambda store, ns: store.catalogue.create_namespace(
        "n", num_shards=1, dedicated=False, now=NOW
    ),
    "update_namespace": lambda store, ns: store.catalogue.update_namespace(ns, if_revision=1, now=NOW),
    "list_namespaces": lambda store, ns: store.catalogue.list_namespaces(cursor=None, limit=1),
    "secret": lambda store, ns: store.catalogue.secret("s", b"x"),
    "api key": lambda store, ns: store.catalogue.get_api_key("k"),
    "put": lambda store, ns: store.timers.put([make_timer(ns)], mode=PutMode.CREATE, now=NOW),
    "get": lambda store, ns: store.timers.get(ns, "t1", now=NOW),
    "update": lambda store, ns: store.timers.update(ns, "t1", TimerChange(), firing_id="f", now=NOW),
    "delete": lambda store, ns: store.timers.delete(ns, [TimerRef("t1")], now=NOW),
    "list": lambda store, ns: store.timers.list(ns, TimerFilter(), cursor=None, limit=1, now=NOW),
    "find": lambda store, ns: store.timers.find_by_correlation(ns, "c", cursor=None, limit=1, now=NOW),
    "statuses": lambda store, ns: store.leases.statuses([0], now=NOW),
    "claim": lambda store, ns: claim_shard(store, 0, "w", lease_seconds=1, now=NOW),
    "announce": lambda store, ns: store.leases.announce_worker("w", ttl_seconds=1, now=NOW),
    "due": lambda store, ns: store.timers.due(0, until=NOW, limit=1),
    "record": lambda store, ns: store.timers.record(leased([fired(t) for t in make_timers(ns, 2)]), now=NOW),
    "apply": lambda store, ns: steps.apply(store.calls, make.submitted()),
    "get calls": lambda store, ns: store.calls.get([CallRef("a", "b")], now=NOW),
    "list calls": lambda store, ns: store.calls.list("a", CallFilter(), cursor=None, limit=1, now=NOW),
    "delete call": lambda store, ns: store.calls.delete("a", "b", now=NOW),
    "outbox": lambda store, ns: store.outbox.unpublished(limit=1),
}


@pytest.fixture
def nobody() -> Iterator[Store]:
    """A store where nobody listens."""
    with reserved_port() as port:
        store = open_store(f"mongodb://127.0.0.1:{port}/duetime?serverSelectionTimeoutMS=50&timeoutMS=300")
        assert isinstance(store, Store)
        yield store
        store.close()


@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_is_down_is_unavailable(nobody: Store, name: str) -> None:
    with pytest.raises(StoreUnavailable, match="MongoDB cannot be reached"):
        CALLS[name](nobody, make_namespace())


def test_a_server_that_says_nothing_is_unavailable_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_store(f"mongodb://127.0.0.1:{silent.getsockname()[1]}/?timeoutMS=300")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.check()
        assert time.monotonic() - began < 8, "a third of a second was asked for, 10 is the default"
        store.close()


def test_an_empty_database_is_not_ready(mongodb_url: str) -> None:
    store = open_store(with_database(mongodb_url, "duetime_test_empty"))

    with pytest.raises(StoreEmpty, match="`duetime init` creates them"):
        store.check()
    store.close()


def test_collections_that_another_process_has_begun_to_make_are_completed(mongodb_url: str) -> None:
    url = with_database(mongodb_url, "duetime_test_begun")
    store = open_store(url)
    database_of(store).command("create", "schema")
    try:
        make_ready(store, url)
        store.check()
    finally:
        database_of(store).command("dropDatabase")
        store.close()


@pytest.mark.parametrize("operation", [Store.initialise, Store.check])
def test_a_newer_schema_is_left_alone(store: Store, operation: Callable[[Store], None]) -> None:
    def store_version(version: int) -> None:
        database_of(store)["schema"].update_one({}, {"$set": {"schema_version": version}})

    store_version(SCHEMA_VERSION + 1)
    try:
        with pytest.raises(StoreNotReady, match=rf"schema version {SCHEMA_VERSION + 1}, which is newer"):
            operation(store)
    finally:
        store_version(SCHEMA_VERSION)


def test_a_missing_index_is_not_ready_and_made_again(store: Store) -> None:
    database_of(store)["timers"].drop_index(DUE.name)

    with pytest.raises(StoreNotReady, match="indexes are missing"):
        store.timers.due(0, until=NOW, limit=1)
    store.initialise()
    assert store.timers.due(0, until=NOW, limit=1).timers == []


def test_a_closed_store_says_so(mongodb_url: str) -> None:
    store = open_store(mongodb_url)
    store.close()

    with pytest.raises(StoreError, match="closed"):
        store.catalogue.shard_map()


@pytest.mark.parametrize("operation", [Store.initialise, Store.check])
def test_a_server_without_transactions_is_refused(operation: Callable[[Store], None]) -> None:
    with own_server("mongodb", SECANTUSDB_OPTIONS="--standalone") as server:
        store = open_store(server.url)
        assert isinstance(store, Store)
        with pytest.raises(StoreNotReady, match="not part of a replica set"):
            operation(store)
        store.close()


def test_wrong_credentials_are_one_line_without_them() -> None:
    with own_server("mongodb", SECANTUSDB_OPTIONS="--auth") as server:
        host = server.url.removeprefix("mongodb://")
        for url in (server.url, f"mongodb://user:hunter2@{host}"):
            store = open_store(url)
            with pytest.raises(StoreNotReady, match="refuses these credentials") as raised:
                store.initialise()
            assert "hunter2" not in str(raised.value)
            store.close()


def test_what_was_acknowledged_outlives_a_kill_of_the_server() -> None:
    with own_server("mongodb", SECANTUSDB_OPTIONS="--sync-on-commit") as server:
        store = open_store(f"{server.url}?timeoutMS=60000")
        assert isinstance(store, Store)
        store.initialise()
        namespace = store.catalogue.create_namespace("orders", num_shards=1, dedicated=False, now=NOW)[0]
        timers = create(store, *make_timers(namespace, 50))
        lease = claim(store)
        record(store, [fired(timer) for timer in timers[:20]], lease)
        call = steps.begin(store.calls, steps.submit(store.calls, idempotency_key="k"))

        server.restart()

        waiting = due(store, namespace)
        assert {timer.timer_id for timer in waiting} == {timer.timer_id for timer in timers[20:]}
        assert stored(store, namespace, timers[0].timer_id).next_attempt_at is None
        assert store.calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) == call
        events = store.outbox.unpublished(limit=100)
        assert [each.event.sequence for each in events] == list(range(1, call.event_count + 1))
        assert record(store, [fired(timer) for timer in waiting], lease) == [RecordStatus.APPLIED] * 30
        store.close()


def test_leases_are_by_the_servers_clock(mongodb_url: str, store: Store) -> None:
    """Whatever the workers' clocks say."""
    database = database_of(store)
    mine = Store(MongoDbBackend(Database(database.client, database.name)))
    lease = claim_shard(mine, 7, "w1", lease_seconds=30, now=NOW + seconds(1e6))
    assert lease is not None
    assert claim_shard(mine, 7, "w2", lease_seconds=30, now=NOW + seconds(2e6)) is None
    (renewed,) = mine.leases.renew([lease], lease_seconds=60, now=NOW - seconds(1e6))
    assert renewed is not None
    assert renewed.expires_at > lease.expires_at
    assert mine.leases.announce_worker("a", ttl_seconds=60, now=NOW + seconds(1e6)) == ["a"]
    assert mine.leases.announce_worker("b", ttl_seconds=60, now=NOW - seconds(1e6)) == ["a", "b"]
    mine.leases.release([renewed], now=NOW)
    assert claim_shard(mine, 7, "w2", lease_seconds=30, now=NOW - seconds(1e6)) is not None
