"""Claims, renewals, releases, and the workers that share the shards."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from duetime.calls.relay import OUTBOX_SHARD
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import Lease, ShardStatus
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import NOW, make_timer, seconds
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.steps import claim, claim_shard, create, due

TICK = seconds(0.001)
EXPIRY = NOW + seconds(10)
EARLIER = NOW - seconds(10)
METADATA = '{"processId":7,"host":"here"}'


def test_a_shard_that_was_never_claimed_has_version_zero(store: Store) -> None:
    assert store.leases.statuses([3], now=NOW) == [ShardStatus(3)]


def test_the_first_claim_makes_version_one(store: Store) -> None:
    lease = claim_shard(store, 3, "w1", lease_seconds=10, now=NOW)

    assert lease == Lease(shard_id=3, version=1, owner_id="w1", expires_at=EXPIRY)
    assert store.leases.statuses([3], now=NOW) == [
        ShardStatus(
            3, version=1, owner_id="w1", claimed_at=NOW, lease_expires_at=EXPIRY, metadata="{}", is_free=False
        )
    ]


def test_statuses_come_in_the_order_of_the_ids(store: Store) -> None:
    claim(store, 2)
    claim(store, 5000)

    statuses = store.leases.statuses([5000, 1, 2], now=NOW)

    assert [(status.shard_id, status.version) for status in statuses] == [(5000, 1), (1, 0), (2, 1)]
    assert store.leases.statuses([], now=NOW) == []


@pytest.mark.parametrize("owner", ["w1", "w2"])
def test_a_live_lease_is_in_the_way_of_everyone(store: Store, owner: str) -> None:
    lease = claim(store, 0, "w1")

    assert claim_shard(store, 0, owner, lease_seconds=10, now=NOW) is None
    assert claim_shard(store, 0, owner, lease_seconds=10, now=EXPIRY - TICK) is None
    (status,) = store.leases.statuses([0], now=NOW)
    assert (status.version, status.owner_id, status.lease_expires_at) == (1, "w1", lease.expires_at)


@pytest.mark.parametrize("moment", [EXPIRY, EXPIRY + TICK, EXPIRY + seconds(86_400)])
def test_a_lease_ends_at_its_expiry(store: Store, moment: object) -> None:
    claim(store, 0, "w1")

    lease = claim_shard(store, 0, "w2", lease_seconds=5, now=moment)  # type: ignore[arg-type]

    assert lease is not None
    assert (lease.version, lease.owner_id) == (2, "w2")
    assert lease.expires_at == moment + seconds(5)  # type: ignore[operator]


def test_every_claim_adds_one_to_the_version(store: Store) -> None:
    versions = [claim(store, 0, f"w{turn}", now=NOW + turn * seconds(10)).version for turn in range(5)]

    assert versions == [1, 2, 3, 4, 5]


def test_leases_of_fractions_of_a_second(store: Store) -> None:
    lease = claim_shard(store, 0, "w1", lease_seconds=0.25, now=NOW)

    assert lease is not None
    assert lease.expires_at == NOW + seconds(0.25)


def test_shards_are_claimed_apart(store: Store) -> None:
    claim(store, 0, "w1")

    assert claim(store, 1, "w2").version == 1


def test_of_a_batch_of_claims_each_is_won_or_lost_alone(store: Store) -> None:
    live, released, expired = claim(store, 1, "w1"), claim(store, 2, "w1"), claim(store, 4, "w1", now=EARLIER)
    own = claim(store, 5, "w2")
    store.leases.release([released], now=NOW)

    leases = store.leases.claim([5, 4, 3, 2, 1, 0], "w2", lease_seconds=10, metadata=METADATA, now=NOW)

    assert leases == [
        None,
        Lease(4, expired.version + 1, "w2", EXPIRY),
        Lease(3, 1, "w2", EXPIRY),
        Lease(2, released.version + 1, "w2", EXPIRY),
        None,
        Lease(0, 1, "w2", EXPIRY),
    ]
    statuses = store.leases.statuses([0, 1, 2, 3, 4, 5], now=NOW)
    assert [status.owner_id for status in statuses] == ["w2", "w1", "w2", "w2", "w2", "w2"]
    assert [status.metadata for status in statuses] == [METADATA, "{}", METADATA, METADATA, METADATA, "{}"]
    assert (statuses[1].version, statuses[5].version) == (live.version, own.version)
    assert store.leases.renew([lease for lease in leases if lease], lease_seconds=10, now=NOW) == [
        lease for lease in leases if lease
    ]


def test_a_lease_of_a_worker_that_has_died_is_in_nobodys_way(store: Store) -> None:
    former, live = claim(store, 0, "dead"), claim(store, 1, "w1")

    leases = store.leases.claim(
        [0, 1], "w2", lease_seconds=10, metadata="{}", has_died=lambda worker: worker == "dead", now=NOW
    )

    assert leases == [Lease(0, former.version + 1, "w2", EXPIRY), None]
    assert store.leases.renew([former, live], lease_seconds=10, now=NOW) == [None, live]


def test_more_claims_than_any_request_holds(store: Store) -> None:
    taken = {shard_id: claim(store, shard_id, "w1") for shard_id in range(7, 120, 10)}

    leases = store.leases.claim(range(130), "w2", lease_seconds=10, metadata="{}", now=NOW)

    assert [lease is None for lease in leases] == [shard_id in taken for shard_id in range(130)]
    assert store.leases.claim(range(130), "w3", lease_seconds=10, metadata="{}", now=NOW) == [None] * 130
    assert store.leases.claim([], "w3", lease_seconds=10, metadata="{}", now=NOW) == []


def test_the_store_says_what_is_free(store: Store) -> None:
    claim(store, 0)
    claim(store, 1, now=EARLIER)
    store.leases.release([claim(store, 2)], now=NOW)

    def free(now: datetime) -> list[bool]:
        return [status.is_free for status in store.leases.statuses([0, 1, 2, 3], now=now)]

    assert free(NOW) == [False, True, True, True]
    assert free(EXPIRY - TICK) == [False, True, True, True]
    assert free(EXPIRY) == [True, True, True, True]


def test_the_time_of_a_store_is_the_callers_where_that_is_wanted(store: Store) -> None:
    assert store.time(now=NOW).at == NOW


def test_a_renewal_extends_the_lease(store: Store) -> None:
    lease = claim(store)
    later = NOW + seconds(4)

    (renewed,) = store.leases.renew([lease], lease_seconds=10, now=later)

    assert renewed == replace(lease, expires_at=later + seconds(10))
    assert claim_shard(store, 0, "w2", lease_seconds=10, now=EXPIRY) is None
    assert store.leases.statuses([0], now=NOW)[0].lease_expires_at == later + seconds(10)
    assert store.leases.statuses([0], now=NOW)[0].claimed_at == NOW


def test_an_expired_lease_that_nobody_claimed_can_be_renewed(store: Store) -> None:
    lease = claim(store)
    late = EXPIRY + seconds(60)

    (renewed,) = store.leases.renew([lease], lease_seconds=10, now=late)

    assert renewed == replace(lease, expires_at=late + seconds(10))
    assert claim_shard(store, 0, "w2", lease_seconds=10, now=late) is None


def test_a_stale_lease_cannot_be_renewed(store: Store) -> None:
    stale = claim(store, 0, "w1")
    current = claim(store, 0, "w2", now=EXPIRY)

    assert store.leases.renew([stale], lease_seconds=99, now=EXPIRY) == [None]
    assert store.leases.renew([replace(current, owner_id="w1")], lease_seconds=99, now=EXPIRY) == [None]
    assert store.leases.renew([replace(current, version=1)], lease_seconds=99, now=EXPIRY) == [None]
    assert store.leases.statuses([0], now=NOW)[0].lease_expires_at == current.expires_at


def test_a_worker_that_claims_again_fences_its_former_lease(store: Store) -> None:
    former = claim(store, 0, "w1")
    claim(store, 0, "w1", now=EXPIRY)

    assert store.leases.renew([former], lease_seconds=10, now=EXPIRY) == [None]


def test_each_renewal_of_a_batch_has_its_own_result_in_order(store: Store) -> None:
    stale = claim(store, 1, "w1")
    claim(store, 1, "w2", now=EXPIRY)
    leases = [claim(store, 2), stale, claim(store, 0), Lease(9, 1, "w1", EXPIRY)]

    renewed = store.leases.renew(leases, lease_seconds=30, now=NOW)

    until = NOW + seconds(30)
    assert renewed == [replace(leases[0], expires_at=until), None, replace(leases[2], expires_at=until), None]
    assert store.leases.renew([], lease_seconds=30, now=NOW) == []


def test_a_released_shard_can_be_claimed_at_once(store: Store, at_once: AtOnce) -> None:
    lease = claim(store, 0, "w1")

    store.leases.release([lease], now=NOW)

    assert store.leases.statuses([0], now=NOW)[0].is_free
    assert claim(store, 0, "w2").version == 2


def test_a_released_lease_cannot_be_renewed(store: Store) -> None:
    lease = claim(store)
    store.leases.release([lease], now=NOW)

    assert store.leases.renew([lease], lease_seconds=10, now=NOW) == [None]


def test_releasing_a_stale_lease_changes_nothing(store: Store) -> None:
    stale = claim(store, 0, "w1")
    current = claim(store, 0, "w2", now=EXPIRY)

    store.leases.release([stale, replace(current, owner_id="w1"), replace(current, version=1)], now=EXPIRY)

    assert claim_shard(store, 0, "w3", lease_seconds=10, now=EXPIRY) is None
    assert store.leases.renew([current], lease_seconds=10, now=EXPIRY) != [None]


def test_a_batch_of_releases(store: Store) -> None:
    leases = [claim(store, shard_id) for shard_id in range(5)]

    store.leases.release(leases[1:4], now=NOW)
    store.leases.release([], now=NOW)

    assert [status.is_free for status in store.leases.statuses(range(5), now=NOW)] == [False, True, True, True, False]


def test_releasing_twice_does_no_harm(store: Store) -> None:
    lease = claim(store)
    store.leases.release([lease], now=NOW)
    claim(store, 0, "w2")

    store.leases.release([lease], now=NOW)

    assert claim_shard(store, 0, "w3", lease_seconds=10, now=NOW) is None


def test_ownership_is_not_a_timer(store: Store, single: Namespace) -> None:
    timer = make_timer(single, "SHARD#OWNERSHIP")
    create(store, timer)
    claim(store)

    assert due(store, single) == [timer]
    assert store.leases.statuses([0], now=NOW)[0].version == 1


def test_workers_see_all_that_live(store: Store) -> None:
    assert store.leases.announce_worker("b", ttl_seconds=10, now=NOW) == ["b"]
    assert store.leases.announce_worker("a", ttl_seconds=30, now=NOW) == ["a", "b"]
    assert store.leases.announce_worker("c", ttl_seconds=10, now=EXPIRY - TICK) == ["a", "b", "c"]
    assert store.leases.announce_worker("c", ttl_seconds=10, now=EXPIRY) == ["a", "c"]


def test_a_worker_that_announces_itself_again_lives_on(store: Store) -> None:
    store.leases.announce_worker("a", ttl_seconds=10, now=NOW)
    store.leases.announce_worker("a", ttl_seconds=10, now=NOW + seconds(6))

    assert store.leases.announce_worker("b", ttl_seconds=10, now=NOW + seconds(15)) == ["a", "b"]


def test_a_withdrawn_worker_is_gone_at_once(store: Store, at_once: AtOnce) -> None:
    store.leases.announce_worker("a", ttl_seconds=10, now=NOW)

    store.leases.withdraw_worker("a")
    store.leases.withdraw_worker("nobody")

    assert store.leases.announce_worker("b", ttl_seconds=10, now=NOW) == ["b"]


def test_a_shard_below_zero_can_be_owned_and_is_in_no_shard_map(store: Store) -> None:
    """The relay of the outbox keeps its lease there."""
    namespace, _ = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)
    lease = claim(store, OUTBOX_SHARD)

    assert claim_shard(store, OUTBOX_SHARD, "w2", lease_seconds=10, now=NOW) is None
    assert store.leases.renew([lease], lease_seconds=10, now=NOW + seconds(5)) == [
        replace(lease, expires_at=NOW + seconds(15))
    ]
    assert set(store.catalogue.shard_map().shard_ids()) == set(namespace.shard_ids())
    store.leases.release([lease], now=NOW)
    assert claim_shard(store, OUTBOX_SHARD, "w2", lease_seconds=10, now=NOW) is not None


def test_pollers_sleep_at_first(store: Store) -> None:
    assert store.leases.sleep_epoch() == 0


def test_the_sleep_epoch_is_counted_from_what_is_stored_alone(store: Store) -> None:
    assert [store.leases.advance_sleep_epoch(epoch) for epoch in (1, 0, 0, 1, 1, 2)] == [
        False,
        True,
        False,
        True,
        False,
        True,
    ]
    assert store.leases.sleep_epoch() == 3


@pytest.mark.parametrize("epoch", [0, 1])
def test_of_several_at_once_one_advances_the_sleep_epoch(store: Store, at_once: AtOnce, epoch: int) -> None:
    for stored in range(epoch):
        store.leases.advance_sleep_epoch(stored)

    results = at_once(lambda _: store.leases.advance_sleep_epoch(epoch))

    assert results.count(True) == 1
    assert store.leases.sleep_epoch() == epoch + 1
