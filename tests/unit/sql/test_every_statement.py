"""Every statement and definition of the store, in the dialects that no server runs in CI: read by a grammar.

A grammar shows that a statement can be read, not that a server runs it. SQLite, PostgreSQL, MySQL and MariaDB run
theirs in the contract suite (docs/stores.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import sqlglot
from sqlglot.errors import ParseError

from duetime.stores import backend as writes
from duetime.stores.backend import NOW, Comparison, Condition, Now, Plus, Query, Write
from duetime.stores.backends.sql.database import Database
from duetime.stores.backends.sql.dialects.dialect import SqlDialect, open_dialect
from duetime.stores.backends.sql.reads import Reads
from duetime.stores.backends.sql.schema import ddl_statements
from duetime.stores.backends.sql.statements import Statements
from duetime.stores.entities import DUE, ENTITIES, SHARD, TIMER
from duetime.stores.entity import Entity, Kind
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
    # sqlglot has no dialect of TiDB: what only TiDB executes stays a comment, and so do its hints.
    "tidb": Case("tidb://db/x", "mysql", executed=r"/\*!\d{5}(.*?)\*/", unread=_HASH),
    "mssql": Case("mssql://db/x", "tsql"),
    "oracle": Case("oracle://u:p@db/x", "oracle", unread=_ORACLE),
}
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


class Recorder:
    """A connection that runs nothing: each statement finds no rows."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def exec_driver_sql(self, sql: str, _values: Any = ()) -> Recorder:
        self.statements.append(sql)
        return self

    def fetchall(self) -> list[Any]:
        return []

    def fetchmany(self, _size: int) -> list[Any]:
        return []

    def scalar_one(self) -> str:
        return "[]"

    def close(self) -> None: ...


VALUES: dict[Kind, Any] = {
    Kind.TEXT: "x",
    Kind.LONG_TEXT: "x",
    Kind.WHOLE: 1,
    Kind.INSTANT: 1,
    Kind.FLAG: True,
    Kind.BYTES: b"x",
    Kind.TEXTS: ("x",),
}


def writes_of(entity: Entity) -> Iterator[Write]:
    """One of each kind, with values of the database's time and conditions of each kind."""
    row = tuple(VALUES[each.kind] for each in entity.fields)
    timed = tuple(
        Now(5) if each.kind is Kind.INSTANT and entity.is_lease else VALUES[each.kind] for each in entity.fields
    )
    *_, first, last = entity.names
    conditions = [Condition(first, row[-2]), Condition(last, None)]
    if entity is SHARD:
        conditions.append(Condition("shard_lease_expires_at", NOW, Comparison.IS_PAST))
    key, others = entity.key_of(row), [each for each in entity.fields if each.name not in entity.key]
    yield writes.insert(entity, timed)
    yield writes.replace(entity, row, *conditions)
    yield writes.put(entity, row)
    yield writes.delete(entity, key)
    yield writes.delete(entity, key, *conditions)
    yield writes.update(entity, key, {each.name: VALUES[each.kind] for each in others}, *conditions)
    now = {each.name: NOW if each.kind is Kind.INSTANT else Plus() for each in others if each.kind in _COUNTED}
    if now:
        yield writes.update(entity, key, now)
    if entity is TIMER:
        is_waiting = Condition("timer_execute_at", 1)
        yield writes.update(entity, key, {"timer_execute_at": None, "timer_state": "fired"}, is_waiting)
        yield writes.insert(entity, tuple(None if name == "timer_execute_at" else "x" for name in entity.names))


_COUNTED = (Kind.INSTANT, Kind.WHOLE)


def read_all(reads: Reads, connection: Any, entity: Entity) -> None:
    """Rows by key, and each path from each of its places."""
    key = tuple(VALUES[entity.by_name[name].kind] for name in entity.key)
    for fields in (None, entity.names[-1:]):
        for is_locking in (False, True):
            reads.rows(connection, entity, [key], fields=fields, is_locking=is_locking)
        for path, limit in product(entity.paths, (1, 500)):
            by = tuple("x" if name == "tags" else VALUES[entity.by_name[name].kind] for name in path.by)
            place = tuple(VALUES[entity.by_name[name].kind] for name in path.order_names)
            end = place[0] if place else None
            for after, since, until, budget in ((None, None, None, None), (None, end, end, 1), (place, None, end, 1)):
                query = Query(entity, path, limit, by, fields, None if not place else after, since, until, budget)
                reads.scan(connection, query)


def statements_of(dialect: SqlDialect, source: TimeSource) -> list[str]:
    """What a store may run: each kind of write of each entity, and each way to read it."""
    database = Database(dialect, time_source=source)
    recorder = Recorder()
    connection: Any = recorder
    statements, reads = Statements(database), Reads(database)
    for entity in ENTITIES:
        recorder.statements += [run.statement.sql for each in writes_of(entity) for run in statements.runs([each])]
        read_all(reads, connection, entity)
    reads.firsts(connection, Query(TIMER, DUE, 1, since=1, until=1), range(64))
    database.close()
    return recorder.statements


@pytest.mark.parametrize("name", CASES)
def test_every_statement_is_sql_of_its_dialect(name: str) -> None:
    dialect = open_dialect(CASES[name].url)
    statements = {sql for source in TimeSource for sql in statements_of(dialect, source)}

    assert len(statements) > 80
    for sql in statements:
        read(sql, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_every_definition_is_sql_of_its_dialect(name: str) -> None:
    dialect = open_dialect(CASES[name].url)

    for sql in ddl_statements(dialect.engine.url.drivername).values():
        read(sql, CASES[name])


def test_what_is_not_sql_is_noticed() -> None:
    with pytest.raises(ParseError):
        read("SELECT a FROM t WHERE (a = 1", CASES["oracle"])
