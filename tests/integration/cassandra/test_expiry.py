"""Rows that end by themselves, and the year 2038, beyond which a server that is set up as usual tells no time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from duetime.domain.errors import StoreError
from duetime.domain.timers import TimerState
from duetime.stores.backends.cassandra.layout import place_of
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.testing.contract.builders import fired, make_timer, seconds
from duetime.testing.contract.steps import claim, create, record, stored
from tests.support.cassandra import session_of, store_over
from tests.support.clock import NOW

TTL = "SELECT TTL(timer_state) AS ttl FROM timers WHERE shard_id = 0 AND row_kind = 'timer' AND place = ?"
YEAR_SECONDS = 365 * 86_400
GONE_SECONDS = 60.0
"""By when a row is gone that is to end after a second."""
TO_2037 = (datetime(2037, 12, 31, tzinfo=UTC) - NOW).total_seconds()


def rows(store: Store, timer_id: str) -> list[dict[str, Any]]:
    return session_of(store).read(Statement(TTL, (place_of(TIMER, (0, "single", timer_id)),)))


def ttl(store: Store, timer_id: str) -> Any:
    return rows(store, timer_id)[0]["ttl"]


def check_expiry(store: Store, *, has_limit: bool) -> None:
    """``has_limit``: the server refuses what would end later than 2038. Duetime never asks for it: it stays then."""
    single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
    ends = {
        "2037": NOW + seconds(TO_2037),
        "2038": datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
        "2300": datetime(2300, 1, 1, tzinfo=UTC),
    }
    timers = create(store, *(make_timer(single, name) for name in ends))
    lease = claim(store)
    record(store, [replace(fired(timer), expires_at=ends[timer.timer_id]) for timer in timers], lease)

    assert {name: stored(store, single, name).state for name in ends} == dict.fromkeys(ends, TimerState.FIRED)
    assert TO_2037 - 600 < ttl(store, "2037") <= TO_2037
    assert ttl(store, "2038") is None
    assert ttl(store, "2300") is None

    with pytest.raises(StoreError, match="2038") if has_limit else nullcontext():
        session_of(store).write([_worker_for(12 * YEAR_SECONDS)])
    with pytest.raises(StoreError, match="ttl is too large"):
        session_of(store).write([_worker_for(20 * YEAR_SECONDS + 1)])


def _worker_for(ttl_seconds: int) -> Statement:
    cql = "UPDATE workers USING TTL ? SET is_there = true WHERE worker_group = ? AND row_kind = ? AND place = ?"
    return Statement(cql, (ttl_seconds, "group", "worker", b"id"))


def test_nothing_is_to_end_later_than_the_server_can_tell() -> None:
    """With ``storage_compatibility_mode: CASSANDRA_4``. With NONE: tests/crash/test_cassandra_nodes.py."""
    with store_over() as store:
        check_expiry(store, has_limit=True)


def test_a_timer_that_has_ended_goes_by_itself() -> None:
    with store_over() as store:
        single = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        timers = create(store, make_timer(single, "soon"), make_timer(single, "later"))
        ends = {"soon": NOW + seconds(1), "later": NOW + seconds(3600)}
        lease = claim(store)
        record(store, [replace(fired(timer), expires_at=ends[timer.timer_id]) for timer in timers], lease)
        give_up = time.monotonic() + GONE_SECONDS
        while rows(store, "soon"):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        assert store.timers.get(single, "soon", now=NOW) is None
        assert stored(store, single, "later").state is TimerState.FIRED
