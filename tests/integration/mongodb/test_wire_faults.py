"""Connections cut, primaries that step down, answers lost: injected by the server, at its wire (``failCommand``).

What the driver sends again happens once, and its caller hears what became of it; what lasts is ``StoreUnavailable``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import PropertyMock, patch

import pymongo
import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import TimerChange
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, TimerRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import fired, make_timers
from duetime.testing.contract.steps import claim, create, due, record, stored
from tests.integration.mongodb.conftest import Commands, opened
from tests.support.clock import NOW
from tests.support.mongodb import database_of
from tests.support.servers import OwnServer, own_server

APPLICATION = "faults"
"""Of the store under test: others on the server are left in peace."""

SHUTS_DOWN = {"writeConcernError": {"code": 91, "errmsg": "in shutdown"}, "errorLabels": ["RetryableWriteError"]}
"""The write is done, and its answer says that nobody knows whether it will last."""
FAULTS: dict[str, dict[str, Any]] = {
    "connection closed": {"closeConnection": True},
    "not the primary": {"errorCode": 10107},
    "done, and stepped down": SHUTS_DOWN,
}


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_server("mongodb") as server:
        yield server


@pytest.fixture
def store(server: OwnServer, commands: Commands) -> Iterator[Store]:
    with opened(server.url, commands, appname=APPLICATION, timeoutMS=60_000) as store:
        yield store


@pytest.fixture
def single(store: Store) -> Namespace:
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


def fail(store: Store, command: str, fault: dict[str, Any], *, mode: Any = None) -> None:
    """The next one, or by the server's ``mode``."""
    data = {"failCommands": [command], "appName": APPLICATION, **fault}
    database_of(store).client.admin.command("configureFailPoint", "failCommand", mode=mode or {"times": 1}, data=data)


def check_create(store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 3))
    assert [stored(store, single, timer.timer_id).revision for timer in timers] == [1, 1, 1]


def check_update(store: Store, single: Namespace) -> None:
    result = store.timers.update(single, "old0000", TimerChange(), firing_id="f", now=NOW)
    assert result.status is ChangeStatus.APPLIED
    assert stored(store, single, "old0000").revision == 2


def check_delete(store: Store, single: Namespace) -> None:
    results = store.timers.delete(single, [TimerRef("old0000"), TimerRef("none")], now=NOW)
    assert [each.status for each in results] == [ChangeStatus.APPLIED, ChangeStatus.NOT_FOUND]


def check_record(store: Store, single: Namespace) -> None:
    timers = due(store, single)
    assert record(store, [fired(timer) for timer in timers], claim(store)) == [RecordStatus.APPLIED] * len(timers)
    assert due(store, single) == []


def check_claim(store: Store, single: Namespace) -> None:
    lease = claim(store, 7)
    (status,) = store.leases.statuses([7], now=NOW)
    assert (lease.version, status.version, status.owner_id) == (1, 1, lease.owner_id)


WRITES: dict[str, tuple[str, Callable[[Store, Namespace], None]]] = {
    "create": ("insert", check_create),
    "update": ("update", check_update),
    "delete": ("delete", check_delete),
    "record": ("update", check_record),
    "claim": ("update", check_claim),
}
"""The command of each, sent alone."""


@pytest.fixture
def old(store: Store, single: Namespace, commands: Commands) -> Namespace:
    create(store, *make_timers(single, 2, prefix="old"))
    commands.clear()
    return single


def sent_twice(commands: Commands, command: str) -> bool:
    """The same request, by its number for a write."""
    first, again = [each for name, each in commands.sent if name == command][:2]
    return bool(first.get("txnNumber") == again.get("txnNumber"))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_sent_again_and_happens_once(server: OwnServer, commands: Commands, name: str, fault: str) -> None:
    """One write at a time, as to a server before 8.0, and without a time limit.

    Unlike MongoDB, the stand-in carries out once more what is repeated as a ``bulkWrite`` or with another time left.
    """
    command, check = WRITES[name]
    with (
        patch.object(Database, "tells_each_write", new_callable=PropertyMock, return_value=False),
        opened(server.url, commands, appname=APPLICATION) as store,
    ):
        single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        create(store, *make_timers(single, 2, prefix="old"))
        commands.clear()
        fail(store, command, FAULTS[fault])

        check(store, single)

        assert sent_twice(commands, command)


@pytest.mark.parametrize("fault", ["connection closed", "not the primary"])
@pytest.mark.parametrize("name", WRITES)
def test_many_writes_that_did_not_arrive_are_sent_again(
    store: Store, commands: Commands, old: Namespace, name: str, fault: str
) -> None:
    fail(store, "bulkWrite", FAULTS[fault])

    WRITES[name][1](store, old)

    assert sent_twice(commands, "bulkWrite")


@pytest.mark.parametrize("fault", ["connection closed", "not the primary"])
def test_a_read_is_sent_again(store: Store, commands: Commands, old: Namespace, fault: str) -> None:
    fail(store, "find", FAULTS[fault])

    assert len(due(store, old)) == 2
    assert sent_twice(commands, "find")


@pytest.mark.parametrize("command", ["find", "bulkWrite"])
@pytest.mark.parametrize("fault", ["connection closed", "not the primary"])
def test_what_lasts_is_unavailable(store: Store, old: Namespace, command: str, fault: str) -> None:
    fail(store, command, FAULTS[fault], mode="alwaysOn")

    with pytest.raises(StoreUnavailable), pymongo.timeout(2):
        check_update(store, old)

    fail(store, command, {}, mode="off")
    check_update(store, old)  # nothing was written before


TRANSACTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "another writer": ("bulkWrite", {"errorCode": 112}),
    "a new primary": ("bulkWrite", {"errorCode": 251}),
    "connection closed": ("bulkWrite", {"closeConnection": True}),
    "not the primary": ("bulkWrite", {"errorCode": 10107}),
    "not the primary at the commit": ("commitTransaction", {"errorCode": 10107}),
    "connection closed at the commit": ("commitTransaction", {"closeConnection": True}),
    "committed, and stepped down": ("commitTransaction", SHUTS_DOWN),
    "committed, and a majority is late": (
        "commitTransaction",
        {"writeConcernError": {"code": 64, "errmsg": "timed out"}},
    ),
}


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_a_transaction_is_run_again_and_happens_once(store: Store, name: str) -> None:
    command, fault = TRANSACTIONS[name]
    call = steps.submit(store.calls, idempotency_key="k")
    fail(store, command, fault)

    running = steps.begin(store.calls, call)

    assert steps.got(store.calls, call) == running
    assert len(store.calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=9).items) == 1
    events = store.calls.list_events(make.TENANT, call.call_id, after=0, limit=99)
    assert [event.sequence for event in events] == list(range(1, running.event_count + 1))


def test_a_set_without_a_primary_is_unavailable_for_as_long(store: Store, single: Namespace) -> None:
    """The one member of the set is a secondary for two seconds, and is elected again."""
    database_of(store).client.admin.command({"replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 0, "force": True})

    def in_the_end(operation: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                operation()
            except StoreUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return

    in_the_end(lambda: claim(store, 7))
    in_the_end(lambda: create(store, *make_timers(single, 3)))
    assert [timer.revision for timer in due(store, single)] == [1, 1, 1]
