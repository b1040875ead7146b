"""What can go wrong with a request, as the model shows it (Cassandra's documentation: "Dynamo", "Guarantees";
native protocol specification, section 9, "Error codes")."""

from __future__ import annotations

import threading

import pytest
from cassandra import (
    ConsistencyLevel,
    OperationTimedOut,
    ReadTimeout,
    Unavailable,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.query import BatchStatement, BatchType

from tests.support.cql.driver import ModelSession
from tests.support.cql.faults import Fault
from tests.support.cql.model import CassandraModel
from tests.unit.cql.conftest import rows

INSERT = "INSERT INTO kv (k, v) VALUES ('a', 1)"


@pytest.mark.parametrize(
    ("fault", "error", "is_carried_out"),
    [
        (Fault.LOST_BEFORE, OperationTimedOut, False),
        (Fault.LOST_AFTER, OperationTimedOut, True),
        (Fault.TIMED_OUT, WriteTimeout, True),
        (Fault.UNAVAILABLE, Unavailable, False),
        (Fault.NO_HOST, NoHostAvailable, False),
    ],
)
def test_a_fault_raises_what_the_driver_raises(
    session: ModelSession, model: CassandraModel, fault: Fault, error: type[Exception], is_carried_out: bool
) -> None:
    model.faults = lambda request: fault if request.is_write else None
    with pytest.raises(error):
        session.execute(INSERT)
    assert bool(rows(session, "SELECT * FROM kv")) is is_carried_out


def test_a_read_times_out_as_a_read(session: ModelSession, model: CassandraModel) -> None:
    model.faults = lambda request: Fault.TIMED_OUT if request.kind == "read" else None
    with pytest.raises(ReadTimeout):
        session.execute("SELECT * FROM kv")


def test_a_transaction_that_was_not_finished_is_seen_by_the_next_one_and_by_serial_reads_only(
    session: ModelSession, model: CassandraModel
) -> None:
    model.faults = lambda request: Fault.UNFINISHED if request.is_cas else None
    with pytest.raises(WriteTimeout) as caught:
        session.execute(f"{INSERT} IF NOT EXISTS")
    assert (
        caught.value.write_type == WriteType.value_to_name[WriteType.CAS] or caught.value.write_type == WriteType.CAS
    )
    model.faults = lambda request: None
    select = session.prepare("SELECT v FROM kv WHERE k = 'a'")
    assert session.execute(select).one() is None
    select.consistency_level = ConsistencyLevel.SERIAL
    assert session.execute(select).one() == (1,)
    assert rows(session, "SELECT v FROM kv WHERE k = 'a'") == [(1,)]


@pytest.mark.parametrize("batch_type", [BatchType.LOGGED, BatchType.UNLOGGED])
def test_a_logged_batch_that_is_half_visible_is_replayed_and_an_unlogged_one_is_not(
    session: ModelSession, model: CassandraModel, batch_type: BatchType
) -> None:
    model.faults = lambda request: Fault.PARTIAL if request.kind == "batch" else None
    batch = BatchStatement(batch_type)
    batch.add(INSERT)
    batch.add("INSERT INTO kv (k, v) VALUES ('b', 1)")
    with pytest.raises(WriteTimeout):
        session.execute(batch)
    assert rows(session, "SELECT k FROM kv") == [("a",)]
    model.replay_batches()
    expected = ["a", "b"] if batch_type is BatchType.LOGGED else ["a"]
    assert sorted(row[0] for row in rows(session, "SELECT k FROM kv")) == expected


def test_of_transactions_at_the_same_time_one_wins(session: ModelSession) -> None:
    session.execute("INSERT INTO kv (k, v) VALUES ('a', 0)")
    update = session.prepare("UPDATE kv SET v = ? WHERE k = 'a' IF v = ?")
    won: list[int] = []
    barrier = threading.Barrier(4)

    def run(number: int) -> None:
        barrier.wait()
        for at in range(20):
            if session.execute(update, (at + 1, at)).was_applied:
                won.append(at)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == len(set(won))


def test_requests_are_told_by_kind(session: ModelSession, model: CassandraModel) -> None:
    before = len(model.requests)
    session.execute(INSERT)
    session.execute("SELECT * FROM kv")
    session.execute(f"{INSERT} IF NOT EXISTS")
    assert [request.kind for request in model.requests[before:]] == ["write", "read", "cas"]
    assert model.requests[-1].tables == ("kv",)
