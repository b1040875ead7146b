"""What the store asks of Cassandra for each operation: how many requests, of which kind, of which partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, TimerChange
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract.builders import failed, fired, leased, make_timer, make_timers, retried, seconds
from duetime.testing.contract.steps import claim, claim_shard, create, due, stored
from tests.support.cassandra import new_network, store_over
from tests.support.cassandra_calls import count_requests
from tests.support.cassandra_faults import Network, Request
from tests.support.clock import NOW

LATER = NOW + seconds(60)


@pytest.fixture
def network() -> Network:
    return new_network()


@pytest.fixture
def store(network: Network) -> Iterator[Store]:
    with store_over(network) as store:
        yield store


@pytest.fixture
def single(store: Store) -> Namespace:
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


@pytest.fixture
def asked(network: Network) -> Callable[[Callable[[], object]], list[Request]]:
    return lambda act: count_requests(network, act)


Asked = Callable[[Callable[[], object]], list[Request]]


def kinds(requests: list[Request]) -> list[str]:
    return [request.kind for request in requests]


def test_creating_many_is_one_conditional_batch_of_the_shard(asked: Asked, store: Store, single: Namespace) -> None:
    assert kinds(asked(lambda: create(store, *make_timers(single, 30)))) == ["cas_batch"]
    assert kinds(asked(lambda: create(store, *make_timers(single, 61, prefix="more")))) == ["cas_batch"] * 3


def test_many_large_ones_are_several_batches(asked: Asked, store: Store, single: Namespace) -> None:
    timers = make_timers(single, 8, payload_json=f'"{"x" * 250_000}"')

    assert kinds(asked(lambda: create(store, *timers))) == ["cas_batch"] * 2


def test_creating_for_several_shards_is_a_batch_for_each(asked: Asked, store: Store) -> None:
    orders, _ = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)

    assert kinds(asked(lambda: create(store, *make_timers(orders, 40)))) == ["cas_batch"] * 4


def test_a_new_due_time_is_a_deletion_and_an_insertion_in_the_batch_that_changes_the_timer(
    asked: Asked, store: Store, single: Namespace
) -> None:
    create(store, make_timer(single))
    change = TimerChange(execute_at=LATER)

    requests = asked(lambda: store.timers.update(single, "t1", change, firing_id="f", now=NOW))

    assert kinds(requests) == ["read", "cas_batch"]
    statements = requests[1].cql.split("; ")
    assert [statement.split()[0] for statement in statements] == ["UPDATE", "DELETE", "UPDATE"]
    assert "IF is_there = ? AND timer_revision = ?" in statements[0]
    assert requests[1].tables == ("timers",)


def test_a_change_that_leaves_the_due_time_writes_the_timer_alone(
    asked: Asked, store: Store, single: Namespace
) -> None:
    create(store, make_timer(single))

    requests = asked(
        lambda: store.timers.update(single, "t1", TimerChange(callback_timeout_seconds=5), firing_id="f", now=NOW)
    )

    assert kinds(requests) == ["read", "cas"]


def test_recording_reads_nothing_and_holds_the_lease(asked: Asked, store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 20))
    lease = claim(store)
    outcomes = [*map(fired, timers[:10]), *(retried(timer, next_attempt_at=LATER) for timer in timers[10:])]

    requests = asked(lambda: store.timers.record(leased(outcomes, lease), now=NOW))

    assert kinds(requests) == ["cas_batch"]
    assert requests[0].cql.count("IF shard_version = ? AND shard_owner_id = ?") == 1
    fired_as = "IF is_there = ? AND timer_revision = ? AND timer_firing_id = ? AND timer_execute_at = ?"
    assert requests[0].cql.count(fired_as) == 20


def test_an_idle_poll_is_two_reads_a_lone_timer_three_and_a_page_seven_and_one_for_each_fifty_due(
    asked: Asked, store: Store, single: Namespace
) -> None:
    def tables() -> list[str]:
        requests = asked(lambda: store.timers.due(0, until=NOW, limit=500))
        assert {request.kind for request in requests} == {"read"}
        return [table for request in requests for table in request.tables]

    look = ["timers", "hints"]
    assert tables() == look
    create(store, make_timer(single, "lone"))
    assert tables() == [*look, "timers"]
    create(store, *make_timers(single, 59))
    assert tables() == [*look, "timers", *look, "timers", "timers", *look]


def test_the_other_operations(asked: Asked, store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 3))
    lease = claim(store)
    store.timers.record(leased([failed(timer) for timer in due(store, single)], lease), now=NOW)
    refs = [TimerRef(timer.timer_id) for timer in make_timers(single, 3)]
    page = TimerFilter()

    def requests(act: Callable[[], object]) -> list[str]:
        return kinds(asked(act))

    assert requests(lambda: store.check()) == ["read"]
    assert requests(lambda: stored(store, single, refs[0].timer_id)) == ["read"]
    assert requests(lambda: store.timers.rearm(single, refs, rearm=Rearm.REDRIVE, now=NOW)) == ["read", "cas_batch"]
    assert requests(lambda: store.timers.list(single, page, cursor=None, limit=9, now=NOW)) == ["read"] * 2
    assert requests(lambda: store.timers.delete(single, refs, now=NOW)) == ["read", "cas_batch"]
    assert requests(lambda: store.leases.statuses([0, 1, 2], now=NOW)) == ["read"]
    assert requests(lambda: claim_shard(store, 1, "w", lease_seconds=9, now=NOW)) == ["read", "cas"]
    assert requests(lambda: store.leases.renew([lease], lease_seconds=9, now=NOW)) == ["cas"]
    assert requests(lambda: store.leases.release([lease], now=NOW)) == ["cas"]
    assert requests(lambda: store.leases.announce_worker("w", ttl_seconds=9, now=NOW)) == ["write", "read"]
    assert requests(lambda: store.leases.withdraw_worker("w")) == ["write"]
    assert requests(lambda: store.catalogue.shard_map()) == ["read"]
    assert requests(lambda: store.catalogue.get_namespace("single")) == ["read"]
    assert requests(lambda: store.catalogue.secret("s", b"x")) == ["read", "cas", "read"]
    assert requests(lambda: store.catalogue.secret("s", b"x")) == ["read"]
    assert requests(lambda: store.catalogue.create_namespace("n", num_shards=2, dedicated=True, now=NOW)) == [
        "read",
        "read",
        "cas_batch",
    ]


def test_timers_and_catalogue_have_conditional_writes_alone(
    network: Network, store: Store, single: Namespace
) -> None:
    create(store, *make_timers(single, 3))
    store.timers.put(make_timers(single, 3, execute_at=LATER), mode=PutMode.REPLACE, now=NOW)
    lease = claim(store)
    store.timers.record(leased([fired(timer) for timer in due(store, single, until=LATER)], lease), now=NOW)
    store.timers.delete(single, [TimerRef("t1")], now=NOW)

    writes = [request for request in network.requests if request.is_write and request.tables != ("workers",)]

    assert writes
    assert all(request.is_cas for request in writes)
