"""The stores that the contract suite runs against.

A store joins by adding a factory to ``STORES``. A server that is already running joins by its URL:
``DUETIME_TEST_POSTGRESQL_URL=postgresql://... pytest tests/contract`` (tests/support/databases.py), and
``DUETIME_TEST_MONGODB_URL`` for MongoDB (tests/support/mongodb.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from duetime.testing.contract import Subject
from tests.contract.sql_stores import sql_server, sqlite_file, sqlite_memory
from tests.support.cassandra import server_subject, server_url
from tests.support.databases import server_urls
from tests.support.dictionary import dictionary_subject
from tests.support.dynamodb import dynoxide_endpoint, moto_subject, served_subject
from tests.support.mongodb import mongodb_subject

Factory = Callable[[pytest.FixtureRequest], AbstractContextManager[Subject]]
"""Makes an initialised, empty store and closes it. The request gives access to other fixtures."""

STORES: dict[str, Factory] = {
    "dictionary": lambda request: dictionary_subject(),
    "ministack": lambda request: served_subject(request.getfixturevalue("ministack_client")),
    "mongodb": lambda request: mongodb_subject(request.getfixturevalue("mongodb_url")),
    "moto": lambda request: moto_subject(),
    "sqlite-file": sqlite_file,
    "sqlite-memory": sqlite_memory,
}


STORES |= {name: partial(sql_server, name) for name in server_urls()}
if dynoxide_endpoint() is not None:
    STORES["dynoxide"] = lambda request: served_subject(request.getfixturevalue("dynoxide_client"))
if server_url() is not None:
    STORES["cassandra"] = lambda request: server_subject()


@pytest.fixture(params=sorted(STORES))
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with STORES[request.param](request) as subject:
        yield subject
