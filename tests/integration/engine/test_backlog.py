"""A neighbour's backlog at the start of a poller: how long others wait for it. In virtual time, 5 ms a page."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from duetime.domain.times import parse_instant
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run
from tests.support.overdue_store import NOISY, OverdueStore
from tests.support.scripted_sender import Script, ScriptedSender

NAMESPACES = (NOISY, "quiet", "fresh")


def waits(sender: ScriptedSender, namespace: str) -> list[float]:
    """The seconds from the start of the poller, or from a later due time, to each callback."""
    return [
        (parse_instant(str(body["firedAt"])) - max(START, parse_instant(str(body["executeAt"])))).total_seconds()
        for body in sender.of(namespace)
    ]


@pytest.mark.parametrize(
    ("overdue", "hosts", "callback_seconds"),
    [
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

    async def script() -> None:
        """Meanwhile another process stores timers of ``fresh`` that are due at once."""
        number = 0
        while clock.elapsed_seconds < promised + 1.0:
            await asyncio.sleep(0.17)
            put(store, [make_timer(f"f{number}", namespace="fresh", execute_at=clock.now())], clock.now())
            number += 1
        await asyncio.sleep(1.0)

    overdue_store = OverdueStore(store, clock, overdue=overdue, hosts=hosts)
    run(clock, make_poller(overdue_store, sender, clock), script)

    assert len(waits(sender, "quiet")) == 32
    assert max(waits(sender, "quiet")) <= promised
    assert len(waits(sender, "fresh")) >= 10
    assert max(waits(sender, "fresh")) < 1.0
