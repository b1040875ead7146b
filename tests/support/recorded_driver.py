"""A DB-API connection that records what is sent and gives scripted answers: for databases that cannot be had here.

It shows what a store sends, in which order, and what it makes of the answers. It shows nothing of a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa


@dataclass(frozen=True)
class Sent:
    sql: str
    """With single blanks."""
    parameters: Any
    """As the driver was given them; of ``executemany`` the list."""
    is_many: bool = False


@dataclass
class _Answer:
    pattern: re.Pattern[str]
    rows: list[tuple[Any, ...]]
    rowcount: int | Sequence[int]
    error: Exception | None
    times: int | None


@dataclass
class RecordedDriver:
    """Answers are tried in the order in which they were given; what none fits changes one row and returns none."""

    sent: list[Sent] = field(default_factory=list)
    _answers: list[_Answer] = field(default_factory=list)

    def answer(
        self,
        pattern: str,
        *rows: tuple[Any, ...],
        rowcount: int | Sequence[int] = -1,
        error: Exception | None = None,
        times: int | None = None,
    ) -> None:
        """What to say to statements in which ``pattern`` is found, ``times`` times (None: always).

        ``rowcount`` of a batch may be one number for each of its rows.
        """
        self._answers.append(_Answer(re.compile(pattern), list(rows), rowcount, error, times))

    def answer_to(self, sql: str, *, is_asked_only: bool = False) -> _Answer | None:
        """``is_asked_only``: the same answer is still to be given."""
        for answer in self._answers:
            if answer.times != 0 and answer.pattern.search(sql):
                if answer.times is not None and not is_asked_only:
                    answer.times -= 1
                return answer
        return None

    def texts(self) -> list[str]:
        return [each.sql for each in self.sent]


class RecordedConnection:
    def __init__(self, driver: RecordedDriver) -> None:
        self.driver = driver

    def cursor(self, *_: object, **__: object) -> RecordedCursor:
        return RecordedCursor(self.driver)

    def commit(self) -> None:
        self.driver.sent.append(Sent("<commit>", None))

    def rollback(self) -> None:
        self.driver.sent.append(Sent("<rollback>", None))

    def autocommit(self, _: bool) -> None:
        """As pymssql has it."""

    def close(self) -> None:
        pass


class RecordedCursor:
    arraysize = 1

    def __init__(self, driver: RecordedDriver) -> None:
        self._driver = driver
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Any = None) -> None:
        self._run(Sent(" ".join(sql.split()), parameters), 1)

    def executemany(self, sql: str, parameters: Sequence[Any]) -> None:
        self._run(Sent(" ".join(sql.split()), list(parameters), is_many=True), len(parameters))

    def _run(self, sent: Sent, num_rows: int) -> None:
        self._driver.sent.append(sent)
        self.rowcount, self.description, self._rows = num_rows, None, iter(())
        answer = self._driver.answer_to(sent.sql)
        if answer is None:
            return
        if answer.error is not None:
            raise answer.error
        self.rowcount = answer.rowcount if isinstance(answer.rowcount, int) else sum(answer.rowcount)
        if answer.rows or answer.rowcount == -1:
            width = len(answer.rows[0]) if answer.rows else 1
            self.description = [(f"c{place}", None, None, None, None, None, None) for place in range(width)]
            self._rows = iter(answer.rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def close(self) -> None:
        pass


@contextmanager
def recorded(
    engine: sa.Engine, connection_type: type[RecordedConnection] = RecordedConnection
) -> Iterator[RecordedDriver]:
    """Let ``engine`` connect to nothing but a record."""
    driver = RecordedDriver()

    def connect(*_: object) -> RecordedConnection:
        return connection_type(driver)

    sa.event.listen(engine, "do_connect", connect)
    try:
        yield driver
    finally:
        engine.dispose()
        sa.event.remove(engine, "do_connect", connect)
