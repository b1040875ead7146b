"""Which servers the suites that a support level rests on really met: counted while tests pass, told at the end.

tests/conftest.py makes this module a plugin. With ``STORES_MET_FILE=FILE`` each run adds what it met to that file
(.ci/run), which ``python -m scripts.compare_levels FILE`` compares with the table of duetime/stores/kinds.py.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.backends.cassandra.url import parse_cassandra_url
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.kinds import BY_SCHEME
from tests.support.databases import server_urls
from tests.support.server_stores import server_names

FILE_VARIABLE = "STORES_MET_FILE"
_PROPERTY = "store met"


@dataclass(frozen=True)
class Met:
    store: str
    """The scheme of its URL; a second version has the same."""
    version: str
    """What the server says of itself."""
    suite: str


def suite_of(path: Path) -> str | None:
    """The suite that a test file belongs to, of those that a level rests on (``scripts.compare_levels.SUITES``)."""
    if path.stem in ("test_workers", "test_processes"):
        return "workers"
    return path.parent.name if path.parent.name in ("contract", "crash") else None


def scheme_of(store: str) -> str:
    return server_urls().get(store, store).partition("://")[0]


@cache
def version_of(store: str) -> str:
    """What the server says of itself; asked for once in this process."""
    if store == "sqlite":
        return f"SQLite {sqlite3.sqlite_version}"
    if store == "cassandra":
        return f"Cassandra {_cassandra_release(os.environ['DUETIME_TEST_CASSANDRA_URL'])}"
    engine = open_dialect(server_urls()[store]).engine
    statement = {"oracle": "SELECT banner FROM v$version", "mssql": "SELECT @@VERSION"}
    try:
        with engine.connect() as connection:
            version = connection.exec_driver_sql(statement.get(engine.dialect.name, "SELECT version()")).scalar()
    finally:
        engine.dispose()
    return str(version).splitlines()[0]


def _cassandra_release(url: str) -> str:
    session = CassandraSession(parse_cassandra_url(url))
    try:
        row = session._connected().execute("SELECT release_version FROM system.local").one()
    finally:
        session.close()
    return str(row["release_version"])


def _store_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    for value in () if call is None else call.params.values():
        if isinstance(value, str) and value in {"sqlite-file", "sqlite", *server_names()}:
            return value.removesuffix("-file")
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Runs where the test ran; what it adds goes to the process that counts."""
    report = yield
    suite, store = suite_of(item.path), _store_of(item)
    if report.when == "call" and report.passed and suite is not None and store is not None:
        # A server that does not say what it is counts as none.
        with suppress(Exception):
            report.user_properties.append((_PROPERTY, astuple(Met(scheme_of(store), version_of(store), suite))))
    return report


_met: Counter[Met] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        values: list[Any] = [value for name, value in report.user_properties if name == _PROPERTY]
        _met.update(Met(*value) for value in values)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    lines = sorted(_met.items(), key=lambda each: astuple(each[0]))
    for met, passed in lines:
        kind = BY_SCHEME[met.store]
        terminalreporter.write_line(f"{kind.name} ({kind.level}) on {met.version}: {met.suite}: {passed} passed")
    if lines and (name := os.environ.get(FILE_VARIABLE)):
        with Path(name).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(met) | {"passed": passed}) + "\n" for met, passed in lines)
