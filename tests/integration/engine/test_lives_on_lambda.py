"""Pollers on Lambda over half an hour, in virtual time: lives of 15 minutes, and one start a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from duetime.runtime.settings import PollerSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import lag_seconds, make_timer, put
from tests.support.on_lambda import TICK, Lambda
from tests.support.scripted_sender import Script, ScriptedSender


@pytest.fixture
def sender() -> ScriptedSender:
    return ScriptedSender()


def play(
    store: Store,
    clock: VirtualClock,
    sender: ScriptedSender,
    *,
    minutes: int,
    tick: Callable[[Lambda, int], None] = lambda aws, minute: aws.invoke("arn", TICK),
    script: Callable[[Lambda], Awaitable[None]] | None = None,
    timeout_seconds: float = 900.0,
    **settings: Any,
) -> tuple[Lambda, list[int]]:
    """A timer every 5 s for ``minutes``. Returns how many invocations run at the end of each minute."""
    timers = [
        make_timer(f"t{second}", execute_at=START + timedelta(seconds=second + 0.3))
        for second in range(10, minutes * 60 - 10, 5)
    ]
    put(store, timers, START)
    aws = Lambda(
        store,
        clock,
        sender,
        PollerSettings(store="dynamodb://timers", **settings),
        timeout_seconds=timeout_seconds,
    )
    side_by_side: list[int] = []

    async def main() -> None:
        scripted = None if script is None else asyncio.ensure_future(script(aws))
        for minute in range(minutes):
            tick(aws, minute)
            await asyncio.sleep(60)
            side_by_side.append(len(aws.running))
        if scripted is not None:
            await scripted
        for task in list(aws.running.values()):
            task.cancel()
        await asyncio.gather(*aws.running.values(), return_exceptions=True)

    run_virtually(clock, main())
    fired = sender.counts()
    assert {timer.timer_id for timer in timers} <= fired.keys()
    return aws, side_by_side


def lags(sender: ScriptedSender) -> list[float]:
    return [lag_seconds(body) for body in sender.received]


def test_one_poller_at_a_time_hands_over_in_time(store: Store, clock: VirtualClock, sender: ScriptedSender) -> None:
    aws, side_by_side = play(store, clock, sender, minutes=30)

    assert max(lags(sender)) < 2
    assert set(sender.counts().values()) == {1}
    assert side_by_side == [1] * 30
    lives = [seconds for seconds in aws.seconds if seconds > 1]
    assert len(lives) <= 3
    assert sum(seconds < 0.15 for seconds in aws.seconds) >= 25  # the other ticks


def test_without_the_schedule_pollers_start_their_successors(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    def tick(aws: Lambda, minute: int) -> None:
        if minute == 0:
            aws.invoke("arn", TICK)

    _, side_by_side = play(store, clock, sender, minutes=30, tick=tick)

    assert max(lags(sender)) < 2
    assert set(sender.counts().values()) == {1}
    assert side_by_side == [1] * 30


def test_starts_that_are_doubled_leave_one_poller(store: Store, clock: VirtualClock, sender: ScriptedSender) -> None:
    def tick(aws: Lambda, minute: int) -> None:
        for _ in range(3):
            aws.invoke("arn", TICK)

    _, side_by_side = play(store, clock, sender, minutes=30, tick=tick)

    assert max(lags(sender)) < 2
    assert set(sender.counts().values()) == {1}
    assert side_by_side == [1] * 30


def test_a_killed_poller_is_replaced_by_the_next_tick_that_finds_its_shards_free(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    async def kill(aws: Lambda) -> None:
        await asyncio.sleep(5 * 60 + 45)
        (owner,) = aws.owners()
        aws.kill(owner)

    play(store, clock, sender, minutes=20, script=kill)

    late = [lag for lag in lags(sender) if lag > 2]
    assert max(late) < 15 + 2 + 0.5 + 1  # until the minute is full
    assert len(late) <= 4


def test_a_poller_that_cannot_start_another_goes_on_while_callbacks_can_still_end(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    """Concurrency is used up from the tenth minute to the end of the twelfth, when its life was planned to end."""

    def tick(aws: Lambda, minute: int) -> None:
        if not aws.is_throttled:
            aws.invoke("arn", TICK)

    async def throttle(aws: Lambda) -> None:
        await asyncio.sleep(10 * 60 - 1)
        aws.is_throttled = True
        await asyncio.sleep(2 * 60 + 40)
        aws.is_throttled = False

    play(store, clock, sender, minutes=20, tick=tick, script=throttle)

    assert max(lags(sender)) < 2
    assert set(sender.counts().values()) == {1}


@pytest.mark.parametrize("callback_seconds", [0.05, 1.5, 10.0, 100.0])
def test_a_hand_over_sends_no_callback_again_and_waits_for_none(
    store: Store, clock: VirtualClock, callback_seconds: float
) -> None:
    """The first life ends in the thirteenth minute."""

    def script(body: dict[str, object]) -> Script:
        return Script(delay_seconds=callback_seconds if str(body["timerId"]).startswith("slow") else 0.0)

    sender = ScriptedSender(script)
    slow = [
        make_timer(f"slow{second}", execute_at=START + timedelta(seconds=second), callback_timeout_seconds=120)
        for second in range(600, 800, 2)
    ]
    quick = [
        make_timer(
            f"quick{n}", execute_at=START + timedelta(seconds=600 + n / 20), callback_url="https://quick.test/"
        )
        for n in range(4_000)
    ]
    put(store, slow, START)
    put(store, quick, START)

    play(store, clock, sender, minutes=25)

    counts = sender.counts()
    assert {counts[timer.timer_id] for timer in [*slow, *quick]} == {1}
    late = sorted(lag_seconds(body) for body in sender.received if str(body["timerId"]).startswith("quick"))
    assert late[-1] < 0.4
    assert late[int(len(late) * 0.99)] < 0.3


def test_ten_hand_overs_leave_no_blind_second(store: Store, clock: VirtualClock) -> None:
    """Lives of 300 s, so that each third tick starts a successor. Only what is due around these is measured."""

    def script(body: dict[str, object]) -> Script:
        seconds, is_given, _ = str(body["timerId"]).partition("s ")
        return Script(delay_seconds=float(seconds) if is_given else 0.0)

    sender = ScriptedSender(script)
    hand_overs = [START + timedelta(minutes=3 * number) for number in range(1, 11)]
    slow = [
        make_timer(f"{seconds}s {n} {at}", execute_at=at + timedelta(seconds=n / 2 - 12), callback_timeout_seconds=30)
        for at in hand_overs
        for n in range(30)
        for seconds in (1.5, 10.0)
    ]
    quick = [
        make_timer(f"0s {n} {at}", execute_at=at + timedelta(seconds=n / 20), callback_url="https://quick.test/")
        for at in hand_overs
        for n in range(60)
    ]
    put(store, slow, START)
    put(store, quick, START)

    aws, _ = play(store, clock, sender, minutes=32, timeout_seconds=300, drain_seconds=30)

    counts = sender.counts()
    assert {counts[timer.timer_id] for timer in [*slow, *quick]} == {1}
    assert sum(seconds > 60 for seconds in aws.seconds) == len(hand_overs) + 1  # lives
    late = sorted(lag_seconds(body) for body in sender.received if str(body["timerId"]).startswith("0s"))
    assert late[int(len(late) * 0.99)] < 0.3


def test_shards_that_appear_join_the_part_that_has_room(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    async def grow(aws: Lambda) -> None:
        await asyncio.sleep(90)
        store.catalogue.create_namespace("more", num_shards=10, dedicated=False, now=clock.now())
        await asyncio.sleep(5)
        statuses = store.leases.statuses(range(10), now=clock.now())
        owners: dict[str | None, int] = {}
        for status in statuses:
            owners[status.owner_id] = owners.get(status.owner_id, 0) + 1
        assert sorted(owners.values()) == [4, 6]

    _, side_by_side = play(store, clock, sender, minutes=20, script=grow, shards_per_poller=6)

    assert max(lags(sender)) < 2
    assert side_by_side[5:] == [2] * 15
