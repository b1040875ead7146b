"""What cannot be read harms itself alone: a namespace, and rows that cannot even be set aside."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.timers import TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import UnreadableRow
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run
from tests.support.logs import actions
from tests.support.parts import Overlay, overlaid
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store
from tests.support.unreadable import unreadable_namespace


def fired(sender: ScriptedSender) -> Counter[object]:
    return Counter(body["namespace"] for body in sender.received)


def test_an_unreadable_namespace_s_timers_wait_and_all_others_fire(caplog: pytest.LogCaptureFixture) -> None:
    clock, sender = VirtualClock(START), ScriptedSender()
    with memory_store() as store, caplog.at_level(logging.ERROR):
        bad = unreadable_namespace(store, "bad")
        store.catalogue.create_namespace("good", num_shards=4, dedicated=False, now=START)
        put(store, [make_timer(f"b{n}", namespace="bad") for n in range(8)], START)
        put(store, [make_timer(f"g{n}", namespace="good") for n in range(100)], START)
        poller = make_poller(store, sender, clock)

        async def script() -> None:
            await asyncio.sleep(2)
            assert fired(sender) == {"good": 100}
            assert poller.snapshot().gauges["unreadable_namespaces"] == 1
            await asyncio.sleep(28)
            assert fired(sender) == {"good": 100}
            mended = replace(bad, settings=NamespaceSettings(), unreadable=None)
            assert store.catalogue.update_namespace(mended, if_revision=bad.revision, now=START)
            await asyncio.sleep(60)

        run(clock, poller, script)

    assert fired(sender) == {"good": 100, "bad": 8}
    assert poller.stats()["poll_errors"] == 0
    # Once for each time that it is asked for again, which is every ten seconds.
    assert 1 <= actions(caplog)["namespace.unreadable"] <= 5
    assert poller.snapshot().gauges["unreadable_namespaces"] == 0


def test_what_the_silence_of_a_receiver_means_waits_for_its_namespace_s_retry_policy() -> None:
    """And work that was taken in time is not too late."""
    clock = VirtualClock(START)
    taken = Script(202, b'{"ack": {"within": "10s"}}')
    sender = ScriptedSender(lambda _: taken)
    timer = make_timer("t", namespace="bad", retry_policy_json=None, expire_after_ms=1000)
    with memory_store() as store:
        store.catalogue.create_namespace("bad", num_shards=4, dedicated=False, now=START)
        put(store, [timer], START)
        catalogue: Any = Overlay(store.catalogue)
        poller = make_poller(overlaid(store, catalogue=catalogue), sender, clock)

        def state() -> TimerState:
            found = store.timers.get(make_namespace("bad"), "t", now=clock.now())
            assert found is not None
            return found.state

        def unreadable(_: str) -> Namespace:
            raise StoreError("it cannot be read")

        async def script() -> None:
            await asyncio.sleep(2)
            catalogue.get_namespace = unreadable
            await asyncio.sleep(48)
            assert state() is TimerState.WAITING
            stored = store.catalogue.get_namespace("bad")
            assert stored is not None
            once = replace(stored, settings=NamespaceSettings(retry_policy_json='{"maxAttempts": 1}'))
            catalogue.get_namespace = lambda _: once
            await asyncio.sleep(20)
            assert state() is TimerState.FAILED

        run(clock, poller, script)

    assert len(sender.received) == 1


class _Stuck(Overlay):
    """A store that sets a row aside only if nothing is wrong with it but that it cannot be read."""

    def __init__(self, store: Store, error: StoreError) -> None:
        super().__init__(store, timers=Overlay(store.timers, quarantine=self._quarantine))
        self._store = store
        self._error = error

    def _quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        if any(row.timer_id == "stuck" for row in rows):
            raise self._error
        self._store.timers.quarantine(rows, now=now, expires_at=expires_at)


@pytest.mark.parametrize(("error", "set_aside"), [(StoreError("no"), 3), (StoreUnavailable("away"), 0)])
def test_a_row_that_cannot_be_set_aside_is_told_once_and_blocks_nobody(
    caplog: pytest.LogCaptureFixture, error: StoreError, set_aside: int
) -> None:
    clock, sender = VirtualClock(START), ScriptedSender()
    with memory_store() as store, caplog.at_level(logging.ERROR):
        store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=START)
        damaged = [f"bad{n}" for n in range(3)] + ["stuck"]
        of_one_shard = [replace(make_timer(each, namespace="n", payload_json="{"), shard_id=0) for each in damaged]
        good = [replace(make_timer(f"g{n}", namespace="n"), shard_id=0) for n in range(20)]
        put(store, of_one_shard + good, START)
        stuck = _Stuck(store, error)
        poller = make_poller(stuck, sender, clock)

        run(clock, poller, 20)

    assert fired(sender) == {"n": 20}
    assert poller.stats()["poll_errors"] == 0
    assert poller.stats()["quarantined"] == set_aside
    assert poller.stats()["quarantine_errors"] > 1
    assert actions(caplog)["timer.quarantined"] == set_aside
    assert actions(caplog)["timer.quarantine_failed"] == len(damaged) - set_aside
