"""Mutations that are given many sets of values as one JSON text, and run once for all of them.

For PostgreSQL, which otherwise runs a statement anew for each set (decision 0016).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import visitors

from duetime.stores.backends.sql.prepared import Prepared, Values

S = TypeVar("S", bound=sa.ClauseElement)
_ROWS = "given_rows"
_encode = msgspec.json.Encoder().encode


class PreparedForRows(Prepared):
    """``of_rows``: the statement for many sets of values, which ``taken_from_rows`` made. A single set is given by
    itself."""

    def __init__(
        self, statement: sa.Executable, of_rows: sa.Executable, dialect: Dialect, places: Mapping[str, int]
    ) -> None:
        super().__init__(statement, dialect, places)
        self._of_rows = Prepared(of_rows, dialect, {_ROWS: 0})
        self._columns = [(_column(place), place) for place in sorted(places.values())]

    def many(self, connection: sa.Connection, rows: list[Values]) -> int:
        if len(rows) < 2:
            return super().many(connection, rows)
        columns = self._columns
        # What is left out is NULL: the text is shorter.
        given = [{name: row[place] for name, place in columns if row[place] is not None} for row in rows]
        return self._of_rows.count(connection, _encode(given).decode())


def taken_from_rows(statement: S, places: Mapping[str, int]) -> S:
    """``statement`` with columns of a table, which PostgreSQL makes of a JSON text, in place of the values of these
    names."""
    # By place: an ended timer's execution and due time are one value, under two names.
    types = {
        places[each.key]: each.type
        for each in visitors.iterate(statement)
        if isinstance(each, sa.BindParameter) and each.key in places
    }
    columns = [sa.column(_column(place), sa.Text() if _is_bytes(type_) else type_) for place, type_ in types.items()]
    made = sa.func.json_to_recordset(sa.bindparam(_ROWS, type_=JSON()))
    rows = made.table_valued(*columns).render_derived(name=_ROWS, with_types=True)

    def replaced(element: Any, **_: Any) -> Any:
        if not (isinstance(element, sa.BindParameter) and element.key in places):
            return None
        column = rows.c[_column(places[element.key])]
        return sa.func.decode(column, sa.literal_column("'base64'")) if _is_bytes(element.type) else column

    whole: Any = statement
    taken: S = visitors.replacement_traverse(whole, {}, replaced)
    return taken


def _column(place: int) -> str:
    """The name of a column: a short one, for the text has it in each row."""
    return f"v{place}"


def _is_bytes(type_: sa.types.TypeEngine[Any]) -> bool:
    """Bytes are base64 in the JSON."""
    return isinstance(type_, sa.LargeBinary)
