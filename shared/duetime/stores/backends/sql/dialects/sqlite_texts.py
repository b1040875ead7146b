"""Texts of SQLite that are no UTF-8: whoever may write to the file can put such bytes into a TEXT column.

The driver raises at the first of them, and what is behind it is never read. So a cursor that meets one reads on from
that very row with such bytes kept in the text (``decoding.text_of_bytes``), which makes this row unreadable and no
other. It takes such a text where rows are looked for, so that a page can end at a damaged id. Reads that meet none
pay next to nothing for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Self

from duetime.stores.backends.sql.dialects.driver_connection import Results
from duetime.stores.decoding import bytes_of_text, is_text, text_of_bytes

_NOT_UTF_8 = "Could not decode to UTF-8"
_OF_KEYS = ("SELECT", "DELETE")
"""Statements that are given what rows held. None writes it: no client can store such a text."""


class Connection(sqlite3.Connection):
    """Its cursors read any text."""

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _Cursor)


class _Cursor(Results, sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        try:
            return super().execute(sql, parameters)
        except UnicodeEncodeError:
            if not sql.startswith(_OF_KEYS):
                raise
            return super().execute(*_with_bytes(sql, parameters))

    def executemany(self, sql: str, parameters: Any, /) -> Self:
        try:
            return super().executemany(sql, parameters)
        except UnicodeEncodeError:
            if not sql.startswith(_OF_KEYS):
                raise
            for each in parameters:  # those that have gone already are not there any more
                self.execute(sql, each)
            return self

    # -- reading ---------------------------------------------------------------------------------------------

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except sqlite3.OperationalError as error:
            with self._keeping_bytes(error):
                return super().fetchone()

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        return self._rows(size)

    def fetchall(self) -> list[Any]:
        return self._rows(None)

    def _rows(self, most: int | None) -> list[Any]:
        rows: list[Any] = []
        try:
            rows.extend(islice(self, most))  # what it was extended by before an error stays
        except sqlite3.OperationalError as error:
            with self._keeping_bytes(error):
                rows.extend(islice(self, None if most is None else most - len(rows)))
        return rows

    @contextmanager
    def _keeping_bytes(self, error: sqlite3.OperationalError) -> Iterator[None]:
        """For the rest of a read. It begins with the row that ``error`` was raised at: the driver has not left it."""
        if not str(error).startswith(_NOT_UTF_8):
            raise error
        self.connection.text_factory = text_of_bytes
        try:
            yield
        finally:
            self.connection.text_factory = str


def _with_bytes(sql: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return a statement and its values, those that are no Unicode as the bytes that they were made of."""
    damaged = [isinstance(value, str) and not is_text(value) for value in values]
    marks = ["CAST(? AS TEXT)" if each else "?" for each in damaged]
    given = [bytes_of_text(value) if each else value for value, each in zip(values, damaged, strict=True)]
    return "".join(chain.from_iterable(zip(sql.split("?"), [*marks, ""], strict=True))), given
