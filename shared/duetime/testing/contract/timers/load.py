"""What moving between stores needs: all there is, read whole; and what another store held, stored as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.call_events import CallEventType
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceSettings
from duetime.domain.principals import Role
from duetime.domain.shards import MAX_SHARED_SHARDS, ShardMap
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.core.transfer import TransferStore
from duetime.stores.port.timers import PutMode, PutStatus, TimerFilter, TimerRef
from duetime.stores.port.transfer import LoadStatus
from duetime.testing.contract.builders import (
    NOW,
    RETENTION,
    make_failure,
    make_namespace,
    make_timer,
    make_timers,
    seconds,
)
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.steps import create, due, read_all, stored
from duetime.testing.contract.subject import Subject

T = TypeVar("T")

EARLIER = NOW - seconds(86_400)
LOADED, PRESENT, CONFLICT = LoadStatus.LOADED, LoadStatus.PRESENT, LoadStatus.CONFLICT
LOG = '[[1,"f",1700000000000,12,"Retry",503]]'


# -- the catalogue ------------------------------------------------------------------------------------------------


def grown(name: str = "billing", **fields: Any) -> Namespace:
    """Return a namespace that has been changed since it was made."""
    settings = NamespaceSettings(retry_policy_json='{"maxAttempts": 3}', max_in_flight=7, rate_limit_per_second=2.5)
    secrets = (EncryptedSecret("s1", b"\x00\xffciphertext", EARLIER, NOW), EncryptedSecret("s2", b"other", NOW))
    namespace = replace(make_namespace(name, num_shards=8), created_at=EARLIER, revision=5, tenant_id="acme")
    changes: dict[str, Any] = {"settings": settings, "secrets": secrets}
    return replace(namespace, **(changes | fields))


def test_a_namespace_is_loaded_as_it_was(store: Store) -> None:
    namespace = grown()

    assert store.transfer.load_namespace(namespace) == (namespace, LOADED)

    assert store.catalogue.get_namespace("billing") == namespace
    assert store.catalogue.list_namespaces(cursor=None, limit=10, tenant_id="acme").items == [namespace]
    assert store.catalogue.shard_map() == ShardMap(shared_shards=8)
    assert store.catalogue.update_namespace(namespace, if_revision=5, now=NOW) == replace(namespace, revision=6)


def test_a_namespace_that_is_loaded_again_stays_as_it_is(store: Store) -> None:
    store.transfer.load_namespace(grown())

    assert store.transfer.load_namespace(grown()) == (grown(), PRESENT)
    assert store.transfer.load_namespace(grown(revision=6)) == (grown(), CONFLICT)
    assert store.transfer.load_namespace(grown(tenant_id="other")) == (grown(), CONFLICT)
    assert store.catalogue.get_namespace("billing") == grown()


def test_the_internal_namespace_of_a_tenants_webhook_is_loaded(store: Store) -> None:
    webhook = EventWebhook(url="https://hooks.test/x", event_types=(CallEventType.FAILED,), is_enabled=False)
    namespace = grown("events@acme", settings=NamespaceSettings(webhook=webhook))

    assert store.transfer.load_namespace(namespace) == (namespace, LOADED)

    assert store.catalogue.get_namespace("events@acme") == namespace
    assert store.catalogue.list_namespaces(cursor=None, limit=10).items == []


def test_a_dedicated_namespace_gets_shards_of_this_store(store: Store) -> None:
    there, _ = store.catalogue.create_namespace("there", num_shards=3, dedicated=True, now=NOW)

    loaded, status = store.transfer.load_namespace(grown(dedicated=True, first_shard=MAX_SHARED_SHARDS))
    after, _ = store.catalogue.create_namespace("after", num_shards=2, dedicated=True, now=NOW)

    assert status is LOADED
    assert loaded == grown(dedicated=True, first_shard=there.first_shard + 3)
    assert after.first_shard == loaded.first_shard + 8
    assert store.transfer.load_namespace(grown(dedicated=True, first_shard=9999)) == (loaded, PRESENT)
    assert store.catalogue.shard_map().dedicated_end == after.first_shard + 2


def test_all_namespaces_are_read_once_each_internal_ones_too(store: Store) -> None:
    names = ["calls@acme", "calls@default", "events@acme", "a", "b-dedicated", "c", "z"]
    for name in names:
        store.catalogue.create_namespace(name, num_shards=2, dedicated=name == "b-dedicated", now=NOW)

    read = read_all(lambda cursor: store.transfer.all_namespaces(cursor=cursor, limit=2))

    assert sorted(namespace.name for namespace in read) == sorted(names)
    assert [store.catalogue.get_namespace(namespace.name) for namespace in read] == read


def test_all_api_keys_are_read_whole(store: Store) -> None:
    keys = [
        ApiKey(
            key_id=f"k{n}", tenant_id=f"t{n % 2}", role=Role.WRITER, secret_hash=hash_of(f"s{n}"), created_at=EARLIER
        )
        for n in range(5)
    ]
    keys.append(replace(keys[0], key_id="named", name="Büro", role=Role.ADMIN, expires_at=NOW - seconds(1)))
    assert all(store.catalogue.create_api_key(key) for key in keys)

    read = read_all(lambda cursor: store.transfer.all_api_keys(cursor=cursor, limit=2))

    assert sorted(read, key=lambda key: key.key_id) == keys


def test_the_catalogues_secrets_are_read_by_name(store: Store) -> None:
    assert store.transfer.secrets() == {}
    store.catalogue.secret("one", b"\x00\xff")
    store.catalogue.secret("two", b"2")

    assert store.transfer.secrets() == {"one": b"\x00\xff", "two": b"2"}


# -- timers -------------------------------------------------------------------------------------------------------


def waiting(namespace: Namespace, timer_id: str = "waiting") -> Timer:
    """Return all values that a timer can have while it waits for its third attempt."""
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
    return read_all(lambda cursor: store.timers.list(namespace, TimerFilter(), cursor=cursor, limit=2, now=NOW))


def test_timers_are_loaded_as_they_were(store: Store, orders: Namespace) -> None:
    timers = every_kind(orders)

    assert store.transfer.load_timers(timers, now=NOW) == [LOADED] * len(timers)

    assert [stored(store, orders, timer.timer_id) for timer in timers] == timers
    assert sorted(listed(store, orders), key=lambda timer: timer.timer_id) == sorted(
        timers, key=lambda timer: timer.timer_id
    )
    found = store.timers.find_by_correlation(orders, "corr", cursor=None, limit=10, now=NOW).items
    assert {timer.timer_id for timer in found} == {"waiting", "parked", "fired", "failed"}


def test_ended_timers_are_loaded_together(store: Store, orders: Namespace) -> None:
    end: dict[str, Any] = {
        "state": TimerState.FIRED,
        "next_attempt_at": None,
        "fired_at": NOW,
        "expires_at": NOW + RETENTION,
    }
    timers = [replace(timer, **end) for timer in make_timers(orders, 3)]

    assert store.transfer.load_timers(timers, now=NOW) == [LOADED] * len(timers)

    assert [stored(store, orders, timer.timer_id) for timer in timers] == timers


def test_loaded_timers_are_due_when_they_were(store: Store, orders: Namespace) -> None:
    store.transfer.load_timers(every_kind(orders), now=NOW)

    assert [timer.timer_id for timer in due(store, orders)] == ["new"]
    later = due(store, orders, until=NOW + seconds(5))
    assert {timer.timer_id for timer in later} == {"new", "waiting", "parked"}


def test_timers_that_are_loaded_again_are_told_from_others(store: Store, orders: Namespace) -> None:
    timers = every_kind(orders)
    store.transfer.load_timers(timers, now=NOW)
    others = [replace(timer, revision=timer.revision + 1) for timer in timers]
    fresh = make_timer(orders, "fresh")

    assert store.transfer.load_timers([*timers, fresh], now=NOW) == [PRESENT] * len(timers) + [LOADED]
    assert store.transfer.load_timers([fresh, *others], now=NOW) == [PRESENT] + [CONFLICT] * len(timers)

    assert [stored(store, orders, timer.timer_id) for timer in [*timers, fresh]] == [*timers, fresh]


def test_a_loaded_timer_takes_the_place_of_an_expired_one(store: Store, orders: Namespace) -> None:
    (fired, _) = ended(orders)
    store.transfer.load_timers([replace(fired, expires_at=NOW + seconds(1))], now=NOW)
    later = NOW + seconds(2)

    assert store.transfer.load_timers([fired], now=later) == [LOADED]

    assert store.timers.get(orders, "fired", now=later) == fired


def test_a_timer_that_cannot_be_read_is_a_conflict(subject: Subject, orders: Namespace) -> None:
    (timer,) = create(subject.store, make_timer(orders))
    subject.corrupt(timer)

    assert subject.store.transfer.load_timers([timer], now=NOW) == [CONFLICT]


def test_a_large_payload_is_loaded_with_its_timer(store: Store, orders: Namespace) -> None:
    payload = f'"{"x" * 200_000}"'
    fired = ended(orders)[0]
    timers = [make_timer(orders, "big", payload_json=payload)]
    timers.append(replace(fired, content=replace(fired.content, payload_json=payload)))

    assert store.transfer.load_timers(timers, now=NOW) == [LOADED, LOADED]
    assert store.transfer.load_timers(timers, now=NOW) == [PRESENT, PRESENT]

    assert [stored(store, orders, timer.timer_id) for timer in timers] == timers


def test_loaded_timers_live_on(store: Store, orders: Namespace) -> None:
    store.transfer.load_timers(every_kind(orders), now=NOW)

    again = make_timer(orders, "waiting")
    (result,) = store.timers.put([again], mode=PutMode.REPLACE, now=NOW)
    (gone,) = store.timers.delete(orders, [TimerRef("failed", if_revision=4)], now=NOW)

    assert (result.status, result.timer and result.timer.revision) == (PutStatus.REPLACED, 5)
    assert gone.timer is not None
    assert gone.timer.failure is not None
    assert gone.timer.failure.reason is FailureReason.HTTP_STATUS


def test_many_timers_are_loaded_at_once(store: Store, orders: Namespace, at_once: AtOnce) -> None:
    timers = make_timers(orders, 120)

    assert store.transfer.load_timers(timers[:60], now=NOW) == [LOADED] * 60
    assert store.transfer.load_timers(timers, now=NOW) == [PRESENT] * 60 + [LOADED] * 60
    assert store.transfer.load_timers([], now=NOW) == []


def test_nothing_is_loaded_from_nothing(calls: CallStore, transfer: TransferStore) -> None:
    load: list[Callable[[], list[LoadStatus]]] = [
        lambda: transfer.load_executions([]),
        lambda: transfer.load_events([], now=NOW),
    ]
    assert [each() for each in load] == [[], []]
