"""The one place that touches the driver: connections, consistency, retries, and the kinds of requests.

Why as it is: docs/decisions/0020-cassandra.md.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, dict_factory

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady
from duetime.domain.times import from_milliseconds
from duetime.stores.backends.cassandra.errors import DRIVER_ERRORS, no_such_datacenter, translate
from duetime.stores.backends.cassandra.requests import Row, Statement
from duetime.stores.backends.cassandra.url import CassandraUrl

R = TypeVar("R")
_Result = Callable[[], Any]
"""Waits for the answer of a request that was sent."""
_Start = Callable[[], _Result]
"""Sends a request."""

UNSET: Final[Any] = UNSET_VALUE
"""As a value: the column stays as it is, and no tombstone is written."""
PROTOCOL_VERSION: Final = 4
"""Spoken by Apache Cassandra 4 and 5 and by ScyllaDB: nothing has to be negotiated."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 5.0
"""How long a node that is back waits to be asked again, at most. The driver would wait ten minutes, and after 64
attempts for ever."""
HEARTBEAT_SECONDS: Final = 5.0
"""A connection without an answer for so long is asked for one, and given up where none comes within the time of a
request: a node that stands still is passed over from then on."""
_SERIAL_PROFILE: Final = "serial"
_TABLE: Final = re.compile(r"\b(FROM|INTO|UPDATE|EXISTS) (?=\w)")
"""What stands before the table that a statement is about, where it first occurs."""
_FIND_TABLES: Final = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
_FIND_KEYSPACE: Final = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
_READ_CLOCK: Final = "SELECT toUnixTimestamp(now()) AS now_ms FROM system.local"
_MOST_IN_FLIGHT = 32
_FETCH_SIZE = 500


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether the driver logs something that its caller is not told by an exception."""
    return record.exc_info is None


for _name in ("cassandra.cluster", "cassandra.connection", "cassandra.pool"):
    logging.getLogger(_name).addFilter(_is_news)


class CarefulRetries(RetryPolicy):  # type: ignore[misc]  # the driver has no types
    """A read whose node fails is asked of the next one, once; nothing that writes is ever sent again.

    Whether a write that was not answered has been made is for its caller to find out.
    """

    def on_read_timeout(self, *arguments: Any, **named: Any) -> tuple[int, None]:  # noqa: ARG002
        return self.RETHROW, None

    def on_write_timeout(self, *arguments: Any, **named: Any) -> tuple[int, None]:  # noqa: ARG002
        return self.RETHROW, None

    def on_unavailable(self, *arguments: Any, **named: Any) -> tuple[int, None]:  # noqa: ARG002
        return self.RETHROW, None

    def on_request_error(self, query: Any, consistency: Any, error: Any, retry_num: int) -> tuple[int, None]:  # noqa: ARG002
        is_harmless = retry_num == 0 and getattr(query, "is_idempotent", False)
        return (self.RETRY_NEXT_HOST if is_harmless else self.RETHROW), None


class CassandraSession:
    """Nothing is contacted before the first request. Thread-safe. Raises ``StoreUnavailable``, ``StoreNotReady`` and
    ``StoreError``, no error of the driver.

    A process that was forked makes connections of its own.
    """

    def __init__(self, url: CassandraUrl) -> None:
        self.url = url
        self._tls = _tls_context(url)
        self._lock = threading.RLock()
        self._cluster: Any = None
        self._session: Any = None
        self._prepared: dict[str, Any] = {}
        self._process_id = os.getpid()
        self._is_closed = False

    # -- life ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def change_schema(self, statements: Iterable[str]) -> None:
        """Carry out statements that make tables, one after another."""
        for cql in statements:
            self._answer(partial(self._execute_text, self._qualified(cql)))

    def make_keyspace(self, cql: str) -> bool:
        """Carry out ``cql``, which makes the keyspace, unless it is there. Whether it was missing."""
        session = self._answer(self._connected)
        if self._answer(lambda: list(session.execute(_FIND_KEYSPACE, (self.url.keyspace,)))):
            return False
        self._answer(lambda: session.execute(cql))
        return True

    def is_empty(self) -> bool:
        """Tell whether the keyspace is missing, or has no tables of anybody."""
        session = self._answer(self._connected)
        return not self._answer(lambda: list(session.execute(_FIND_TABLES, (self.url.keyspace,))))

    def node_time(self) -> datetime:
        """Return what the clock of the node that answers reads, in milliseconds."""
        row = self._answer(lambda: self._connected().execute(_READ_CLOCK).one())
        return from_milliseconds(int(row["now_ms"]))

    def _connected(self) -> Any:
        with self._lock:
            if self._process_id != os.getpid():
                # The threads that served these connections are the parent's.
                self._cluster = self._session = None
                self._prepared = {}
                self._process_id = os.getpid()
            if self._is_closed:
                raise StoreError("the Cassandra store is closed")
            if self._session is None:
                self._session = self._connect()
            return self._session

    def _connect(self) -> Any:
        self._disconnect()
        cluster = make_cluster(self.url, self._tls)
        try:
            session = cluster.connect()
        except NoHostAvailable as error:
            known = {host.datacenter for host in cluster.metadata.all_hosts()} - {None}
            cluster.shutdown()
            if known and self.url.datacenter is not None and self.url.datacenter not in known:
                raise no_such_datacenter(self.url.datacenter, known) from error
            raise
        except BaseException:
            cluster.shutdown()
            raise
        session.default_fetch_size = _FETCH_SIZE
        self._cluster = cluster
        return session

    def _disconnect(self) -> None:
        cluster, self._cluster, self._session = self._cluster, None, None
        self._prepared = {}
        if cluster is not None and self._process_id == os.getpid():
            cluster.shutdown()

    # -- requests --------------------------------------------------------------------------------------------

    def read(self, statement: Statement, *, is_serial: bool = False) -> list[Row]:
        """Return all rows, by a quorum. ``is_serial``: of one partition, and after whatever conditional write of it
        had been accepted."""
        profile = _SERIAL_PROFILE if is_serial else EXEC_PROFILE_DEFAULT

        def ask() -> list[Row]:
            session = self._connected()
            return list(session.execute(self._query(session, [statement]), execution_profile=profile))

        return self._answer(ask)

    def read_each(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Return all rows of each, by a quorum; side by side, but for pages after the first."""
        return _raised(self._side_by_side([self._later([statement], list) for statement in statements]))

    def write(self, statements: Sequence[Statement]) -> None:
        """All of them by a quorum, in no order and not as one; after an error any of them may have been made."""
        self.write_each([[statement] for statement in statements])

    def write_each(self, groups: Sequence[Sequence[Statement]]) -> None:
        """As ``write``; those of a group are of one partition, and one request."""
        _raised(self._side_by_side([self._later(statements, bool, BatchType.UNLOGGED) for statements in groups]))

    def decide(self, statements: Sequence[Statement]) -> bool:
        """Conditional writes of one partition as one: whether their conditions held. Raises ``Unsettled``."""
        (answer,) = self.decide_each([statements])
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def decide_each(self, groups: Sequence[Sequence[Statement]]) -> list[bool | StoreError]:
        """As ``decide`` of each group, side by side: what it answers or raises, ``Unsettled`` too."""
        answers = self._side_by_side(
            [self._later(statements, _applied) for statements in groups], is_conditional=True
        )
        for answer in answers:
            if isinstance(answer, StoreNotReady):
                raise answer
        return answers

    def _execute_text(self, cql: str) -> None:
        self._connected().execute(cql)

    def _later(
        self, statements: Sequence[Statement], told: Callable[[Any], Any], kind: BatchType = BatchType.LOGGED
    ) -> _Start:
        """``told``: makes the answer of what the driver gives."""

        def start() -> _Result:
            session = self._connected()
            future = session.execute_async(self._query(session, statements, kind))
            return lambda: told(future.result())

        return start

    def _query(self, session: Any, statements: Sequence[Statement], kind: BatchType = BatchType.LOGGED) -> Any:
        bound = [self._prepare(session, each.cql).bind(each.values) for each in statements]
        if len(bound) == 1:
            return bound[0]
        query = BatchStatement(kind)
        for each in bound:
            query.add(each)
        return query

    def _prepare(self, session: Any, cql: str) -> Any:
        prepared = self._prepared.get(cql)
        if prepared is None:
            prepared = session.prepare(self._qualified(cql))
            prepared.is_idempotent = cql.lstrip()[:6].upper() == "SELECT"
            self._prepared[cql] = prepared
        return prepared

    def _qualified(self, cql: str) -> str:
        """With the keyspace before its table. A session that uses a keyspace prepares ambiguous statements: servers
        warn of them, and nodes of different versions know them by different ids."""
        return _TABLE.sub(rf"\1 {self.url.keyspace}.", cql, count=1)

    def _side_by_side(self, requests: Sequence[_Start], *, is_conditional: bool = False) -> list[Any]:
        """Return what each answers, or the ``StoreError`` that stands for what it raises; some at once."""
        answers: list[Any] = [None] * len(requests)
        in_flight: deque[tuple[int, _Result]] = deque()

        def finish_one() -> None:
            place, result = in_flight.popleft()
            answers[place] = self._caught(result, is_conditional=is_conditional)

        for place, start in enumerate(requests):
            if len(in_flight) >= _MOST_IN_FLIGHT:
                finish_one()
            # What fails before it is sent was not carried out.
            started = self._caught(start, is_conditional=False)
            if isinstance(started, Exception):
                answers[place] = started
            else:
                in_flight.append((place, started))
        while in_flight:
            finish_one()
        return answers

    def _caught(self, act: Callable[[], Any], *, is_conditional: bool) -> Any:
        try:
            return act()
        except StoreError as error:
            return error
        except DRIVER_ERRORS as error:
            translated = translate(error, is_conditional=is_conditional)
            translated.__cause__ = error
            return translated

    def _answer(self, act: Callable[[], R]) -> R:
        try:
            return act()
        except DRIVER_ERRORS as error:
            raise translate(error) from error


def _applied(answer: Any) -> bool:
    return bool(answer.was_applied)


def _raised(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def make_cluster(url: CassandraUrl, tls: ssl.SSLContext | None) -> Any:
    """Make a client that reads and writes by a quorum of the data centre, conditional writes by one of its own
    (LOCAL_SERIAL).
    """

    def profile(consistency_level: int) -> Any:
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=url.datacenter or "")),
            retry_policy=CarefulRetries(),
            consistency_level=consistency_level,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=url.timeout_seconds,
            row_factory=dict_factory,
        )

    profiles = {
        EXEC_PROFILE_DEFAULT: profile(ConsistencyLevel.LOCAL_QUORUM),
        _SERIAL_PROFILE: profile(ConsistencyLevel.LOCAL_SERIAL),
    }
    credentials = None
    if url.user is not None:
        credentials = PlainTextAuthProvider(username=url.user, password=url.password)
    connect_seconds = min(CONNECT_TIMEOUT_SECONDS, url.timeout_seconds)
    return Cluster(
        list(url.hosts),
        port=url.port,
        auth_provider=credentials,
        ssl_context=tls,
        execution_profiles=profiles,
        protocol_version=PROTOCOL_VERSION,
        connect_timeout=connect_seconds,
        control_connection_timeout=connect_seconds,
        reconnection_policy=ExponentialReconnectionPolicy(0.5, RECONNECT_SECONDS, max_attempts=None),
        idle_heartbeat_interval=HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=url.timeout_seconds,
        application_name="duetime",
        monitor_reporting_enabled=False,
    )


def _tls_context(url: CassandraUrl) -> ssl.SSLContext | None:
    if not url.has_tls:
        return None
    try:
        return ssl.create_default_context(cafile=url.tls_ca)
    except OSError:
        raise InvalidSettings("the file that tls_ca of the Cassandra store URL names cannot be read") from None
