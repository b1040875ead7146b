"""Timers with large payloads: how much of them is in memory, and what that does to others. In virtual time."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from duetime.domain.timers import Timer
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import lag_seconds, make_poller, make_timer, put, run
from tests.support.scripted_sender import Script, ScriptedSender

PAYLOAD = f'"{"x" * 20_000}"'
MAX_BYTES = 50 * sys.getsizeof(PAYLOAD)
NAMESPACES = ("noisy", "small", "large")


def timers(namespace: str, number: int, *, start: float, every: float = 0.0, payload: str = PAYLOAD) -> list[Timer]:
    return [
        make_timer(
            f"{namespace}{n}",
            namespace=namespace,
            execute_at=START + timedelta(seconds=start + n * every),
            payload_json=payload,
        )
        for n in range(number)
    ]


def most_held(store: Store, sender: ScriptedSender, clock: VirtualClock, seconds: float, *, max_bytes: int) -> int:
    """The most timers that the poller held at once: waiting, in flight and not recorded."""
    poller = make_poller(store, sender, clock, settings=EngineSettings(max_payload_bytes=max_bytes))
    most = 0

    async def script() -> None:
        nonlocal most
        while clock.elapsed_seconds < seconds:
            await asyncio.sleep(0.02)
            gauges = poller.snapshot().gauges
            most = max(most, gauges["waiting"] + gauges["in_flight"] + gauges["unrecorded"])

    run(clock, poller, script)
    return most


def test_a_backlog_is_fired_to_its_end_and_never_held_as_a_whole(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.1))
    put(store, timers("noisy", 600, start=-60), START)

    most = most_held(store, sender, clock, 15.0, max_bytes=MAX_BYTES)

    assert sender.counts() == {f"noisy{n}": 1 for n in range(600)}
    assert most <= 50


def test_what_a_hanging_endpoint_holds_is_not_taken_from_others(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(status=None if body["namespace"] == "noisy" else 200))
    put(store, timers("noisy", 600, start=1), START)
    put(store, timers("large", 40, start=1, every=0.5), START)
    put(store, timers("small", 40, start=1, every=0.5, payload="1"), START)

    most_held(store, sender, clock, 25.0, max_bytes=MAX_BYTES // 5)  # ten of them; a queue alone would hold 16

    for namespace in ("large", "small"):
        assert len(sender.of(namespace)) == 40
        assert max(map(lag_seconds, sender.of(namespace))) < 1.0


def test_however_little_may_be_held_each_is_fired_once(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    put(store, timers("noisy", 60, start=-60), START)
    put(store, timers("large", 60, start=-60), START)

    most = most_held(store, sender, clock, 30.0, max_bytes=1)

    assert sender.counts() == {f"{namespace}{n}": 1 for namespace in ("noisy", "large") for n in range(60)}
    assert most == 1
