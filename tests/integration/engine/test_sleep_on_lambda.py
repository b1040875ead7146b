"""Pollers on Lambda that sleep while nothing is due, in virtual time: who wakes them, and how late timers fire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from duetime.domain.shards import MAX_DEDICATED_SHARD
from duetime.runtime.settings import PollerSettings
from duetime.runtime.sleeping import IDLE_SECONDS, WATCH_AHEAD_SECONDS
from duetime.runtime.waking import TRUST_SECONDS, Waker, is_awake
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import lag_seconds, make_timer, put
from tests.support.on_lambda import COLD_START_SECONDS, LEASE_SECONDS, TICK, Lambda
from tests.support.scripted_sender import Script, ScriptedSender

PROMISE_SECONDS = 1.0 + COLD_START_SECONDS
"""How late a timer may fire at the most that is due at once while the pollers sleep."""
FALLS_ASLEEP_SECONDS = IDLE_SECONDS + TRUST_SECONDS + 30.0


class Stack:
    """The functions of a stack: a poller's, started every minute, and one that stores timers."""

    def __init__(
        self, store: Store, clock: VirtualClock, *, script: Callable[..., Script], **settings: object
    ) -> None:
        self.store, self.clock = store, clock
        self.sender = ScriptedSender(script)
        self.aws = Lambda(
            store,
            clock,
            self.sender,
            PollerSettings.model_validate({"store": "dynamodb://timers", **settings}),
            poll_interval_seconds=0.8,
        )
        self.waker = self.writer()

    def writer(self) -> Waker:
        """Another function that stores timers."""
        return Waker(self.store.leases, clock=self.clock, invoke=self.aws.invoke, function="poller")

    def create(self, timer_id: str, *, delay_seconds: float = 0.0, waker: Callable[..., None] | None = None) -> None:
        """As a client does through the API."""
        now = self.clock.now()
        timer = make_timer(timer_id, execute_at=now + timedelta(seconds=delay_seconds))
        put(self.store, [timer], now)
        (waker or self.waker)([timer])

    @property
    def is_asleep(self) -> bool:
        return not self.aws.running and not is_awake(self.store.leases.sleep_epoch())

    def lags(self) -> dict[str, float]:
        return {str(body["timerId"]): lag_seconds(body) for body in self.sender.received}

    def play(self, script: Callable[[Stack], Awaitable[None]], *, has_ticks: bool = True) -> None:
        async def ticks() -> None:
            while True:
                self.aws.invoke("arn", TICK)
                await asyncio.sleep(60)

        async def main() -> None:
            ticking = asyncio.create_task(ticks()) if has_ticks else None
            await script(self)
            tasks = [*self.aws.running.values(), *([ticking] if ticking else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        run_virtually(self.clock, main())


@pytest.fixture
def stack(store: Store, clock: VirtualClock) -> Stack:
    return Stack(store, clock, script=lambda _: Script())


def nobody(*_: object) -> None:
    """In the place of a waker: the function has crashed, or it is a tool that knows of none."""


def test_pollers_sleep_from_the_start_and_fire_at_once_when_woken(stack: Stack) -> None:
    async def script(stack: Stack) -> None:
        await asyncio.sleep(190)
        assert stack.is_asleep
        stack.create("now")
        await asyncio.sleep(5)

    stack.play(script)

    assert stack.lags()["now"] <= PROMISE_SECONDS
    assert max(stack.aws.seconds[:4]) < 0.15  # the watchdog's starts


def test_pollers_fall_asleep_again_when_nothing_is_due(stack: Stack) -> None:
    async def script(stack: Stack) -> None:
        stack.create("first")
        await asyncio.sleep(FALLS_ASLEEP_SECONDS)
        assert stack.is_asleep
        for number in range(3):
            await asyncio.sleep(100)
            stack.create(f"later {number}")
            await asyncio.sleep(FALLS_ASLEEP_SECONDS)
            assert stack.is_asleep

    stack.play(script)

    assert max(stack.lags().values()) <= PROMISE_SECONDS
    lives = [seconds for seconds in stack.aws.seconds if seconds > 0.15]
    assert len(lives) == 4
    assert max(lives) < FALLS_ASLEEP_SECONDS


def test_a_timer_of_later_is_fired_in_time_and_wakes_nobody_before(stack: Stack) -> None:
    async def script(stack: Stack) -> None:
        await asyncio.sleep(30)
        stack.create("later", delay_seconds=3600)
        await asyncio.sleep(3600 - WATCH_AHEAD_SECONDS - 1)
        assert stack.is_asleep
        await asyncio.sleep(WATCH_AHEAD_SECONDS + 2)

    stack.play(script)

    assert stack.lags()["later"] <= 0.1
    *watchdogs, poller = sorted(stack.aws.seconds)
    assert max(watchdogs) < 0.15 < poller


@pytest.mark.parametrize("delay_seconds", [100.0, 170.0, 190.0, 250.0])
def test_whoever_has_to_wake_for_a_timer_it_is_in_time(stack: Stack, delay_seconds: float) -> None:
    async def script(stack: Stack) -> None:
        await asyncio.sleep(31)
        stack.create("soon", delay_seconds=delay_seconds)
        await asyncio.sleep(delay_seconds + 2)

    stack.play(script)

    assert stack.lags()["soon"] <= 0.1


def test_a_timer_whose_writer_crashed_is_found_by_the_watchdog(stack: Stack) -> None:
    async def script(stack: Stack) -> None:
        await asyncio.sleep(121)
        stack.create("orphan", waker=nobody)
        await asyncio.sleep(61)

    stack.play(script)

    assert 50 < stack.lags()["orphan"] <= 60 + PROMISE_SECONDS


def test_timers_due_while_pollers_fall_asleep_are_on_time(stack: Stack) -> None:
    """Written every second by functions that still trust that they have seen the pollers awake."""
    written = 0

    async def script(stack: Stack) -> None:
        nonlocal written
        stack.create("first")
        await asyncio.sleep(IDLE_SECONDS - 1)
        while not stack.is_asleep:
            trusting = stack.writer()
            await asyncio.sleep(1)
            later = make_timer("any", execute_at=START)
            trusting([later])  # it looks, and stores its own timer when it has trusted that for long
            asyncio.get_running_loop().call_later(
                TRUST_SECONDS - 0.1, lambda number, waker: stack.create(f"t{number}", waker=waker), written, trusting
            )
            written += 1
            if written > 60:
                break
        await asyncio.sleep(TRUST_SECONDS + 5)

    stack.play(script)

    assert written > 30
    assert stack.sender.counts().keys() == {"first", *(f"t{number}" for number in range(written))}
    assert max(stack.lags().values()) <= PROMISE_SECONDS
    assert set(stack.sender.counts().values()) == {1}


def test_a_poller_that_dies_while_it_falls_asleep_is_replaced_by_the_watchdog(stack: Stack) -> None:
    async def script(stack: Stack) -> None:
        stack.create("first")
        while is_awake(stack.store.leases.sleep_epoch()) or not stack.aws.owners():
            await asyncio.sleep(0.5)
        (owner,) = stack.aws.owners()
        stack.aws.kill(owner)
        await asyncio.sleep(1)
        stack.create("unseen", waker=nobody)
        await asyncio.sleep(LEASE_SECONDS + 60)

    stack.play(script)

    assert stack.lags()["unseen"] <= 60 + LEASE_SECONDS + PROMISE_SECONDS


def test_a_callback_in_flight_keeps_its_poller_awake(store: Store, clock: VirtualClock) -> None:
    stack = Stack(store, clock, script=lambda _: Script(delay_seconds=200.0))

    async def script(stack: Stack) -> None:
        now = stack.clock.now()
        timer = make_timer("slow", execute_at=now, callback_timeout_seconds=250)
        put(stack.store, [timer], now)
        stack.waker([timer])
        await asyncio.sleep(195)
        assert stack.aws.owners()
        await asyncio.sleep(IDLE_SECONDS)
        assert stack.aws.owners()
        await asyncio.sleep(FALLS_ASLEEP_SECONDS - IDLE_SECONDS + 10)
        assert stack.is_asleep

    stack.play(script)

    assert stack.sender.counts() == {"slow": 1}


def test_all_parts_fall_asleep_and_wake(store: Store, clock: VirtualClock) -> None:
    stack = Stack(store, clock, script=lambda _: Script(), shards_per_poller=2)

    async def script(stack: Stack) -> None:
        for number in range(3):
            for timer in range(8):  # on all shards
                stack.create(f"{number} {timer}")
            await asyncio.sleep(5)
            assert len(stack.aws.owners()) == 2
            await asyncio.sleep(FALLS_ASLEEP_SECONDS)
            assert stack.is_asleep

    stack.play(script)

    # The second part is started by the first, which has to start itself.
    assert max(stack.lags().values()) <= PROMISE_SECONDS + COLD_START_SECONDS
    assert set(stack.sender.counts().values()) == {1}


def test_timers_on_one_part_keep_all_awake(store: Store, clock: VirtualClock) -> None:
    stack = Stack(store, clock, script=lambda _: Script(), shards_per_poller=2)

    async def script(stack: Stack) -> None:
        for number in range(12):
            stack.create("again" if number else "first", delay_seconds=IDLE_SECONDS - 10 if number else 0)
            await asyncio.sleep(IDLE_SECONDS - 5)
            assert len(stack.aws.owners()) == 2
            stack.store.timers.prune(now=stack.clock.now() + timedelta(days=30), limit=500)

    stack.play(script)

    assert max(stack.lags().values()) <= PROMISE_SECONDS


def test_pollers_that_may_not_sleep_stay(store: Store, clock: VirtualClock) -> None:
    stack = Stack(store, clock, script=lambda _: Script(), sleep="never")

    async def script(stack: Stack) -> None:
        await asyncio.sleep(2 * FALLS_ASLEEP_SECONDS)
        assert stack.aws.owners()

    stack.play(script)


def test_an_empty_store_lets_them_sleep_until_the_first_timer(clock: VirtualClock, store: Store) -> None:
    stack = Stack(store, clock, script=lambda _: Script())
    store.catalogue.delete_namespace("default", if_revision=1)

    async def script(stack: Stack) -> None:
        await asyncio.sleep(65)
        assert stack.is_asleep
        stack.store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=stack.clock.now())
        stack.create("first")
        await asyncio.sleep(5)

    stack.play(script)

    assert stack.lags()["first"] <= PROMISE_SECONDS


def test_a_seat_is_left_when_they_fall_asleep(stack: Stack) -> None:
    async def script(stack: Stack) -> None:
        stack.create("first")
        await asyncio.sleep(FALLS_ASLEEP_SECONDS)
        assert stack.is_asleep

    stack.play(script)

    (seat,) = stack.store.leases.statuses([2 * MAX_DEDICATED_SHARD], now=stack.clock.now())
    assert (seat.version, seat.is_free) == (1, True)
