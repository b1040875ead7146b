"""What can go wrong between a client and Cassandra, done to single requests on their way to a real server."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout, WriteType
from cassandra.cluster import NoHostAvailable
from cassandra.query import BatchStatement, PreparedStatement

from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.backends.cassandra.url import CassandraUrl

_TABLES = re.compile(r"\b(?:FROM|INTO|UPDATE|EXISTS) ([\w.]+)")
_SERIAL_PROFILE = "serial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request on its way. ``number`` counts from 1 over all clients of a ``Network``; ``tables`` are those that it
    names; ``kind`` is schema, prepare, read, serial_read, write, cas, batch or cas_batch.
    """

    number: int
    kind: str
    cql: str
    tables: tuple[str, ...]

    @property
    def is_write(self) -> bool:
        return self.kind in ("write", "cas", "batch", "cas_batch")

    @property
    def is_cas(self) -> bool:
        return self.kind in ("cas", "cas_batch")


class Fault(Enum):
    LOST_BEFORE = "the request never arrived"
    LOST_AFTER = "it was carried out and its answer was lost"
    LATE = "it is in flight for so long that nobody waits for it, and arrives in the end"
    TIMED_OUT = "it was carried out and the coordinator waited in vain for the replicas' word"
    UNFINISHED = "a lightweight transaction was accepted and not committed: the next one of the partition commits it"
    UNAVAILABLE = "too few replicas are alive; nothing was carried out"
    NO_HOST = "no node can be reached; nothing was carried out"

    def error(self, request: Request) -> Any:
        """What the driver raises."""
        if self is Fault.UNAVAILABLE:
            return Unavailable(
                "Cannot achieve consistency level QUORUM",
                consistency=ConsistencyLevel.QUORUM,
                required_replicas=2,
                alive_replicas=1,
            )
        if self is Fault.NO_HOST:
            return NoHostAvailable("Unable to complete the operation against any hosts", {})
        if self in (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE):
            return OperationTimedOut(errors={"node": "Client request timeout"}, last_host="node")
        facts = {"consistency": ConsistencyLevel.QUORUM, "required_responses": 2, "received_responses": 1}
        message = "Coordinator node timed out waiting for replica nodes' responses"
        if not request.is_write:
            return ReadTimeout(message, **facts)
        write_type = WriteType.CAS if request.is_cas else WriteType.SIMPLE
        return WriteTimeout(message, write_type=write_type, **facts)


FaultPlan = Callable[[Request], Fault | None]
"""Asked once per request, before it is sent."""
_Send = Callable[[], Any]


def no_faults(_: Request) -> Fault | None:
    return None


class Network:
    """What lies between the clients of a test and the server.

    ``gate`` is called before each request, to put those of several threads in an order.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        """A session of the driver, which all clients share."""
        self.faults: FaultPlan = no_faults
        self.gate: Callable[[], None] | None = None
        self.requests: list[Request] = []
        self._prepared: dict[str, PreparedStatement] = {}
        self._lock = threading.RLock()
        self._late: list[tuple[int, _Send]] = []
        self._unfinished: dict[object, list[_Send]] = {}

    def connect(self) -> ObservedSession:
        return ObservedSession(self)

    def prepare(self, cql: str) -> PreparedStatement:
        self._note("prepare", cql)
        if cql not in self._prepared:
            self._prepared[cql] = self.driver.prepare(cql)
        return self._prepared[cql]

    def ask(self, kind: str, cql: str, send: _Send, partition: object) -> Any:
        """What ``send`` answers, a future of the driver, or one that fails as the plan has it."""
        if self.gate is not None:
            self.gate()
        request = self._note(kind, cql)
        fault = self.faults(request)
        if fault in (Fault.UNAVAILABLE, Fault.NO_HOST, Fault.LOST_BEFORE):
            return _Failed(fault.error(request))
        if fault is Fault.LATE:
            self._late.append((int(time.time() * 1_000_000), send))
            return _Failed(fault.error(request))
        if request.is_cas or kind == "serial_read":
            self._finish(partition)
        if fault is Fault.UNFINISHED:
            assert request.is_cas
            self._unfinished.setdefault(partition, []).append(send)
            return _Failed(fault.error(request))
        future = send()
        if fault is not None or self.gate is not None:
            future.result()
        return future if fault is None else _Failed(fault.error(request))

    def deliver_late(self) -> None:
        """What was in flight arrives, with the time stamp that its client gave it."""
        late, self._late = self._late, []
        stamps = self.driver.timestamp_generator
        try:
            for stamp, send in late:
                self.driver.timestamp_generator = lambda stamp=stamp: stamp
                send().result()
        finally:
            self.driver.timestamp_generator = stamps

    def finish(self) -> None:
        """What was accepted is committed."""
        for partition in list(self._unfinished):
            self._finish(partition)

    def _finish(self, partition: object) -> None:
        for send in self._unfinished.pop(partition, []):
            send().result()

    def _note(self, kind: str, cql: str) -> Request:
        tables = tuple(dict.fromkeys(name.rpartition(".")[2] for name in _TABLES.findall(cql)))
        with self._lock:
            request = Request(number=len(self.requests) + 1, kind=kind, cql=cql, tables=tables)
            self.requests.append(request)
        return request


class _Failed:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def result(self) -> Any:
        raise self._error


class ObservedSession:
    """A driver's session as ``CassandraSession`` uses it, whose requests go through a ``Network``."""

    keyspace = None

    def __init__(self, network: Network) -> None:
        self._network = network

    def prepare(self, cql: str) -> PreparedStatement:
        return self._network.prepare(cql)

    def execute(self, query: Any, parameters: Any = None, **settings: Any) -> Any:
        return self._ask(query, parameters, settings).result()

    def execute_async(self, query: Any, **settings: Any) -> Any:
        return self._ask(query, None, settings)

    def _ask(self, query: Any, parameters: Any, settings: dict[str, Any]) -> Any:
        texts = _texts(query, self._network)
        kind = _kind(texts, settings.get("execution_profile"))
        cql = "; ".join(texts)
        partition = None if isinstance(query, str) else (_TABLES.findall(cql)[0], query.routing_key)
        driver = self._network.driver
        return self._network.ask(kind, cql, lambda: driver.execute_async(query, parameters, **settings), partition)


def _texts(query: Any, network: Network) -> list[str]:
    if isinstance(query, str):
        return [query]
    if isinstance(query, BatchStatement):
        by_id = {each.query_id: each.query_string for each in network._prepared.values()}
        return [by_id[each] for _, each, _ in query._statements_and_parameters]
    return [query.prepared_statement.query_string]


def _kind(texts: list[str], profile: Any) -> str:
    verb = texts[0].split()[0].upper()
    is_conditional = any(" IF " in text for text in texts)
    if verb in ("CREATE", "DROP", "ALTER"):
        return "schema"
    if verb == "SELECT":
        return "serial_read" if profile == _SERIAL_PROFILE else "read"
    if len(texts) > 1:
        return "cas_batch" if is_conditional else "batch"
    return "cas" if is_conditional else "write"


class FaultySession(CassandraSession):
    """A client of a ``Network``."""

    def __init__(self, url: CassandraUrl, network: Network) -> None:
        super().__init__(replace(url, timeout_seconds=60.0))
        self._network = network

    def _connect(self) -> Any:
        self._disconnect()
        return self._network.connect()
