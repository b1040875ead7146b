"""What moving between stores needs: all there is, read whole; and what another store held, stored as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.call_events import CallEventType
from duetime.domain.call_steps import Transition
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import Namespace, NamespaceSettings, SealedSecret
from duetime.domain.principals import Role
from duetime.domain.service_calls import ServiceCall
from duetime.domain.shards import MAX_SHARED_SHARDS, ShardMap
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.stores.calls_port import ApplyStatus, CallRef, CallStore, OutboxEvent
from duetime.stores.moving_port import EventPage, LoadStatus
from duetime.stores.port import PutMode, PutStatus, Store, TimerFilter, TimerRef
from tests.contract import call_steps as steps
from tests.contract.steps import create, due, read_all, stored
from tests.contract.subject import Subject
from tests.support import calls as make
from tests.support.builders import RETENTION, make_failure, make_namespace, make_timer, make_timers, seconds
from tests.support.clock import NOW

T = TypeVar("T")

EARLIER = NOW - seconds(86_400)
LOADED, PRESENT, CONFLICT = LoadStatus.LOADED, LoadStatus.PRESENT, LoadStatus.CONFLICT
LOG = '[[1,"f",1700000000000,12,"retry",503]]'


# -- the catalogue ------------------------------------------------------------------------------------------------


def grown(name: str = "billing", **fields: Any) -> Namespace:
    """A namespace that has been changed since it was made."""
    settings = NamespaceSettings(retry_policy_json='{"maxAttempts": 3}', max_in_flight=7, rate_limit_per_second=2.5)
    secrets = (SealedSecret("s1", b"\x00\xffsealed", EARLIER, NOW), SealedSecret("s2", b"other", NOW))
    namespace = replace(make_namespace(name, num_shards=8), created_at=EARLIER, revision=5, tenant_id="acme")
    return replace(namespace, **({"settings": settings, "secrets": secrets} | fields))


def test_a_namespace_is_loaded_as_it_was(store: Store) -> None:
    namespace = grown()

    assert store.load_namespace(namespace) == (namespace, LOADED)

    assert store.get_namespace("billing") == namespace
    assert store.list_namespaces(cursor=None, limit=10, tenant_id="acme").items == [namespace]
    assert store.shard_map() == ShardMap(shared_shards=8)
    assert store.update_namespace(namespace, if_revision=5, now=NOW) == replace(namespace, revision=6)


def test_a_namespace_that_is_loaded_again_stays_as_it_is(store: Store) -> None:
    store.load_namespace(grown())

    assert store.load_namespace(grown()) == (grown(), PRESENT)
    assert store.load_namespace(grown(revision=6)) == (grown(), CONFLICT)
    assert store.load_namespace(grown(tenant_id="other")) == (grown(), CONFLICT)
    assert store.get_namespace("billing") == grown()


def test_the_internal_namespace_of_a_tenants_webhook_is_loaded(store: Store) -> None:
    webhook = EventWebhook(url="https://hooks.test/x", event_types=(CallEventType.FAILED,), is_enabled=False)
    namespace = grown("events@acme", settings=NamespaceSettings(webhook=webhook))

    assert store.load_namespace(namespace) == (namespace, LOADED)

    assert store.get_namespace("events@acme") == namespace
    assert store.list_namespaces(cursor=None, limit=10).items == []


def test_a_dedicated_namespace_gets_shards_of_this_store(store: Store) -> None:
    there, _ = store.create_namespace("there", num_shards=3, dedicated=True, now=NOW)

    loaded, status = store.load_namespace(grown(dedicated=True, first_shard=MAX_SHARED_SHARDS))
    after, _ = store.create_namespace("after", num_shards=2, dedicated=True, now=NOW)

    assert status is LOADED
    assert loaded == grown(dedicated=True, first_shard=there.first_shard + 3)
    assert after.first_shard == loaded.first_shard + 8
    assert store.load_namespace(grown(dedicated=True, first_shard=9999)) == (loaded, PRESENT)
    assert store.shard_map().dedicated_end == after.first_shard + 2


def test_all_namespaces_are_read_once_each_internal_ones_too(store: Store) -> None:
    names = ["calls@acme", "calls@default", "events@acme", "a", "b-dedicated", "c", "z"]
    for name in names:
        store.create_namespace(name, num_shards=2, dedicated=name == "b-dedicated", now=NOW)

    read = read_all(lambda cursor: store.all_namespaces(cursor=cursor, limit=2))

    assert sorted(namespace.name for namespace in read) == sorted(names)
    assert [store.get_namespace(namespace.name) for namespace in read] == read


def test_all_api_keys_are_read_whole(store: Store) -> None:
    keys = [
        ApiKey(
            key_id=f"k{n}", tenant_id=f"t{n % 2}", role=Role.WRITER, secret_hash=hash_of(f"s{n}"), created_at=EARLIER
        )
        for n in range(5)
    ]
    keys.append(replace(keys[0], key_id="named", name="Büro", role=Role.ADMIN, expires_at=NOW - seconds(1)))
    assert all(store.create_api_key(key) for key in keys)

    read = read_all(lambda cursor: store.all_api_keys(cursor=cursor, limit=2))

    assert sorted(read, key=lambda key: key.key_id) == keys


def test_the_catalogues_secrets_are_read_by_name(store: Store) -> None:
    assert store.catalogue_secrets() == {}
    store.catalogue_secret("one", b"\x00\xff")
    store.catalogue_secret("two", b"2")

    assert store.catalogue_secrets() == {"one": b"\x00\xff", "two": b"2"}


# -- timers -------------------------------------------------------------------------------------------------------


def waiting(namespace: Namespace, timer_id: str = "waiting") -> Timer:
    """All values that a timer can have while it waits for its third attempt."""
    timer = make_timer(
        namespace,
        timer_id,
        execute_at=EARLIER,
        now=EARLIER - seconds(60),
        payload_json='{"a": 1.10, "é": "\\u2028"}',
        headers_json='{"X": "1"}',
        retry_policy_json='{"maxAttempts": 9}',
        callback_timeout_seconds=77,
        correlation_id="corr",
        tags=("x", "y"),
        expire_after_ms=999_999_999,
    )
    return replace(
        timer,
        digest="d" * 32,
        revision=4,
        attempts=2,
        next_attempt_at=NOW + seconds(5),
        updated_at=NOW - seconds(7),
        rearmed_at=NOW - seconds(100),
        failure=make_failure(at=NOW - seconds(8)),
        attempt_log=LOG,
    )


def parked(namespace: Namespace) -> Timer:
    return replace(waiting(namespace, "parked"), state=TimerState.FIRING)


def ended(namespace: Namespace) -> list[Timer]:
    fired = replace(
        waiting(namespace, "fired"),
        state=TimerState.FIRED,
        next_attempt_at=None,
        fired_at=NOW - seconds(9),
        failure=None,
        expires_at=NOW + RETENTION,
    )
    failed = replace(
        waiting(namespace, "failed"), state=TimerState.FAILED, next_attempt_at=None, expires_at=NOW + RETENTION
    )
    return [fired, failed]


def every_kind(namespace: Namespace) -> list[Timer]:
    return [make_timer(namespace, "new"), waiting(namespace), parked(namespace), *ended(namespace)]


def listed(store: Store, namespace: Namespace) -> list[Timer]:
    return read_all(lambda cursor: store.list_timers(namespace, TimerFilter(), cursor=cursor, limit=2, now=NOW))


def test_timers_are_loaded_as_they_were(store: Store, orders: Namespace) -> None:
    timers = every_kind(orders)

    assert store.load_timers(timers, now=NOW) == [LOADED] * len(timers)

    assert [stored(store, orders, timer.timer_id) for timer in timers] == timers
    assert sorted(listed(store, orders), key=lambda timer: timer.timer_id) == sorted(
        timers, key=lambda timer: timer.timer_id
    )
    found = store.find_by_correlation(orders, "corr", cursor=None, limit=10, now=NOW).items
    assert {timer.timer_id for timer in found} == {"waiting", "parked", "fired", "failed"}


def test_loaded_timers_are_due_when_they_were(store: Store, orders: Namespace) -> None:
    store.load_timers(every_kind(orders), now=NOW)

    assert [timer.timer_id for timer in due(store, orders)] == ["new"]
    later = due(store, orders, until=NOW + seconds(5))
    assert {timer.timer_id for timer in later} == {"new", "waiting", "parked"}


def test_timers_that_are_loaded_again_are_told_from_others(store: Store, orders: Namespace) -> None:
    timers = every_kind(orders)
    store.load_timers(timers, now=NOW)
    others = [replace(timer, revision=timer.revision + 1) for timer in timers]
    fresh = make_timer(orders, "fresh")

    assert store.load_timers([*timers, fresh], now=NOW) == [PRESENT] * len(timers) + [LOADED]
    assert store.load_timers([fresh, *others], now=NOW) == [PRESENT] + [CONFLICT] * len(timers)

    assert [stored(store, orders, timer.timer_id) for timer in [*timers, fresh]] == [*timers, fresh]


def test_a_loaded_timer_takes_the_place_of_an_expired_one(store: Store, orders: Namespace) -> None:
    (fired, _) = ended(orders)
    store.load_timers([replace(fired, expires_at=NOW + seconds(1))], now=NOW)
    later = NOW + seconds(2)

    assert store.load_timers([fired], now=later) == [LOADED]

    assert store.get_timer(orders, "fired", now=later) == fired


def test_a_timer_that_cannot_be_read_is_a_conflict(subject: Subject, orders: Namespace) -> None:
    (timer,) = create(subject.store, make_timer(orders))
    subject.corrupt(timer)

    assert subject.store.load_timers([timer], now=NOW) == [CONFLICT]


def test_a_large_payload_is_loaded_with_its_timer(store: Store, orders: Namespace) -> None:
    payload = f'"{"x" * 200_000}"'
    fired = ended(orders)[0]
    timers = [make_timer(orders, "big", payload_json=payload)]
    timers.append(replace(fired, content=replace(fired.content, payload_json=payload)))

    assert store.load_timers(timers, now=NOW) == [LOADED, LOADED]
    assert store.load_timers(timers, now=NOW) == [PRESENT, PRESENT]

    assert [stored(store, orders, timer.timer_id) for timer in timers] == timers


def test_loaded_timers_live_on(store: Store, orders: Namespace) -> None:
    store.load_timers(every_kind(orders), now=NOW)

    again = make_timer(orders, "waiting")
    (result,) = store.put_timers([again], mode=PutMode.REPLACE, now=NOW)
    (gone,) = store.delete_timers(orders, [TimerRef("failed", if_revision=4)], now=NOW)

    assert (result.status, result.timer and result.timer.revision) == (PutStatus.REPLACED, 5)
    assert gone.timer is not None
    assert gone.timer.failure is not None
    assert gone.timer.failure.reason is FailureReason.HTTP_STATUS


def test_many_timers_are_loaded_at_once(store: Store, orders: Namespace) -> None:
    timers = make_timers(orders, 120)

    assert store.load_timers(timers[:60], now=NOW) == [LOADED] * 60
    assert store.load_timers(timers, now=NOW) == [PRESENT] * 60 + [LOADED] * 60
    assert store.load_timers([], now=NOW) == []


# -- service calls ------------------------------------------------------------------------------------------------


def first(call: ServiceCall) -> Transition:
    return Transition(before=None, after=call)


def calls_in_every_state(calls: CallStore) -> list[ServiceCall]:
    """Made by steps, in a store of their own tenant."""
    scheduled = steps.submit(calls, due_at=NOW + seconds(60), tags=("a", "b"), idempotency_key="k1", starred=True)
    running = steps.begin(calls, steps.submit(calls))
    succeeded = steps.run(calls, steps.submit(calls, body_json=f'"{"x" * 5000}"'))
    failed = steps.run(calls, steps.submit(calls), is_ok=False)
    retried = steps.run(calls, steps.submit(calls, retry_policy_json=make.RETRIED), is_ok=False)
    return [scheduled, running, succeeded, failed, retried]


def elsewhere(call: ServiceCall) -> ServiceCall:
    """The same call of another tenant, as if it came from another store."""
    return replace(call, tenant_id="moved")


def test_a_call_in_any_state_is_stored_as_the_first_of_its_id(store: Store, calls: CallStore) -> None:
    moved = [elsewhere(call) for call in calls_in_every_state(calls)]

    assert steps.apply(calls, *map(first, moved)) == [ApplyStatus.APPLIED] * len(moved)

    assert [steps.got(calls, call) for call in moved] == moved
    assert calls.find_by_idempotency_key("moved", "k1", now=NOW) == moved[0]
    for call in moved:
        if call.wake_at is not None:
            steps.assert_waits(store, call)
    assert steps.apply(calls, *map(first, moved)) == [ApplyStatus.EXISTS] * len(moved)


def executions_of(calls: CallStore, call: ServiceCall) -> list[Any]:
    return calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=100).items


def test_executions_are_loaded_as_they_were(calls: CallStore) -> None:
    for call in calls_in_every_state(calls)[1:]:
        moved = elsewhere(call)
        executions = [replace(each, tenant_id="moved") for each in executions_of(calls, call)]
        executions = [replace(each, request=replace(each.request, body="y" * 9000)) for each in executions]
        steps.apply(calls, first(moved))

        assert calls.load_executions(executions) == [LOADED] * len(executions)
        assert executions_of(calls, moved) == executions
        assert calls.load_executions(executions) == [PRESENT] * len(executions)
        others = [replace(each, message="another") for each in executions]
        assert calls.load_executions(others) == [CONFLICT] * len(executions)
        assert executions_of(calls, moved) == executions


def test_a_loaded_call_that_is_running_is_concluded(calls: CallStore) -> None:
    running = steps.begin(calls, steps.submit(calls))
    execution = replace(steps.execution_of(calls, running), tenant_id="moved")
    moved = elsewhere(running)
    steps.apply(calls, first(moved))
    calls.load_executions([execution])

    done = steps.conclude(calls, moved)

    assert done.status.is_finished
    assert executions_of(calls, moved)[0].finished_at is not None


# -- events -------------------------------------------------------------------------------------------------------


@pytest.fixture
def homes(store: Store) -> None:
    """The namespaces of the calls of some tenants: without one a tenant has no calls."""
    for tenant in ("acme", "moved", "zeta"):
        store.create_namespace(f"calls@{tenant}", num_shards=4, dedicated=False, now=NOW, tenant_id=tenant)


def all_events(calls: CallStore, *, limit: int = 3) -> list[OutboxEvent]:
    pages: list[EventPage] = [calls.all_events(cursor=None, limit=limit)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(calls.all_events(cursor=cursor, limit=limit))
        assert len(pages) < 1000
    assert [page.unreadable for page in pages] == [()] * len(pages)
    return [event for page in pages for event in page.events]


def without_position(events: list[OutboxEvent]) -> list[OutboxEvent]:
    return [replace(event, position="") for event in events]


@pytest.mark.usefixtures("homes")
def test_all_events_are_read_in_order_of_their_call(calls: CallStore) -> None:
    assert all_events(calls) == []
    made = [steps.run(calls, steps.submit(calls, tenant_id=tenant)) for tenant in ("zeta", "acme", "acme")]
    published = calls.unpublished_of(CallRef("acme", made[1].call_id), limit=100)
    calls.mark_published(published[:3], now=NOW)
    removed = steps.run(calls, steps.submit(calls))
    calls.delete_call(removed.tenant_id, removed.call_id, now=NOW)

    events = all_events(calls)

    by_call: dict[str, list[OutboxEvent]] = {}
    for stored_event in events:
        by_call.setdefault(stored_event.event.aggregate_id, []).append(stored_event)
    assert [event for of_call in by_call.values() for event in of_call] == events  # adjacent
    assert set(by_call) == {call.call_id for call in [*made, removed]}
    for call in [*made, removed]:
        sequences = [stored_event.event.sequence for stored_event in by_call[call.call_id]]
        assert sequences == list(range(1, call.event_count + 1))
    times = [stored_event.published_at for stored_event in by_call[made[1].call_id]]
    assert times == [NOW] * 3 + [None] * (len(times) - 3)
    for call in made:
        shown = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
        assert [stored_event.event for stored_event in by_call[call.call_id]] == shown


def moved_events(calls: CallStore, call: ServiceCall, *, published: int) -> list[OutboxEvent]:
    events = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
    return [
        OutboxEvent(replace(event, tenant_id="moved"), "elsewhere", EARLIER if at < published else None)
        for at, event in enumerate(events)
    ]


@pytest.mark.usefixtures("homes")
def test_events_are_loaded_as_they_were(calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls))
    moved = elsewhere(call)
    events = moved_events(calls, call, published=3)
    steps.apply(calls, first(moved))

    assert calls.load_events(events[:4], now=NOW) == [LOADED] * 4
    assert calls.load_events(events, now=NOW) == [PRESENT] * 4 + [LOADED] * (len(events) - 4)

    of_moved = [each for each in all_events(calls) if each.event.tenant_id == "moved"]
    assert without_position(of_moved) == without_position(events)
    shown = calls.list_events("moved", call.call_id, after=0, limit=100)
    assert shown == [each.event for each in events]
    waiting_ones = calls.unpublished_of(CallRef("moved", call.call_id), limit=100)
    assert [each.event for each in waiting_ones] == [each.event for each in events[3:]]
    found = calls.unpublished_events(limit=100, skip=frozenset({steps.ref(call)}))
    assert [each.event for each in found] == [each.event for each in events[3:]]


@pytest.mark.usefixtures("homes")
def test_loaded_events_are_published_and_followed_by_the_next(calls: CallStore) -> None:
    call = steps.begin(calls, steps.submit(calls))
    execution = replace(steps.execution_of(calls, call), tenant_id="moved")
    moved = elsewhere(call)
    events = moved_events(calls, call, published=2)
    steps.apply(calls, first(moved))
    calls.load_executions([execution])
    calls.load_events(events, now=NOW)
    ref = CallRef("moved", call.call_id)

    calls.mark_published(calls.unpublished_of(ref, limit=100), now=NOW)
    done = steps.conclude(calls, moved)

    assert [each.event.sequence for each in calls.unpublished_of(ref, limit=100)] == list(
        range(len(events) + 1, done.event_count + 1)
    )


@pytest.mark.usefixtures("homes")
def test_another_event_under_the_same_number_is_a_conflict(calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls))
    events = moved_events(calls, call, published=0)
    calls.load_events(events, now=NOW)
    others = [
        replace(events[0], event=replace(events[0].event, payload_json="{}")),
        replace(events[1], published_at=NOW),
    ]

    assert calls.load_events(others, now=NOW) == [CONFLICT, CONFLICT]
    of_moved = [each for each in all_events(calls) if each.event.tenant_id == "moved"]
    assert without_position(of_moved) == without_position(events)


@pytest.mark.usefixtures("homes")
def test_events_that_a_transition_wrote_are_known_when_they_are_loaded(calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls))
    events = [each for each in all_events(calls) if each.event.aggregate_id == call.call_id]

    assert calls.load_events(events, now=NOW) == [PRESENT] * len(events)


def test_nothing_is_loaded_from_nothing(calls: CallStore) -> None:
    load: list[Callable[[], list[LoadStatus]]] = [
        lambda: calls.load_executions([]),
        lambda: calls.load_events([], now=NOW),
    ]
    assert [each() for each in load] == [[], []]
