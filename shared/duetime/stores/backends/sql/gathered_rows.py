"""How many small rows are read: as the rows of a select, or gathered by the database in one row."""

from __future__ import annotations

from typing import Any, Protocol

import sqlalchemy as sa

from duetime.stores.json_texts import read_json


class GatheredRows(Protocol):
    def select(self, rows: sa.Select[Any]) -> sa.Select[Any]:
        """Return what to run in place of a select of rows, which may have a limit."""
        ...

    def read(self, found: sa.CursorResult[Any]) -> list[Any]:
        """Return the rows that the select has, each of them a sequence of its columns; bytes may have become hex
        digits."""
        ...


class AsRows:
    """Nothing is gathered: the driver has all rows in memory anyway."""

    def select(self, rows: sa.Select[Any]) -> sa.Select[Any]:
        return rows

    def read(self, found: sa.CursorResult[Any]) -> list[Any]:
        return list(found.fetchall())


class AsJson:
    """One JSON text. For SQLite, whose driver releases the interpreter's lock for each row.

    Beside a busy thread it then waits for the lock once a row, which costs many times the reading.
    """

    def select(self, rows: sa.Select[Any]) -> sa.Select[Any]:
        columns = rows.subquery().c
        values = [sa.func.hex(each) if isinstance(each.type, sa.LargeBinary) else each for each in columns]
        return sa.select(sa.func.json_group_array(sa.func.json_array(*values), type_=sa.Text()))

    def read(self, found: sa.CursorResult[Any]) -> list[Any]:
        rows: list[Any] = read_json(found.scalar_one())
        return rows
