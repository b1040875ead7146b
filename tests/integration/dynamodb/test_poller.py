"""Real pollers over the DynamoDB store: in real time, with threads beside the loop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta
from itertools import count

from duetime.domain.timers import TimerState
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.runtime.clock import SystemClock
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.stores.port.timers import TimerFilter
from duetime.stores.store_clock import StoreClock
from duetime.testing.contract.builders import make_timer, make_timers
from duetime.testing.contract.steps import create, read_all
from tests.support.scripted_sender import Script, ScriptedSender

SECONDS = 30.0
_ids = count()


def make_poller(store: Store, sender: ScriptedSender, name: str, settings: EngineSettings | None = None) -> Poller:
    return Poller(
        store,
        sender,
        clock=StoreClock(store, SystemClock()),
        settings=settings or EngineSettings(),
        worker_id=name,
        new_id=lambda: f"{name}-{next(_ids)}",
        random=random.random,
    )


def test_two_pollers_fire_a_burst_and_a_late_timer_once_each(store: Store) -> None:
    clock = SystemClock()
    now = clock.now()
    namespace, _ = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=now)
    large = '"' + "x" * LAYOUTS[TIMER].apart_above + '"'
    timers = [
        *make_timers(namespace, 600, execute_at=now, now=now),
        make_timer(namespace, "large", execute_at=now, now=now, payload_json=large),
        make_timer(namespace, "later", execute_at=now + timedelta(seconds=1.5), now=now),
    ]
    create(store, *timers)
    sender = ScriptedSender(script=lambda _: Script(delay_seconds=0))
    senders = [sender, ScriptedSender(script=sender.script)]

    async def fire_all() -> None:
        stop = asyncio.Event()
        pollers = [make_poller(store, each, f"w{at}") for at, each in enumerate(senders)]
        tasks = [asyncio.create_task(poller.run(stop)) for poller in pollers]
        async with asyncio.timeout(SECONDS):
            while sum(poller.stats()["fired"] for poller in pollers) < len(timers):
                await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*tasks)
        for poller in pollers:
            poller.close()

    asyncio.run(fire_all())

    bodies = [body for each in senders for body in each.received]
    assert Counter(body["timerId"] for body in bodies) == Counter(timer.timer_id for timer in timers)
    assert next(body["payload"] for body in bodies if body["timerId"] == "large") == large[1:-1]
    stored = read_all(
        lambda cursor: store.timers.list(namespace, TimerFilter(), cursor=cursor, limit=200, now=clock.now())
    )
    assert {timer.state for timer in stored} == {TimerState.FIRED}
    assert all(timer.fired_at is not None and timer.fired_at >= timer.content.execute_at for timer in stored)
    assert all(status.is_free for status in store.leases.statuses(namespace.shard_ids(), now=clock.now()))


def test_a_backlog_is_read_to_its_end_and_what_becomes_due_meanwhile_is_not_kept_waiting(
    store: Store,
) -> None:
    """The noisy namespace's receiver takes its time, so almost all of its timers have to stay in the store."""
    clock = SystemClock()
    now = clock.now()
    noisy, _ = store.catalogue.create_namespace("noisy", num_shards=2, dedicated=False, now=now)
    quiet, _ = store.catalogue.create_namespace("quiet", num_shards=2, dedicated=False, now=now)
    create(store, *make_timers(noisy, 400, execute_at=now - timedelta(seconds=60), now=now))
    late = [
        make_timer(quiet, f"q{at}", execute_at=now + timedelta(seconds=0.5 + at / 5), now=now) for at in range(10)
    ]
    create(store, *late)
    sender = ScriptedSender(script=lambda body: Script(delay_seconds=0.25 if body["namespace"] == "noisy" else 0))
    settings = EngineSettings(max_buffered=60, page_size=30, max_in_flight=20, initial_window=10)
    poller = make_poller(store, sender, "w", settings)
    backlogged = 0

    async def fire_all() -> None:
        nonlocal backlogged
        stop = asyncio.Event()
        task = asyncio.create_task(poller.run(stop))
        async with asyncio.timeout(SECONDS):
            while poller.stats()["fired"] < 410:
                backlogged = max(backlogged, poller.snapshot().gauges["backlogged_shards"])
                await asyncio.sleep(0.01)
        stop.set()
        await task
        poller.close()

    asyncio.run(fire_all())

    assert Counter(body["timerId"] for body in sender.received).total() == 410
    assert len({(body["namespace"], body["timerId"]) for body in sender.received}) == 410
    assert backlogged  # both shards at once, but on a machine too busy to read the second in time
    in_order = [body["namespace"] for body in sender.received]
    assert "noisy" in in_order[in_order.index("quiet") :]  # the quiet ones did not wait for the end of the backlog
