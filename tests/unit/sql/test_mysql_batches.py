"""Batches that are too large for one request to MySQL, and what a rollback asks of the server."""

from __future__ import annotations

from typing import Any

import pytest
from pymysql.constants import SERVER_STATUS

from duetime.stores.sql import mysql_sql
from duetime.stores.sql.mysql_sql import MysqlSql, send_batch


class Cursor:
    """Answers each statement of a request with the number of rows in its comment."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.rowcount = -1
        self._left: list[int] = []

    def mogrify(self, statement: str, row: tuple[Any, ...]) -> str:
        return statement % row

    def execute(self, request: str) -> None:
        self.requests.append(request)
        self._left = [int(statement.rpartition(" ")[2]) for statement in request.split(";")]
        self.rowcount = self._left.pop(0)

    def nextset(self) -> bool | None:
        if not self._left:
            return None
        self.rowcount = self._left.pop(0)
        return True


def test_a_large_batch_is_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_sql, "MAX_REQUEST_CHARACTERS", 21)
    cursor = Cursor()

    found = send_batch(cursor, "DELETE %s", [(1,), (1,), (1,), (12345,)])

    assert cursor.requests == ["DELETE 1;DELETE 1", "DELETE 1;DELETE 12345"]
    assert found == 12348


class InsertCursor(Cursor):
    def execute(self, request: str) -> None:
        self.requests.append(request)
        self.rowcount = request.count("(")


def test_many_rows_are_several_inserts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_sql, "MAX_REQUEST_CHARACTERS", 8)
    cursor = InsertCursor()

    assert send_batch(cursor, "INSERT IGNORE INTO t VALUES (%s)", [(1,), (2,), (3,)]) == 3

    assert cursor.requests == ["INSERT IGNORE INTO t VALUES (1),(2)", "INSERT IGNORE INTO t VALUES (3)"]


class Connection:
    def __init__(self, server_status: int) -> None:
        self.server_status = server_status
        self.rollbacks = 0

    def rollback(self) -> None:
        self.rollbacks += 1


@pytest.mark.parametrize(
    ("status", "rollbacks"), [(SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT, 0), (SERVER_STATUS.SERVER_STATUS_IN_TRANS, 1)]
)
def test_only_an_open_transaction_is_rolled_back(status: int, rollbacks: int) -> None:
    connection = Connection(status)

    MysqlSql().do_rollback(connection)

    assert connection.rollbacks == rollbacks
