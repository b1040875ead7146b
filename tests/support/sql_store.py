"""A store on a SQL database whose database tests can reach."""

from __future__ import annotations

from duetime.stores.backends.sql.backend import SqlBackend
from duetime.stores.backends.sql.database import Database
from duetime.stores.backends.sql.dialects.dialect import SqlDialect
from duetime.stores.core.store import Store
from duetime.stores.time_source import TimeSource


class SqlStore(Store):
    def __init__(self, dialect: SqlDialect, *, time_source: TimeSource = TimeSource.DATABASE) -> None:
        self.database = Database(dialect, time_source=time_source)
        super().__init__(SqlBackend(self.database))
