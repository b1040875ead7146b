"""Pages of whole rows that hold no more than a page may (stores/page_budget.py), whatever the driver does.

Most drivers have all of an answer in memory before the first row of it is looked at. So rows come with payloads that
are small, and with the sizes of those that are not; these are read in a second step, as many as fit. The common page
takes one step. SQLite's rows are read one by one as they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from duetime.stores.page_budget import PAGE_BYTES, fitting
from duetime.stores.sql.database import Database
from duetime.stores.sql.rows import COLUMNS, Row
from duetime.stores.sql.tables import constant, timers
from duetime.stores.sql.timer_rows import TimerRows, key_of_row

INLINE_SIZE: Final = 16 * 1024
"""Up to this size a payload comes with its row: a page of 500 of them is 8 MiB."""
_CHUNK = 16
PAYLOAD, _TYPE, _AT = map(
    [column.name for column in COLUMNS].index, ("timer_payload", "row_type", "timer_execute_at")
)
_LARGE = len(COLUMNS)
"""Where the size of a payload stands that was left out."""


@dataclass(slots=True)
class BoundedPage:
    """``taken`` rows of an answer, the last of them at the place of ``last``, without those that are gone meanwhile.

    ``size`` is that of their payloads. ``is_cut``: the answer has more.
    """

    rows: list[Row] = field(default_factory=list)
    last: Row | None = None
    taken: int = 0
    size: int = 0
    is_cut: bool = False


class BoundedRows:
    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._rows = rows
        self._streams_rows = database.streams_rows
        payload = timers.c.timer_payload
        size, most = database.size_of(payload), constant(INLINE_SIZE)
        inline = sa.case((size <= most, payload)).label("timer_inline_payload")
        left_out = sa.case((size > most, size)).label("timer_large_payload")
        self.light_columns = (*COLUMNS[:PAYLOAD], inline, *COLUMNS[PAYLOAD + 1 :], left_out)
        """What a statement has to select whose rows are to be completed."""
        self.columns: tuple[sa.ColumnElement[Any], ...] = COLUMNS if self._streams_rows else self.light_columns
        """What a statement has to select whose answer is to be read."""

    def read(
        self,
        connection: sa.Connection,
        found: sa.CursorResult[Any],
        most: int,
        *,
        budget: int = PAGE_BYTES,
        leaves_out_moved: bool = False,
    ) -> BoundedPage:
        """The first rows of an answer, ``most`` of them, whose payloads are within ``budget``; a large one alone.

        ``leaves_out_moved``: without those that have another place in the primary key by the second step.
        """
        if self._streams_rows:
            return _streamed(found, most, budget)
        return self.complete(connection, found.fetchall(), most, budget=budget, leaves_out_moved=leaves_out_moved)

    def complete(
        self,
        connection: sa.Connection,
        light: Sequence[Row],
        most: int,
        *,
        budget: int = PAGE_BYTES,
        leaves_out_moved: bool = False,
    ) -> BoundedPage:
        """``read`` for rows of ``light_columns``."""
        sizes = [row[_LARGE] or len(row[PAYLOAD] or "") for row in light]
        taken = fitting(sizes[:most], budget=budget)
        kept = light[:taken]
        page = BoundedPage(
            last=kept[-1] if kept else None, taken=taken, size=sum(sizes[:taken]), is_cut=taken < len(light)
        )
        large = [key_of_row(row) for row in kept if row[_LARGE] is not None]
        if not large:
            page.rows = [row[:_LARGE] for row in kept]
            return page
        whole = self._rows.some(connection, large)
        for row in kept:
            if row[_LARGE] is None:
                page.rows.append(row[:_LARGE])
                continue
            again = whole.get(key_of_row(row))
            if again is not None and not (leaves_out_moved and _place(again) != _place(row)):
                page.rows.append(again)
        return page


def _place(row: Row) -> tuple[int, int]:
    return row[_TYPE], row[_AT]


def _streamed(found: sa.CursorResult[Any], most: int, budget: int) -> BoundedPage:
    page = BoundedPage()
    rows = page.rows
    while not page.is_cut and (chunk := found.fetchmany(_CHUNK)):
        for row in chunk:
            size = len(row[PAYLOAD] or "")
            if len(rows) == most or (page.size + size > budget and rows):
                found.close()
                page.is_cut = True
                break
            rows.append(row)
            page.size += size
    page.taken = len(rows)
    page.last = rows[-1] if rows else None
    return page
