"""A batch of updates is one request to MySQL: how statements are joined, and what is left to the driver."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.stores.sql import mysql
from duetime.stores.sql.mysql import send_batch


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


def test_a_batch_is_one_request_and_its_rows_are_counted() -> None:
    cursor = Cursor()

    assert send_batch(cursor, "UPDATE t SET a = 1 WHERE b = %s", [(1,), (0,), (1,)], None)

    one, none = "UPDATE t SET a = 1 WHERE b = 1", "UPDATE t SET a = 1 WHERE b = 0"
    assert cursor.requests == [f"{one};{none};{one}"]
    assert cursor.rowcount == 2


def test_a_large_batch_is_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "MAX_REQUEST_CHARACTERS", 21)
    cursor = Cursor()

    assert send_batch(cursor, "DELETE %s", [(1,), (1,), (1,), (12345,)], None)

    assert cursor.requests == ["DELETE 1;DELETE 1", "DELETE 1;DELETE 12345"]
    assert cursor.rowcount == 12348


def test_inserts_are_left_to_the_driver_which_merges_them() -> None:
    cursor = Cursor()

    assert not send_batch(cursor, "INSERT IGNORE INTO t VALUES (%s)", [(1,), (2,)], None)

    assert cursor.requests == []
