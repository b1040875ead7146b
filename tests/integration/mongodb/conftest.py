"""A store on the session's server, with the commands that it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from duetime.stores.backends.mongodb.backend import MongoDbBackend
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.core.store import Store
from duetime.stores.time_source import TimeSource
from tests.support.mongodb import empty_database


class Commands(CommandListener):
    """What was sent to the server since ``clear``, in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.sent.append((event.command_name, dict(event.command)))

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...

    def clear(self) -> None:
        self.sent.clear()

    def names(self) -> list[str]:
        return [name for name, _ in self.sent]


@pytest.fixture
def commands() -> Commands:
    return Commands()


@contextmanager
def opened(
    url: str, commands: Commands, *, time_source: TimeSource = TimeSource.CALLER, **options: Any
) -> Iterator[Store]:
    """A store in the process's database, which is empty. ``options`` are the client's."""
    client: MongoClient[dict[str, Any]] = MongoClient(
        url,
        event_listeners=[commands],
        uuidRepresentation="standard",
        w="majority",
        readConcernLevel="majority",
        **options,
    )
    store = Store(MongoDbBackend(Database(client, empty_database(url), time_source=time_source)))
    try:
        store.check()  # asks the server what it is, once
        commands.clear()
        yield store
    finally:
        store.close()


@pytest.fixture
def store(mongodb_url: str, commands: Commands) -> Iterator[Store]:
    with opened(mongodb_url, commands, timeoutMS=60_000) as store:
        yield store
