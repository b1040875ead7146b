"""What the model holds of Cassandra's documentation about reads: CQL, "SELECT", "WHERE", "ORDER BY", paging."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest
from cassandra.protocol import SyntaxException
from cassandra.query import dict_factory

from tests.support.cql.driver import ModelSession
from tests.unit.cql.conftest import rows


@pytest.fixture
def filled(session: ModelSession) -> ModelSession:
    """Partition x with (b, c) of 0..2 each, and y with one row."""
    insert = session.prepare("INSERT INTO t (a, b, c, v) VALUES (?, ?, ?, ?)")
    for b in range(3):
        for c in range(3):
            session.execute(insert, ("x", b, c, 10 * b + c))
    session.execute(insert, ("y", 5, 5, 55))
    return session


SELECTED: list[tuple[str, Any, list[int]]] = [
    ("a = ?", ("x",), [0, 1, 2, 10, 11, 12, 20, 21, 22]),
    ("a = ? AND b = ?", ("x", 1), [10, 11, 12]),
    ("a = ? AND b > ? AND b <= ?", ("x", 0, 2), [10, 11, 12, 20, 21, 22]),
    ("a = ? AND (b, c) > (?, ?)", ("x", 1, 1), [12, 20, 21, 22]),
    ("a = ? AND (b, c) >= (?, ?) AND (b) < (?)", ("x", 0, 2, 2), [2, 10, 11, 12]),
    ("a = ? AND b IN ? AND c > ?", ("x", [2, 0], 1), [2, 22]),
    ("a = ? AND b IN (?, ?) AND c = 1", ("x", 0, 1), [1, 11]),
    ("a = ? AND (b, c) IN ((?, ?), (2, 2))", ("x", 1, 0), [10, 22]),
    ("a IN ?", (["y", "x"],), [0, 1, 2, 10, 11, 12, 20, 21, 22, 55]),
    ("a = ? ORDER BY b DESC, c DESC LIMIT ?", ("x", 4), [22, 21, 20, 12]),
    ("a = ? AND (b, c) < (?, ?) ORDER BY b DESC", ("x", 1, 1), [10, 2, 1, 0]),
    ("a IN ? PER PARTITION LIMIT 2", (["x", "y"],), [0, 1, 55]),
]


@pytest.mark.parametrize(("where", "values", "expected"), SELECTED)
def test_a_selection_is_in_clustering_order(
    filled: ModelSession, where: str, values: Any, expected: list[int]
) -> None:
    assert [row[0] for row in rows(filled, f"SELECT v FROM t WHERE {where}", values)] == expected


@pytest.mark.parametrize(("where", "values", "expected"), SELECTED)
def test_pages_are_the_whole_selection(filled: ModelSession, where: str, values: Any, expected: list[int]) -> None:
    statement = filled.prepare(f"SELECT v FROM t WHERE {where}")
    statement.fetch_size = 2
    found: list[int] = []
    state: bytes | None = None
    while True:
        answer = filled.execute(statement, values, paging_state=state)
        assert len(answer.current_rows) <= 2
        found += [row.v for row in answer.current_rows]
        state = answer.paging_state
        if state is None:
            break
    assert found == expected
    assert [row.v for row in filled.execute(statement, values)] == expected  # the driver turns the pages itself


def test_a_descending_table_is_read_in_its_order_and_backwards(session: ModelSession) -> None:
    session.execute("CREATE TABLE d (a text, b text, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b DESC)")
    for b in "acb":
        session.execute(f"INSERT INTO d (a, b) VALUES ('x', '{b}')")
    assert rows(session, "SELECT b FROM d WHERE a = 'x'") == [("c",), ("b",), ("a",)]
    assert rows(session, "SELECT b FROM d WHERE a = 'x' AND b < 'c' ORDER BY b ASC") == [("a",), ("b",)]
    assert rows(session, "SELECT b FROM d WHERE a = 'x' AND b >= 'b'") == [("c",), ("b",)]


def test_a_table_is_scanned_by_token_and_the_partitions_alone_are_distinct(filled: ModelSession) -> None:
    tokens = rows(filled, "SELECT DISTINCT a, token(a) FROM t")
    assert sorted(row[0] for row in tokens) == ["x", "y"]
    assert tokens == sorted(tokens, key=lambda row: row[1])
    first, second = tokens
    assert rows(filled, "SELECT DISTINCT a FROM t WHERE token(a) > ?", (first[1],)) == [second[:1]]
    assert rows(filled, "SELECT count(*) FROM t") == [(10,)]


def test_a_partition_of_static_columns_alone_is_one_row_without_a_clustering_key(session: ModelSession) -> None:
    session.execute("UPDATE t SET s = 'one' WHERE a = 'x'")
    assert rows(session, "SELECT a, b, s FROM t WHERE a = 'x'") == [("x", None, "one")]
    assert rows(session, "SELECT a, b, s FROM t WHERE a = 'x' AND b = 1") == []


def test_every_type_comes_back_as_it_was_bound(session: ModelSession) -> None:
    columns = {
        "b": ("boolean", True),
        "l": ("blob", b"\x00\xff"),
        "t": ("timestamp", datetime(2026, 1, 2, 3, 4, 5, 6000)),
        "u": ("uuid", UUID("01234567-89ab-7def-8123-456789abcdef")),
        "d": ("double", 1.5),
        "m": ("map<text, bigint>", {"one": 1}),
        "s": ("set<text>", {"a", "b"}),
        "i": ("frozen<list<int>>", [3, 1]),
    }
    declared = ", ".join(f"{name} {type_name}" for name, (type_name, _) in columns.items())
    session.execute(f"CREATE TABLE types (k text PRIMARY KEY, {declared})")
    names = ", ".join(columns)
    marks = ", ".join("?" for _ in columns)
    insert = session.prepare(f"INSERT INTO types (k, {names}) VALUES ('k', {marks})")
    session.execute(insert, [value for _, value in columns.values()])
    session.row_factory = dict_factory
    found = session.execute(f"SELECT {names} FROM types").one()
    assert {name: found[name] for name in columns} == {name: value for name, (_, value) in columns.items()}


def test_an_empty_collection_is_no_value(session: ModelSession) -> None:
    session.execute("CREATE TABLE c (k text PRIMARY KEY, s set<text>)")
    session.execute(session.prepare("INSERT INTO c (k, s) VALUES (?, ?)"), ("a", set()))
    assert rows(session, "SELECT s FROM c") == [(None,)]


REFUSED = [
    ("SELECT * FROM t WHERE b = 1", "ALLOW FILTERING"),
    ("SELECT * FROM kv WHERE v = 1", "ALLOW FILTERING"),
    ("SELECT * FROM t WHERE a = 'x' AND v = 1", "ALLOW FILTERING"),
    ("SELECT * FROM t WHERE a > 'x'", "Only EQ and IN relation are supported on the partition key"),
    ("SELECT * FROM t WHERE a = 'x' AND c = 1", 'PRIMARY KEY column "c" cannot be restricted'),
    ("SELECT * FROM t WHERE a = 'x' AND b > 1 AND c = 1", "restricted by a non-EQ relation"),
    ("SELECT * FROM t WHERE a = 'x' AND b = 1 AND b > 0", "more than one relation"),
    ("SELECT * FROM t WHERE a = 'x' AND b > 1 AND b > 0", "More than one restriction"),
    ("SELECT * FROM t WHERE a = 'x' AND (c) > (1)", "PRIMARY KEY order|cannot be restricted"),
    ("SELECT * FROM t WHERE a = 'x' AND b != 1", "Unsupported != relation"),
    ("SELECT * FROM t ORDER BY b", "ORDER BY is only supported when the partition key is restricted"),
    ("SELECT * FROM t WHERE a = 'x' ORDER BY c", "following their declared order"),
    ("SELECT * FROM t WHERE a = 'x' ORDER BY v", "following their declared order"),
    ("SELECT * FROM t WHERE a = 'x' ORDER BY b ASC, c DESC", "Unsupported order by relation"),
    ("SELECT * FROM t WHERE a = 'x' LIMIT 0", "LIMIT must be strictly positive"),
    ("SELECT DISTINCT b FROM t", "must only request partition key columns"),
    ("SELECT x FROM t", "Undefined column name x"),
    ("SELECT * FROM nothing", "table nothing does not exist"),
    ("SELECT * FROM elsewhere.t", "keyspace elsewhere does not exist"),
    (f"SELECT * FROM kv WHERE k IN ({', '.join(repr(str(n)) for n in range(101))})", "Guardrail"),
]


@pytest.mark.parametrize(("cql", "message"), REFUSED)
def test_a_read_that_cassandra_refuses_is_refused(session: ModelSession, cql: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        session.execute(cql)


@pytest.mark.parametrize("cql", ["SELEC * FROM t", "SELECT * FROM t WHERE", "INSERT INTO t (a) VALUES ('x', 1)", "#"])
def test_what_is_no_cql_is_a_syntax_error(session: ModelSession, cql: str) -> None:
    with pytest.raises(SyntaxException):
        session.execute(cql)


def test_a_serial_read_is_of_one_partition(filled: ModelSession) -> None:
    statement = filled.prepare("SELECT v FROM t WHERE a IN ('x', 'y')")
    statement.consistency_level = ConsistencyLevel.SERIAL
    with pytest.raises(InvalidRequest, match="one partition at a time"):
        filled.execute(statement)


# -- CQL, "Data definition"; "system_schema" -------------------------------------------------------------------------


def test_a_schema_is_made_once(session: ModelSession) -> None:
    session.execute("CREATE TABLE IF NOT EXISTS kv (k text PRIMARY KEY)")
    with pytest.raises(AlreadyExists):
        session.execute("CREATE TABLE kv (k text PRIMARY KEY)")
    session.execute("ALTER TABLE kv ADD IF NOT EXISTS v bigint")
    session.execute("ALTER TABLE kv ADD x int")
    names = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
    assert rows(session, names, ("ks", "kv")) == [("k",), ("v",), ("w",), ("x",)]
    session.execute("DROP TABLE kv")
    assert rows(session, names, ("ks", "kv")) == []
    assert rows(session, "SELECT release_version FROM system.local") == [("4.1.0",)]


def test_an_index_allows_to_ask_for_what_is_equal(filled: ModelSession) -> None:
    filled.execute("CREATE INDEX IF NOT EXISTS ON t (v)")
    assert rows(filled, "SELECT b, c FROM t WHERE v = 21") == [(2, 1)]
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        filled.execute("SELECT b, c FROM t WHERE v > 21")
