"""Large payloads: beside their timers, and never in the way of 400 KB for an item with its index entry."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import MAX_PAYLOAD_BYTES, FailureReason, Rearm, TimerChange
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.stores.port.pages import PAGE_BYTES
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutStatus, TimerFilter, TimerRef
from duetime.testing.contract.builders import RETENTION, failed, fired, make_timer, make_timers, retried, seconds
from duetime.testing.contract.steps import create, read_all, record, stored
from tests.support.clock import NOW
from tests.support.dynamodb_proxy import Body, DynamoDbProxy, Fault, Forward

LARGE = '"' + "x" * (MAX_PAYLOAD_BYTES - 2) + '"'
MOST_PER_PAGE = PAGE_BYTES // MAX_PAYLOAD_BYTES
OTHER = '"' + "y" * LAYOUTS[TIMER].apart_above + '"'


@pytest.fixture
def payload_items(ministack_client: Any, timers_table: str) -> Any:
    """The payload items on shard 0."""

    def read() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = ministack_client.query(
            TableName=timers_table,
            KeyConditionExpression="shard_id = :shard AND begins_with(sortKey, :prefix)",
            ExpressionAttributeValues={":shard": {"N": "0"}, ":prefix": {"S": "LARGE#"}},
            ConsistentRead=True,
        )["Items"]
        return items

    return read


def test_the_payload_is_whole_in_every_read(store: Store, single: Namespace, payload_items: Any) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE, correlation_id="c"))

    assert stored(store, single) == timer
    assert store.timers.due(0, until=NOW, limit=9).timers == [timer]
    assert store.timers.list(single, TimerFilter(), cursor=None, limit=9, now=NOW).items == [timer]
    assert store.timers.find_by_correlation(single, "c", cursor=None, limit=9, now=NOW).items == [timer]
    assert [item["timer_payload"]["S"] for item in payload_items()] == [LARGE]


def test_the_limit_counts_bytes(store: Store, single: Namespace, payload_items: Any) -> None:
    fits = '"' + "é" * (LAYOUTS[TIMER].apart_above // 2 - 1) + '"'
    create(store, make_timer(single, "fits", payload_json=fits))
    assert payload_items() == []

    create(store, make_timer(single, "over", payload_json=fits[:-1] + ' "'))
    assert len(payload_items()) == 1


def test_no_timer_item_exceeds_what_the_service_takes(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace
) -> None:
    # ministack and moto do not count an item's index entry towards the 400 KB; the service's documentation does.
    sizes = []

    def measure(operation: str, body: Body, forward: Forward) -> Body:
        for put in [body] if operation == "PutItem" else [each["Put"] for each in body.get("TransactItems", ())]:
            size = sum(len(name) + len(str(value).encode()) for name, value in put["Item"].items())
            sizes.append(size * (2 if "timer_execute_at" in put["Item"] else 1))
        return forward(body)

    proxy.intercept = measure
    create(proxied, make_timer(single, payload_json=LARGE, headers_json=OTHER, retry_policy_json=OTHER))
    create(proxied, make_timer(single, "inline", payload_json="x" * LAYOUTS[TIMER].apart_above, headers_json=OTHER))

    assert len(sizes) == 3
    assert max(sizes) < 400 * 1024


def test_a_batch_of_large_and_small_payloads(store: Store, single: Namespace, payload_items: Any) -> None:
    timers = [make_timer(single, f"t{at}", payload_json=LARGE if at % 2 else "1") for at in range(5)]

    results = store.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    again = store.timers.put(
        [make_timer(single, timer.timer_id, payload_json=timer.content.payload_json) for timer in timers],
        mode=PutMode.CREATE,
        now=NOW,
    )

    assert [result.status for result in results] == [PutStatus.CREATED] * 5
    assert [(result.status, result.timer) for result in again] == [(PutStatus.UNCHANGED, timer) for timer in timers]
    assert len(payload_items()) == 2


def test_a_replaced_or_changed_payload_takes_its_item_along(
    store: Store, single: Namespace, payload_items: Any
) -> None:
    create(store, make_timer(single, payload_json=LARGE))

    store.timers.put([make_timer(single, payload_json=OTHER)], mode=PutMode.REPLACE, now=NOW)
    assert [item["timer_payload"]["S"] for item in payload_items()] == [OTHER]

    store.timers.update(single, "t1", TimerChange(payload_json=LARGE), firing_id="f", now=NOW)
    assert [item["timer_payload"]["S"] for item in payload_items()] == [LARGE]
    assert stored(store, single).content.payload_json == LARGE

    store.timers.update(single, "t1", TimerChange(tags=("x",)), firing_id="f", now=NOW)
    assert stored(store, single).content.payload_json == LARGE

    store.timers.update(single, "t1", TimerChange(payload_json="1"), firing_id="f", now=NOW)
    assert stored(store, single).content.payload_json == "1"
    assert payload_items() == []


def test_writes_that_lose_leave_no_payload_behind(store: Store, single: Namespace, payload_items: Any) -> None:
    create(store, make_timer(single, payload_json="1"))

    conflict, mismatch = (
        store.timers.put([make_timer(single, payload_json=LARGE)], mode=mode, now=NOW, if_revision=if_revision)[0]
        for mode, if_revision in ((PutMode.CREATE, None), (PutMode.REPLACE, 7))
    )

    assert (conflict.status, mismatch.status) == (PutStatus.CONFLICT, PutStatus.REVISION_MISMATCH)
    assert payload_items() == []


def test_a_timer_and_its_payload_are_stored_together(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace, payload_items: Any, items: Any
) -> None:
    def refuse_all_but_two(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "TransactWriteItems" and proxy.operations.count(operation) > 2:
            raise Fault(400, "ThrottlingException")
        return forward(body)

    proxy.intercept = refuse_all_but_two

    with pytest.raises(StoreUnavailable):
        proxied.timers.put(make_timers(single, 4, payload_json=LARGE), mode=PutMode.CREATE, now=NOW)

    assert len(payload_items()) == len(items(0, "TIMER#")) == 2


def test_a_delete_answers_the_payload_and_removes_it(store: Store, single: Namespace, payload_items: Any) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE))

    (result,) = store.timers.delete(single, [TimerRef("t1")], now=NOW)

    assert (result.status, result.timer) == (ChangeStatus.APPLIED, timer)
    assert payload_items() == []


@pytest.mark.parametrize("end", [fired, failed])
def test_a_finished_timer_keeps_its_payload_for_as_long_as_itself(
    store: Store, single: Namespace, payload_items: Any, end: Any
) -> None:
    large, small = create(
        store, make_timer(single, "large", payload_json=LARGE), make_timer(single, "small", payload_json="1")
    )
    assert "expires_at" not in payload_items()[0]
    outcome = end(large)

    assert record(store, [outcome, end(small)]) == [RecordStatus.APPLIED] * 2

    assert stored(store, single, "large").content.payload_json == LARGE
    assert payload_items()[0]["expires_at"] == {"N": str(int(outcome.expires_at.timestamp()))}
    assert record(store, [end(large)]) == [RecordStatus.APPLIED]  # recognised, and its payload ends all the same


def test_a_retry_does_not_touch_the_payload(proxy: DynamoDbProxy, proxied: Store, single: Namespace) -> None:
    timers = create(proxied, *make_timers(single, 2, payload_json=LARGE))
    sent: list[int] = []

    def measure(operation: str, body: Body, forward: Forward) -> Body:
        sent.append(len(str(body)))
        return forward(body)

    proxy.intercept = measure
    proxy.operations.clear()
    statuses = record(proxied, [retried(timer, next_attempt_at=NOW + seconds(9)) for timer in timers])

    assert statuses == [RecordStatus.APPLIED] * 2
    assert proxy.operations == ["BatchExecuteStatement"]
    assert max(sent) < 5000


def test_pages_bound_the_payloads_that_they_fetch(store: Store, single: Namespace) -> None:
    number = MOST_PER_PAGE + 8
    timers = create(store, *make_timers(single, number, payload_json=LARGE, correlation_id="c"))

    first = store.timers.due(0, until=NOW, limit=100)
    second = store.timers.due(0, until=NOW, limit=100, cursor=first.cursor)
    assert (len(first.timers), len(second.timers), second.cursor) == (MOST_PER_PAGE, 8, None)
    assert [*first.timers, *second.timers] == timers

    listed = read_all(lambda cursor: store.timers.list(single, TimerFilter(), cursor=cursor, limit=100, now=NOW))
    found = read_all(lambda cursor: store.timers.find_by_correlation(single, "c", cursor=cursor, limit=100, now=NOW))
    assert listed == timers
    assert found == timers


def _instead_of_first_get(action: Any) -> Any:
    """Run ``action`` just before the first GetItem: what a reader meets between timer and payload."""
    pending = [action]

    def intercept(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "GetItem" and pending:
            pending.pop()()
        return forward(body)

    return intercept


def test_a_timer_that_is_replaced_while_it_is_read_is_read_again(
    proxy: DynamoDbProxy, proxied: Store, store: Store, single: Namespace
) -> None:
    create(store, make_timer(single, payload_json=LARGE))
    new = make_timer(single, payload_json=OTHER)
    proxy.intercept = _instead_of_first_get(lambda: store.timers.put([new], mode=PutMode.REPLACE, now=NOW))

    page = proxied.timers.due(0, until=NOW, limit=9)

    assert page.timers == [stored(store, single)]
    assert page.timers[0].content.payload_json == OTHER


@pytest.mark.parametrize("move", ["deleted", "moved", "replaced"])
def test_a_timer_that_is_no_longer_due_when_its_payload_is_read_is_left_out(
    proxy: DynamoDbProxy, proxied: Store, store: Store, single: Namespace, move: str
) -> None:
    create(store, make_timer(single, payload_json=LARGE))
    change = TimerChange(execute_at=NOW + seconds(9), payload_json=OTHER)
    actions = {
        "deleted": lambda: store.timers.delete(single, [TimerRef("t1")], now=NOW),
        "moved": lambda: store.timers.update(single, "t1", change, firing_id="f", now=NOW),
        "replaced": lambda: store.timers.put(
            [make_timer(single, execute_at=NOW + seconds(1), payload_json="1")], mode=PutMode.REPLACE, now=NOW
        ),
    }
    proxy.intercept = _instead_of_first_get(actions[move])

    page = proxied.timers.due(0, until=NOW, limit=9)

    assert page.timers == []
    assert page.unreadable == ()


def test_a_payload_that_is_lost_makes_its_timer_unreadable(
    store: Store, single: Namespace, payload_items: Any, ministack_client: Any, timers_table: str
) -> None:
    create(store, make_timer(single, payload_json=LARGE))
    (item,) = payload_items()
    ministack_client.delete_item(
        TableName=timers_table, Key={"shard_id": item["shard_id"], "sortKey": item["sortKey"]}
    )

    page = store.timers.due(0, until=NOW, limit=9)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert len(page.unreadable) == 1
    failure = stored(store, single).failure
    assert failure is not None
    assert failure.reason is FailureReason.UNREADABLE


def redrive(store: Store, single: Namespace) -> ChangeResult:
    later = NOW + seconds(1)  # else it could not be told from the attempt that failed
    (result,) = store.timers.rearm(single, [TimerRef("t1")], rearm=Rearm.REDRIVE, now=later)
    return result


def test_the_payload_of_a_redriven_timer_lasts(
    store: Store, single: Namespace, payload_items: Any, items: Any
) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE))
    record(store, [failed(timer)])
    assert redrive(store, single).status is ChangeStatus.APPLIED

    (item,) = payload_items()
    assert "expires_at" not in item
    assert "timer_payload" not in items(0, "TIMER#")[0]


def test_a_recorder_that_comes_late_does_not_end_the_payload_of_a_redriven_timer(
    store: Store, single: Namespace, payload_items: Any
) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE))
    record(store, [failed(timer)])
    redrive(store, single)

    assert record(store, [failed(timer)]) == [RecordStatus.SUPERSEDED]

    (item,) = payload_items()
    assert "expires_at" not in item
    assert stored(store, single).content.payload_json == LARGE


def test_the_end_of_a_timer_with_a_large_payload_is_refused_alone(
    proxy: DynamoDbProxy, proxied: Store, single: Namespace, payload_items: Any
) -> None:
    timers = create(proxied, *make_timers(single, 3, payload_json=LARGE))

    def refuse_one(operation: str, body: Body, forward: Forward) -> Body:
        if timers[1].timer_id in str(body):
            reasons = [{"Code": "ItemCollectionSizeLimitExceeded"}, {"Code": "None"}]
            raise Fault(400, "TransactionCanceledException", CancellationReasons=reasons)
        return forward(body)

    proxy.intercept = refuse_one

    assert record(proxied, [fired(timer) for timer in timers]) == [
        RecordStatus.APPLIED,
        RecordStatus.REFUSED,
        RecordStatus.APPLIED,
    ]
    assert ["expires_at" in item for item in payload_items()] == [True, False, True]


def test_a_redrive_that_breaks_off_leaves_the_failed_timer_whole(
    proxy: DynamoDbProxy, proxied: Store, store: Store, single: Namespace, payload_items: Any
) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE))
    record(store, [failed(timer)])
    before = stored(store, single)

    def break_off(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "TransactWriteItems":
            raise Fault(400, "ThrottlingException")
        return forward(body)

    proxy.intercept = break_off
    with pytest.raises(StoreUnavailable):
        redrive(proxied, single)

    assert stored(store, single) == before
    assert redrive(store, single).status is ChangeStatus.APPLIED
    assert stored(store, single).content.payload_json == LARGE


def test_a_redrive_that_loses_to_a_replacement_leaves_no_payload_of_its_own(
    proxy: DynamoDbProxy, proxied: Store, store: Store, single: Namespace, payload_items: Any
) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE))
    record(store, [failed(timer)])
    pending = [make_timer(single, payload_json="1")]

    def replace_first(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "TransactWriteItems" and pending:
            store.timers.put([pending.pop()], mode=PutMode.REPLACE, now=NOW)
        return forward(body)

    proxy.intercept = replace_first

    assert redrive(proxied, single).status is ChangeStatus.WRONG_STATE
    assert payload_items() == []


def test_a_failed_timer_whose_payload_is_gone_cannot_be_redriven(
    store: Store, single: Namespace, payload_items: Any, ministack_client: Any, timers_table: str
) -> None:
    (timer,) = create(store, make_timer(single, payload_json=LARGE))
    record(store, [failed(timer)])
    (item,) = payload_items()
    ministack_client.delete_item(
        TableName=timers_table, Key={"shard_id": item["shard_id"], "sortKey": item["sortKey"]}
    )

    result = redrive(store, single)

    assert result.status is ChangeStatus.UNREADABLE
    assert result.timer is not None
    assert result.timer.failure is not None
    assert "timer_payload" in result.timer.failure.message
    assert store.timers.due(0, until=NOW, limit=9).timers == []


def test_the_payload_of_a_quarantined_timer_ends_with_it(
    store: Store, single: Namespace, payload_items: Any, ministack_client: Any, timers_table: str, items: Any
) -> None:
    create(store, make_timer(single, payload_json=LARGE))
    ministack_client.update_item(
        TableName=timers_table,
        Key=LAYOUTS[TIMER].key_of((0, "single", "t1")),
        UpdateExpression="REMOVE timer_callback_url",
    )

    page = store.timers.due(0, until=NOW, limit=9)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    end = {"N": str(int((NOW + RETENTION).timestamp()))}
    assert payload_items()[0]["expires_at"] == end
    assert items(0, "TIMER#")[0]["expires_at"] == end
