"""Two pollers in real time, each with its own view of one store."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer, TimerState
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from duetime.stores.port.timers import TimerFilter
from duetime.stores.store_clock import StoreClock
from duetime.testing.contract.steps import read_all
from tests.support.scripted_sender import Script, ScriptedSender

SECONDS = 180.0
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


def assert_fired_once_each(
    stores: Sequence[Store], namespace: Namespace, timers: Sequence[Timer]
) -> list[dict[str, Any]]:
    """Have a poller on each of ``stores`` fire ``timers``, all that is in ``namespace``. Returns what they sent."""
    sender = ScriptedSender(script=lambda _: Script(delay_seconds=0))
    senders = [sender, *(ScriptedSender(script=sender.script) for _ in stores[1:])]

    async def fire_all() -> None:
        stop = asyncio.Event()
        pollers = [make_poller(*each, f"w{at}") for at, each in enumerate(zip(stores, senders, strict=True))]
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
    now = SystemClock().now()
    found = read_all(
        lambda cursor: stores[0].timers.list(namespace, TimerFilter(), cursor=cursor, limit=200, now=now)
    )
    assert {timer.state for timer in found} == {TimerState.FIRED}
    assert all(timer.fired_at is not None and timer.fired_at >= timer.content.execute_at for timer in found)
    return bodies
