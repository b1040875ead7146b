"""Timers with large payloads: how much of them is in memory, and what that does to others. In virtual time."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from duetime.domain.timers import Timer
from duetime.domain.times import parse_instant
from duetime.engine.settings import EngineSettings
from duetime.stores.port.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store

PAYLOAD = f'"{"x" * 20_000}"'
MAX_BYTES = 50 * sys.getsizeof(PAYLOAD)


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as store:
        for name in ("noisy", "small", "large"):
            store.catalogue.create_namespace(name, num_shards=4, dedicated=False, now=START)
        yield store


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


def run(store: Store, sender: ScriptedSender, clock: VirtualClock, seconds: float, *, max_bytes: int) -> int:
    """The most timers that the poller held at once: waiting, in flight and not recorded."""
    poller = make_poller(store, sender, clock, settings=EngineSettings(max_payload_bytes=max_bytes))
    most = 0

    async def main() -> None:
        nonlocal most
        stop = asyncio.Event()
        task = asyncio.create_task(poller.run(stop))
        while clock.elapsed_seconds < seconds:
            await asyncio.sleep(0.02)
            gauges = poller.snapshot().gauges
            most = max(most, gauges["waiting"] + gauges["in_flight"] + gauges["unrecorded"])
        stop.set()
        await task

    run_virtually(clock, main())
    return most


def lag(body: dict[str, object]) -> float:
    return (parse_instant(str(body["firedAt"])) - parse_instant(str(body["executeAt"]))).total_seconds()


def of(sender: ScriptedSender, namespace: str) -> list[dict[str, object]]:
    return [body for body in sender.received if body["namespace"] == namespace]


def test_a_backlog_is_fired_to_its_end_and_never_held_as_a_whole(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.1))
    put(store, timers("noisy", 600, start=-60), START)

    most = run(store, sender, clock, 15.0, max_bytes=MAX_BYTES)

    assert Counter(body["timerId"] for body in sender.received) == {f"noisy{n}": 1 for n in range(600)}
    assert most <= 50


def test_what_a_hanging_endpoint_holds_is_not_taken_from_others(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(status=None if body["namespace"] == "noisy" else 200))
    put(store, timers("noisy", 600, start=1), START)
    put(store, timers("large", 40, start=1, every=0.5), START)
    put(store, timers("small", 40, start=1, every=0.5, payload="1"), START)

    run(store, sender, clock, 25.0, max_bytes=MAX_BYTES // 5)  # ten of them; a queue alone would hold 16

    for namespace in ("large", "small"):
        assert len(of(sender, namespace)) == 40
        assert max(map(lag, of(sender, namespace))) < 1.0


def test_however_little_may_be_held_each_is_fired_once(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    put(store, timers("noisy", 60, start=-60), START)
    put(store, timers("large", 60, start=-60), START)

    most = run(store, sender, clock, 30.0, max_bytes=1)

    assert Counter(body["timerId"] for body in sender.received) == {
        f"{namespace}{n}": 1 for namespace in ("noisy", "large") for n in range(60)
    }
    assert most == 1
