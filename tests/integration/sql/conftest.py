"""Stores on the servers that the environment names; without any, these tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from tests.support.clock import NOW
from tests.support.databases import empty_database, open_server_store, server_urls
from tests.support.sql_store import SqlStore

SERVERS: list[Any] = sorted(server_urls()) or [
    pytest.param("noserver", marks=pytest.mark.skip(reason="no server is named by DUETIME_TEST_<STORE>_URL"))
]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """The name of a server, whose database is empty."""
    name: str = request.param
    empty_database(name)
    return name


@pytest.fixture
def server_store(server: str) -> Iterator[SqlStore]:
    """A store with the caller's times."""
    store = open_server_store(server)
    yield store
    store.close()


@pytest.fixture
def single(server_store: SqlStore) -> Namespace:
    """A namespace whose timers are all on shard 0."""
    return server_store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
