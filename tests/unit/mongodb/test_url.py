"""mongodb:// URLs: what is taken from them, what is not left to them, and what is refused in one line."""

from __future__ import annotations

import pytest
from pymongo.read_preferences import ReadPreference

from duetime.domain.errors import InvalidSettings
from duetime.stores.backends.mongodb.url import open_client
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from tests.support.mongodb import database_of


def test_a_mongodb_url_opens_the_store_and_contacts_nobody() -> None:
    store = open_store("mongodb://127.0.0.1:1/timers")

    assert isinstance(store, Store)
    assert database_of(store).name == "timers"
    store.close()
    store.close()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("mongodb://host", "duetime"),
        ("mongodb://host/", "duetime"),
        ("mongodb://host/?replicaSet=rs0", "duetime"),
        ("mongodb://a:1,b:2,c:3/orders-2_x?replicaSet=rs0", "orders-2_x"),
        ("mongodb://user:p%40ss@host/mine?authSource=admin", "mine"),
    ],
)
def test_the_database_is_the_path(url: str, name: str) -> None:
    client, found = open_client(url)
    assert found == name
    client.close()


@pytest.mark.parametrize(
    "options", ["", "?w=1&readConcernLevel=local&readPreference=secondary&retryWrites=false&retryReads=false"]
)
def test_what_promises_rest_on_is_not_left_to_the_url(options: str) -> None:
    client, _ = open_client(f"mongodb://host/{options}")

    assert client.write_concern.document["w"] == "majority"
    assert client.read_concern.level == "majority"
    assert client.read_preference == ReadPreference.PRIMARY
    assert client.options.retry_writes
    assert client.options.retry_reads
    client.close()


def test_the_journal_cannot_be_left_out() -> None:
    client, _ = open_client("mongodb://host/?journal=false")
    assert client.write_concern.document == {"w": "majority", "j": True}
    client.close()


def test_every_operation_has_an_end() -> None:
    client, _ = open_client("mongodb://host/")
    assert client.options.timeout == 10
    assert client.options.server_selection_timeout == 5
    client.close()

    client, _ = open_client("mongodb://host/?timeoutMS=2500&serverSelectionTimeoutMS=700")
    assert client.options.timeout == 2.5
    assert client.options.server_selection_timeout == 0.7
    client.close()

    client, _ = open_client("mongodb://host/?serverSelectionTimeoutMS=700&socketTimeoutMS=9&ConnectTimeoutMS=8")
    assert client.options.timeout == 10
    client.close()

    with pytest.raises(InvalidSettings, match="timeoutMS is more than 0"):
        open_client("mongodb://host/?timeoutMS=0")


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://",
        "mongodb://host:port/",
        "mongodb://host:99999/",
        "mongodb://user:hunter2@",
        "mongodb://user:hun@ter2@host/",
        "mongodb://host/a.b",
        "mongodb://host/a b",
        "mongodb://host/?timeoutMS=soon",
        "mongodb://host/?timeoutMs=1&nonsense=2",
        "mongodb://host/?datetimeConversion=nonsense",
        "mongodb+srv://host:27017/",
        "mongodb+srv://a.example.com,b.example.com/",
    ],
)
def test_a_wrong_url_is_one_clear_line_without_credentials(url: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        open_store(url)

    assert "MongoDB store URL" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "ter2" not in str(raised.value)
