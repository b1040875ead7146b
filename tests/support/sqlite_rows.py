"""Statements that tests run once on a connection of an SQLite store, which runs texts alone."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite


def executed(connection: Any, statement: sa.Executable) -> Any:
    """The cursor of ``statement``."""
    compiled: Any = statement.compile(dialect=sqlite.dialect(paramstyle="qmark"))  # type: ignore[attr-defined]
    values = [compiled.params[name] for name in compiled.positiontup or ()]
    return connection.exec_driver_sql(str(compiled), tuple(values))
