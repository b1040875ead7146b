"""What the engine does at the limits of DynamoDB, in a model of them (``python -m benchmarks.dynamodb_limits``)."""

from __future__ import annotations

import pytest

from tests.support.dynamodb_model import Found, Limits, simulate

SHARDS = 4
SECONDS = 5.0
SMALL = Limits(shard_units=100)
"""25 timers a second of each shard."""


def most_lag(found: Found) -> float:
    assert len(found.lags) == found.created, "each is fired once, late or not"
    return max(found.lags)


def test_below_the_units_of_the_shards_timers_are_on_time() -> None:
    found = simulate(rate=80, seconds=SECONDS, shards=SHARDS, pollers=1, limits=SMALL)

    assert most_lag(found) < 0.2
    assert (found.created, found.refused) == (80 * SECONDS, 0)


def test_above_them_they_are_late_and_none_is_lost() -> None:
    found = simulate(rate=160, seconds=SECONDS, shards=SHARDS, pollers=1, limits=SMALL)

    assert most_lag(found) > 0.5
    assert found.put_off > 0
    assert found.ended_seconds < 2 * SECONDS


def test_creates_that_the_table_has_no_units_for_are_refused_and_the_others_fire() -> None:
    found = simulate(rate=400, seconds=SECONDS, shards=SHARDS, pollers=1, limits=Limits(table_units=400))

    most_lag(found)
    assert found.created + found.refused == 400 * SECONDS
    assert found.refused > 0
    assert found.ended_seconds < 60


@pytest.mark.parametrize(("pollers", "is_late"), [(1, True), (2, False)])
def test_a_poller_fires_what_its_processor_can(pollers: int, is_late: bool) -> None:
    found = simulate(
        rate=80, seconds=SECONDS, shards=SHARDS, pollers=pollers, limits=Limits(callback_cpu_seconds=0.02)
    )

    assert (most_lag(found) > 0.5) is is_late
