"""Timers on Cassandra, with every request of every operation lost once: before it is carried out, after
it, accepted and not committed, or delivered when all is long over. The process that asks gets no further answer, or
goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import Lease
from duetime.domain.timers import Rearm, Timer, TimerChange
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, TimerRef
from duetime.testing.contract.builders import failed, fired, leased, make_timer, retried, seconds
from duetime.testing.contract.steps import claim, claim_shard, create, due, stored
from tests.support.cassandra import new_network, store_over
from tests.support.cassandra_calls import FailAt, count_requests
from tests.support.cassandra_faults import Fault, Network, Request, no_faults
from tests.support.cassandra_rows import assert_whole
from tests.support.clock import NOW

FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.TIMED_OUT, Fault.UNFINISHED, Fault.LATE)
LATER = NOW + seconds(60)
FAR = NOW + seconds(86_400)


class World:
    """A store with two timers on shard 0, which is owned; ``ready`` has failed where an operation needs that."""

    def __init__(self, network: Network, store: Store) -> None:
        self.network = network
        self.store = store
        self.single: Namespace = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        self.lease: Lease = claim(store)
        create(store, *(make_timer(self.single, name, correlation_id=f"c-{name}") for name in ("a", "b", "gone")))
        store.timers.record(leased([failed(stored(store, self.single, "gone"))], self.lease), now=NOW)

    def timers(self) -> list[Timer]:
        return [stored(self.store, self.single, name) for name in ("a", "b")]

    def state(self) -> list[Timer | None]:
        return [self.store.timers.get(self.single, name, now=NOW) for name in ("a", "b", "gone", "new", "new2")]


@dataclass(frozen=True)
class Case:
    """``operate`` may be repeated: a second time it finds what the first has done."""

    name: str
    operate: Callable[[World], object]


def put_new(world: World) -> object:
    timers = [make_timer(world.single, name, firing_id=name, correlation_id="n") for name in ("new", "new2")]
    return world.store.timers.put(timers, mode=PutMode.CREATE, now=NOW)


def replace_known(world: World) -> object:
    timers = [make_timer(world.single, name, firing_id="r", execute_at=LATER, correlation_id="r") for name in "ab"]
    return world.store.timers.put(timers, mode=PutMode.REPLACE, now=NOW)


def move(world: World) -> object:
    change = TimerChange(execute_at=LATER, correlation_id="moved")
    return world.store.timers.update(world.single, "a", change, firing_id="u", now=NOW, if_revision=1)


def redrive(world: World) -> object:
    return world.store.timers.rearm(world.single, [TimerRef("gone")], rearm=Rearm.REDRIVE, now=NOW)


def delete(world: World) -> object:
    return world.store.timers.delete(world.single, [TimerRef("a"), TimerRef("b")], now=NOW)


def record(world: World) -> object:
    a, b = world.timers()
    outcomes = [fired(a), retried(b, next_attempt_at=LATER)]
    return world.store.timers.record(leased(outcomes, world.lease), now=NOW)


CASES = [
    Case("put new ones", put_new),
    Case("replace", replace_known),
    Case("update", move),
    Case("redrive", redrive),
    Case("delete", delete),
    Case("record", record),
]


@pytest.fixture
def world() -> Iterator[World]:
    network = new_network()
    with store_over(network) as store:
        yield World(network, store)


def outcome_of(world: World, act: Callable[[], object], fault: FailAt) -> object:
    world.network.faults = fault
    try:
        with suppress(StoreUnavailable):
            return act()
        return None
    finally:
        world.network.faults = no_faults


@pytest.mark.parametrize("is_dead", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_lost_request_leaves_the_old_or_the_new_and_nothing_between(
    case: Case, fault: Fault, is_dead: bool
) -> None:
    network = new_network()
    with store_over(network) as store:
        untouched = World(network, store)
        before = untouched.state()
        number_of_requests = len(count_requests(untouched.network, lambda: case.operate(untouched)))
        after = untouched.state()
    for number in range(1, number_of_requests + 1):
        network = new_network()
        with store_over(network) as store:
            world = World(network, store)
            act = lambda world=world: case.operate(world)  # noqa: E731
            result = outcome_of(world, act, FailAt(number, fault, is_dead=is_dead))
            assert_whole(network)
            found = world.state()
            assert same(found) in (same(before), same(after))
            if result is not None:
                assert same(found) == same(after)

            network.deliver_late()

            assert_whole(network)
            assert same(world.state()) in (same(found), same(after))
            names = [timer.timer_id for timer in due(store, world.single, until=FAR)]
            assert len(names) == len(set(names))


def same(timers: list[Timer | None]) -> list[object]:
    """What must not depend on how often it was tried."""
    return [
        None if each is None else (each.timer_id, each.revision, each.state, each.next_attempt_at, each.failure)
        for each in timers
    ]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_claim_whose_answer_is_lost_is_won_or_can_be_made_again(world: World, fault: Fault) -> None:
    requests = count_requests(world.network, lambda: claim_shard(world.store, 1, "w1", lease_seconds=10, now=NOW))
    for number in range(1, len(requests) + 1):
        shard_id = number + 1
        with suppress(StoreUnavailable):
            world.network.faults = FailAt(number, fault, is_dead=False)
            claim_shard(world.store, shard_id, "w1", lease_seconds=10, now=NOW)
        world.network.faults = no_faults
        world.network.deliver_late()
        later = NOW + seconds(10)

        lease = claim_shard(world.store, shard_id, "w2", lease_seconds=10, now=later)

        assert lease is not None
        assert lease.version in (1, 2)
        assert claim_shard(world.store, shard_id, "w3", lease_seconds=10, now=later) is None


def test_a_renewal_that_is_not_answered_keeps_no_other_from_being_renewed(world: World) -> None:
    leases = [claim(world.store, shard_id) for shard_id in (1, 2, 3)]
    later = NOW + seconds(3)
    writes = 0

    def first_fails(request: Request) -> Fault | None:
        nonlocal writes
        writes += request.is_cas
        return Fault.UNAVAILABLE if request.is_cas and writes not in (2, 3) else None

    world.network.faults = first_fails
    renewed = world.store.leases.renew(leases, lease_seconds=10, now=later)

    assert renewed[0] == leases[0]
    assert [lease and lease.expires_at for lease in renewed[1:]] == [NOW + seconds(13)] * 2
    with pytest.raises(StoreUnavailable):  # nobody is answered
        world.store.leases.renew(leases, lease_seconds=11, now=later)

    world.network.faults = no_faults
    again = world.store.leases.renew(leases, lease_seconds=10, now=later)
    assert [lease and lease.expires_at for lease in again] == [NOW + seconds(13)] * 3


def test_a_create_that_arrives_late_does_not_bring_back_what_was_deleted(world: World) -> None:
    new = make_timer(world.single, "new")
    world.network.faults = FailAt(1, Fault.LATE, is_dead=False)
    create(world.store, new)
    world.network.faults = no_faults
    world.store.timers.delete(world.single, [TimerRef("new")], now=NOW)

    world.network.deliver_late()

    assert world.store.timers.get(world.single, "new", now=NOW) is None
    assert "new" not in {timer.timer_id for timer in due(world.store, world.single, until=FAR)}
    create(world.store, make_timer(world.single, "new"))
    assert_whole(world.network)
