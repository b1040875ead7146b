"""Every statement and definition of the store in the SQL of every dialect: compiled, and read by its grammar.

A grammar shows that a statement can be read, not that a server runs it; docs/stores.md says which servers have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
import sqlglot
from sqlglot.errors import ParseError

from duetime.stores.sql.database import Database
from duetime.stores.sql.dialects import SqlDialect, open_dialect
from duetime.stores.sql.prepared import Prepared
from duetime.stores.sql.schema import ddl_statements
from duetime.stores.sql.store import SqlStore
from duetime.stores.time_source import TimeSource


@dataclass(frozen=True)
class Case:
    url: str
    grammar: str
    """sqlglot's name of the dialect."""
    executed: str = r"(?!)()"
    """The comments that this server executes and others do not, as a pattern with what is executed as its group."""
    unread: dict[str, str] = field(default_factory=dict)
    """Patterns of valid SQL that the grammar cannot read and that is left out, each with the reason."""


_HASH = {r"PARTITION BY HASH \(shard_id\) PARTITIONS \d+": "sqlglot reads MySQL's partitions by RANGE and LIST only"}
_ORACLE = {r"(?<=AS IDENTITY) \(ORDER\)": "sqlglot does not read the order of an identity by itself"}
CASES = {
    "sqlite": Case("sqlite://", "sqlite"),
    "postgresql": Case("postgresql://db/x", "postgres"),
    "mysql": Case("mysql://db/x", "mysql", executed=r"/\*!8\d{4}(.*?)\*/", unread=_HASH),
    # sqlglot has no dialect of TiDB: what only TiDB executes stays a comment, and so do its hints.
    "tidb": Case("tidb://db/x", "mysql", executed=r"/\*!\d{5}(.*?)\*/", unread=_HASH),
    "mssql": Case("mssql://db/x", "tsql"),
    "oracle": Case("oracle://u:p@db/x", "oracle", unread=_ORACLE),
    "mariadb": Case("mariadb://db/x", "mysql", executed=r"/\*M?!(?!8\d{4})(.*?)\*/", unread=_HASH),
}
"""Every dialect joins here."""
_READ: set[tuple[str, str]] = set()
"""Statements that were read, with their dialect: most are the same whatever the source of time."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)[sd]|%s")


def read(sql: str, case: Case) -> None:
    """Raises ``ParseError`` for what is not the dialect's SQL, as far as its grammar knows."""
    text = _PLACEHOLDER.sub(lambda match: f":p_{match[1]}" if match[1] else "?", sql).replace("%%", "%")
    text = re.sub(case.executed, r"\1", text)
    for pattern in case.unread:
        text = re.sub(pattern, "", text)
    (statement,) = sqlglot.parse(text, dialect=case.grammar, error_level=sqlglot.ErrorLevel.RAISE)
    # What the parser does not know it takes as an opaque command, which shows nothing.
    assert statement is not None
    assert statement.key != "command", text


def statements_of(dialect: SqlDialect, monkeypatch: pytest.MonkeyPatch, source: TimeSource) -> list[str]:
    """The text of each statement that a store prepares."""
    prepared: list[Prepared] = []
    prepare = Database.prepare

    def note(self: Database, *args: object) -> Prepared:
        prepared.append(prepare(self, *args))  # type: ignore[arg-type]
        return prepared[-1]

    monkeypatch.setattr(Database, "prepare", note)
    SqlStore(dialect, time_source=source).close()
    return [each.sql for each in prepared]


@pytest.mark.parametrize("source", TimeSource)
@pytest.mark.parametrize("name", CASES)
def test_every_statement_is_sql_of_its_dialect(
    name: str, source: TimeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = statements_of(open_dialect(CASES[name].url), monkeypatch, source)

    assert len(statements) > 80
    for sql in statements:
        if (sql, name) not in _READ:
            read(sql, CASES[name])
            _READ.add((sql, name))


@pytest.mark.parametrize("name", CASES)
def test_every_definition_is_sql_of_its_dialect(name: str) -> None:
    dialect = open_dialect(CASES[name].url)

    for sql in ddl_statements(dialect.engine.url.drivername).values():
        read(sql, CASES[name])


def test_what_is_not_sql_is_noticed() -> None:
    with pytest.raises(ParseError):
        read("SELECT a FROM t WHERE (a = 1", CASES["postgresql"])
