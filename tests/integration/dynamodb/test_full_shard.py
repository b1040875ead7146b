"""An item collection of 10 GB: what users of its shard and of others see (tests/support/dynamodb_service.py)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import FailureReason, TimerState
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.stores.time_source import TimeSource
from duetime.testing.contract.builders import failed, fired, ids_of_shard, make_timer, parked, retried, seconds
from duetime.testing.contract.steps import claim, create, record, stored
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.api import context_for
from tests.support.attempts import logged
from tests.support.call_api import call_world_over
from tests.support.clock import NOW, FakeClock
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_service import DocumentedService
from tests.support.engine import make_poller, running
from tests.support.http import Api
from tests.support.scripted_sender import Script, ScriptedSender

FULL = 0
GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}
LARGE = '"' + "x" * LAYOUTS[TIMER].apart_above + '"'
REFUSED = (507, "store_refused")


@pytest.fixture
def api(proxied: Store, orders: Namespace, service: DocumentedService) -> Api:
    return Api(build_handler(context_for(proxied, FakeClock())), namespace=orders.name)


def answer_of(answer: Any) -> tuple[int, str | None]:
    return answer.status, answer.json().get("code")


@pytest.mark.parametrize("payload", ['"small"', LARGE])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_new_timer_of_a_full_shard_is_refused_and_leaves_nothing(
    api: Api, store: Store, orders: Namespace, service: DocumentedService, method: str, payload: str, items: Any
) -> None:
    service.fill(FULL)
    full, other = ids_of_shard(orders, FULL)[0], ids_of_shard(orders, 1)[0]
    answers = []
    for timer_id in (full, other):
        body = GOOD | {"payload": payload[1:-1]}
        if method == "POST":
            answers.append(api.call("POST", api.timers, body | {"id": timer_id}))
        else:
            answers.append(api.call("PUT", f"{api.timers}/{timer_id}", body))
    assert [answer_of(answer) for answer in answers] == [REFUSED, (201, None)]
    assert "errors" not in answers[0].json(), "it is no field's fault"
    assert store.timers.get(orders, full, now=NOW) is None
    assert items(FULL, "TIMER#") == items(FULL, "LARGE#") == []


def test_of_a_batch_the_timers_of_a_full_shard_are_refused(
    api: Api, orders: Namespace, service: DocumentedService
) -> None:
    service.fill(FULL)
    ids = [f"t{number}" for number in range(30)]
    answer = api.call("POST", f"{api.timers}/batch", {"timers": [GOOD | {"id": timer_id} for timer_id in ids]})
    assert answer.status == 200
    for item in answer.json()["items"]:
        is_full = orders.shard_of(item["id"]) == FULL
        assert (item["status"], item.get("problem", {}).get("code")) == (REFUSED if is_full else (201, None))


def test_a_change_that_adds_to_a_full_shard_is_refused_and_others_are_not(
    api: Api, store: Store, orders: Namespace, service: DocumentedService
) -> None:
    timer_id, other = ids_of_shard(orders, FULL, 2)
    create(store, make_timer(orders, timer_id), make_timer(orders, other))
    service.fill(FULL)
    path = f"{api.timers}/{timer_id}"

    for change in ({"payload": "more than there was"}, {"payload": LARGE[1:-1]}, {"tags": ["one", "two"]}):
        assert answer_of(api.call("PATCH", path, change)) == REFUSED, change
    assert answer_of(api.call("PUT", path, GOOD | {"payload": "y" * 2000})) == REFUSED
    assert stored(store, orders, timer_id).revision == 1

    assert answer_of(api.call("PATCH", path, {"payload": None})) == (200, None)
    assert answer_of(api.call("DELETE", path)) == (200, None)
    assert answer_of(api.call("POST", f"{api.timers}/{other}/fire")) == (200, None)


def test_a_service_call_whose_timer_finds_no_room_is_refused_and_leaves_nothing(
    proxied: Store, service: DocumentedService
) -> None:
    calls = call_world_over(proxied)
    service.fill(FULL)
    answers = [calls.submit() for _ in range(12)]  # four shards: three of a hundred runs miss one

    assert {answer_of(answer) for answer in answers} == {REFUSED, (202, None)}
    accepted = [answer.json()["id"] for answer in answers if answer.status == 202]
    assert sorted(call.call_id for call in calls.everything()) == sorted(accepted)
    assert FULL not in {call.shard_id for call in calls.everything()}


def test_outcomes_in_a_full_shard(
    proxied: Store, store: Store, single: Namespace, service: DocumentedService
) -> None:
    """What makes a timer smaller is recorded: with its index entry gone, so is any end."""
    timers = create(store, *(make_timer(single, f"t{number}") for number in range(4)))
    lease = claim(store)
    service.fill(FULL)
    later = NOW + seconds(60)
    outcomes = [
        logged(fired(timers[0])),
        logged(failed(timers[1]), status=500),
        logged(retried(timers[2], next_attempt_at=later), status=503),
        parked(timers[3], until=later),
    ]

    statuses = record(proxied, outcomes, lease)

    assert statuses[:3] == [RecordStatus.APPLIED, RecordStatus.APPLIED, RecordStatus.REFUSED]


def test_firing_goes_on_in_a_full_shard_and_nothing_is_sent_twice(
    proxied_client: Any,
    timers_table: str,
    store: Store,
    single: Namespace,
    service: DocumentedService,
    items: Any,
) -> None:
    create(
        store,
        *(make_timer(single, f"t{number}") for number in range(29)),
        make_timer(single, "t29", payload_json=LARGE),
        make_timer(single, "bad"),
    )
    store.leases.release([claim(store)], now=NOW)  # somebody had the shard before
    service.fill(FULL)
    clock = VirtualClock(NOW)
    sender = ScriptedSender(lambda body: Script(status=500 if body["timerId"] == "bad" else 200))
    of_caller = dynamodb_store(proxied_client, timers_table, time_source=TimeSource.CALLER)
    poller = make_poller(of_caller, sender, clock)

    run_virtually(clock, running(poller, lambda: asyncio.sleep(5)))

    assert sorted(str(body["timerId"]) for body in sender.received) == sorted(
        ["bad", *(f"t{number}" for number in range(30))]
    )
    states = {timer_id: stored(store, single, timer_id) for timer_id in ("t0", "t29", "bad")}
    assert [timer.state for timer in states.values()] == [TimerState.FIRED, TimerState.FIRED, TimerState.FAILED]
    failure = states["bad"].failure
    assert failure is not None
    assert failure.reason is FailureReason.UNRECORDED
    assert store.leases.statuses([FULL], now=NOW)[0].owner_id is None, "it was handed back"
    service.run_time_to_live(timers_table, until=(NOW + timedelta(days=90)).timestamp())
    assert [item["sortKey"]["S"] for item in items(FULL, "")] == ["SHARD#OWNERSHIP"], "so the shard empties itself"
