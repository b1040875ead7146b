"""A worker whose leases are renewed while its reads fail: others have its shards, until it can read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.engine import make_poller, make_timer, put, run
from tests.support.logs import actions
from tests.support.parts import Intercepted
from tests.support.scripted_sender import Script, ScriptedSender

SHARDS = 4
LEASE = EngineSettings().lease_seconds


class Unread(Intercepted):
    """Passes everything on to a store, but for reads of the ``unreadable`` shards. ``read_at``: when one was read."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        super().__init__(store, self._operate)
        self._clock = clock
        self.unreadable: set[int] = set()
        self.looks_lie = False
        self.is_down = False
        self.read_at: list[float] = []

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self.is_down:
            raise StoreUnavailable("down")
        if name == "timers.due":
            is_look = set(named) == {"until", "limit"}
            if arguments[0] in self.unreadable and not (is_look and self.looks_lie):
                raise StoreUnavailable("no reads")
            self.read_at.append(self._clock.elapsed_seconds)
        return operation(*arguments, **named)


class World:
    """Two workers, each with a way to the store of its own."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.senders = [ScriptedSender(lambda _: Script()) for _ in range(2)]
        self.ways = [Unread(store, clock) for _ in range(2)]
        self.pollers: list[Poller] = [
            make_poller(way, sender, clock, worker_id=f"worker-{name}")
            for way, sender, name in zip(self.ways, self.senders, "ab", strict=True)
        ]

    def fired(self) -> int:
        return sum(poller.stats()["fired"] for poller in self.pollers)

    def owned(self) -> list[int]:
        return [poller.stats()["shards_owned"] for poller in self.pollers]

    def unreadable(self) -> list[int]:
        return [poller.snapshot().gauges["shards_given_back"] for poller in self.pollers]

    def claims(self) -> int:
        return sum(poller.stats()["claims"] for poller in self.pollers)

    def run(self, script: Any) -> None:
        async def settled() -> None:
            await asyncio.sleep(8)
            assert self.owned() == [2, 2]
            await script()

        run(self.clock, self.pollers, settled)


@pytest.fixture
def world(store: Store, clock: VirtualClock) -> World:
    return World(store, clock)


def test_what_a_worker_cannot_read_is_another_s_within_two_leases_and_comes_back(
    world: World, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def script() -> None:
        caplog.set_level("INFO")
        world.ways[0].unreadable = set(range(SHARDS))
        put(world.store, [make_timer(f"t{n}", execute_at=clock.now()) for n in range(20)], clock.now())
        await asyncio.sleep(LEASE - 2)
        assert world.owned() == [2, 2], "a short failure moves nothing"
        await asyncio.sleep(LEASE + 2)
        assert (world.owned(), world.unreadable()) == ([0, 4], [2, 0])
        assert world.fired() == 20
        claims = world.claims()
        await asyncio.sleep(10 * LEASE)
        assert (world.owned(), world.claims()) == ([0, 4], claims)
        world.ways[0].unreadable = set()
        await asyncio.sleep(LEASE)
        assert (world.owned(), world.unreadable()) == ([2, 2], [0, 0])

    world.run(script)
    assert 1 <= actions(caplog)["shard.given_back"] <= 2
    assert 1 <= actions(caplog)["shard.readable"] <= 2


def test_one_shard_that_a_worker_cannot_read_goes_alone(world: World, clock: VirtualClock) -> None:
    async def script() -> None:
        statuses = world.store.leases.statuses(range(SHARDS), now=clock.now())
        world.ways[0].unreadable = {next(each.shard_id for each in statuses if each.owner_id == "worker-a")}
        put(world.store, [make_timer(f"t{n}", execute_at=clock.now()) for n in range(20)], clock.now())
        await asyncio.sleep(3 * LEASE)
        assert (world.owned(), world.unreadable()) == ([1, 3], [1, 0])
        assert world.fired() == 20

    world.run(script)


def test_when_nobody_can_read_nothing_goes_to_and_fro_and_the_end_is_noticed_within_a_second(
    world: World, clock: VirtualClock
) -> None:
    async def script() -> None:
        for way in world.ways:
            way.unreadable = set(range(SHARDS))
        put(world.store, [make_timer(f"t{n}", execute_at=clock.now()) for n in range(20)], clock.now())
        claims = world.claims()
        await asyncio.sleep(4 * LEASE)
        assert world.claims() - claims <= SHARDS, "whoever notices later tries what the other has given back"
        claims = world.claims()
        await asyncio.sleep(20 * LEASE)
        assert (world.owned(), world.claims()) == ([0, 0], claims)
        back = clock.elapsed_seconds
        for way in world.ways:
            way.unreadable = set()
        await asyncio.sleep(1)
        assert min(at for way in world.ways for at in way.read_at if at >= back) - back < 1
        assert world.fired() == 20
        await asyncio.sleep(8)
        assert world.owned() == [2, 2]
        assert world.claims() - claims <= 2 * SHARDS

    world.run(script)


def test_a_look_that_can_read_what_polls_cannot_brings_a_shard_back_ever_more_seldom(
    world: World, clock: VirtualClock
) -> None:
    async def script() -> None:
        for way in world.ways:
            way.unreadable, way.looks_lie = set(range(SHARDS)), True
        claims = world.claims()
        await asyncio.sleep(100 * LEASE)
        assert world.claims() - claims <= 2 * SHARDS * 10, "not every lease"

    world.run(script)


def test_reads_that_fail_for_less_than_a_lease_move_nothing(world: World) -> None:
    async def script() -> None:
        claims = world.claims()
        for way in world.ways:
            way.unreadable = set(range(SHARDS))
        await asyncio.sleep(LEASE - 1)
        for way in world.ways:
            way.unreadable = set()
        await asyncio.sleep(3 * LEASE)
        assert (world.owned(), world.unreadable(), world.claims()) == ([2, 2], [0, 0], claims)

    world.run(script)


def test_an_outage_of_the_whole_store_gives_nothing_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def script() -> None:
        for way in world.ways:
            way.is_down = True
        await asyncio.sleep(5 * LEASE)
        for way in world.ways:
            way.is_down = False
        await asyncio.sleep(2 * LEASE)
        assert (world.owned(), world.unreadable()) == ([2, 2], [0, 0])

    world.run(script)
    assert "shard.given_back" not in actions(caplog)
