"""What tests of several directories share. Nothing is started until a test asks for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.schema import calls_table_definition, create_table
from duetime.stores.backends.dynamodb.url import default_calls_table_name
from duetime.stores.open import open_store
from hatch_build import make_blocking
from tests.support import met
from tests.support.dynamodb import dynoxide_endpoint, unique_table_name
from tests.support.ministack import running_ministack
from tests.support.mongodb import URL_VARIABLE, mongodb_database, server_url
from tests.support.server_stores import empty_store, server_names

make_blocking()

# Thousands of test items live to the end: garbage is not looked for among them.
gc.disable()

# A deadline for one example measures how busy the machine is.
settings.register_profile("duetime", deadline=None)
settings.load_profile("duetime")


SERVER_STORES = frozenset(
    {
        "cassandra",
        "dynamodb",
        "dynoxide",
        "ministack",
        "moto",
        "mongodb",
        "noserver",
        *server_names(),
    }
)
"""Parameters that stand for a store on a server or an emulator, where a request costs a hundred of SQLite."""


SERVER_DIRECTORIES = {("integration", "cassandra"), ("integration", "dynamodb"), ("integration", "mongodb")}
"""All that is in them."""
REPEATED: dict[str, tuple[str, ...]] = {
    "mariadb114": (),
    "ministack": ("timers.put", "timers.record", "timers.races", "calls.apply", "calls.lists"),
    "moto": (),
    "sqlite-memory": ("timers.put", "timers.record", "calls.apply"),
}
"""Stores of which these parts of the contract alone are run always: models, emulators, a second version, SQLite
without its file.
`make test-repeated` runs the rest, which takes minutes."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(met)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on such a store: `make test-databases` and CI run it, `make test` leaves it out."""
    for item in items:
        if "unit" in item.path.parts:
            continue  # there these words are names and no more
        call = getattr(item, "callspec", None)
        part = getattr(item, "obj", item).__module__.removeprefix("duetime.testing.contract.")
        values = () if call is None else call.params.values()
        is_on_server = any(isinstance(value, str) and value in SERVER_STORES for value in values)
        if is_on_server or item.path.parts[-3:-1] in SERVER_DIRECTORIES:
            item.add_marker(pytest.mark.server)
        for store, parts in REPEATED.items():
            if store in values and item.path.parent.name == "contract" and part not in parts:
                item.add_marker(pytest.mark.repeated)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def ministack_url() -> Iterator[str]:
    """The endpoint of an AWS emulator that serves the whole session."""
    with running_ministack() as endpoint_url:
        yield endpoint_url


@pytest.fixture(scope="session")
def ministack_client(ministack_url: str) -> Iterator[Any]:
    """A DynamoDB client of the session's emulator. Tests use tables of their own."""
    client = make_client(endpoint_url=ministack_url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def dynoxide_client() -> Iterator[Any]:
    """The same of the other emulator, where the environment names one."""
    client = make_client(endpoint_url=dynoxide_endpoint())
    yield client
    client.close()


@pytest.fixture
def timers_table(ministack_client: Any) -> Iterator[str]:
    """The name of a new, empty timers table on the emulator. The table of service calls stands beside it."""
    name = unique_table_name()
    calls_name = default_calls_table_name(name)
    create_table(ministack_client, name)
    create_table(ministack_client, calls_name, calls_table_definition)
    yield name
    ministack_client.delete_table(TableName=name)
    ministack_client.delete_table(TableName=calls_name)


@pytest.fixture(scope="session")
def mongodb_url() -> str:
    """The URL of a MongoDB server. Tests use databases of their own."""
    url = server_url()
    if url is None:
        pytest.skip(f"no MongoDB server: set {URL_VARIABLE}, or run `make test-databases`")
    return url


@pytest.fixture(params=["sqlite", "mongodb", *server_names()])
def store_variables(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The environment of processes that share a store: the SQLite file of their directory, or a database."""
    if request.param == "sqlite":
        yield {}
    elif request.param == "mongodb":
        with mongodb_database(request.getfixturevalue("mongodb_url")) as url:
            store = open_store(url)
            store.initialise()
            store.close()
            yield {"DUETIME_STORE": url}
    else:
        yield {"DUETIME_STORE": empty_store(request.param)}
