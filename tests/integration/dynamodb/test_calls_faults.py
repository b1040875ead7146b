"""Service calls when DynamoDB is in trouble: conflicts, throttling, lost answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.stores.backends.dynamodb.client import MAX_TRIES, make_client
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import LoadStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_proxy import Body, DynamoDbProxy, Fault, Forward, Intercept, always, lose_first_answer

REF = CallRef(make.TENANT, make.id_at(NOW))
SUBMITTED = make.submitted()
CALLS: dict[str, Callable[[Store], object]] = {
    "apply one": lambda store: store.calls.apply([make.submitted()], now=NOW),
    "apply many": lambda store: store.calls.apply([make.submitted() for _ in range(3)], now=NOW),
    "delete": lambda store: store.calls.delete(REF.tenant_id, REF.call_id, now=NOW),
    "get": lambda store: store.calls.get([REF], now=NOW),
    "find": lambda store: store.calls.find_by_idempotency_key(REF.tenant_id, "k", now=NOW),
    "list": lambda store: store.calls.list(REF.tenant_id, CallFilter(), cursor=None, limit=5, now=NOW),
    "execution": lambda store: store.calls.get_execution(REF.tenant_id, REF.call_id, "e"),
    "executions": lambda store: store.calls.list_executions(REF.tenant_id, REF.call_id, cursor=None, limit=5),
    "events": lambda store: store.calls.list_events(REF.tenant_id, REF.call_id, after=0, limit=5),
    "unpublished": lambda store: store.outbox.unpublished(limit=5),
    "unpublished of": lambda store: store.outbox.unpublished_of(REF, limit=5),
    "mark": lambda store: store.outbox.mark_published([OutboxEvent(SUBMITTED.events[0])], now=NOW),
}


def cancel(times: int, code: str) -> Intercept:
    """The first transactions are cancelled for the sake of their last item, and not carried out."""
    left = [times]

    def intercept(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "TransactWriteItems" and left[0] > 0:
            left[0] -= 1
            codes = [*["None"] * (len(body["TransactItems"]) - 1), code]
            reasons = [{"Code": each} for each in codes]
            raise Fault(400, "TransactionCanceledException", CancellationReasons=reasons)
        return forward(body)

    return intercept


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conflicts are waited for without waiting."""
    monkeypatch.setattr("duetime.stores.backends.dynamodb.driver.time.sleep", lambda seconds: None)


@pytest.mark.parametrize("name", CALLS)
def test_throttling_makes_the_store_unavailable(proxy: DynamoDbProxy, undelayed: None, name: str) -> None:
    proxy.intercept = always(Fault(400, "ThrottlingException"))

    with closing(make_client(endpoint_url=proxy.url)) as client:
        store = dynamodb_store(client, "timers", max_parallel=1)
        with pytest.raises(StoreUnavailable) as caught:
            CALLS[name](store)

    assert caught.value.retry_after_seconds > 0
    assert len(proxy.operations) % MAX_TRIES == 0


@pytest.mark.parametrize(
    "code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded", "InternalServerError"]
)
def test_what_is_in_the_way_is_waited_for(proxy: DynamoDbProxy, proxied: Store, unhurried: None, code: str) -> None:
    proxy.intercept = cancel(5, code)

    call = steps.submit(proxied.calls)

    assert proxy.operations == ["TransactWriteItems"] * 6
    assert steps.got(proxied.calls, call) == call


def test_what_stays_in_the_way_makes_the_store_unavailable(
    proxy: DynamoDbProxy, proxied: Store, unhurried: None
) -> None:
    proxy.intercept = cancel(100, "TransactionConflict")

    with pytest.raises(StoreUnavailable):
        steps.apply(proxied.calls, make.submitted())


@pytest.mark.parametrize("code", ["ValidationError", "ItemCollectionSizeLimitExceeded"])
def test_a_transaction_that_cannot_be_is_a_store_error(proxy: DynamoDbProxy, proxied: Store, code: str) -> None:
    proxy.intercept = cancel(100, code)

    with pytest.raises(StoreError, match=code) as caught:
        steps.apply(proxied.calls, make.submitted())

    assert not isinstance(caught.value, StoreUnavailable)
    assert proxy.operations == ["TransactWriteItems"]


def test_a_transition_of_too_many_items_is_a_store_error(proxied: Store, proxy: DynamoDbProxy) -> None:
    with pytest.raises(StoreError, match="100"):
        steps.apply(proxied.calls, make.submitted(tags=tuple(f"t{number}" for number in range(99))))
    assert proxy.operations == []


def test_an_item_that_is_too_large_is_a_store_error(store: Store) -> None:
    with pytest.raises(StoreError, match="too large"):
        steps.apply(store.calls, make.submitted(body_json='"' + "x" * 420_000 + '"'))


def test_one_that_fails_leaves_the_others_applied(proxy: DynamoDbProxy, proxied: Store, unhurried: None) -> None:
    bad = make.submitted()
    elsewhere = (each for each in iter(make.submitted, None) if each.after.shard_id != bad.after.shard_id)
    good, late = next(elsewhere), next(elsewhere)

    def refuse_one(operation: str, body: Body, forward: Forward) -> Body:
        if bad.after.call_id in str(body):
            raise Fault(400, "ThrottlingException")
        return forward(body)

    proxy.intercept = refuse_one
    statuses = steps.apply(proxied.calls, good, bad, late)
    assert statuses == [ApplyStatus.APPLIED, ApplyStatus.UNAVAILABLE, ApplyStatus.APPLIED]
    proxy.intercept = lambda operation, body, forward: forward(body)

    found = proxied.calls.get([steps.ref(each.after) for each in (good, bad, late)], now=NOW)
    assert found == [good.after, None, late.after]


# -- answers that are lost: the transaction was carried out, and the driver sends it again ------------------------


def take_step(store: Store, step: str) -> Any:
    """The transition of ``step``, not applied yet."""
    if step == "submit":
        return make.submitted(idempotency_key="k")
    call = steps.submit(store.calls)
    if step == "star":
        return make.amended(call, starred=True)
    if step == "begin":
        return make.begun(call)
    running = steps.begin(store.calls, call)
    return make.concluded(running, steps.execution_of(store.calls, running))


def without_token(intercept: Intercept) -> Intercept:
    """As if tokens were forgotten."""

    def strip(operation: str, body: Body, forward: Forward) -> Body | Fault | None:
        return intercept(operation, {key: body[key] for key in body if key != "ClientRequestToken"}, forward)

    return strip


@pytest.mark.parametrize("is_token_kept", [True, False])
@pytest.mark.parametrize("step", ["submit", "star", "begin", "end"])
def test_a_step_whose_answer_was_lost_is_applied(
    store: Store, proxy: DynamoDbProxy, proxied: Store, step: str, is_token_kept: bool
) -> None:
    transition = take_step(store, step)
    lost = lose_first_answer("TransactWriteItems")
    proxy.intercept = lost if is_token_kept else without_token(lost)

    assert steps.apply(proxied.calls, transition) == [ApplyStatus.APPLIED]

    assert proxy.operations == ["TransactWriteItems"] * 2
    assert steps.got(store.calls, transition.after) == transition.after


def test_both_requests_of_one_transaction_have_one_token(proxy: DynamoDbProxy, proxied: Store) -> None:
    tokens: list[str] = []
    lost = lose_first_answer("TransactWriteItems")

    def note(operation: str, body: Body, forward: Forward) -> Body | Fault | None:
        tokens.append(body["ClientRequestToken"])
        return lost(operation, body, forward)

    proxy.intercept = note
    steps.submit(proxied.calls)
    steps.submit(proxied.calls)

    assert len(tokens) == 3
    assert tokens[0] == tokens[1] != tokens[2]


def test_a_refusal_of_a_repeated_request_is_not_taken_for_success(
    store: Store, proxy: DynamoDbProxy, proxied: Store
) -> None:
    call = steps.submit(store.calls)
    mine, theirs = make.amended(call, name="mine"), make.amended(call, name="theirs")
    steps.applied(store.calls, theirs)
    pending = ["once"]

    def hang_up_once(operation: str, body: Body, forward: Forward) -> Body | None:
        if pending:
            pending.clear()
            return None
        return forward(body)

    proxy.intercept = hang_up_once

    assert steps.apply(proxied.calls, mine) == [ApplyStatus.SUPERSEDED]
    assert steps.got(store.calls, call) == theirs.after


@pytest.mark.parametrize("is_token_kept", [True, False])
def test_a_removal_whose_answer_was_lost_is_done(
    store: Store, proxy: DynamoDbProxy, proxied: Store, is_token_kept: bool
) -> None:
    call = steps.run(store.calls, steps.submit(store.calls, idempotency_key="k", tags=("a",)))
    lost = lose_first_answer("TransactWriteItems")
    proxy.intercept = lost if is_token_kept else without_token(lost)

    assert proxied.calls.delete(call.tenant_id, call.call_id, now=NOW) == "deleted"
    assert steps.got(store.calls, call) is None


def test_an_event_whose_load_was_not_answered_is_loaded(store: Store, proxy: DynamoDbProxy, proxied: Store) -> None:
    event = make.submitted().events[0]
    proxy.intercept = lose_first_answer("PutItem")

    statuses = proxied.transfer.load_events([OutboxEvent(event)], now=NOW)

    assert proxy.operations[-2:] == ["PutItem"] * 2
    assert statuses == [LoadStatus.LOADED]
    ref = CallRef(event.tenant_id, event.aggregate_id)
    assert [each.event for each in store.outbox.unpublished_of(ref, limit=5)] == [event]
