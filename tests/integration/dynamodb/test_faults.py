"""Throttling, lost answers and unreachable services."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from duetime.domain.errors import StoreError, StoreNotReady, StoreThrottled, StoreUnavailable
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import TimerChange
from duetime.stores.backends.dynamodb.client import MAX_TRIES, make_client
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutStatus, TimerFilter, TimerRef
from duetime.testing.contract.builders import fired, leased, make_namespace, make_timer, make_timers, retried, seconds
from duetime.testing.contract.steps import claim, claim_shard, create, record, stored
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_proxy import Body, DynamoDbProxy, Fault, Forward, always, lose_first_answer

CALLS: dict[str, Callable[[Store, Namespace], object]] = {
    "check": lambda store, ns: store.check(),
    "initialise": lambda store, ns: store.initialise(),
    "shard_map": lambda store, ns: store.catalogue.shard_map(),
    "create_namespace": lambda store, ns: store.catalogue.create_namespace(
        "n", num_shards=1, dedicated=False, now=NOW
    ),
    "update_namespace": lambda store, ns: store.catalogue.update_namespace(ns, if_revision=1, now=NOW),
    "put one": lambda store, ns: store.timers.put([make_timer(ns)], mode=PutMode.CREATE, now=NOW),
    "put many": lambda store, ns: store.timers.put(make_timers(ns, 3), mode=PutMode.CREATE, now=NOW),
    "replace": lambda store, ns: store.timers.put([make_timer(ns)], mode=PutMode.REPLACE, now=NOW),
    "get": lambda store, ns: store.timers.get(ns, "t1", now=NOW),
    "update": lambda store, ns: store.timers.update(ns, "t1", TimerChange(), firing_id="f", now=NOW),
    "delete": lambda store, ns: store.timers.delete(ns, [TimerRef("t1")], now=NOW),
    "list": lambda store, ns: store.timers.list(ns, TimerFilter(), cursor=None, limit=1, now=NOW),
    "find": lambda store, ns: store.timers.find_by_correlation(ns, "c", cursor=None, limit=1, now=NOW),
    "statuses": lambda store, ns: store.leases.statuses([0], now=NOW),
    "claim": lambda store, ns: claim_shard(store, 0, "w", lease_seconds=1, now=NOW),
    "announce": lambda store, ns: store.leases.announce_worker("w", ttl_seconds=1, now=NOW),
    "due": lambda store, ns: store.timers.due(0, until=NOW, limit=1),
    "record": lambda store, ns: store.timers.record(leased([fired(t) for t in make_timers(ns, 2)]), now=NOW),
}


@pytest.fixture
def refused(proxy: DynamoDbProxy, undelayed: None) -> Iterator[Store]:
    """A store whose service is up to the test: there is no table."""
    client = make_client(endpoint_url=proxy.url)
    yield dynamodb_store(client, "timers")
    client.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ThrottlingException"),
        (400, "ProvisionedThroughputExceededException"),
        (400, "RequestLimitExceeded"),
        (500, "InternalServerError"),
        (503, "ServiceUnavailable"),
    ],
)
def test_throttling_and_server_errors_make_the_store_unavailable(
    proxy: DynamoDbProxy, refused: Store, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    # A client that has met with many errors retries less. One for each call would take a hundred times as long.
    monkeypatch.setattr("botocore.retries.quota.RetryQuota.acquire", lambda self, capacity: True)
    proxy.intercept = always(Fault(status, code))
    namespace = make_namespace()

    for name, call in CALLS.items():
        proxy.operations.clear()
        if (name, code) == ("record", "ProvisionedThroughputExceededException"):
            # It is one partition that is throttled: the outcomes of others need not wait.
            assert call(refused, namespace) == [RecordStatus.UNAVAILABLE] * 2
            continue
        with pytest.raises(StoreUnavailable) as caught:
            call(refused, namespace)
        assert caught.value.retry_after_seconds > 0, name
        assert isinstance(caught.value, StoreThrottled) is (status == 400), name
        assert len(proxy.operations) == MAX_TRIES, name


def test_a_refused_connection_makes_the_store_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        client = make_client(endpoint_url=f"http://127.0.0.1:{probe.getsockname()[1]}", max_tries=1)
        with pytest.raises(StoreUnavailable):
            dynamodb_store(client, "timers").check()
        client.close()


def test_a_hang_up_makes_the_store_unavailable(proxy: DynamoDbProxy, refused: Store) -> None:
    proxy.intercept = lambda operation, body, forward: None

    with pytest.raises(StoreUnavailable):
        refused.catalogue.shard_map()


def test_a_passing_fault_is_ridden_out(proxy: DynamoDbProxy, proxied: Store) -> None:
    def refuse_once(operation: str, body: Body, forward: Forward) -> Body:
        if len(proxy.operations) == 1:
            raise Fault(400, "ThrottlingException")
        return forward(body)

    proxy.intercept = refuse_once

    assert proxied.catalogue.get_namespace("n") is None

    assert proxy.operations == ["GetItem", "GetItem"]


def test_a_missing_table_is_not_ready(ministack_client: object) -> None:
    store = dynamodb_store(ministack_client, "no-such-table")

    with pytest.raises(StoreNotReady):
        store.check()
    with pytest.raises(StoreNotReady):
        store.timers.due(0, until=NOW, limit=1)


def test_a_refusal_that_is_our_fault_is_a_store_error(proxy: DynamoDbProxy, refused: Store) -> None:
    proxy.intercept = always(Fault(400, "ValidationException"))

    with pytest.raises(StoreError) as caught:
        refused.catalogue.shard_map()
    assert not isinstance(caught.value, (StoreUnavailable, StoreNotReady))
    assert proxy.operations == ["BatchGetItem"]


# -- answers that are lost: the write was carried out, and the driver sends it again ---------------------------


@pytest.mark.parametrize(
    ("number", "first", "again"), [(1, "PutItem", "UpdateItem"), (30, *["BatchExecuteStatement"] * 2)]
)
def test_claims_whose_answer_was_lost_are_leases(
    proxy: DynamoDbProxy, proxied: Store, number: int, first: str, again: str
) -> None:
    for version, operation in ((1, first), (2, again)):
        proxy.intercept = lose_first_answer(operation)

        claimed = proxied.leases.claim(range(number), "w1", lease_seconds=10, metadata="{}", now=NOW)

        leases = [lease for lease in claimed if lease is not None]
        assert [lease.version for lease in leases] == [version] * number
        assert proxied.leases.renew(leases, lease_seconds=10, now=NOW) == leases
        proxied.leases.release(leases, now=NOW)


@pytest.mark.parametrize(("number", "operation"), [(1, "PutItem"), (30, "BatchExecuteStatement")])
def test_a_create_whose_answer_was_lost_is_created(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace, number: int, operation: str
) -> None:
    proxy.intercept = lose_first_answer(operation)
    timers = make_timers(single, number)

    results = proxied.timers.put(timers, mode=PutMode.CREATE, now=NOW)

    assert proxy.operations[:2] == [operation] * 2
    assert [result.status for result in results] == [PutStatus.CREATED] * number
    assert [result.timer for result in results] == timers


def test_a_create_of_an_existing_timer_is_unchanged_even_when_sent_twice(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    (first,) = create(proxied, make_timer(single))
    proxy.intercept = lose_first_answer("PutItem")

    (result,) = proxied.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)

    assert (result.status, result.timer) == (PutStatus.UNCHANGED, first)


@pytest.mark.parametrize(("number", "operation"), [(1, "UpdateItem"), (30, "BatchExecuteStatement")])
def test_an_outcome_whose_answer_was_lost_is_applied(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace, number: int, operation: str
) -> None:
    timers = create(proxied, *make_timers(single, number, tags=("a", "b")))
    lease = claim(proxied)
    proxy.intercept = lose_first_answer(operation)

    statuses = record(proxied, [fired(timer) for timer in timers], lease)

    assert statuses == [RecordStatus.APPLIED] * number
    assert {stored(proxied, single, timer.timer_id).revision for timer in timers} == {2}


def test_a_change_of_a_namespace_whose_answer_was_lost_is_made(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    wanted = replace(single, settings=NamespaceSettings(max_in_flight=3))
    proxy.intercept = lose_first_answer("UpdateItem")

    stored = proxied.catalogue.update_namespace(wanted, if_revision=1, now=NOW)

    assert proxy.operations == ["GetItem", "UpdateItem", "UpdateItem"]
    assert stored == replace(wanted, revision=2)


def test_a_superseded_outcome_stays_superseded_when_sent_twice(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    timers = create(proxied, *make_timers(single, 2))
    proxied.timers.update(single, "t0001", TimerChange(payload_json="2"), firing_id="f", now=NOW)
    proxy.intercept = lose_first_answer("BatchExecuteStatement")

    statuses = record(proxied, [retried(timer, next_attempt_at=NOW + seconds(9)) for timer in timers])

    assert statuses == [RecordStatus.APPLIED, RecordStatus.SUPERSEDED]


def test_a_change_whose_answer_was_lost_is_applied_once(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    create(proxied, make_timer(single))
    proxy.intercept = lose_first_answer("UpdateItem")

    result = proxied.timers.update(single, "t1", TimerChange(tags=("x", "y")), firing_id="f", now=NOW, if_revision=1)

    assert result.status is ChangeStatus.APPLIED
    assert stored(proxied, single) == result.timer
    assert result.timer is not None
    assert result.timer.revision == 2


def test_a_conditional_replace_whose_answer_was_lost_is_applied(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    create(proxied, make_timer(single))
    proxy.intercept = lose_first_answer("UpdateItem")

    (result,) = proxied.timers.put(
        [make_timer(single, payload_json="2")], mode=PutMode.REPLACE, now=NOW, if_revision=1
    )

    assert result.status is PutStatus.REPLACED
    assert result.timer == stored(proxied, single)


@pytest.mark.parametrize("if_revision", [None, 1])
def test_a_delete_whose_answer_was_lost_is_done(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace, if_revision: int | None
) -> None:
    create(proxied, make_timer(single))
    proxy.intercept = lose_first_answer("DeleteItem")

    (result,) = proxied.timers.delete(single, [TimerRef("t1", if_revision)], now=NOW)

    assert proxy.operations[-2:] == ["DeleteItem"] * 2
    assert result.status is ChangeStatus.APPLIED
    assert result.attempt_may_be_in_flight(NOW)
    assert proxied.timers.get(single, "t1", now=NOW) is None


def test_a_delete_of_another_revision_is_refused_even_when_sent_twice(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    (timer,) = create(proxied, make_timer(single))
    proxy.intercept = lose_first_answer("DeleteItem")

    results = proxied.timers.delete(single, [TimerRef("t1", 7)], now=NOW)

    assert results == [ChangeResult(ChangeStatus.REVISION_MISMATCH, timer)]


def test_a_namespace_whose_answer_was_lost_is_made_once(proxy: DynamoDbProxy, proxied: Store) -> None:
    # The driver repeats a transaction with the same ClientRequestToken, which makes it idempotent.
    proxy.intercept = lose_first_answer("TransactWriteItems")

    first, _ = proxied.catalogue.create_namespace("vip", num_shards=3, dedicated=True, now=NOW)
    second, is_new = proxied.catalogue.create_namespace("vop", num_shards=3, dedicated=True, now=NOW)

    assert proxied.catalogue.get_namespace("vip") == first
    assert is_new
    assert second.first_shard == first.first_shard + 3


# -- partial answers ------------------------------------------------------------------------------------------


def _throttle_statements(positions: set[int]) -> Callable[[str, Body, Forward], Body]:
    """In each batch, the statements at ``positions`` are throttled and not carried out."""

    def intercept(operation: str, body: Body, forward: Forward) -> Body:
        if operation != "BatchExecuteStatement":
            return forward(body)
        statements = body["Statements"]
        passed = [statement for at, statement in enumerate(statements) if at not in positions]
        answers = iter(forward({**body, "Statements": passed})["Responses"])
        throttled = {"Error": {"Code": "ThrottlingError", "Message": "slow down"}, "TableName": "timers"}
        return {"Responses": [throttled if at in positions else next(answers) for at in range(len(statements))]}

    return intercept


def test_throttled_statements_are_written_one_by_one_for_clients_and_put_off_for_pollers(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    proxy.intercept = _throttle_statements({0, 3})
    timers = make_timers(single, 30)

    results = proxied.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    statuses = record(proxied, [fired(timer) for timer in timers])

    assert [result.status for result in results] == [PutStatus.CREATED] * 30
    put_off = [at for at, status in enumerate(statuses) if status is RecordStatus.UNAVAILABLE]
    assert put_off == [0, 3, 25, 28], "of each request the first and the fourth"
    assert statuses.count(RecordStatus.APPLIED) == 26
    assert Counter(proxy.operations) == {"BatchExecuteStatement": 4, "PutItem": 4}
    # Those are still due.
    due = proxied.timers.due(0, until=NOW, limit=9).timers
    assert [timer.timer_id for timer in due] == [timers[at].timer_id for at in put_off]


def test_statements_that_stay_throttled_make_the_store_unavailable_for_clients(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    throttle = _throttle_statements({1, 2})

    def intercept(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "PutItem":
            raise Fault(400, "ThrottlingException")
        return throttle(operation, body, forward)

    proxy.intercept = intercept

    with pytest.raises(StoreUnavailable):
        proxied.timers.put(make_timers(single, 4), mode=PutMode.CREATE, now=NOW)

    assert proxy.operations.count("PutItem") == 2 * MAX_TRIES, "one statement tells of its partition, twice"
    found = proxied.timers.due(0, until=NOW, limit=9).timers
    assert [timer.timer_id for timer in found] == ["t0000", "t0001", "t0003"]


def test_a_refused_statement_is_told_of_its_timer(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(operation: str, body: Body, forward: Forward) -> Body:
        error = {"Error": {"Code": "ItemCollectionSizeLimitExceeded", "Message": "full"}}
        return {"Responses": [error for _ in body["Statements"]]}

    proxy.intercept = refuse

    results = proxied.timers.put(make_timers(single, 2), mode=PutMode.CREATE, now=NOW)
    assert [result.status for result in results] == [PutStatus.REFUSED] * 2
    errors = [record.error for record in caplog.records if record.action == "store.refused"]  # type: ignore[attr-defined]
    assert all("ItemCollectionSizeLimitExceeded" in error for error in errors)
    assert len(errors) == 2


def test_unprocessed_keys_are_asked_for_again(proxy: DynamoDbProxy, proxied: Store) -> None:
    for shard_id in range(5):
        claim(proxied, shard_id)

    def half(operation: str, body: Body, forward: Forward) -> Body:
        ((name, request),) = body["RequestItems"].items()
        keys = request["Keys"]
        answer = forward({**body, "RequestItems": {name: {**request, "Keys": keys[:2]}}})
        rest = {name: {**request, "Keys": keys[2:]}} if keys[2:] else {}
        return {**answer, "UnprocessedKeys": rest}

    proxy.operations.clear()
    proxy.intercept = half

    statuses = proxied.leases.statuses(range(7), now=NOW)

    assert [status.version for status in statuses] == [1, 1, 1, 1, 1, 0, 0]
    assert proxy.operations == ["BatchGetItem"] * 4


def test_keys_that_stay_unprocessed_make_the_store_unavailable(
    proxy: DynamoDbProxy, proxied: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.stores.backends.dynamodb.driver._BACK_OFF_SECONDS", 0.0)
    proxy.intercept = lambda operation, body, forward: {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    with pytest.raises(StoreUnavailable):
        proxied.leases.statuses([1], now=NOW)
