"""What differs between SQL databases, one object per dialect. Everything else is written once.

A dialect joins by implementing ``SqlDialect``, adding itself to ``_MODULES`` and a strategy to ``db_now.py``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol

import sqlalchemy as sa

from duetime.domain.errors import InvalidSettings, StoreError

_MODULES = {
    "mariadb": "duetime.stores.backends.sql.dialects.mysql",
    "mysql": "duetime.stores.backends.sql.dialects.mysql",
    "mssql": "duetime.stores.backends.sql.dialects.sqlserver",
    "oracle": "duetime.stores.backends.sql.dialects.oracle",
    "postgresql": "duetime.stores.backends.sql.dialects.postgresql",
    "sqlite": "duetime.stores.backends.sql.dialects.sqlite",
    "sqlserver": "duetime.stores.backends.sql.dialects.sqlserver",
    "tidb": "duetime.stores.backends.sql.dialects.tidb",
}
"""By URL scheme: the module whose ``open_dialect(url)`` gives the dialect."""


class SqlDialect(Protocol):
    name: str
    """SQLAlchemy's name of the dialect; also the key of its DbNow strategy."""
    engine: sa.Engine
    streams_rows: bool
    """Whether the driver reads the rows of an answer as they are asked for, and not all of them at once."""
    driver_errors: tuple[type[Exception], ...]
    """What the driver raises, where it runs prepared statements without SQLAlchemy; none: it does not."""
    kept_connections: int
    """How many connections of such a driver are kept between units of work; fewer than there can be."""
    keeps_plans: bool
    """Whether it plans a statement once, and keeps to that while its tables grow. A mutation of many rows is then one
    statement (``given_rows``), and has all columns of whichever unique index the plan takes: by a part of them it
    would look at a whole shard for each row."""
    size_function: str
    """What tells the size of a long text, in bytes or characters, without sending it."""

    def create_database(self) -> None:
        """Make what must exist before the first connection. Idempotent, safe in several processes at once."""
        ...

    def begin_write(self, connection: sa.Connection) -> None:
        """Begin a transaction that will write. It never fails later for having begun as a reader."""
        ...

    def write_turn(self) -> AbstractContextManager[None]:
        """Held around a write transaction, connection and all: writers of this process queue up here."""
        ...

    def schema_turn(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Hold the schema lock, within the transaction that creates the schema: one process at a time does."""
        ...

    def is_astray(self, error: BaseException) -> bool:
        """Tell whether an error says that connections lead to a server that no longer takes writes."""
        ...

    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return an insert that does nothing when a unique key is taken, and returns no columns (``inline``)."""
        ...

    def classify(self, error: BaseException) -> StoreError:
        """Return what a driver's exception means: ``StoreUnavailable``, ``StoreNotReady`` or plainly
        ``StoreError``."""
        ...


def open_dialect(url: str) -> SqlDialect:
    """Return the dialect for a store URL, ready to connect. Raises ``InvalidSettings``."""
    scheme = url.partition(":")[0]
    if scheme not in _MODULES:
        raise InvalidSettings(f"{scheme!r} is not a SQL database that Duetime knows")
    dialect: SqlDialect = import_module(_MODULES[scheme]).open_dialect(url)
    return dialect
