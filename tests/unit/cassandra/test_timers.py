"""Conditional batches: which go together, and which go one after another. And how long a row stays."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast

import pytest

from duetime.domain.errors import StoreError
from duetime.domain.times import to_milliseconds
from duetime.stores.backends.cassandra.backend import CassandraBackend
from duetime.stores.backends.cassandra.batches import WRITES_PER_BATCH
from duetime.stores.backends.cassandra.changes import ttl_seconds
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, PutStatus
from duetime.testing.contract.builders import make_namespace, make_timer, make_timers, seconds
from tests.support.clock import NOW

NOW_MS = to_milliseconds(NOW)


class Shards:
    """Takes what is decided, and notes how many batches of a shard are in flight at once."""

    def __init__(self, *, waits_for: int = 1) -> None:
        self.batches: list[tuple[int, int]] = []
        self.requests: list[int] = []
        """How many batches were asked for at once, request by request."""
        self.most_at_once = 0
        self._in_flight: dict[int, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._met = threading.Barrier(waits_for, timeout=0.05)

    def write_each(self, groups: Sequence[Sequence[Statement]]) -> None:
        assert not groups

    def decide_each(self, groups: Sequence[Sequence[Statement]]) -> list[bool | StoreError]:
        # The last values are those of the place, and of the condition.
        shard_ids = [group[0].values[-4] for group in groups]
        with self._lock:
            self.requests.append(len(groups))
            for shard_id, group in zip(shard_ids, groups, strict=True):
                self.batches.append((shard_id, sum(" IF " in each.cql for each in group)))
                self._in_flight[shard_id] += 1
                self.most_at_once = max(self.most_at_once, self._in_flight[shard_id])
        with suppress(threading.BrokenBarrierError):  # nobody else came, as it should be
            self._met.wait()
        with self._lock:
            for shard_id in shard_ids:
                self._in_flight[shard_id] -= 1
        return [True] * len(groups)


def store_on(shards: Shards) -> Store:
    return Store(CassandraBackend(cast("CassandraSession", shards)))


def test_batches_of_one_shard_go_one_after_another() -> None:
    shards = Shards()
    single = make_namespace(num_shards=1)

    made = store_on(shards).timers.put(make_timers(single, 70), mode=PutMode.CREATE, now=NOW)

    assert [each.status for each in made] == [PutStatus.CREATED] * 70
    assert shards.batches == [(0, WRITES_PER_BATCH), (0, WRITES_PER_BATCH), (0, 10)]
    assert shards.requests == [1, 1, 1]
    assert shards.most_at_once == 1


def test_batches_of_several_shards_go_side_by_side() -> None:
    shards = Shards()
    four = make_namespace(num_shards=4)

    store_on(shards).timers.put(make_timers(four, 40), mode=PutMode.CREATE, now=NOW)

    assert sorted(shard_id for shard_id, _ in shards.batches) == [0, 1, 2, 3]
    assert shards.requests == [4]
    assert sum(count for _, count in shards.batches) == 40


def test_threads_take_turns_at_a_shard() -> None:
    shards = Shards(waits_for=2)
    timers = store_on(shards).timers
    single = make_namespace(num_shards=1)

    with ThreadPoolExecutor(2) as executor:
        list(
            executor.map(
                lambda name: timers.put([make_timer(single, name)], mode=PutMode.CREATE, now=NOW), ["a", "b"]
            )
        )

    assert shards.most_at_once == 1
    assert len(shards.batches) == 2


@pytest.mark.parametrize(("remaining", "expected"), [(0.001, 1), (1, 1), (1.001, 2), (-5, 1), (10**8, 10**8)])
def test_a_row_is_never_gone_before_its_time(remaining: float, expected: int) -> None:
    assert ttl_seconds(to_milliseconds(NOW + seconds(remaining)), NOW_MS) == expected


def test_a_timer_that_does_not_expire_has_no_ttl() -> None:
    assert ttl_seconds(None, NOW_MS) == 0


@pytest.mark.parametrize("year", [2038, 2040, 2300])
def test_what_expires_later_than_cassandra_can_tell_stays(year: int) -> None:
    assert ttl_seconds(to_milliseconds(datetime(year, 1, 19, tzinfo=UTC)), NOW_MS) == 0
