"""Mutations that are given many sets of values, an array for each column, and run once for all of them.

For PostgreSQL, which otherwise runs a statement anew for each set (decision 0016).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import visitors

from duetime.stores.backends.sql.prepared import Prepared, Values
from duetime.stores.backends.sql.tables import given_count

S = TypeVar("S", bound=sa.ClauseElement)
_COUNT = "given_count"
_encode = msgspec.json.Encoder().encode


class PreparedForRows(Prepared):
    """``of_rows``: the statement for many sets of values, which ``taken_from_rows`` made. A single set is given by
    itself."""

    def __init__(
        self, statement: sa.Executable, of_rows: sa.Executable, dialect: Dialect, places: Mapping[str, int]
    ) -> None:
        super().__init__(statement, dialect, places)
        self._taken = sorted(set(places.values()))
        names = [*map(_column, self._taken), _COUNT]
        self._of_rows = Prepared(of_rows, dialect, {name: at for at, name in enumerate(names)})

    def many(self, connection: sa.Connection, rows: list[Values]) -> int:
        if len(rows) < 2:
            return super().many(connection, rows)
        columns = list(zip(*rows, strict=True))
        return self._of_rows.count(connection, *(_array(columns[place]) for place in self._taken), len(rows))


def taken_from_rows(statement: S, places: Mapping[str, int]) -> S:
    """Return ``statement`` with columns of a table, which PostgreSQL makes of an array for each of them, in place of
    the values of these names."""
    # By place: an ended timer's execution and due time are one value, under two names.
    # A text has no length yet: a cast would cut one that is too long, in place of refusing it.
    types = {
        places[each.key]: sa.Text() if isinstance(each.type, sa.String) else each.type
        for each in visitors.iterate(statement)
        if isinstance(each, sa.BindParameter) and each.key in places
    }
    arrays = [sa.bindparam(_column(place), type_=ARRAY(type_)) for place, type_ in types.items()]
    columns = [sa.column(_column(place), type_) for place, type_ in types.items()]
    made = sa.func.unnest(*arrays).table_valued(*columns).render_derived(name="arrays")
    # With a limit that it does not know, the planner expects one row. It would join ten with a whole small table.
    rows = sa.select(made).limit(given_count(_COUNT)).subquery("given_rows")

    def replaced(element: Any, **_: Any) -> Any:
        is_given = isinstance(element, sa.BindParameter) and element.key in places
        return rows.c[_column(places[element.key])] if is_given else None

    whole: Any = statement
    taken: S = visitors.replacement_traverse(whole, {}, replaced)
    return taken


def _array(values: Values) -> str:
    """Return the text of an array. It is that of JSON but for its brackets, for bytes, and for control characters."""
    if any(type(each) is bytes for each in values):
        values = [None if each is None else rf"\x{each.hex()}" for each in values]
    text = _encode(values).decode()[1:-1]
    if "\\" in text.replace(r"\\", "").replace(r"\"", ""):
        text = ",".join("NULL" if each is None else _quoted(each) for each in values)
    return f"{{{text}}}"


def _quoted(text: str) -> str:
    return '"' + re.sub(r'["\\]', r"\\\g<0>", text) + '"'


def _column(place: int) -> str:
    return f"v{place}"
