"""The schema in one piece, as SQLAlchemy writes the tables: for dialects that no server has run.

Such a schema has no history that would be worth steps. What an earlier version made is not migrated: its rows move
to a new database (`duetime export`, `duetime import`).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from duetime.stores.sql.call_tables import service_calls
from duetime.stores.sql.tables import schema_migrations

VERSION = 5
"""Goes up with each change of the tables. Earlier ones were made by steps."""


def definitions(dialect: Dialect, other_indexes: Mapping[str, str | None]) -> tuple[str, ...]:
    """The definitions of all tables but the tracking table, and of their indexes.

    ``other_indexes``: by name, the definitions of those that the dialect wants otherwise; None for one that it does
    not need.
    """
    found: list[str | None] = []
    for table in service_calls.metadata.sorted_tables:
        if table is schema_migrations:
            continue
        found.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = {str(index.name): str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes}
        found += [other_indexes.get(name, text) for name, text in sorted(indexes.items())]
    return tuple(text.strip() for text in found if text is not None)


def tracking_table(dialect: Dialect) -> str:
    """The definition of ``schema_migrations``."""
    return str(CreateTable(schema_migrations).compile(dialect=dialect)).strip()
