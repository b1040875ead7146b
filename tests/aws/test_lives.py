"""Pollers on the emulator without a schedule: a life ends, starts are doubled, one is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duetime.domain.times import format_instant
from scripts.aws_local import Deployment, deploy, emulator_client, first_key
from tests.aws.application import PATIENCE_SECONDS
from tests.aws.stack import request
from tests.support.callbacks import CallbackReceiver
from tests.support.ministack import running_ministack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_SECONDS, func_only=True)]

TIMERS = "/v1/namespaces/default/timers"
LIFE_SECONDS = 192
"""Less than the template lets one have: a successor may wait from 32 s on, and a poller starts it after 122 s.

The 32 s are for its own start on a busy machine: one with less than 160 s left has no successor (``Life.of``)."""
SUCCESSION_SECONDS = 32
LEASE_SECONDS = 30
FIRING_SECONDS = 210
MARGIN = timedelta(seconds=LEASE_SECONDS / 2)
"""What a busy machine may take. A hand-over that goes wrong waits for the lease; virtual time has the exact lags."""


@pytest.fixture
def deployment(built: Path) -> Iterator[Deployment]:
    """Nothing but what a test does starts its pollers."""
    with running_ministack(checks_permissions=True) as endpoint_url:
        deployed = deploy(built, endpoint_url, DefaultNumShards="4", DrainSeconds="30")
        events = emulator_client(endpoint_url, "events")
        for rule in events.list_rules()["Rules"]:
            events.disable_rule(Name=rule["Name"])
        functions = emulator_client(endpoint_url, "lambda")
        functions.update_function_configuration(FunctionName=deployed.outputs["PollerFunction"], Timeout=LIFE_SECONDS)
        yield deployed


def test_a_life_ends_starts_are_doubled_and_a_poller_is_killed(deployment: Deployment) -> None:
    key = first_key(deployment)
    functions = emulator_client(deployment.endpoint_url, "lambda")

    def owner_after(before: str | None) -> str:
        """Who holds all four shards, when that is another than ``before``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            shards = request(deployment, "GET", "/v1/shards", key=key).json()["items"]
            owners = {shard["ownerId"] if shard["live"] else None for shard in shards}
            if len(owners) == 1 and not owners & {None, before}:
                return str(owners.pop())
            time.sleep(0.5)
        raise AssertionError(f"nobody came after {before}")

    def start_twice() -> None:
        for _ in range(2):
            functions.invoke(
                FunctionName=deployment.outputs["PollerFunction"], InvocationType="Event", Payload=b'{"wake": true}'
            )

    assert request(deployment, "PUT", "/v1/namespaces/default", {"numShards": 4}, key=key).status == 201
    with CallbackReceiver() as receiver:
        start = datetime.now(UTC)
        timers = [
            {
                "id": f"t{number}",
                "executeAt": format_instant(start + timedelta(seconds=number / 2)),
                "callbackUrl": receiver.url,
            }
            for number in range(2 * FIRING_SECONDS)
        ]
        made = request(deployment, "POST", f"{TIMERS}/batch", {"timers": timers}, key=key)  # it wakes a poller
        assert {item["status"] for item in made.json()["items"]} == {201}
        first = owner_after(None)
        begun = datetime.now(UTC)
        second = owner_after(first)  # which the first one has started
        time.sleep(SUCCESSION_SECONDS + 3)
        start_twice()
        third = owner_after(second)
        time.sleep(5)
        killed = datetime.now(UTC)
        os.kill(int(third.split(":")[1]), signal.SIGKILL)
        time.sleep(LEASE_SECONDS + 1)
        start_twice()  # as the schedule would do it
        owner_after(third)
        replaced = datetime.now(UTC)
        receiver.wait_for_timers(len(timers), timeout_seconds=PATIENCE_SECONDS)
        arrivals = list(receiver.arrivals)

    first_lag: dict[datetime, float] = {}
    again: list[datetime] = []
    for each in arrivals:
        at = datetime.fromisoformat(each.body["executeAt"])
        if at in first_lag:
            again.append(at)
        first_lag.setdefault(at, each.lateness_seconds)
    blind = {at for at in first_lag if killed - MARGIN < at < replaced + MARGIN}
    assert max(lag for at, lag in first_lag.items() if at > begun and at not in blind) < MARGIN.total_seconds()
    assert max(first_lag[at] for at in blind) < (replaced - killed + MARGIN).total_seconds()
    assert all(killed - MARGIN < at < killed + MARGIN for at in again)
