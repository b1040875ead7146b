"""Namespaces that are paused, over the real store, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from duetime.app.namespace_states import paused, resumed
from duetime.app.namespaces import NamespaceAccess
from duetime.domain.namespaces import Misfire
from duetime.domain.timers import FailureReason, TimerState
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, make_timer, put, run, stored
from tests.support.scripted_sender import ScriptedSender

NAMESPACES = ("default", "other")
FOLLOWS_SECONDS = 10.0


class Script:
    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store, self.clock = store, clock

    def pause(self) -> None:
        paused(NamespaceAccess(self.store, None, self.clock.now()), "default", reason=None)

    def resume(self) -> None:
        resumed(NamespaceAccess(self.store, None, self.clock.now()), "default")

    def let_expire(self) -> None:
        found = self.store.catalogue.get_namespace("default")
        assert found is not None
        wanted = replace(found, settings=replace(found.settings, misfire=Misfire.EXPIRE))
        assert self.store.catalogue.update_namespace(wanted, if_revision=found.revision, now=START)


def sent(store: Store, clock: VirtualClock, script: Callable[[ScriptedSender], Awaitable[None]]) -> list[str]:
    """The ids of the timers that were fired while ``script`` ran, sorted."""
    sender = ScriptedSender()
    run(clock, make_poller(store, sender, clock), lambda: script(sender))
    return ids(sender)


def ids(sender: ScriptedSender) -> list[str]:
    return sorted(str(body["timerId"]) for body in sender.received)


def test_nothing_is_fired_in_a_pause_and_all_of_it_after(store: Store, clock: VirtualClock) -> None:
    steps = Script(store, clock)
    put(store, [make_timer("first", execute_at=at(1))], START)
    put(store, [make_timer(f"t{n}", execute_at=at(30 + n)) for n in range(5)], START)
    put(store, [make_timer("neighbour", namespace="other", execute_at=at(31))], START)

    async def script(sender: ScriptedSender) -> None:
        await asyncio.sleep(2)
        steps.pause()
        await asyncio.sleep(58)
        assert ids(sender) == ["first", "neighbour"]
        put(store, [make_timer("created in the pause", execute_at=clock.now())], clock.now())
        steps.resume()
        await asyncio.sleep(FOLLOWS_SECONDS + 2)

    fired = sent(store, clock, script)
    assert fired == ["created in the pause", "first", "neighbour", *(f"t{n}" for n in range(5))]


def test_a_pause_ends_in_time_for_a_backlog_that_pages_pass_over(store: Store, clock: VirtualClock) -> None:
    steps = Script(store, clock)
    urls = [f"https://receiver{host}.test/hook" for host in range(100)]
    put(store, [make_timer(f"t{n}", execute_at=at(1), callback_url=urls[n % 100]) for n in range(2400)], START)
    put(store, [make_timer("neighbour", namespace="other", execute_at=at(3))], START)

    async def script(sender: ScriptedSender) -> None:
        steps.pause()
        await asyncio.sleep(30)
        assert ids(sender) == ["neighbour"]
        steps.resume()
        await asyncio.sleep(FOLLOWS_SECONDS + 5)

    assert len(sent(store, clock, script)) == 2401


def test_a_pause_that_begins_while_timers_wait_takes_hold_within_seconds(store: Store, clock: VirtualClock) -> None:
    steps = Script(store, clock)
    put(store, [make_timer(f"t{n}", execute_at=at(n)) for n in range(60)], START)

    async def script(sender: ScriptedSender) -> None:
        await asyncio.sleep(5.5)
        steps.pause()
        await asyncio.sleep(60)

    fired = sent(store, clock, script)
    assert 6 <= len(fired) <= 6 + FOLLOWS_SECONDS + 1


def test_with_misfire_expire_late_timers_fail_and_later_ones_fire(store: Store, clock: VirtualClock) -> None:
    steps = Script(store, clock)
    steps.let_expire()
    put(store, [make_timer("late", execute_at=at(20)), make_timer("later", execute_at=at(50))], START)

    async def script(sender: ScriptedSender) -> None:
        steps.pause()
        await asyncio.sleep(30)
        steps.resume()
        put(store, [make_timer("past", execute_at=at(10), now=clock.now())], clock.now())
        await asyncio.sleep(30)

    assert sent(store, clock, script) == ["later", "past"]
    timer = stored(store, "late", clock)
    assert (timer.state, timer.attempts) == (TimerState.FAILED, 0)
    assert timer.failure is not None
    assert timer.failure.reason is FailureReason.EXPIRED
    assert "paused" in timer.failure.message
