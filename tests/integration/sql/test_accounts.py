"""A user as operators make one: with a password, as the server keeps it by default, and rights in one database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreUnavailable
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from tests.support.clock import NOW
from tests.support.databases import database_url, shared_server_store
from tests.support.sql_store import SqlStore

PASSWORD = "pässwört %s'#1"


@pytest.fixture
def account(server: str) -> Iterator[sa.URL]:
    """The URL of a new user of the server's database for tests."""
    engine = shared_server_store(server).database.engine
    if engine.dialect.name != "mysql":
        pytest.skip("made in the words of MySQL and MariaDB")
    url = sa.make_url(database_url(server))
    assert url.database is not None
    # One for each test process: MySQL remembers who has shown a password, until the user is dropped.
    name = f"{url.database}_app"[-32:]
    user = f"'{name}'@'127.0.0.1'"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP USER IF EXISTS {user}")
        connection.exec_driver_sql(f"CREATE USER {user} IDENTIFIED BY %s", (PASSWORD,))
        connection.exec_driver_sql(f"GRANT ALL ON {url.database}.* TO {user}")
        yield url.set(username=name, password=PASSWORD)
        connection.exec_driver_sql(f"DROP USER {user}")


def store_of(account: sa.URL, *, is_plain: bool) -> SqlStore:
    dialect = open_dialect(account.render_as_string(hide_password=False))

    @sa.event.listens_for(dialect.engine, "do_connect")
    def set_line(_: Any, __: Any, ___: Any, parameters: dict[str, Any]) -> None:
        parameters["ssl_disabled"] = is_plain

    return SqlStore(dialect)


@pytest.mark.parametrize("is_plain", [False, True], ids=["encrypted if the server does so", "plain"])
def test_such_a_user_is_all_that_a_store_needs(account: sa.URL, is_plain: bool) -> None:
    """On MySQL 8 the driver encrypts the password itself (RSA) where the line is plain: caching_sha2_password."""
    with closing(store_of(account, is_plain=is_plain)) as store:
        store.initialise()
        store.check()

        assert store.catalogue.create_namespace("a", num_shards=1, dedicated=False, now=NOW)[1]


@pytest.mark.parametrize("is_plain", [False, True], ids=["encrypted if the server does so", "plain"])
def test_a_wrong_password_is_told_without_it(account: sa.URL, is_plain: bool) -> None:
    store = store_of(account.set(password="wrong-one"), is_plain=is_plain)
    with closing(store), pytest.raises(StoreUnavailable, match="refuses the user or the password") as caught:
        store.check()

    assert "wrong-one" not in str(caught.value)
