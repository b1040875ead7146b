"""Several processes on one server, and real pollers: shards are shared, every timer fires once."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from duetime.domain.timers import TimerState
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.timers import TimerFilter
from duetime.testing.contract.builders import make_timer, make_timers
from duetime.testing.contract.steps import create, read_all
from tests.integration.sql.test_processes import check_processes_that_start_at_once
from tests.support.callbacks import CallbackReceiver
from tests.support.mongodb import mongodb_database
from tests.support.processes import DuetimeServer
from tests.support.two_pollers import assert_fired_once_each

SECONDS = 180.0
SHORT_LEASES = ("--lease-seconds", "6")
"""A restart waits for the leases of the killed process to end."""
TIMERS = 200


def test_processes_that_start_at_once_share_one_server(mongodb_url: str) -> None:
    with mongodb_database(mongodb_url) as url:
        check_processes_that_start_at_once(url)


def test_two_pollers_fire_a_burst_and_a_late_timer_once_each(mongodb_url: str) -> None:
    with mongodb_database(mongodb_url) as url:
        stores = [open_store(url), open_store(url)]
        stores[0].initialise()
        check_two_pollers(stores)
        for store in stores:
            store.close()


def check_two_pollers(stores: list[Store]) -> None:
    clock = SystemClock()
    now, store = clock.now(), stores[0]
    assert isinstance(store, Store)
    namespace, _ = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=now)
    timers = [
        *make_timers(namespace, TIMERS, execute_at=now, now=now),
        make_timer(namespace, "later", execute_at=now + timedelta(seconds=1.5), now=now),
    ]
    create(store, *timers, now=now)

    assert_fired_once_each(stores, namespace, timers)

    assert all(status.is_free for status in store.leases.statuses(namespace.shard_ids(), now=clock.now()))


@pytest.mark.timeout(600)
def test_no_timer_is_lost_when_duetime_is_killed(mongodb_url: str, tmp_path: Path) -> None:
    """kill -9 in the middle of a burst, three times: what was accepted fires, if need be by the next process."""
    accepted: set[str] = set()
    with mongodb_database(mongodb_url) as url, CallbackReceiver() as receiver:
        store = open_store(url)
        store.initialise()
        store.close()
        for turn in range(3):
            with DuetimeServer(*SHORT_LEASES, cwd=tmp_path, DUETIME_STORE=url) as server:
                ids = {f"r{turn}-{number}" for number in range(60)}
                server.create_many([{"id": each, "delay": "0s", "callbackUrl": receiver.url} for each in ids])
                accepted |= ids

                def have_come(counts: Counter[str], ids: set[str] = ids) -> bool:
                    return len(counts.keys() & ids) >= 10

                receiver.wait_for(have_come, timeout_seconds=SECONDS)
                server.kill()
        with DuetimeServer(*SHORT_LEASES, cwd=tmp_path, DUETIME_STORE=url) as server:
            receiver.wait_for(lambda counts: counts.keys() >= accepted, timeout_seconds=SECONDS)
            wait_until_none_is_scheduled(server)
            assert server.terminate() == 0
        store = open_store(url)
        namespace = store.catalogue.get_namespace("default")
        assert namespace is not None
        found = read_all(
            lambda cursor: store.timers.list(
                namespace, TimerFilter(), cursor=cursor, limit=200, now=SystemClock().now()
            )
        )
        store.close()
    assert {timer.timer_id for timer in found} == accepted
    assert {timer.state for timer in found} == {TimerState.FIRED}


def wait_until_none_is_scheduled(server: DuetimeServer) -> None:
    """What arrived when its process was killed is not recorded yet, and fires once more."""
    deadline = time.monotonic() + SECONDS
    while server.ok("GET", "/timers", params={"state": "Scheduled", "limit": 1})["items"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
