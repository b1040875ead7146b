"""The one place where the driver's errors become ours."""

from __future__ import annotations

from collections.abc import Iterable

from cassandra import (
    AuthenticationFailed,
    DependencyException,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ProtocolError
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ConfigurationException, ErrorMessage, InternalError, NotSupportedError, SyntaxException

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.cassandra.requests import Unsettled

DRIVER_ERRORS = (
    DriverException,
    DependencyException,
    NoHostAvailable,
    ConnectionException,
    ConnectionBusy,
    NoConnectionsAvailable,
    ProtocolError,
    InternalError,
    NotSupportedError,
    ErrorMessage,
    OSError,
)
"""What a request may raise."""

_MISSING = ("does not exist", "unconfigured table", "unconfigured columnfamily", "No keyspace has been specified")


class NoTables(StoreNotReady):
    """The keyspace or a table is not there."""

    def __init__(self) -> None:
        super().__init__("the Cassandra keyspace has no tables of Duetime; `duetime init` creates them")


def translate(error: BaseException, *, is_conditional: bool = False) -> StoreError:
    """Return the ``StoreError`` that stands for ``error``. Messages quote nothing that was to be stored.

    ``is_conditional``: of a conditional write, whose outcome is then unknown unless it was surely not carried out.
    """
    if isinstance(error, (AuthenticationFailed, Unauthorized)):
        return StoreNotReady("Cassandra refuses these credentials, or they may not do this")
    if isinstance(error, NoHostAvailable):
        return _no_host(error)
    if isinstance(error, InvalidRequest):
        message = _first_line(error)
        if any(part in message for part in _MISSING):
            return NoTables()
        return StoreError(f"Cassandra refused a request: {message}")
    if isinstance(error, UnresolvableContactPoints):
        return StoreUnavailable("no host of the Cassandra store URL has an address")
    if isinstance(error, SyntaxException):
        return StoreError(f"Cassandra cannot read a request: {type(error).__name__}")
    if isinstance(error, (ConnectionBusy, NoConnectionsAvailable)):
        return StoreUnavailable("the connections to Cassandra are busy")
    if isinstance(error, ConfigurationException):
        return StoreNotReady(f"Cassandra cannot make that: {_first_line(error.message)}")
    if isinstance(error, Unavailable):
        kind = Unsettled if is_conditional else StoreUnavailable
        return kind(_too_few_replicas(error))
    if isinstance(error, (RequestExecutionException, OperationTimedOut, ConnectionException, ErrorMessage, OSError)):
        kind = Unsettled if is_conditional else StoreUnavailable
        return kind(f"Cassandra did not answer a request: {type(error).__name__}")
    return StoreError(f"the Cassandra driver failed: {type(error).__name__}")


def _no_host(error: NoHostAvailable) -> StoreError:
    """No node took the request, so it was not carried out."""
    errors = error.errors
    causes = list(errors.values()) if isinstance(errors, dict) else []
    if any(isinstance(cause, AuthenticationFailed) for cause in causes):
        return StoreNotReady("Cassandra refuses these credentials")
    kinds = sorted({type(cause).__name__ for cause in causes})
    return StoreUnavailable("no Cassandra node can be reached" + (f": {', '.join(kinds)}" if kinds else ""))


def no_such_datacenter(name: str, known: Iterable[str]) -> StoreNotReady:
    return StoreNotReady(f"the Cassandra cluster has no data centre {name!r}; it has {', '.join(sorted(known))}")


def _too_few_replicas(error: Unavailable) -> str:
    return (
        f"Cassandra has {error.alive_replicas} of the {error.required_replicas} replicas that this takes: nodes are "
        "down, or the keyspace has more copies than its data centre has nodes"
    )


def _first_line(error: Exception | str) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
