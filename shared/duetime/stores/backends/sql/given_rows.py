"""Mutations that are given many sets of values, column by column, and run once for all of them.

For PostgreSQL, which otherwise runs a statement anew for each set (decision 0016).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from duetime.stores.backends.sql.prepared import Prepared, Values

S = TypeVar("S", bound=sa.ClauseElement)
Types = Mapping[int, sa.types.TypeEngine[Any]]
"""Those of the values that a statement takes, by their places."""
_encode = msgspec.json.Encoder().encode


class _RowsFrom(FunctionElement[Any]):
    """A table whose columns are what set-returning functions return."""

    inherit_cache = True


@compiles(_RowsFrom)
def _rows_from(element: _RowsFrom, compiler: SQLCompiler, **options: Any) -> str:
    return f"ROWS FROM ({compiler.process(element.clauses, **options)})"


class PreparedForRows(Prepared):
    """``of_rows``: the statement for many sets of values, which ``taken_from_rows`` made. A single set is given by
    itself."""

    def __init__(
        self, statement: sa.Executable, of_rows: sa.Executable, dialect: Dialect, places: Mapping[str, int]
    ) -> None:
        super().__init__(statement, dialect, places)
        self._are_whole = [(place, _is_whole(type_)) for place, type_ in _types(statement, places).items()]
        names = {_column(place): at for at, (place, _) in enumerate(self._are_whole)}
        self._of_rows = Prepared(of_rows, dialect, names)

    def many(self, connection: sa.Connection, rows: list[Values]) -> int:
        if len(rows) < 2:
            return super().many(connection, rows)
        columns = list(zip(*rows, strict=True))
        return self._of_rows.count(
            connection, *(_text(columns[place], is_whole) for place, is_whole in self._are_whole)
        )


def taken_from_rows(statement: S, places: Mapping[str, int]) -> S:
    """``statement`` with columns of a table in place of the values of these names. PostgreSQL makes each column of
    a text."""
    # By place: an ended timer's execution and due time are one value, under two names.
    types = _types(statement, places)
    columns = [sa.column(_column(place), type_ if _is_whole(type_) else sa.Text()) for place, type_ in types.items()]
    rows = _RowsFrom(*(_made(place, type_) for place, type_ in types.items())).table_valued(*columns)
    table = rows.render_derived(name="given_rows")

    def replaced(element: Any, **_: Any) -> Any:
        if not (isinstance(element, sa.BindParameter) and element.key in places):
            return None
        column = table.c[_column(places[element.key])]
        return sa.func.decode(column, sa.literal_column("'base64'")) if _is_bytes(element.type) else column

    whole: Any = statement
    taken: S = visitors.replacement_traverse(whole, {}, replaced)
    return taken


def _types(statement: Any, places: Mapping[str, int]) -> Types:
    return {
        places[each.key]: each.type
        for each in visitors.iterate(statement)
        if isinstance(each, sa.BindParameter) and each.key in places
    }


def _made(place: int, type_: sa.types.TypeEngine[Any]) -> sa.ColumnElement[Any]:
    """Whole numbers come as an array, texts as JSON: an array of them would need quoting of its own."""
    if _is_whole(type_):
        return sa.func.unnest(sa.bindparam(_column(place), type_=ARRAY(type_)))
    return sa.func.json_array_elements_text(sa.bindparam(_column(place), type_=JSON()))


def _text(values: Values, is_whole: bool) -> str:
    """Bytes are base64 in the JSON."""
    text = _encode(values).decode()
    return f"{{{text[1:-1]}}}" if is_whole else text


def _column(place: int) -> str:
    return f"v{place}"


def _is_whole(type_: sa.types.TypeEngine[Any]) -> bool:
    return isinstance(type_, sa.Integer)


def _is_bytes(type_: sa.types.TypeEngine[Any]) -> bool:
    return isinstance(type_, sa.LargeBinary)
