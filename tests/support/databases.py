"""Databases of real SQL servers: those that ``DUETIME_TEST_<STORE>_URL`` names, as in

    DUETIME_TEST_POSTGRESQL_URL=postgresql://postgres@127.0.0.1/postgres make test

The user of the URL must be able to create databases: tests never touch the one that the URL names. (On Oracle users,
each with a schema of its own and the password of the URL.)
"""

from __future__ import annotations

import os
import re
import zlib
from functools import cache
from pathlib import Path

import pymssql
import sqlalchemy as sa

from duetime.stores.backends.sql.dialects.dialect import SqlDialect, open_dialect
from duetime.stores.backends.sql.tables import metadata, schema_migrations
from duetime.stores.time_source import TimeSource
from tests.support.sql_store import SqlStore

_OTHERS = {"cassandra", "mongodb", "dynoxide"}
"""Stores that are not SQL have support modules of their own."""
_CHECKOUT = f"{zlib.crc32(str(Path(__file__).parent).encode()):08x}"
"""Runs of several checkouts at once must not meet."""
_VARIABLE = re.compile(r"DUETIME_TEST_([A-Z0-9]+)_URL")


def server_urls() -> dict[str, str]:
    """The URLs that the environment gives, by the name of the store in lower case."""
    found = ((_VARIABLE.fullmatch(name), url) for name, url in os.environ.items())
    return {match[1].lower(): url for match, url in found if match and url and match[1].lower() not in _OTHERS}


def own_name() -> str:
    """What the database of this test process is called."""
    return f"duetime_test_{_CHECKOUT}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"


@cache
def database_url(name: str) -> str:
    """The URL of a database of this test process's own on the server ``name``. Made if absent, and left."""
    url = sa.make_url(server_urls()[name])
    database = own_name()
    dialect = open_dialect(url.render_as_string(hide_password=False))
    try:
        if dialect.name == "mssql":
            _make_sqlserver_database(url, database)
        elif dialect.name == "oracle":
            _make_oracle_user(dialect, database, password=url.password or "")
        else:
            _make_database(dialect, database)
    finally:
        dialect.engine.dispose()
    own = url.set(username=database) if dialect.name == "oracle" else url.set(database=database)
    return own.render_as_string(hide_password=False)


def _make_database(dialect: SqlDialect, name: str) -> None:
    with dialect.engine.connect() as connection:
        if name not in sa.inspect(connection).get_schema_names() and not _is_database(connection, name):
            connection.exec_driver_sql(f"CREATE DATABASE {name}")


def _make_sqlserver_database(url: sa.URL, name: str) -> None:
    """By the driver alone: the store itself refuses the URL's database where it keeps no row versions."""
    connection = pymssql.connect(
        server=url.host or "",
        port=str(url.port or 1433),
        user=url.username,
        password=url.password,
        database=url.database or "master",
        autocommit=True,
    )
    try:
        cursor = connection.cursor()
        cursor.execute(f"IF DB_ID(N'{name}') IS NULL CREATE DATABASE {name}")
        cursor.execute(f"ALTER DATABASE {name} SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE")
    finally:
        connection.close()


def _make_oracle_user(dialect: SqlDialect, name: str, *, password: str) -> None:
    """The rights that docs/stores/oracle.md asks for, and to see in the catalogue who waits for whom."""
    with dialect.engine.connect() as connection:
        known = connection.exec_driver_sql("SELECT 1 FROM all_users WHERE username = UPPER(:name)", {"name": name})
        if known.first() is None:
            connection.exec_driver_sql(f'CREATE USER {name} IDENTIFIED BY "{password}" QUOTA UNLIMITED ON users')
        connection.exec_driver_sql(f"GRANT CREATE SESSION, CREATE TABLE, CREATE SEQUENCE TO {name}")
        connection.exec_driver_sql(f"GRANT SELECT_CATALOG_ROLE TO {name}")


def is_tidb(connection: sa.Connection) -> bool:
    """By what the server says: its dialect runs on MySQL and MariaDB too."""
    return (
        connection.dialect.name == "mysql" and "TiDB" in connection.exec_driver_sql("SELECT version()").scalar_one()
    )


def _is_database(connection: sa.Connection, name: str) -> bool:
    """PostgreSQL's databases are no schemas."""
    if connection.dialect.name != "postgresql":
        return False
    found = connection.exec_driver_sql("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
    return found.first() is not None


def open_server_store(name: str, *, time_source: TimeSource = TimeSource.CALLER) -> SqlStore:
    return SqlStore(open_dialect(database_url(name)), time_source=time_source)


@cache
def shared_server_store(name: str) -> SqlStore:
    """Opened once in this test process: each store builds a hundred statements, and a connection sets up its session.

    It may be closed, which ends its connections only.
    """
    return open_server_store(name)


_initialised: set[str] = set()
"""The servers where this test process's database has the schema."""


def empty_database(name: str) -> str:
    """The URL of the process's database on the server ``name``, with the schema and without rows.

    To make its tables anew for each test would take a server most of the time.
    """
    store = shared_server_store(name)
    if name not in _initialised:
        store.initialise()
        _initialised.add(name)
    with store.database.engine.connect() as connection:
        for table in reversed(metadata.sorted_tables):
            if table is not schema_migrations:
                connection.execute(sa.delete(table))
        connection.commit()
    return database_url(name)


def drop_tables(name: str) -> None:
    """Leave the process's database on the server ``name`` as it is before ``duetime init``."""
    _initialised.discard(name)
    metadata.drop_all(shared_server_store(name).database.engine)
