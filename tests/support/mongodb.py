"""MongoDB stores for tests, on the server of ``DUETIME_TEST_MONGODB_URL``: a replica set, be it of one member.

`make test-databases` starts SecantusDB (scripts/servers/mongodb.sh), which speaks MongoDB's protocol over MongoDB's
storage engine: transactions, unique and partial indexes and conflicts are real, its query planner is its own. Each
store has a database of its own, which goes at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from pymongo import MongoClient

from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.mongodb.database import SERVICE_CALLS, TIMERS, WORKERS
from duetime.stores.mongodb.schema import EXPIRY, WORKER_EXPIRY
from duetime.stores.mongodb.store import MongoDbStore
from duetime.stores.mongodb.timer_documents import key_of
from duetime.stores.mongodb.url import open_client
from duetime.stores.time_source import TimeSource
from tests.contract.subject import Subject

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


def open_mongodb(url: str, name: str) -> MongoDbStore:
    client, _ = open_client(with_database(url, name, _PATIENCE))
    return MongoDbStore(client, name, time_source=TimeSource.CALLER)


def drop_database(url: str, name: str) -> None:
    client: MongoClient[Any] = MongoClient(url)
    with client:
        client.drop_database(name)


def without_ttl(store: MongoDbStore) -> None:
    """Make the indexes anew without their TTL: what expires stays until it is pruned."""
    timers, workers = store.database[TIMERS], store.database[WORKERS]
    timers.drop_index(EXPIRY)
    timers.create_index("timer_expires_at", name=EXPIRY)
    workers.drop_index(WORKER_EXPIRY)
    workers.create_index("worker_expires_at", name=WORKER_EXPIRY)


@contextmanager
def mongodb_subject(url: str) -> Iterator[Subject]:
    name = unique_database_name()
    stores = [open_mongodb(url, name)]
    store = stores[0]

    def reopen() -> MongoDbStore:
        stores.append(open_mongodb(url, name))
        return stores[-1]

    def corrupt(timer: Timer) -> None:
        change = {"$set": {"timer_state": "nonsense"}, "$unset": {"timer_callback_url": ""}}
        assert store.database[TIMERS].update_one(key_of(timer), change).matched_count == 1

    def corrupt_call(call: ServiceCall) -> None:
        found_by = {"tenant_id": call.tenant_id, "service_call_id": call.call_id}
        change = {"$set": {"request.method": "nonsense"}}
        assert store.database[SERVICE_CALLS].update_one(found_by, change).matched_count == 1

    try:
        store.initialise()
        # The server removes what has expired by its own clock, which is not the tests'.
        without_ttl(store)
        yield Subject(store=store, corrupt=corrupt, corrupt_call=corrupt_call, reopen=reopen)
    finally:
        for each in stores:
            each.close()
        drop_database(url, name)
