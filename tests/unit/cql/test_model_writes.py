"""What the model holds of Cassandra's documentation about writes; the source of each group is named with it."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType

from tests.support.cql.driver import ModelSession
from tests.support.cql.model import CassandraModel
from tests.unit.cql.conftest import rows

ALL = "SELECT k, v, w FROM kv"

# -- CQL, "INSERT", "UPDATE", "DELETE": both writes are upserts; only INSERT makes a row without values -------------


def test_an_insert_writes_over_what_is_there(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v, w) VALUES ('a', 1, 'x')")
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 2)")
    assert rows(session, ALL) == [("a", 2, "x")]


def test_an_update_makes_a_row_which_ends_with_its_last_value(session: ModelSession) -> None:
    session.execute("UPDATE kv SET v = 1 WHERE k = 'a'")
    assert rows(session, ALL) == [("a", 1, None)]
    session.execute("UPDATE kv SET v = null WHERE k = 'a'")
    assert rows(session, ALL) == []


def test_a_row_that_was_inserted_stays_without_its_values(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 1)")
    session.execute("DELETE v FROM kv WHERE k = 'a'")
    assert rows(session, ALL) == [("a", None, None)]
    session.execute("DELETE FROM kv WHERE k = 'a'")
    assert rows(session, ALL) == []


def test_what_is_bound_as_unset_stays_and_what_is_bound_as_null_goes(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v, w) VALUES ('a', 1, 'x')")
    session.execute(session.prepare("UPDATE kv SET v = ?, w = ? WHERE k = ?"), (UNSET_VALUE, None, "a"))
    assert rows(session, ALL) == [("a", 1, None)]


def test_values_are_bound_by_name_too(session: ModelSession) -> None:
    session.execute(session.prepare("INSERT INTO kv (k, v) VALUES (:key, :value)"), {"key": "a", "value": 7})
    assert rows(session, "SELECT v FROM kv WHERE k = ?", ("a",)) == [(7,)]


# -- "Dynamo", "Tombstones": the later time stamp wins; at one time the deletion -------------------------------------


def test_the_later_time_stamp_wins_whatever_the_order_of_arrival(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 2) USING TIMESTAMP 200")
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 1) USING TIMESTAMP 100")
    assert rows(session, ALL) == [("a", 2, None)]


def test_a_deletion_hides_what_was_written_before_it_and_not_what_came_later(session: ModelSession) -> None:
    session.execute("DELETE FROM kv USING TIMESTAMP 200 WHERE k = 'a'")
    for written_us in (100, 200):
        session.execute(f"INSERT INTO kv (k, v) VALUES ('a', 1) USING TIMESTAMP {written_us}")
        assert rows(session, ALL) == []
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 1) USING TIMESTAMP 201")
    assert rows(session, ALL) == [("a", 1, None)]


def test_a_client_whose_clock_is_behind_writes_in_vain(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 1)")
    session.skew_us = -60_000_000
    session.execute("UPDATE kv SET v = 2 WHERE k = 'a'")
    assert rows(session, ALL) == [("a", 1, None)]


def test_a_range_of_rows_is_deleted_by_one_statement(session: ModelSession) -> None:
    for b in range(4):
        session.execute(f"INSERT INTO t (a, b, c, v) VALUES ('x', {b}, 0, {b})")
    session.execute("DELETE FROM t WHERE a = 'x' AND b >= 1 AND b < 3")
    assert rows(session, "SELECT b FROM t") == [(0,), (3,)]
    session.execute("INSERT INTO t (a, b, c, v) VALUES ('x', 2, 0, 9)")
    assert rows(session, "SELECT b FROM t") == [(0,), (2,), (3,)]
    session.execute("DELETE FROM t WHERE a = 'x'")
    assert rows(session, "SELECT b FROM t") == []


# -- CQL, "TTL" ------------------------------------------------------------------------------------------------------


def test_what_has_a_time_to_live_goes_by_the_servers_clock(session: ModelSession, clock: Any) -> None:
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 1) USING TTL 10")
    session.execute("UPDATE kv USING TTL 100 SET w = 'x' WHERE k = 'a'")
    clock.now_s += 9
    assert rows(session, "SELECT v, w, ttl(v) FROM kv") == [(1, "x", 1)]
    clock.now_s += 1
    assert rows(session, ALL) == [("a", None, "x")]
    clock.now_s += 90
    assert rows(session, ALL) == []


# -- "Lightweight transactions": [applied], with what was in the way -------------------------------------------------


def test_insert_if_not_exists_answers_with_the_row_that_is_there(session: ModelSession) -> None:
    insert = session.prepare("INSERT INTO kv (k, v) VALUES (?, ?) IF NOT EXISTS")
    assert session.execute(insert, ("a", 1)).was_applied
    refused = session.execute(insert, ("a", 2))
    assert not refused.was_applied
    assert refused.one() == (False, "a", 1, None)


def test_a_condition_answers_with_the_columns_it_names(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v, w) VALUES ('a', 1, 'x')")
    update = session.prepare("UPDATE kv SET w = 'y' WHERE k = ? IF v = ?")
    assert tuple(session.execute(update, ("a", 2)).one()) == (False, 1)
    assert tuple(session.execute(update, ("b", 2)).one()) == (False,)
    assert tuple(session.execute(update, ("a", 1)).one()) == (True,)
    assert rows(session, ALL) == [("a", 1, "y")]


def test_a_condition_on_null_holds_where_there_is_no_row(session: ModelSession) -> None:
    assert session.execute("UPDATE kv SET v = 1 WHERE k = 'a' IF v = null").was_applied
    assert not session.execute("UPDATE kv SET v = 2 WHERE k = 'a' IF v = null").was_applied
    assert not session.execute("DELETE FROM kv WHERE k = 'b' IF EXISTS").was_applied
    assert session.execute("DELETE FROM kv WHERE k = 'a' IF EXISTS").was_applied


def test_a_static_column_guards_its_partition(session: ModelSession) -> None:
    session.execute("INSERT INTO t (a, s) VALUES ('x', 'one')")
    batch = BatchStatement()
    batch.add("UPDATE t SET s = 'two' WHERE a = 'x' IF s = 'one'")
    batch.add("INSERT INTO t (a, b, c, v) VALUES ('x', 1, 1, 5)")
    assert session.execute(batch).was_applied
    assert rows(session, "SELECT b, v, s FROM t WHERE a = 'x'") == [(1, 5, "two")]
    assert not session.execute(batch).was_applied


def test_a_batch_with_a_condition_is_carried_out_whole_or_not_at_all(session: ModelSession) -> None:
    session.execute("INSERT INTO t (a, b, c, v) VALUES ('x', 1, 1, 5)")
    batch = BatchStatement()
    batch.add("UPDATE t SET v = 6 WHERE a = 'x' AND b = 1 AND c = 1 IF v = 4")
    batch.add("INSERT INTO t (a, b, c, v) VALUES ('x', 2, 2, 2)")
    answer = session.execute(batch)
    assert not answer.was_applied
    assert tuple(answer.one()) == (False, "x", 1, 1, 5)
    assert rows(session, "SELECT b, v FROM t") == [(1, 5)]


# -- CQL, "BATCH": one time stamp for all of it; atomic when logged --------------------------------------------------


def test_a_deletion_in_a_batch_hides_what_the_batch_writes_over_it(session: ModelSession) -> None:
    batch = BatchStatement()
    batch.add("DELETE FROM kv WHERE k = 'a'")
    batch.add("INSERT INTO kv (k, v) VALUES ('a', 1)")
    session.execute(batch)
    assert rows(session, ALL) == []


def test_a_logged_batch_reaches_all_its_partitions(session: ModelSession) -> None:
    batch = BatchStatement()
    insert = session.prepare("INSERT INTO kv (k, v) VALUES (?, ?)")
    for key in "abc":
        batch.add(insert, (key, 1))
    session.execute(batch)
    assert sorted(row[0] for row in rows(session, ALL)) == ["a", "b", "c"]


REFUSED = [
    ("UPDATE kv SET k = 'b' WHERE k = 'a'", "PRIMARY KEY part k found in SET part"),
    ("UPDATE kv SET v = 1 WHERE v = 2", "partition key parts are missing|data filtering"),
    ("UPDATE t SET v = 1 WHERE a = 'x' AND b = 1", "Some clustering keys are missing: c"),
    ("UPDATE t SET v = 1 WHERE a = 'x' AND b = 1 AND c > 1", "Slice restrictions"),
    ("INSERT INTO kv (v) VALUES (1)", "Some partition key parts are missing: k"),
    ("INSERT INTO t (a, b, v) VALUES ('x', 1, 1)", "Some clustering keys are missing: c"),
    ("INSERT INTO kv (k, v) VALUES (null, 1)", "Invalid null value"),
    ("INSERT INTO kv (k, v) VALUES ('', 1)", "Key may not be empty"),
    ("INSERT INTO kv (k, v) VALUES ('a', 'text')", "Invalid STRING constant"),
    ("INSERT INTO kv (k, x) VALUES ('a', 1)", "Undefined column name x"),
    ("INSERT INTO kv (k, v) VALUES ('a', 1) USING TTL -1", "TTL must be greater or equal to 0"),
    ("INSERT INTO kv (k, v) VALUES ('a', 1) USING TTL 700000000", "ttl is too large"),
    ("INSERT INTO kv (k, v) VALUES ('a', 1) IF NOT EXISTS USING TIMESTAMP 5", "custom timestamp"),
    ("UPDATE kv SET v = 1 WHERE k = 'a' IF k = 'a'", "cannot have IF conditions"),
    ("UPDATE kv SET v = 1 WHERE k IN ('a', 'b') IF v = 1", "IN on the partition key"),
    ("DELETE FROM t WHERE a = 'x' AND b = 1 IF v = 1", "must restrict all PRIMARY KEY columns"),
    ("INSERT INTO nothing (k) VALUES ('a')", "table nothing does not exist"),
]


@pytest.mark.parametrize(("cql", "message"), REFUSED)
def test_a_write_that_cassandra_refuses_is_refused(session: ModelSession, cql: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        session.execute(cql)


def test_a_batch_with_conditions_is_of_one_partition_of_one_table(session: ModelSession) -> None:
    first = "INSERT INTO kv (k, v) VALUES ('a', 1) IF NOT EXISTS"
    for second, message in (
        ("INSERT INTO kv (k, v) VALUES ('b', 1)", "multiple partitions"),
        ("INSERT INTO t (a, b, c) VALUES ('a', 1, 1)", "multiple tables"),
    ):
        batch = BatchStatement()
        batch.add(first)
        batch.add(second)
        with pytest.raises(InvalidRequest, match=message):
            session.execute(batch)


def test_a_batch_with_conditions_may_delete_a_range_and_has_no_in(session: ModelSession) -> None:
    for b in range(3):
        session.execute(f"INSERT INTO t (a, b, c, v, s) VALUES ('x', {b}, 0, {b}, 'one')")
    batch = BatchStatement()
    batch.add("UPDATE t SET s = 'two' WHERE a = 'x' IF s = 'one'")
    batch.add("DELETE FROM t WHERE a = 'x' AND b >= 1")
    assert session.execute(batch).was_applied
    assert rows(session, "SELECT b FROM t") == [(0,)]
    batch.clear()
    batch.add("UPDATE t SET s = 'one' WHERE a = 'x' IF s = 'two'")
    batch.add("DELETE FROM t WHERE a = 'x' AND b IN (0, 1)")
    with pytest.raises(InvalidRequest, match="IN on the clustering key columns"):
        session.execute(batch)


def test_a_large_batch_over_partitions_is_refused(session: ModelSession) -> None:
    batch = BatchStatement(BatchType.UNLOGGED)
    insert = session.prepare("INSERT INTO kv (k, w) VALUES (?, ?)")
    for key in "ab":
        batch.add(insert, (key, "x" * 30_000))
    with pytest.raises(InvalidRequest, match="Batch too large"):
        session.execute(batch)


def test_a_serial_consistency_is_for_reads(session: ModelSession) -> None:
    insert = session.prepare("INSERT INTO kv (k, v) VALUES (?, ?)")
    insert.consistency_level = ConsistencyLevel.SERIAL
    with pytest.raises(InvalidRequest, match="SERIAL"):
        session.execute(insert, ("a", 1))


def test_a_value_of_another_type_is_refused_by_the_driver(session: ModelSession) -> None:
    with pytest.raises(TypeError, match='invalid type for column "v"'):
        session.execute(session.prepare("INSERT INTO kv (k, v) VALUES (?, ?)"), ("a", "one"))


def test_the_clients_clock_gives_each_write_a_later_time(session: ModelSession, model: CassandraModel) -> None:
    assert model.client_timestamp_us() < model.client_timestamp_us()
