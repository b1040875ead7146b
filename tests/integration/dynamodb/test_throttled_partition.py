"""One partition is throttled (tests/support/dynamodb_service.py): its shard is slow, and nobody else is."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import fired, ids_of_shard, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim, create, record, stored
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.api import context_for
from tests.support.clock import NOW, FakeClock
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_proxy import DynamoDbProxy
from tests.support.dynamodb_service import DocumentedService
from tests.support.engine import make_poller, running
from tests.support.http import Api
from tests.support.scripted_sender import Script, ScriptedSender

HOT = 0
GOOD = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unprocessed, and what is in a transaction's way, is waited for without waiting."""
    monkeypatch.setattr("duetime.stores.backends.dynamodb.driver._BACK_OFF_SECONDS", 0.0)


def test_outcomes_of_other_shards_are_recorded_and_the_driver_waits_for_none(
    proxy: DynamoDbProxy, proxied: Store, orders: Namespace, service: DocumentedService
) -> None:
    timers = create(proxied, *make_timers(orders, 30))
    hot = {timer.timer_id for timer in timers if timer.shard_id == HOT}
    service.throttle(HOT)
    proxy.operations.clear()

    statuses = record(proxied, [fired(timer) for timer in timers])

    assert {timer.timer_id for timer, status in zip(timers, statuses, strict=True) if status == "unavailable"} == hot
    assert statuses.count(RecordStatus.APPLIED) == 30 - len(hot)
    assert proxy.operations == ["BatchExecuteStatement"] * 2

    service.relieve(HOT)
    assert record(proxied, [fired(timer) for timer in timers]) == [RecordStatus.APPLIED] * 30
    assert {stored(proxied, orders, timer.timer_id).revision for timer in timers} == {2}, "once each"


@pytest.mark.parametrize("number", [1, 30])
def test_where_there_is_nothing_but_throttling_an_outcome_is_unavailable(
    proxied: Store, single: Namespace, service: DocumentedService, number: int
) -> None:
    """So that only those of the shard wait: where the store is unavailable all do."""
    timers = create(proxied, *make_timers(single, number))
    service.throttle(HOT)
    assert record(proxied, [fired(timer) for timer in timers]) == [RecordStatus.UNAVAILABLE] * number


def test_leases_of_other_shards_are_claimed_and_renewed(
    proxied: Store, store: Store, service: DocumentedService
) -> None:
    service.throttle(HOT)
    for version in (1, 2):  # rows that are not there, and rows that are
        claimed = proxied.leases.claim(range(4), "w1", lease_seconds=10, metadata="{}", now=NOW)
        assert [None if lease is None else lease.version for lease in claimed] == [None, *[version] * 3]
        proxied.leases.release([lease for lease in claimed if lease], now=NOW)
    with pytest.raises(StoreUnavailable):
        proxied.leases.claim([HOT], "w1", lease_seconds=10, metadata="{}", now=NOW)

    leases = [claim(store, shard_id) for shard_id in range(4)]
    later = NOW + seconds(5)
    renewed = proxied.leases.renew(leases, lease_seconds=10, now=later)
    until = later + seconds(10)
    assert renewed == [leases[0], *(replace(lease, expires_at=until) for lease in leases[1:])]
    with pytest.raises(StoreUnavailable):  # who has but one lease must not take it for renewed
        proxied.leases.renew(leases[:1], lease_seconds=10, now=later)

    with pytest.raises(StoreUnavailable):
        proxied.leases.release(leases, now=later)
    assert [status.is_free for status in store.leases.statuses(range(4), now=later)] == [False, True, True, True]


def test_a_shard_whose_row_cannot_be_read_is_not_free_and_hides_no_other(
    proxied: Store, store: Store, service: DocumentedService
) -> None:
    claim(store, 1)
    service.throttle(HOT, is_for_reads=True)

    statuses = proxied.leases.statuses(range(3), now=NOW)
    assert [(status.is_free, status.version) for status in statuses] == [(False, 0), (False, 1), (True, 0)]
    claimed = proxied.leases.claim([0, 2], "w2", lease_seconds=10, metadata="{}", now=NOW)
    assert [lease is not None for lease in claimed] == [False, True]
    with pytest.raises(StoreUnavailable):
        proxied.timers.due(HOT, until=NOW, limit=1)
    assert proxied.timers.due(1, until=NOW, limit=1).timers == []


def test_a_batch_of_new_timers_is_stored_but_for_those_of_the_shard_and_repeated_in_full(
    proxied: Store, store: Store, orders: Namespace, service: DocumentedService
) -> None:
    api = Api(build_handler(context_for(proxied, FakeClock())), namespace=orders.name)
    timers = {"timers": [GOOD | {"id": f"t{number}"} for number in range(30)]}
    others = [each["id"] for each in timers["timers"] if orders.shard_of(each["id"]) != HOT]
    service.throttle(HOT)

    answer = api.call("POST", f"{api.timers}/batch", timers)
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert [each["id"] for each in api.all_pages(api.timers)] == sorted(
        others, key=lambda timer_id: (orders.shard_of(timer_id), timer_id)
    )

    service.relieve(HOT)
    items = api.call("POST", f"{api.timers}/batch", timers).json()["items"]
    assert {each["id"]: each["status"] for each in items} == {
        each["id"]: 200 if each["id"] in others else 201 for each in timers["timers"]
    }
    single = [orders.shard_of(f"one{number}") == HOT for number in range(8)]
    service.throttle(HOT)
    answers = [api.call("POST", api.timers, GOOD | {"id": f"one{number}"}) for number in range(8)]
    assert [answer.status for answer in answers] == [429 if is_hot else 201 for is_hot in single]
    refused = answers[single.index(True)]
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("store_throttled", "1")


def test_transitions_of_other_service_calls_are_applied(
    proxied: Store, store: Store, service: DocumentedService
) -> None:
    transitions = [make.submitted() for _ in range(6)]
    shards = [transition.after.shard_id for transition in transitions]
    assert len(set(shards)) > 1
    service.throttle(shards[0])

    statuses = proxied.calls.apply(transitions, now=NOW)

    is_hot = [shard_id == shards[0] for shard_id in shards]
    assert statuses == [ApplyStatus.UNAVAILABLE if each else ApplyStatus.APPLIED for each in is_hot]
    with pytest.raises(StoreUnavailable):
        proxied.calls.apply(transitions[:1], now=NOW)
    service.relieve(shards[0])
    left = [transition for transition, each in zip(transitions, is_hot, strict=True) if each]
    assert steps.apply(proxied.calls, *left) == [ApplyStatus.APPLIED] * len(left)


def test_a_poller_fires_the_other_shards_on_time_and_the_throttled_one_later_and_once(
    proxied: Store, proxied_client: Any, timers_table: str, orders: Namespace, service: DocumentedService
) -> None:
    clock = VirtualClock(NOW)
    at: dict[str, float] = {}

    def answer(body: dict[str, object]) -> Script:
        at.setdefault(str(body["timerId"]), clock.elapsed_seconds)
        return Script()

    sender = ScriptedSender(answer)
    due = {
        timer_id: number * 2.0
        for shard_id in range(4)
        for number, timer_id in enumerate(ids_of_shard(orders, shard_id, 8))
    }
    create(proxied, *(make_timer(orders, each, execute_at=NOW + seconds(due[each])) for each in due))
    of_caller = dynamodb_store(proxied_client, timers_table, time_source=TimeSource.CALLER)
    poller = make_poller(of_caller, sender, clock)

    async def script() -> None:
        await asyncio.sleep(3)
        service.throttle(HOT)
        await asyncio.sleep(6)  # less than a lease: its trust ends only after 8 s without a renewal
        service.relieve(HOT)
        await asyncio.sleep(10)

    run_virtually(clock, running(poller, script))

    assert Counter(str(body["timerId"]) for body in sender.received) == Counter(list(due))
    assert max(at[each] - due[each] for each in due if orders.shard_of(each) != HOT) < 1
    assert poller.stats()["fired"] == len(due)
    assert poller.stats()["leases_lost"] == 0


def test_the_time_is_what_the_service_says_it_is(
    proxy: DynamoDbProxy, proxied_client: Any, timers_table: str
) -> None:
    proxy.clock_offset_seconds = 3600.0
    told = dynamodb_store(proxied_client, timers_table, time_source=TimeSource.DATABASE).time(now=NOW)
    assert told.resolution_seconds == 1.0
    ahead = told.at - datetime.now(tz=told.at.tzinfo)
    assert timedelta(minutes=59) < ahead < timedelta(minutes=61)
