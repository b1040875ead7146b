"""Events become timers of the tenant's internal namespace: which, when they are due, and what they carry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duetime.calls.publishing import publish_in_order
from duetime.calls.webhook_order import WAKE_MARGIN, look_again_at, predecessor, wake_next
from duetime.calls.webhook_publisher import WebhookPublisher
from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.event_webhooks import (
    WEBHOOK_RETRY_POLICY_JSON,
    DeliveryId,
    EventWebhook,
    delivery_of,
    events_namespace,
    read_delivery_id,
)
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.outcomes import Outcome
from duetime.domain.retry import read_retry_policy
from duetime.domain.timers import Timer, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.timers import PutResult, TimerFilter, TimerRef
from duetime.testing.contract.builders import failed, fired, leased
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW, FakeClock
from tests.support.outbox import make_event
from tests.support.parts import overlaid
from tests.support.stores import memory_store

URL = "https://hooks.test/events?key=s3cret"


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def make_webhook(store: Store, tenant_id: str = "acme", **fields: Any) -> Namespace:
    namespace, _ = store.catalogue.create_namespace(
        events_namespace(tenant_id), num_shards=4, dedicated=False, now=NOW, tenant_id=tenant_id
    )
    webhook = EventWebhook(**({"url": URL} | fields))
    wanted = replace(namespace, settings=NamespaceSettings(webhook=webhook))
    stored = store.catalogue.update_namespace(wanted, if_revision=namespace.revision, now=NOW)
    assert stored is not None
    return stored


def stored_timer(store: Store, namespace: Namespace, event: CallEvent) -> Timer | None:
    return store.timers.get(namespace, str(delivery_of(event)), now=NOW)


def end(store: Store, namespace: Namespace, event: CallEvent, *, as_: Callable[..., Outcome] = fired) -> None:
    timer = stored_timer(store, namespace, event)
    assert timer is not None
    lease = claim_shard(store, timer.shard_id, "test", lease_seconds=10, now=NOW)
    assert lease is not None
    store.timers.record(leased([as_(timer, at=NOW)], lease), now=NOW)
    store.leases.release([lease], now=NOW)


def all_timers(store: Store, namespace: Namespace) -> list[Timer]:
    return store.timers.list(namespace, TimerFilter(), cursor=None, limit=100, now=NOW).items


def test_the_timer_of_an_event_carries_its_envelope_and_its_id(store: Store, clock: FakeClock) -> None:
    namespace = make_webhook(store)
    told: list[Timer] = []
    event = make_event(type_=CallEventType.FAILED)
    assert WebhookPublisher(store, clock=clock, on_stored=told.extend).publish([event]) == {}
    timer = stored_timer(store, namespace, event)
    assert timer is not None
    assert json.loads(timer.content.payload_json or "") == event.document()
    assert (timer.firing_id, timer.content.tags) == (event.event_id, ("ServiceCallFailed",))
    assert timer.content.callback_url == URL
    assert timer.content.correlation_id == event.correlation_id
    assert timer.next_attempt_at == NOW
    assert told == [timer]


def test_without_a_webhook_or_of_no_wanted_type_an_event_passes_by(store: Store, clock: FakeClock) -> None:
    wanting = make_webhook(store, event_types=(CallEventType.SUCCEEDED,))
    off = make_webhook(store, "globex", is_enabled=False)
    events = [
        make_event(),
        make_event("b", type_=CallEventType.SUCCEEDED),
        make_event(tenant_id="globex"),
        make_event(tenant_id="no-webhook"),
    ]
    assert WebhookPublisher(store, clock=clock).publish(events) == {}
    assert [timer.timer_id for timer in all_timers(store, wanting)] == ["b.1"]
    assert all_timers(store, off) == []


def test_a_webhook_counts_from_the_moment_at_which_it_is_set(store: Store, clock: FakeClock) -> None:
    publisher = WebhookPublisher(store, clock=clock)
    publisher.publish([make_event()])
    namespace = make_webhook(store)
    publisher.publish([make_event(sequence=2)])
    assert [timer.timer_id for timer in all_timers(store, namespace)] == ["call-1.2"]


def test_what_is_published_again_is_stored_once(store: Store, clock: FakeClock) -> None:
    namespace = make_webhook(store)
    publisher = WebhookPublisher(store, clock=clock)
    publisher.publish([make_event()])
    (first,) = all_timers(store, namespace)
    clock.advance(5)
    assert publisher.publish([make_event()]) == {}
    assert all_timers(store, namespace) == [first]
    end(store, namespace, make_event())
    publisher.publish([make_event()])
    assert [timer.state for timer in all_timers(store, namespace)] == [TimerState.FIRED]


def test_an_event_behind_one_that_is_not_delivered_waits_for_it(store: Store, clock: FakeClock) -> None:
    namespace = make_webhook(store)
    first, second = make_event(sequence=1), make_event(sequence=2)
    stored = [OutboxEvent(event) for event in (first, second)]
    publish_in_order(stored, [WebhookPublisher(store, clock=clock)])
    timer = stored_timer(store, namespace, second)
    assert timer is not None
    assert timer.next_attempt_at == NOW + WAKE_MARGIN


def test_however_many_wait_in_a_row_each_looks_by_itself_within_one_margin(store: Store, clock: FakeClock) -> None:
    """Else what a crash left asleep, after an event's delivery and before the next one's turn, slept for minutes."""
    namespace = make_webhook(store)
    events = [make_event(sequence=number) for number in range(1, 8)]
    for event in events:
        WebhookPublisher(store, clock=clock).publish([event])
    waiting = [stored_timer(store, namespace, event) for event in events[1:]]
    assert [timer and timer.next_attempt_at for timer in waiting] == [NOW + WAKE_MARGIN] * 6


def test_behind_an_event_that_was_refused_the_others_wait_for_its_next_attempt(
    store: Store, clock: FakeClock
) -> None:
    namespace = make_webhook(store)
    WebhookPublisher(store, clock=clock).publish([make_event()])
    first = stored_timer(store, namespace, make_event())
    assert first is not None
    refused = replace(first, attempts=1, next_attempt_at=NOW + timedelta(hours=1))
    second = replace(first, next_attempt_at=look_again_at(refused, now=NOW))
    assert second.next_attempt_at == NOW + timedelta(hours=1) + WAKE_MARGIN
    assert look_again_at(second, now=NOW) == second.next_attempt_at


@pytest.mark.parametrize("as_", [fired, failed])
def test_the_end_of_a_delivery_whatever_it_is_makes_the_next_one_due(
    store: Store, clock: FakeClock, as_: Callable[..., Outcome]
) -> None:
    namespace = make_webhook(store)
    events = [make_event(sequence=number) for number in (1, 2, 3)]
    for event in events:
        WebhookPublisher(store, clock=clock).publish([event])
    end(store, namespace, events[0], as_=as_)
    later = clock.advance(2)
    (woken,) = wake_next(store.timers, namespace, delivery_of(events[0]), now=later)
    assert (woken.timer_id, woken.next_attempt_at) == ("call-1.2", later)
    assert predecessor(store.timers, namespace, delivery_of(events[1]), now=later) is None
    assert predecessor(store.timers, namespace, delivery_of(events[2]), now=later) == woken


def test_types_that_are_left_out_leave_gaps_that_order_survives(store: Store, clock: FakeClock) -> None:
    namespace = make_webhook(store, event_types=(CallEventType.SUBMITTED, CallEventType.SUCCEEDED))
    first = make_event(sequence=1)
    last = make_event(sequence=7, type_=CallEventType.SUCCEEDED)
    publisher = WebhookPublisher(store, clock=clock)
    for event in (first, *(make_event(sequence=number, type_=CallEventType.RUNNING) for number in range(2, 7)), last):
        publisher.publish([event])
    waiting = predecessor(store.timers, namespace, delivery_of(last), now=NOW)
    assert waiting is not None
    assert waiting.timer_id == "call-1.1"
    end(store, namespace, first)
    (woken,) = wake_next(store.timers, namespace, delivery_of(first), now=NOW)
    assert woken.timer_id == "call-1.7"


def test_a_predecessor_that_was_removed_holds_nobody_up(store: Store, clock: FakeClock) -> None:
    namespace = make_webhook(store)
    events = [make_event(sequence=number) for number in (1, 2)]
    for event in events:
        WebhookPublisher(store, clock=clock).publish([event])
    store.timers.delete(namespace, [TimerRef("call-1.1")], now=NOW)
    assert predecessor(store.timers, namespace, delivery_of(events[1]), now=NOW) is None


def test_a_predecessor_that_ends_while_its_successor_is_being_stored_is_noticed(
    store: Store, clock: FakeClock
) -> None:
    """It looked for a successor before there was one."""
    namespace = make_webhook(store)
    first, second = make_event(sequence=1), make_event(sequence=2)
    WebhookPublisher(store, clock=clock).publish([first])

    def end_first_and_put(*arguments: Any, **options: Any) -> list[PutResult]:
        end(store, namespace, first)
        assert wake_next(store.timers, namespace, delivery_of(first), now=NOW) == []
        return store.timers.put(*arguments, **options)

    racing = overlaid(store, timers=overlaid(store.timers, put=end_first_and_put))
    told: list[Timer] = []
    WebhookPublisher(racing, clock=clock, on_stored=told.extend).publish([second])
    timer = stored_timer(store, namespace, second)
    assert timer is not None
    assert timer.next_attempt_at == NOW
    assert told[-1] == timer


def test_a_tenant_whose_settings_cannot_be_read_is_nobody_elses_trouble(store: Store, clock: FakeClock) -> None:
    make_webhook(store)

    def get_namespace(name: str) -> Namespace | None:
        if name == "events@globex":
            raise StoreError("damaged")
        return store.catalogue.get_namespace(name)

    damaged = overlaid(store, catalogue=overlaid(store.catalogue, get_namespace=get_namespace))
    stored = [OutboxEvent(make_event(tenant_id=tenant)) for tenant in ("globex", "acme")]
    published = publish_in_order(stored, [WebhookPublisher(damaged, clock=clock)])
    assert [taken.event.tenant_id for taken in published.taken] == ["acme"]
    assert set(published.failed) == {CallRef("globex", "call-1")}


def test_a_store_that_is_down_takes_nothing(store: Store, clock: FakeClock) -> None:
    def get_namespace(name: str) -> Namespace | None:
        raise StoreUnavailable("down")

    down = overlaid(store, catalogue=overlaid(store.catalogue, get_namespace=get_namespace))
    event = make_event()
    assert set(WebhookPublisher(down, clock=clock).publish([event])) == {event.event_id}


def test_ids_of_deliveries_are_read_as_they_were_written() -> None:
    for delivery in (DeliveryId("0198f0e2-7f5c-7a3e-8a55-1f2e3d4c5b6a", 1), DeliveryId("a.b", 1234567)):
        assert read_delivery_id(str(delivery)) == delivery
    for text in ("", "a", "a.", ".1", "a.x", "a.-1", "a.²"):
        assert read_delivery_id(text) is None


def test_a_delivery_has_a_week_before_it_is_too_late(store: Store, clock: FakeClock) -> None:
    namespace = make_webhook(store)
    WebhookPublisher(store, clock=clock).publish([make_event()])
    (timer,) = all_timers(store, namespace)
    assert not timer.is_too_late(NOW + timedelta(days=7))
    assert timer.is_too_late(NOW + timedelta(days=7, seconds=1))


def test_a_delivery_is_tried_for_a_day_ever_more_rarely() -> None:
    policy = read_retry_policy(WEBHOOK_RETRY_POLICY_JSON)
    at, attempts = NOW, 0
    waits: list[float] = []
    while True:
        attempts += 1
        following = policy.next_attempt_at(attempts=attempts, first_attempt_at=NOW, now=at, random=0.5)
        if following is None:
            break
        waits.append((following - at).total_seconds())
        at = following
    assert waits[:7] == [5, 15, 45, 135, 405, 1215, 3600]
    assert timedelta(hours=22) < at - NOW <= timedelta(hours=24)
