"""Many threads at once: one claim wins, no write is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import NamespaceConflict, StoreUnavailable
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.outcomes import RecordStatus
from duetime.domain.principals import Role
from duetime.domain.shards import Lease
from duetime.domain.timers import TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import NOW, fired, make_namespace, make_timer, make_timers, seconds
from duetime.testing.contract.fixtures import THREADS, AtOnce
from duetime.testing.contract.steps import claim, claim_shard, create, due, record, stored


def test_of_many_tenants_one_gets_the_name_and_the_others_hear_of_it(store: Store, at_once: AtOnce) -> None:
    def create_for(index: int) -> str | None:
        try:
            return store.catalogue.create_namespace(
                "wanted", num_shards=4, dedicated=False, now=NOW, tenant_id=f"tenant-{index}"
            )[0].tenant_id
        except NamespaceConflict:
            return None

    (owner,) = {tenant_id for tenant_id in at_once(create_for) if tenant_id is not None}

    assert store.catalogue.get_namespace("wanted") == replace(make_namespace("wanted", num_shards=4), tenant_id=owner)
    for index in range(THREADS):
        listed = store.catalogue.list_namespaces(cursor=None, limit=5, tenant_id=f"tenant-{index}").items
        assert [namespace.name for namespace in listed] == (["wanted"] if owner == f"tenant-{index}" else [])


def test_of_many_keys_with_one_id_one_is_stored(store: Store, at_once: AtOnce) -> None:
    def key_of(index: int) -> ApiKey:
        return ApiKey(
            key_id="k1", tenant_id=f"tenant-{index}", role=Role.READER, secret_hash=bytes(32), created_at=NOW
        )

    def create_key(index: int) -> bool:
        try:
            return store.catalogue.create_api_key(key_of(index))
        except StoreUnavailable:  # another transaction was in the way, and nothing was stored
            return False

    (winner,) = [index for index, is_stored in enumerate(at_once(create_key)) if is_stored]

    assert store.catalogue.get_api_key("k1") == key_of(winner)
    assert at_once(lambda _: store.catalogue.delete_api_key(f"tenant-{winner}", "k1")).count(True) == 1
    assert store.catalogue.get_api_key("k1") is None


def claim_by(store: Store, shard_id: int, now: datetime, index: int) -> Lease | None:
    return claim_shard(store, shard_id, f"w{index}", lease_seconds=10, now=now)


def test_one_claim_of_many_wins(store: Store, at_once: AtOnce) -> None:
    for shard_id in range(5):
        leases = at_once(partial(claim_by, store, shard_id, NOW))

        (winner,) = [lease for lease in leases if lease is not None]
        assert winner.version == 1
        assert store.leases.statuses([shard_id], now=NOW)[0].owner_id == winner.owner_id


def test_one_takeover_of_many_wins(store: Store, at_once: AtOnce) -> None:
    lease = claim(store, 0, "dead")

    for turn in range(1, 5):
        leases = at_once(partial(claim_by, store, 0, lease.expires_at))
        (lease,) = [each for each in leases if each is not None]
        assert lease.version == turn + 1


def test_a_renewal_or_a_takeover_wins_but_not_both(store: Store, at_once: AtOnce) -> None:
    for shard_id in range(6):
        lease = claim(store, shard_id, "w0")

        def renew_or_claim(index: int, lease=lease):  # type: ignore[no-untyped-def]
            if index == 0:
                return store.leases.renew([lease], lease_seconds=10, now=lease.expires_at)[0]
            return claim_shard(store, lease.shard_id, f"w{index}", lease_seconds=10, now=lease.expires_at)

        won = [each for each in at_once(renew_or_claim, threads=3) if each is not None]
        assert len(won) == 1


def test_concurrent_updates_are_all_kept(store: Store, orders: Namespace, at_once: AtOnce) -> None:
    create(store, make_timer(orders))
    turns = 6
    values: dict[str, Callable[[int], Any]] = {
        "callback_url": lambda turn: f"https://{turn}.test/",
        "payload_json": lambda turn: str(turn),
        "headers_json": lambda turn: f'{{"X-Turn": "{turn}"}}',
        "correlation_id": lambda turn: f"c-{turn}",
    }
    fields = list(values)

    def update(index: int) -> None:
        for turn in range(turns):
            change = TimerChange(**{fields[index]: values[fields[index]](turn)})
            result = store.timers.update(orders, "t1", change, firing_id=f"f-{index}-{turn}", now=NOW)
            assert result.status is ChangeStatus.APPLIED

    at_once(update, threads=len(fields))

    timer = stored(store, orders)
    assert timer.revision == 1 + turns * len(fields)
    found = {field: getattr(timer.content, field) for field in fields}
    assert found == {field: value(turns - 1) for field, value in values.items()}


def test_updates_by_several_processes_are_all_kept(
    store: Store, reopen: Callable[[], Store], orders: Namespace, at_once: AtOnce
) -> None:
    create(store, make_timer(orders))
    stores = [reopen() for _ in range(3)]
    turns = 15

    def update(index: int) -> None:
        for turn in range(turns):
            change = TimerChange(tags=(f"{index}-{turn}",))
            stores[index].timers.update(orders, "t1", change, firing_id="f", now=NOW)

    at_once(update, threads=len(stores))

    assert stored(store, orders).revision == 1 + turns * len(stores)


def test_one_conditional_update_of_many_wins(store: Store, orders: Namespace, at_once: AtOnce) -> None:
    create(store, make_timer(orders))

    results = at_once(
        lambda index: store.timers.update(
            orders, "t1", TimerChange(tags=(f"w{index}",)), firing_id="f", now=NOW, if_revision=1
        )
    )

    statuses = [result.status for result in results]
    assert statuses.count(ChangeStatus.APPLIED) == 1
    assert statuses.count(ChangeStatus.REVISION_MISMATCH) == THREADS - 1
    assert stored(store, orders).revision == 2


def test_one_create_of_many_wins(store: Store, orders: Namespace, at_once: AtOnce) -> None:
    timers = [make_timer(orders, firing_id=f"firing-of-{index}") for index in range(THREADS)]

    results = at_once(lambda index: store.timers.put([timers[index]], mode=PutMode.CREATE, now=NOW)[0])

    statuses = [result.status for result in results]
    assert statuses.count(PutStatus.CREATED) == 1
    assert statuses.count(PutStatus.UNCHANGED) == THREADS - 1
    winner = timers[statuses.index(PutStatus.CREATED)]
    assert stored(store, orders) == winner
    assert all(result.timer == winner for result in results)


def test_concurrent_replacements_count_every_revision(store: Store, orders: Namespace, at_once: AtOnce) -> None:
    create(store, make_timer(orders))

    results = at_once(
        lambda index: store.timers.put([make_timer(orders, payload_json=str(index))], mode=PutMode.REPLACE, now=NOW)[
            0
        ]
    )

    revisions = sorted(result.timer.revision for result in results if result.timer is not None)
    assert revisions == list(range(2, THREADS + 2))
    assert stored(store, orders).revision == THREADS + 1


def test_overlapping_batches_create_each_timer_once(store: Store, orders: Namespace, at_once: AtOnce) -> None:
    batches = [make_timers(orders, 60) for _ in range(4)]

    results = at_once(lambda index: store.timers.put(batches[index], mode=PutMode.CREATE, now=NOW), threads=4)

    created = [batch.count(PutStatus.CREATED) for batch in ([r.status for r in each] for each in results)]
    assert sum(created) == 60
    assert len(due(store, orders)) == 60


def test_an_outcome_and_a_change_never_both_win(store: Store, single: Namespace, at_once: AtOnce) -> None:
    timers = create(store, *make_timers(single, 20))
    lease = claim(store)

    def act(index: int) -> list[bool]:
        if index == 0:
            return [record(store, [fired(timer)], lease) == [RecordStatus.APPLIED] for timer in timers]
        return [
            store.timers.update(
                single, timer.timer_id, TimerChange(payload_json="2"), firing_id="f", now=NOW, if_revision=1
            ).status
            is ChangeStatus.APPLIED
            for timer in timers
        ]

    outcomes, changes = at_once(act, threads=2)

    assert [one != other for one, other in zip(outcomes, changes, strict=True)] == [True] * 20
    for timer, was_fired in zip(timers, outcomes, strict=True):
        state = stored(store, single, timer.timer_id).state
        assert state is (TimerState.FIRED if was_fired else TimerState.SCHEDULED)


def test_an_outcome_never_resurrects_a_timer_under_deletion(store: Store, single: Namespace, at_once: AtOnce) -> None:
    timers = create(store, *make_timers(single, 20))
    lease = claim(store)

    def act(index: int) -> None:
        for timer in timers:
            if index == 0:
                record(store, [fired(timer)], lease)
            else:
                store.timers.delete(single, [TimerRef(timer.timer_id)], now=NOW)

    at_once(act, threads=2)

    assert [store.timers.get(single, timer.timer_id, now=NOW) for timer in timers] == [None] * 20


def test_concurrent_dedicated_namespaces_get_ranges_of_their_own(store: Store, at_once: AtOnce) -> None:
    namespaces = at_once(
        lambda index: store.catalogue.create_namespace(f"vip-{index}", num_shards=index + 1, dedicated=True, now=NOW)[
            0
        ]
    )

    ranges = sorted((namespace.first_shard, namespace.first_shard + namespace.num_shards) for namespace in namespaces)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_a_namespace_is_made_by_one_of_many(store: Store, at_once: AtOnce) -> None:
    results = at_once(lambda index: store.catalogue.create_namespace("vip", num_shards=4, dedicated=True, now=NOW))

    assert [is_new for _, is_new in results].count(True) == 1
    assert len({namespace for namespace, _ in results}) == 1


def test_all_get_the_secret_of_one(store: Store, at_once: AtOnce) -> None:
    secrets = at_once(lambda index: store.catalogue.secret("cursor", b"candidate %d" % index))

    assert len(set(secrets)) == 1


def test_all_workers_are_announced(store: Store, at_once: AtOnce) -> None:
    at_once(lambda index: store.leases.announce_worker(f"w{index}", ttl_seconds=10, now=NOW))

    assert store.leases.announce_worker("w0", ttl_seconds=10, now=NOW + seconds(1)) == [
        f"w{i}" for i in range(THREADS)
    ]


def test_one_change_of_a_namespace_at_a_time_wins(store: Store, at_once: AtOnce) -> None:
    namespace, _ = store.catalogue.create_namespace("orders", num_shards=1, dedicated=False, now=NOW)

    def change(index: int) -> Namespace | None:
        wanted = replace(namespace, settings=NamespaceSettings(max_in_flight=index + 1))
        return store.catalogue.update_namespace(wanted, if_revision=namespace.revision, now=NOW)

    for revision in range(2, 6):
        (winner,) = [changed for changed in at_once(change) if changed is not None]
        assert winner.revision == revision
        assert store.catalogue.get_namespace("orders") == winner
        namespace = winner
