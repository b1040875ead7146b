"""Real pollers over the DynamoDB store: in real time, with threads beside the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from duetime.engine.settings import EngineSettings
from duetime.runtime.clock import SystemClock
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.testing.contract.builders import make_timer, make_timers
from duetime.testing.contract.steps import create
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.two_pollers import SECONDS, assert_fired_once_each, make_poller


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

    bodies = assert_fired_once_each([store, store], namespace, timers)

    assert next(body["payload"] for body in bodies if body["timerId"] == "large") == large[1:-1]
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
