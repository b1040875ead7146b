"""A neighbour's backlog at the start of a poller: how long others wait for it. In virtual time, 5 ms a page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest

from duetime.domain.times import parse_instant
from duetime.engine.poller import Poller
from duetime.stores.port.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put
from tests.support.overdue_store import NOISY, SHARDS, OverdueStore
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as store:
        for name in (NOISY, "quiet", "fresh"):
            store.catalogue.create_namespace(name, num_shards=SHARDS, dedicated=False, now=START)
        yield store


def run(store: Store, sender: ScriptedSender, clock: VirtualClock, seconds: float) -> Poller:
    """Run a poller for so long. Meanwhile another process stores timers of ``fresh`` that are due at once."""
    poller = make_poller(store, sender, clock)

    async def main() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(poller.run(stop))
        number = 0
        while clock.elapsed_seconds < seconds - 1.0:
            await asyncio.sleep(0.17)
            put(store, [make_timer(f"f{number}", namespace="fresh", execute_at=clock.now())], clock.now())
            number += 1
        await asyncio.sleep(1.0)
        stop.set()
        await task

    run_virtually(clock, main())
    return poller


def waits(sender: ScriptedSender, namespace: str) -> list[float]:
    """The seconds from the start of the poller, or from a later due time, to each callback."""
    bodies = [body for body in sender.received if body["namespace"] == namespace]
    return [
        (parse_instant(str(body["firedAt"])) - max(START, parse_instant(str(body["executeAt"])))).total_seconds()
        for body in bodies
    ]


@pytest.mark.parametrize(
    ("overdue", "hosts", "callback_seconds"),
    [
        (20_000, 1, 0.2),
        (20_000, 1, 0.002),
        (20_000, 1, 60.0),
        (200_000, 1, 0.2),
        (40_000, 2_000, 0.2),
    ],
)
def test_after_a_start_others_wait_a_second_and_one_more_for_each_100_000_timers_of_a_neighbour(
    store: Store, clock: VirtualClock, overdue: int, hosts: int, callback_seconds: float
) -> None:
    promised = 1.0 + overdue / 100_000
    sender = ScriptedSender(
        lambda body: Script(delay_seconds=callback_seconds if body["namespace"] == NOISY else 0.2)
    )
    late = [make_timer(f"q{n}", namespace="quiet", execute_at=START - timedelta(seconds=1)) for n in range(32)]
    put(store, late, START)

    run(cast("Store", OverdueStore(store, clock, overdue=overdue, hosts=hosts)), sender, clock, promised + 2.0)

    assert len(waits(sender, "quiet")) == 32
    assert max(waits(sender, "quiet")) <= promised
    assert len(waits(sender, "fresh")) >= 10
    assert max(waits(sender, "fresh")) < 1.0
