"""Checks of tables in SQLite, changed as other databases change them: for models of these."""

from __future__ import annotations

import re
import sqlite3

_ALTER = re.compile(
    r"\s*ALTER TABLE (\w+) (?:DROP CONSTRAINT (\w+)|ADD CONSTRAINT (\w+) CHECK \((.*)\))\s*$", re.DOTALL
)


def alter_check(connection: sqlite3.Connection | sqlite3.Cursor, statement: str) -> bool:
    """Carry out ``ALTER TABLE .. DROP CONSTRAINT ..`` or ``.. ADD CONSTRAINT .. CHECK (..)`` of a named check that
    its table was made with. False for any other statement."""
    match = _ALTER.match(statement)
    if match is None:
        return False
    table, dropped, added, condition = match.groups()
    (definition,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    start = definition.index("(", definition.index(f"CONSTRAINT {dropped or added} CHECK")) + 1
    end, depth = start, 1
    while depth:
        depth += {"(": 1, ")": -1}.get(definition[end], 0)
        end += 1
    changed = definition[:start] + (condition or "1") + definition[end - 1 :]
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (changed, table))
    connection.execute(f"PRAGMA schema_version = {version + 1}")
    connection.execute("PRAGMA writable_schema = OFF")
    return True
