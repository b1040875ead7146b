"""Servers that keep no bytes in a text that are no text: there is nothing for a page to be spoiled by."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from duetime.domain.namespaces import Namespace
from duetime.testing.contract.builders import make_timer
from duetime.testing.contract.steps import create, stored
from tests.support.sql_store import SqlStore

_PUT = {
    "mysql": "UPDATE timers SET timer_correlation_id = X'636166E9'",
    "mariadb": "UPDATE timers SET timer_correlation_id = X'636166E9'",
    "postgresql": r"UPDATE timers SET timer_correlation_id = E'caf\xE9'",
}


def test_a_server_takes_no_bytes_that_are_no_utf_8(server_store: SqlStore, single: Namespace) -> None:
    dialect = server_store.database.engine.dialect.name
    if dialect not in _PUT:
        pytest.skip("its texts are no bytes")
    create(server_store, make_timer(single, correlation_id="café"))

    with server_store.database.engine.connect() as connection, pytest.raises(sa.exc.DBAPIError):
        connection.exec_driver_sql(_PUT[dialect])

    assert stored(server_store, single).content.correlation_id == "café"
