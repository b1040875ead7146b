"""Errors of the driver as ours."""

from __future__ import annotations

import pytest
from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import ConfigurationException, OverloadedErrorMessage

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.cassandra.errors import DRIVER_ERRORS, NoTables, translate
from duetime.stores.backends.cassandra.requests import Unsettled

CAS_TIMEOUT = WriteTimeout("timed out", write_type=WriteType.CAS)
UNCERTAIN = [
    CAS_TIMEOUT,
    OperationTimedOut(),
    ConnectionShutdown("gone"),
    OverloadedErrorMessage(code=0x1001, message="busy", info=None),
    Unavailable("too few"),
    OSError("reset"),
]


@pytest.mark.parametrize("error", [*UNCERTAIN, ReadTimeout("timed out"), NoHostAvailable("none", {})])
def test_what_may_pass_is_unavailable(error: Exception) -> None:
    assert isinstance(error, DRIVER_ERRORS)
    assert type(translate(error)) is StoreUnavailable


@pytest.mark.parametrize("error", UNCERTAIN)
def test_a_conditional_write_without_an_answer_is_unsettled(error: Exception) -> None:
    assert type(translate(error, is_conditional=True)) is Unsettled


def test_what_no_node_took_was_not_carried_out() -> None:
    error = translate(NoHostAvailable("none", {"h": ConnectionRefusedError()}), is_conditional=True)

    assert type(error) is StoreUnavailable
    assert str(error) == "no Cassandra node can be reached: ConnectionRefusedError"


@pytest.mark.parametrize(
    "error",
    [AuthenticationFailed("no"), Unauthorized("no"), NoHostAvailable("none", {"h": AuthenticationFailed("bad")})],
)
def test_credentials_that_are_refused_are_told_as_such(error: Exception) -> None:
    found = translate(error)

    assert type(found) is StoreNotReady
    assert "credentials" in str(found)


@pytest.mark.parametrize(
    "message", ["Keyspace 'ks' does not exist", "unconfigured table timers", "table timers does not exist"]
)
def test_missing_tables_are_told_as_such(message: str) -> None:
    assert type(translate(InvalidRequest(message))) is NoTables


def test_any_other_refusal_is_our_fault() -> None:
    assert type(translate(InvalidRequest("Invalid null value"), is_conditional=True)) is StoreError


def test_what_a_cluster_cannot_make_is_told_as_such() -> None:
    reason = "Unrecognized strategy option {dc9} passed to NetworkTopologyStrategy for keyspace duetime"
    found = translate(ConfigurationException(code=0x2300, message=reason, info=None))

    assert type(found) is StoreNotReady
    assert str(found) == f"Cassandra cannot make that: {reason}"


def test_too_few_replicas_are_counted() -> None:
    error = Unavailable("confidential", consistency=6, required_replicas=2, alive_replicas=1)

    assert str(translate(error)).startswith("Cassandra has 1 of the 2 replicas that this takes: nodes are down, or ")


def test_hosts_without_an_address_are_told_as_such() -> None:
    assert "has an address" in str(translate(UnresolvableContactPoints({})))
