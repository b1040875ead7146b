"""What DynamoDB refuses for good harms itself alone. The client is a stub: no emulator refuses single statements."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from duetime.domain.errors import StoreNotReady, StoreUnavailable
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Rearm, Timer, TimerState
from duetime.stores.backend import Condition, PartitionUnavailable, WriteStatus
from duetime.stores.backends.dynamodb.driver import Driver
from duetime.stores.backends.dynamodb.errors import translate
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import Item, whole
from duetime.stores.backends.dynamodb.layouts import timer_item_key
from duetime.stores.core.store import Store
from duetime.stores.core.timer_codec import encode
from duetime.stores.entities import TIMER
from duetime.stores.port.timers import ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import fired, make_failure, make_namespace, make_timer
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store, item_of

NAMESPACE = make_namespace()
LEASE = Lease(0, 1, "me", NOW)
FULL = "ItemCollectionSizeLimitExceeded"


def client_error(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


@dataclass
class Stub:
    """A client that carries out nothing: it says yes to all but what ``refuses`` a code for, by the sort key."""

    refuses: Callable[[str], str | None] = lambda key: None
    refuses_requests: str | None = None
    items: dict[str, Item] = field(default_factory=dict)
    requests: list[tuple[str, list[str]]] = field(default_factory=list)

    def batch_execute_statement(self, *, Statements: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        keys = [_key_of(statement) for statement in Statements]
        self.requests.append(("batch_execute_statement", keys))
        if self.refuses_requests is not None and any(map(self.refuses, keys)):
            raise client_error(self.refuses_requests, "BatchExecuteStatement")
        codes = map(self.refuses, keys)
        return {"Responses": [{} if code is None else {"Error": {"Code": code}} for code in codes]}

    def __getattr__(self, name: str) -> Any:
        def act(**parameters: Any) -> dict[str, Any]:
            key = (parameters.get("Key") or parameters["Item"])["sortKey"]["S"]
            self.requests.append((name, [key]))
            code = self.refuses(key)
            if code is not None:
                raise client_error(f"{code}Exception", name)
            return {}

        return act

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        keys = [key["sortKey"]["S"] for key in RequestItems["timers"]["Keys"]]
        return {"Responses": {"timers": [self.items[key] for key in keys if key in self.items]}}


def _key_of(statement: dict[str, Any]) -> str:
    values: list[str] = [value["S"] for value in statement["Parameters"] if "S" in value]
    return next(value for value in values if re.match(r"TIMER#|SHARD#|k\d", value))


def driver(stub: Any, *, batch_statements: bool = True) -> Driver:
    return Driver(stub, batch_statements=batch_statements, max_parallel=1)


def store(stub: Stub) -> Store:
    return dynamodb_store(stub, "timers")


def updates(count: int) -> list[ItemWrite]:
    expected = (Condition("b", None),)
    keys = [timer_item_key(0, f"k{at}") for at in range(count)]
    return [ItemWrite(table="timers", key=key, sets={"a": whole(1)}, expected=expected) for key in keys]


def inserts(count: int) -> list[ItemWrite]:
    keys = [timer_item_key(0, f"k{at}") for at in range(count)]
    return [ItemWrite(table="timers", key=key, item=key, is_there=False) for key in keys]


@pytest.mark.parametrize("code", [FULL, "ValidationError", "ItemCollectionSizeLimitExceededException"])
@pytest.mark.parametrize("batch_statements", [True, False])
def test_of_100_changes_one_is_refused_and_99_are_applied(code: str, batch_statements: bool) -> None:
    stub = Stub(lambda key: code if key == "k29" else None)
    written = driver(stub, batch_statements=batch_statements).write(updates(100))
    assert [at for at, each in enumerate(written) if not each.is_written] == [29]
    refusal = written[29].error
    assert refusal is not None
    assert code in refusal.message
    assert sum(len(keys) for _, keys in stub.requests) == 100, "every change is sent, once"


def test_a_request_that_is_refused_as_a_whole_is_sent_one_by_one() -> None:
    stub = Stub(lambda key: "Validation" if key == "k29" else None, refuses_requests="ValidationException")
    written = driver(stub).write(updates(100))
    assert [at for at, each in enumerate(written) if not each.is_written] == [29]
    assert [name for name, _ in stub.requests].count("update_item") == 25


def test_a_new_item_that_is_throttled_and_then_refused_harms_itself_alone() -> None:
    tries: list[str] = []

    def refuses(key: str) -> str | None:
        if key != "k3":
            return None
        tries.append(key)
        return "ThrottlingError" if len(tries) == 1 else FULL

    written = driver(Stub(refuses)).write(inserts(10))
    assert [at for at, each in enumerate(written) if each.error] == [3]


@pytest.mark.parametrize(("writes", "singles"), [(inserts(40), 1), (updates(40), 0)], ids=["new", "there"])
def test_throttling_is_no_refusal_and_the_rest_of_its_partition_is_not_tried_again(
    writes: list[ItemWrite], singles: int
) -> None:
    stub = Stub(lambda key: "ProvisionedThroughputExceeded" if key.startswith("k3") else None)
    written = driver(stub).write(writes)
    put_off = [at for at, each in enumerate(written) if each.status is WriteStatus.UNAVAILABLE]
    assert put_off == [3, *range(30, 40)]
    assert all(each.is_written for at, each in enumerate(written) if at not in put_off)
    assert len([name for name, _ in stub.requests if name != "batch_execute_statement"]) == singles


def test_where_nothing_is_written_the_store_is_unavailable() -> None:
    stub = Stub(lambda key: "k3" if key == "k3" else None, refuses_requests="ThrottlingException")
    with pytest.raises(StoreUnavailable):
        driver(stub).write(updates(25))
    written = driver(stub).write([*updates(60)[30:], *updates(5)])
    put_off = [at for at, each in enumerate(written) if each.status is WriteStatus.UNAVAILABLE]
    assert put_off == list(range(25, 35))


@pytest.mark.parametrize(
    ("reason", "is_partition"),
    [("TableWriteKeyRangeThroughputExceeded", True), ("TableWriteMaxOnDemandThroughputExceeded", False)],
)
def test_of_a_table_on_demand_the_reason_tells_whether_one_partition_is_throttled(
    reason: str, is_partition: bool
) -> None:
    error = client_error("ThrottlingException", "BatchExecuteStatement")
    error.response["ThrottlingReasons"] = [{"reason": reason, "resource": "any"}]  # type: ignore[typeddict-unknown-key]
    raised = translate(error)
    assert isinstance(raised, StoreUnavailable)
    assert isinstance(raised, PartitionUnavailable) is is_partition


def test_a_missing_table_is_no_refusal() -> None:
    with pytest.raises(StoreNotReady):
        driver(Stub(lambda key: "ResourceNotFound" if key == "k3" else None)).write(updates(10))


def timers(count: int) -> list[Timer]:
    return [make_timer(NAMESPACE, f"t{number}") for number in range(count)]


def is_t29(key: str) -> str | None:
    return FULL if key.endswith("#t29") else None


def test_of_100_outcomes_one_is_refused() -> None:
    outcomes = [fired(timer) for timer in timers(100)]
    (refused,) = [at for at, outcome in enumerate(outcomes) if outcome.timer.timer_id == "t29"]
    statuses = store(Stub(is_t29)).timers.record([LeasedOutcome(outcome, LEASE) for outcome in outcomes], now=NOW)
    assert [at for at, status in enumerate(statuses) if status is RecordStatus.REFUSED] == [refused]
    assert statuses.count(RecordStatus.APPLIED) == 99


@pytest.mark.parametrize("mode", list(PutMode))
def test_of_100_new_timers_one_is_refused(mode: PutMode) -> None:
    given = timers(100)
    results = store(Stub(is_t29)).timers.put(given, mode=mode, now=NOW)
    assert [timer.timer_id for timer, each in zip(given, results, strict=True) if each.timer is None] == ["t29"]
    assert [each.status for each in results].count(PutStatus.CREATED) == 99
    assert PutStatus.REFUSED in {each.status for each in results}


def test_of_many_redriven_and_deleted_timers_one_is_refused() -> None:
    given = timers(60)
    stub = Stub(is_t29)
    for timer in given:
        item = item_of(
            TIMER, encode(replace(timer, state=TimerState.FAILED, next_attempt_at=None, failure=make_failure()))
        )
        stub.items[item["sortKey"]["S"]] = item
    refs = [TimerRef(timer.timer_id) for timer in given]
    redriven = store(stub).timers.rearm(NAMESPACE, refs, rearm=Rearm.REDRIVE, now=NOW)
    deleted = store(stub).timers.delete(NAMESPACE, refs, now=NOW)
    for results in (redriven, deleted):
        refused = [ref.timer_id for ref, each in zip(refs, results, strict=True) if each.timer is None]
        assert refused == ["t29"]
        assert [each.status for each in results].count(ChangeStatus.APPLIED) == 59
        assert [each.status for each in results].count(ChangeStatus.REFUSED) == 1


def test_one_lease_that_is_refused_does_not_keep_the_others_from_being_renewed() -> None:
    leases = [Lease(shard_id, 1, "me", NOW) for shard_id in range(64)]
    stub = Stub()

    def batch_execute_statement(*, Statements: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        responses = [{"Error": {"Code": FULL}} if {"N": "29"} in each["Parameters"] else {} for each in Statements]
        return {"Responses": responses}

    stub.batch_execute_statement = batch_execute_statement  # type: ignore[method-assign]
    renewed = store(stub).leases.renew(leases, lease_seconds=10, now=NOW)
    assert [lease.shard_id for lease, each in zip(leases, renewed, strict=True) if each is None] == [29]


@pytest.mark.parametrize(("number", "operation"), [(1, "update_item"), (2, "batch_execute_statement")])
def test_a_lease_that_is_alone_is_kept_without_partiql_which_the_outbox_may_not_use(
    number: int, operation: str
) -> None:
    leases = [Lease(shard_id, 1, "me", NOW) for shard_id in range(number)]
    stub = Stub()
    store(stub).leases.renew(leases, lease_seconds=10, now=NOW)
    store(stub).leases.release(leases, now=NOW)
    assert [name for name, _ in stub.requests] == [operation] * 2

    throttled = Stub(lambda key: "ProvisionedThroughputExceeded")
    with pytest.raises(StoreUnavailable):
        store(throttled).leases.renew(leases, lease_seconds=10, now=NOW)
