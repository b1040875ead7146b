"""Apache Cassandra in memory, as one client sees it: every request is carried out alone and at once.

It has no replicas: a read sees every write that was answered. What is not so on a cluster, it can be made to show by
``faults`` (answers that are lost, transactions that are accepted and not committed, batches that are half visible)
and by ``skew_us`` (a client whose clock is wrong). It refuses what Cassandra refuses, with the driver's exceptions;
what CQL has and the model has not is a ``NotImplementedError``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cassandra import ConsistencyLevel, InvalidRequest

from tests.support.cql import column_types, syntax
from tests.support.cql.binding import Bound
from tests.support.cql.faults import Fault, FaultPlan, Request
from tests.support.cql.parsing import parse
from tests.support.cql.schema import Schema
from tests.support.cql.selects import Rows, Selection
from tests.support.cql.tables import Partition, Table
from tests.support.cql.writes import Write, cells_of, planned

BATCH_FAIL_BYTES = 50 * 1024
"""batch_size_fail_threshold of cassandra.yaml: a batch over several partitions that is larger is refused."""
MUTATION_FAIL_BYTES = 16 * 1024 * 1024
_SERIAL = (ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL)
_MUTATIONS = (syntax.Insert, syntax.Update, syntax.Delete)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a request is carried out. ``keyspace``: the session's. ``timestamp_us``: the client's; None: ours."""

    keyspace: str | None
    consistency: int = ConsistencyLevel.LOCAL_ONE
    fetch_size: int | None = None
    paging_state: bytes | None = None
    timestamp_us: int | None = None


class CassandraModel:
    """``now_s``: the servers' clock in seconds, for TTL and time stamps; settable by replacing it."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self.now_s = now_s
        self.faults: FaultPlan = lambda request: None
        self.requests: list[Request] = []
        self.gate: Callable[[], None] = lambda: None
        """Called before each request, outside the model's lock: a test may let its caller wait."""
        self.schema = Schema()
        self._lock = threading.RLock()
        self._last_us = 0
        self._pending: list[Callable[[], None]] = []
        self._late: list[Callable[[], object]] = []

    def client_timestamp_us(self) -> int:
        """Later than every one before."""
        with self._lock:
            self._last_us = max(self._last_us + 1, int(self.now_s() * 1_000_000))
            return self._last_us

    def replay_batches(self) -> None:
        """Logged batches that were half carried out reach their other partitions."""
        with self._lock:
            pending, self._pending = self._pending, []
            for change in pending:
                change()

    def deliver_late(self) -> None:
        """What was under way for long arrives."""
        with self._lock:
            late, self._late = self._late, []
            for act in late:
                act()

    def execute(self, cql: str, values: Sequence[Any], settings: Settings) -> Rows | None:
        """The rows of a SELECT or of a lightweight transaction; None for any other statement."""
        self.gate()
        with self._lock:
            statement, _ = parse(cql)
            request = self._request(self._kind_of(statement, settings), cql, [statement], settings)
            if isinstance(statement, syntax.Select):
                return self._faulty(request, lambda fault: self._select(statement, values, settings))
            if isinstance(statement, _MUTATIONS):
                write = self._planned(statement, values, settings)
                return self._faulty(request, lambda fault: self._write([write], settings, fault, is_logged=True))
            return self._faulty(request, lambda fault: self.schema.change(statement, settings.keyspace))

    def execute_batch(
        self, statements: Sequence[tuple[str, Sequence[Any]]], settings: Settings, *, is_logged: bool
    ) -> Rows | None:
        self.gate()
        with self._lock:
            parsed = [(parse(cql)[0], values) for cql, values in statements]
            for statement, _ in parsed:
                if not isinstance(statement, _MUTATIONS):
                    raise InvalidRequest("Invalid statement in batch: only UPDATE, INSERT and DELETE are allowed.")
            writes = [self._planned(statement, values, settings) for statement, values in parsed]
            kind = "cas_batch" if any(write.check for write in writes) else "batch"
            text = "; ".join(cql for cql, _ in statements)
            request = self._request(kind, text, [statement for statement, _ in parsed], settings)
            _check_batch(writes, settings)
            return self._faulty(
                request, lambda fault: self._write(writes, settings, fault, is_logged=is_logged, is_batch=True)
            )

    def prepare(self, cql: str, settings: Settings) -> tuple[syntax.Statement, Table | None]:
        """Refuses what the server refuses before there are values."""
        with self._lock:
            statement, _ = parse(cql)
            request = self._request("prepare", cql, [statement], settings)
            return self._faulty(request, lambda fault: (statement, self._table_of(statement, settings)))

    # -- requests --------------------------------------------------------------------------------------------

    def _kind_of(self, statement: syntax.Statement, settings: Settings) -> str:
        if isinstance(statement, syntax.Select):
            return "serial_read" if settings.consistency in _SERIAL else "read"
        if isinstance(statement, syntax.Insert):
            return "cas" if statement.if_not_exists else "write"
        if isinstance(statement, syntax.Update | syntax.Delete):
            return "cas" if statement.if_exists or statement.conditions else "write"
        return "schema"

    def _request(self, kind: str, cql: str, statements: Sequence[syntax.Statement], settings: Settings) -> Request:
        tables = tuple(dict.fromkeys(each.table[1] for each in statements if hasattr(each, "table")))
        request = Request(number=len(self.requests) + 1, kind=kind, cql=cql, tables=tables)
        self.requests.append(request)
        return request

    def _faulty(self, request: Request, act: Callable[[Fault | None], Any]) -> Any:
        fault = self.faults(request)
        if fault is None:
            return act(None)
        if fault is Fault.LATE:
            self._late.append(lambda: act(None))
        elif fault.is_carried_out:
            act(fault)
        raise fault.error(request)

    def _table_of(self, statement: Any, settings: Settings) -> Table | None:
        if not isinstance(statement, (syntax.Select, *_MUTATIONS)):
            return None
        return self.schema.table(statement.table, settings.keyspace)

    def _bound(self, values: Sequence[Any]) -> Bound:
        return Bound(values=values, instant_ms=int(self.now_s() * 1000))

    # -- reads -----------------------------------------------------------------------------------------------

    def _select(self, statement: syntax.Select, values: Sequence[Any], settings: Settings) -> Rows:
        table = self.schema.table(statement.table, settings.keyspace)
        selection = Selection(statement, table, self._bound(values))
        if settings.consistency in _SERIAL:
            keys = selection.restrictions.partition_keys
            if keys is None or len(keys) > 1:
                raise InvalidRequest(
                    "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time"
                )
            for partition in selection.partitions():
                _finish(partition)
        return selection.run(now_s=self.now_s(), fetch_size=settings.fetch_size, paging_state=settings.paging_state)

    # -- writes ----------------------------------------------------------------------------------------------

    def _planned(self, statement: Any, values: Sequence[Any], settings: Settings) -> Write:
        if settings.consistency in _SERIAL:
            raise InvalidRequest(
                "SERIAL is not supported as conditional update commit consistency. Use ANY if you mean 'make sure it "
                "is accepted but I don't care how many replicas commit it for non-SERIAL reads'"
            )
        table = self.schema.table(statement.table, settings.keyspace)
        write = planned(statement, table, self._bound(values))
        if write.size_bytes > MUTATION_FAIL_BYTES:
            raise InvalidRequest(f"Rejected an oversized mutation ({write.size_bytes}/{MUTATION_FAIL_BYTES})")
        return write

    def _write(
        self,
        writes: Sequence[Write],
        settings: Settings,
        fault: Fault | None,
        *,
        is_logged: bool,
        is_batch: bool = False,
    ) -> Rows | None:
        if any(write.check for write in writes):
            return self._compare_and_set(writes, fault, is_batch=is_batch)
        default_us = self.client_timestamp_us() if settings.timestamp_us is None else settings.timestamp_us
        reached: set[int] = set()
        for write in writes:
            for key in write.partition_keys:
                partition = write.table.partition(key)
                written_us = default_us if write.timestamp_us is None else write.timestamp_us
                change = _bound_change(write, partition, written_us, self.now_s())
                reached.add(id(partition))
                if fault is not Fault.PARTIAL or len(reached) == 1:
                    change()
                elif is_logged:
                    self._pending.append(change)
        return None

    def _compare_and_set(self, writes: Sequence[Write], fault: Fault | None, *, is_batch: bool) -> Rows | None:
        table = writes[0].table
        partition = table.partition(writes[0].partition_keys[0])
        _finish(partition)
        now_s = self.now_s()
        checks = [write.check for write in writes if write.check is not None]
        if not all(check.holds(partition, now_s) for check in checks):
            return _refused(table, partition, writes, now_s, is_batch=is_batch)
        ballot_us = max(self.client_timestamp_us(), partition.last_ballot_us + 1)
        partition.last_ballot_us = ballot_us
        changes = [_bound_change(write, partition, ballot_us, now_s) for write in writes]
        if fault is Fault.UNFINISHED:
            partition.unfinished += changes
        else:
            for change in changes:
                change()
        return Rows(("[applied]",), (column_types.type_of("boolean"),), [(True,)])


def _finish(partition: Partition) -> None:
    """What every lightweight transaction and every serial read does first with one that was not finished."""
    unfinished, partition.unfinished = partition.unfinished, []
    for change in unfinished:
        change()


def _bound_change(write: Write, partition: Partition, written_us: int, now_s: float) -> Callable[[], None]:
    return lambda: write.change(partition, written_us, now_s)


def _check_batch(writes: Sequence[Write], settings: Settings) -> None:
    partitions = {(write.table.name, key) for write in writes for key in write.partition_keys}
    if any(write.check for write in writes):
        if len({write.table.name for write in writes}) > 1:
            raise InvalidRequest("Batch with conditions cannot span multiple tables")
        if len(partitions) > 1:
            raise InvalidRequest("Batch with conditions cannot span multiple partitions")
        if any(write.has_clustering_in for write in writes):
            raise InvalidRequest("IN on the clustering key columns is not supported with conditional updates")
        if any(write.timestamp_us is not None for write in writes):
            raise InvalidRequest("Cannot provide custom timestamp for conditional BATCH")
        existence = {(write.check.clustering, write.check.must_exist) for write in writes if write.check}
        rows = [clustering for clustering, must_exist in existence if must_exist is not None]
        if len(rows) != len(set(rows)):
            raise InvalidRequest("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row")
    size = sum(write.size_bytes for write in writes)
    if len(partitions) > 1 and size > BATCH_FAIL_BYTES:
        raise InvalidRequest("Batch too large")
    if size > MUTATION_FAIL_BYTES:
        raise InvalidRequest(f"Rejected an oversized mutation ({size}/{MUTATION_FAIL_BYTES})")


def _refused(table: Table, partition: Partition, writes: Sequence[Write], now_s: float, *, is_batch: bool) -> Rows:
    """``[applied]`` False with what the conditions met: whole rows for IF NOT EXISTS, else the columns they name;
    for a batch with the primary key, a row for each that was found. Nothing more where no row was found."""
    checks = [write.check for write in writes if write.check is not None]
    columns = table.ordered_columns()
    if all(check.must_exist is None for check in checks):
        named = dict.fromkeys(column.name for check in checks for column, _, _ in check.conditions)
        keys = [*table.partition_key, *table.clustering] if is_batch else []
        columns = [*keys, *(table.columns[name] for name in named)]
    values: list[tuple[Any, ...]] = []
    static = partition.static_cells(now_s)
    for clustering in dict.fromkeys(check.clustering for check in checks):
        cells = cells_of(partition, clustering, now_s)
        if cells is None and not (static and clustering is not None):
            continue
        if cells is None:
            clustering = None
        cells = {**(cells or {}), **static}
        row: list[Any] = [False]
        for column in columns:
            if column.kind == "partition_key":
                row.append(partition.key[table.partition_key.index(column)])
            elif column.kind == "clustering":
                row.append(None if clustering is None else clustering[table.clustering.index(column)])
            else:
                cell = cells.get(column.name)
                row.append(None if cell is None else column_types.read(column.cql_type, cell.data))
        values.append(tuple(row))
    boolean = column_types.type_of("boolean")
    if not values:
        return Rows(("[applied]",), (boolean,), [(False,)])
    names = ("[applied]", *(column.name for column in columns))
    return Rows(names, (boolean, *(column.cql_type for column in columns)), values)
