"""MongoDB stores for tests, on the server of ``DUETIME_TEST_MONGODB_URL``: a replica set, be it of one member.

`make test-databases` starts SecantusDB (scripts/servers/mongodb.sh), which speaks MongoDB's protocol over MongoDB's
storage engine: transactions, unique and partial indexes and conflicts are real, its query planner is its own. Each
test process has a database of its own there, which stays: to make the indexes takes the server most of a test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from pymongo import MongoClient

from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.backends.mongodb.backend import MongoDbBackend, open_mongodb
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.backends.mongodb.documents import key_of
from duetime.stores.core.store import Store
from duetime.stores.entities import ENTITIES, TIMER
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import Subject
from tests.support.databases import own_name

URL_VARIABLE = "DUETIME_TEST_MONGODB_URL"
_PATIENCE = "timeoutMS=60000"
"""Nobody waits that long. The stand-in is slow with hundreds of writes on a machine that is busy."""


def server_url() -> str | None:
    return os.environ.get(URL_VARIABLE)


def unique_database_name() -> str:
    return f"duetime_test_{uuid4().hex[:16]}"


def with_database(url: str, name: str, *options: str) -> str:
    """``url`` with another database and more options, like ``timeoutMS=60000``."""
    parts = urlsplit(url)
    query = "&".join(option for option in (parts.query, *options) if option)
    return urlunsplit(parts._replace(path=f"/{name}", query=query))


def is_stand_in(client: MongoClient[Any]) -> bool:
    """Whether the server is SecantusDB, whose query planner is not MongoDB's."""
    return "secantusVersion" in client.admin.command("buildInfo")


@contextmanager
def mongodb_database(url: str) -> Iterator[str]:
    """The URL of a database that nobody else has, removed at the end."""
    name = unique_database_name()
    try:
        yield with_database(url, name, _PATIENCE)
    finally:
        drop_database(url, name)


def open_store_of(url: str, name: str) -> Store:
    return Store(open_mongodb(with_database(url, name, _PATIENCE), time_source=TimeSource.CALLER))


def database_of(store: Store) -> Database:
    assert isinstance(store.backend, MongoDbBackend)
    return store.backend.database


def key_of_timer(timer: Timer) -> dict[str, Any]:
    """What finds its document."""
    return key_of(TIMER, (timer.shard_id, timer.namespace, timer.timer_id))


def drop_database(url: str, name: str) -> None:
    client: MongoClient[Any] = MongoClient(url)
    with client:
        client.drop_database(name)


def without_ttl(store: Store) -> None:
    """Make the indexes anew without their TTL: what expires stays until it is pruned."""
    for entity in ENTITIES:
        collection = database_of(store)[entity.table]
        for name, index in collection.index_information().items():
            if "expireAfterSeconds" in index:
                collection.drop_index(name)
                collection.create_index(index["key"], name=name)


@cache
def _own_database(url: str) -> str:
    """The name of this test process's database, made anew and with nothing that the server would remove by itself."""
    name = own_name()
    drop_database(url, name)
    store = open_store_of(url, name)
    store.initialise()
    # The server removes what has expired by its own clock, which is not the tests'.
    without_ttl(store)
    store.close()
    return name


def empty_database(url: str) -> str:
    """The name of this test process's database, with the indexes and without documents."""
    name = _own_database(url)
    client: MongoClient[Any] = MongoClient(url)
    with client:
        for table in {entity.table for entity in ENTITIES}:
            client[name][table].delete_many({})
    return name


@contextmanager
def mongodb_subject(url: str) -> Iterator[Subject]:
    name = empty_database(url)
    stores = [open_store_of(url, name)]
    store = stores[0]
    database = database_of(store)

    def reopen() -> Store:
        stores.append(open_store_of(url, name))
        return stores[-1]

    def corrupt(timer: Timer) -> None:
        change = {"$set": {"timer_state": "nonsense"}, "$unset": {"timer_callback_url": ""}}
        assert database["timers"].update_one(key_of_timer(timer), change).matched_count == 1

    def corrupt_call(call: ServiceCall) -> None:
        found_by = {"tenant_id": call.tenant_id, "service_call_id": call.call_id}
        change = {"$set": {"request_spec": "nonsense"}}
        assert database["service_calls"].update_one(found_by, change).matched_count == 1

    try:
        yield Subject(store=store, corrupt=corrupt, corrupt_call=corrupt_call, reopen=reopen)
    finally:
        for each in stores:
            each.close()
