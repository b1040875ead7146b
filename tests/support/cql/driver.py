"""``Cluster`` and ``Session`` of cassandra-driver over the model, with the driver's own statements and results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, ResultSet
from cassandra.encoder import Encoder
from cassandra.protocol import ColumnMetadata
from cassandra.query import (
    FETCH_SIZE_UNSET,
    BatchStatement,
    BatchType,
    BoundStatement,
    PreparedStatement,
    SimpleStatement,
    bind_params,
    named_tuple_factory,
)

from tests.support.cql.binding import marker_specs
from tests.support.cql.column_types import PROTOCOL_VERSION, type_of
from tests.support.cql.model import CassandraModel, Settings
from tests.support.cql.selects import Rows, result_columns
from tests.support.cql.syntax import Select

_DEFAULT_FETCH_SIZE = 5000
_query_ids = itertools.count(1)


class ModelCluster:
    """As ``cassandra.cluster.Cluster``; what concerns connections is taken and not used."""

    def __init__(self, contact_points: Any = None, *, model: CassandraModel, **settings: Any) -> None:
        self.model = model
        self.contact_points = contact_points
        self.settings = settings
        profiles = settings.get("execution_profiles") or {}
        self.profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(), **profiles}
        self.protocol_version = settings.get("protocol_version", PROTOCOL_VERSION)
        self.is_shutdown = False

    def connect(self, keyspace: str | None = None, wait_for_all_pools: bool = False) -> ModelSession:
        if keyspace is not None:
            self.model.schema.check_keyspace(keyspace)
        return ModelSession(self, keyspace)

    def shutdown(self) -> None:
        self.is_shutdown = True


class ModelFuture:
    """What a ``ResultSet`` asks of the driver's ``ResponseFuture``. The request has been carried out."""

    _continuous_paging_session = None

    def __init__(self, session: ModelSession, query: Any, ask: Callable[[bytes | None], Rows | None]) -> None:
        self._session = session
        self._ask = ask
        self._error: Exception | None = None
        self.query = query
        self.row_factory: Any = None
        self._col_names: Sequence[str] | None = None
        self._col_types: Sequence[Any] | None = None
        self._paging_state: bytes | None = None
        self._rows: Any = []

    def fetch(self, paging_state: bytes | None) -> None:
        try:
            rows = self._ask(paging_state)
        except Exception as error:  # whoever asks for the result gets it
            self._error = error
            return
        self._paging_state = None if rows is None else rows.paging_state
        if rows is None:
            self._rows = None
            return
        self._col_names, self._col_types = list(rows.names), list(rows.types)
        self._rows = self.row_factory(list(rows.names), rows.values)

    @property
    def has_more_pages(self) -> bool:
        return self._paging_state is not None

    def start_fetching_next_page(self) -> None:
        self.fetch(self._paging_state)

    def result(self) -> ResultSet:
        if self._error is not None:
            raise self._error
        return ResultSet(self, self._rows)

    def add_callbacks(
        self,
        callback: Callable[..., None],
        errback: Callable[..., None],
        callback_args: Any = (),
        callback_kwargs: Any = None,
        errback_args: Any = (),
        errback_kwargs: Any = None,
    ) -> None:
        if self._error is not None:
            errback(self._error, *errback_args, **(errback_kwargs or {}))
        else:
            callback(self._rows, *callback_args, **(callback_kwargs or {}))

    def add_callback(self, callback: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if self._error is None:
            callback(self._rows, *args, **kwargs)

    def add_errback(self, errback: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if self._error is not None:
            errback(self._error, *args, **kwargs)


class ModelSession:
    def __init__(self, cluster: ModelCluster, keyspace: str | None) -> None:
        self.cluster = cluster
        self.keyspace = keyspace
        self.is_shutdown = False
        self.default_fetch_size: int | None = _DEFAULT_FETCH_SIZE
        self.default_timeout: float | None = 10.0
        self.default_consistency_level = ConsistencyLevel.LOCAL_ONE
        self.default_serial_consistency_level: int | None = None
        self.row_factory: Any = named_tuple_factory
        self.use_client_timestamp = True
        self.skew_us = 0
        """By how much this client's clock is ahead."""
        self.encoder = Encoder()
        self._prepared: dict[Any, PreparedStatement] = {}

    def shutdown(self) -> None:
        self.is_shutdown = True

    def set_keyspace(self, keyspace: str) -> None:
        self.cluster.model.schema.check_keyspace(keyspace)
        self.keyspace = keyspace

    def prepare(self, query: str, custom_payload: Any = None, keyspace: str | None = None) -> PreparedStatement:
        statement, table = self.cluster.model.prepare(query, Settings(keyspace=keyspace or self.keyspace))
        if table is None:
            raise InvalidRequest("only SELECT, INSERT, UPDATE and DELETE are prepared here")
        specs = marker_specs(statement, table)
        columns = [ColumnMetadata(table.keyspace, table.name, spec.name, type_of(spec.type_name)) for spec in specs]
        names = [spec.name for spec in specs]
        key = [column.name for column in table.partition_key]
        routing = [names.index(name) for name in key] if all(name in names for name in key) else None
        results = None
        if isinstance(statement, Select):
            found = result_columns(statement, table)
            results = [ColumnMetadata(table.keyspace, table.name, name, cql_type) for name, cql_type in found]
        query_id = next(_query_ids).to_bytes(16, "big")
        prepared = PreparedStatement(
            columns, query_id, routing, query, self.keyspace, PROTOCOL_VERSION, results, None
        )
        self._prepared[query_id] = prepared
        return prepared

    def execute(self, query: Any, parameters: Any = None, *args: Any, **settings: Any) -> ResultSet:
        return self.execute_async(query, parameters, *args, **settings).result()

    def execute_async(
        self,
        query: Any,
        parameters: Any = None,
        trace: bool = False,
        custom_payload: Any = None,
        timeout: Any = None,
        execution_profile: Any = EXEC_PROFILE_DEFAULT,
        paging_state: bytes | None = None,
        host: Any = None,
        execute_as: Any = None,
    ) -> ModelFuture:
        if self.is_shutdown or self.cluster.is_shutdown:
            raise RuntimeError("Pool is shutdown")  # what the driver's pools answer
        profile = execution_profile
        if not isinstance(profile, ExecutionProfile):
            profile = self.cluster.profiles[profile]
        if isinstance(query, str):
            query = SimpleStatement(query)
        elif isinstance(query, PreparedStatement):
            query, parameters = query.bind(parameters), None
        future = ModelFuture(self, query, lambda state: self._ask(query, parameters, profile, state))
        is_own = profile is self.cluster.profiles[EXEC_PROFILE_DEFAULT] and profile.row_factory is named_tuple_factory
        future.row_factory = self.row_factory if is_own else profile.row_factory
        future.fetch(paging_state)
        return future

    def _ask(self, query: Any, parameters: Any, profile: Any, paging_state: bytes | None) -> Rows | None:
        model = self.cluster.model
        settings = self._settings(query, profile, paging_state)
        if isinstance(query, BatchStatement):
            statements = [
                (self._prepared[each].query_string if is_prepared else each, values)
                for is_prepared, each, values in query._statements_and_parameters
            ]
            return model.execute_batch(statements, settings, is_logged=query.batch_type == BatchType.LOGGED)
        if isinstance(query, BoundStatement):
            return model.execute(query.prepared_statement.query_string, query.values, settings)
        text = query.query_string
        if parameters:
            text = bind_params(text, parameters, self.encoder)
        found = model.execute(text, (), settings)
        if text.lstrip()[:4].upper() == "USE ":
            self.keyspace = text.split()[1].strip('";').lower()
        return found

    def _settings(self, query: Any, profile: Any, paging_state: bytes | None) -> Settings:
        fetch_size = getattr(query, "fetch_size", FETCH_SIZE_UNSET)
        if fetch_size is FETCH_SIZE_UNSET:
            fetch_size = self.default_fetch_size
        consistency = query.consistency_level
        if consistency is None:
            consistency = profile.consistency_level
        if consistency is None:
            consistency = self.default_consistency_level
        timestamp_us = self.cluster.model.client_timestamp_us() + self.skew_us if self.use_client_timestamp else None
        return Settings(
            keyspace=self.keyspace,
            consistency=consistency,
            fetch_size=fetch_size,
            paging_state=paging_state,
            timestamp_us=timestamp_us,
        )


@contextmanager
def driver_over(model: CassandraModel, module: str) -> Iterator[None]:
    """Within it, ``Cluster`` of ``module`` (a dotted name) is one over ``model``."""

    def make(*args: Any, **settings: Any) -> ModelCluster:
        return ModelCluster(*args, model=model, **settings)

    with patch(f"{module}.Cluster", make):
        yield
