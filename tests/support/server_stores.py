"""Stores on the servers that the environment names, SQL or not, for tests whose processes share one."""

from __future__ import annotations

from tests.support import cassandra
from tests.support.databases import empty_database, server_urls


def server_names() -> list[str]:
    return sorted({*server_urls(), *(["cassandra"] if cassandra.server_url() else [])})


def empty_store(name: str) -> str:
    """The URL of this test process's store on the server ``name``: initialised, and with nothing in it."""
    return cassandra.empty_keyspace() if name == "cassandra" else empty_database(name)
