"""What the poller counts, against the real SQLite store in virtual time."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from prometheus_client.exposition import generate_latest

from duetime.domain.schedules import Overlap, ScheduleMisfire, SchedulePolicy
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineSnapshot
from duetime.local.metrics import Observed, new_registry
from duetime.runtime.emf import EmfReporter
from duetime.runtime.metrics import read_snapshot, write_snapshot
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.integration.engine.test_schedules import answering, make_schedule
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run, running
from tests.support.metrics import Scrape
from tests.support.scripted_sender import Script, ScriptedSender

ONE_RETRY = '{"maxAttempts": 2, "initialInterval": "1s"}'


def snapshots(store: Store, clock: VirtualClock, sender: ScriptedSender, *, seconds: float) -> list[EngineSnapshot]:
    """Poll for ``seconds`` after what has elapsed; snapshots while it ran, a tenth of a second apart."""
    poller = make_poller(store, sender, clock)
    taken = []

    async def script() -> None:
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            taken.append(poller.snapshot())

    run(clock, poller, script)
    return [*taken, poller.snapshot()]


def test_outcomes_are_counted_by_class_and_reason(store: Store, clock: VirtualClock) -> None:
    scripts = {
        "good": Script(),
        "again": Script(body=b'{"nextExecuteAt": "2027-01-01T00:00:00Z"}'),
        "gone": Script(status=410),
        "broken": Script(status=503),
        "not-ok": Script(body=b'{"ok": false}'),
        "silent": Script(status=None),
    }
    sender = ScriptedSender(lambda body: scripts[str(body["timerId"])])
    timers = [make_timer(name, retry_policy_json=ONE_RETRY, callback_timeout_seconds=1) for name in scripts]
    put(store, timers, START)
    last = snapshots(store, clock, sender, seconds=20)[-1]
    assert {name: count for name, count in last.failed_by.items() if count} == {
        "HttpStatus": 2,
        "NotOk": 1,
        "Timeout": 1,
    }
    assert {name: count for name, count in last.retried_by.items() if count} == {
        "HttpStatus": 1,
        "NotOk": 1,
        "Timeout": 1,
    }
    assert [last.counters[name] for name in ("fired", "rescheduled", "retried", "failed")] == [1, 1, 3, 4]
    assert last.responses_by == {"none": 2, "1xx": 0, "2xx": 4, "3xx": 0, "4xx": 1, "5xx": 2}
    assert last.counters["attempts_started"] == last.counters["responses"] == 9


def test_lag_is_counted_once_per_firing_and_from_when_the_timer_could_fire(store: Store, clock: VirtualClock) -> None:
    late, past = make_timer("late"), make_timer("past", execute_at=START - timedelta(days=1))
    put(store, [late, past], START)
    clock.advance(40)  # nobody polls
    sender = ScriptedSender(lambda body: Script(status=500))
    snapshot = snapshots(store, clock, sender, seconds=10)[-1]
    assert snapshot.counters["attempts_started"] > 2
    assert sum(snapshot.lag.counts) == 2
    assert snapshot.lag.counts[snapshot.lag.bounds.index(60.0)] == 2
    assert 40 <= snapshot.lag.max < 41


def test_latency_is_the_time_that_callbacks_took(store: Store, clock: VirtualClock) -> None:
    put(store, [make_timer(f"t{number}") for number in range(3)], START)
    latency = snapshots(store, clock, ScriptedSender(lambda body: Script(delay_seconds=0.7)), seconds=3)[-1].latency
    assert latency.counts[latency.bounds.index(1.0)] == sum(latency.counts) == 3
    assert latency.sum == pytest.approx(2.1)


def test_gauges_say_what_is_in_flight_and_end_at_nothing(store: Store, clock: VirtualClock) -> None:
    put(store, [make_timer(f"t{number}") for number in range(3)], START)
    every = snapshots(store, clock, ScriptedSender(lambda body: Script(delay_seconds=6)), seconds=10)
    seen = {name: max(snapshot.gauges[name] for snapshot in every) for name in every[0].gauges}
    assert (seen["in_flight"], seen["parked"], seen["shards_owned"]) == (3, 3, 4)
    assert set(every[-1].gauges.values()) == {0}
    assert every[-1].counters["parked"] == every[-1].counters["fired"] == 3


def test_namespaces_that_the_operator_names_have_figures_of_their_own(store: Store, clock: VirtualClock) -> None:
    """And no others have, however many there are."""
    settings = EngineSettings(metrics_namespaces=("default", "idle"))
    policy = SchedulePolicy(misfire=ScheduleMisfire.LATEST, overlap=Overlap.SKIP)
    put(store, [make_schedule(every_seconds=60, policy=policy), make_timer("t", namespace="other")], START)
    poller = make_poller(store, answering(lambda *_: Script(delay_seconds=70)), clock, settings=settings)

    async def script() -> None:
        await asyncio.sleep(1830)
        await running(poller, 100)

    run_virtually(clock, script())

    snapshot = read_snapshot(write_snapshot(poller.snapshot()))
    scraped = Scrape(generate_latest(new_registry(lambda: {"w": Observed(snapshot, 0.0)})).decode())
    of_default = {"worker": "w", "namespace": "default"}
    assert scraped.labels("duetime_namespace_occurrences_missed_total", "namespace") == {"default", "idle"}
    assert scraped.value("duetime_namespace_occurrences_missed_total", **of_default) == 29
    assert scraped.value("duetime_namespace_occurrences_skipped_total", **of_default) == 1
    assert scraped.value("duetime_namespace_first_attempt_lag_seconds_count", **of_default) == 2
    assert scraped.value("duetime_first_attempt_lag_seconds_count", worker="w") == 3
    lines: list[str] = []
    EmfReporter(lines.append, clock=clock, stage="prod", function="f").report(snapshot)
    assert json.loads(lines[0])["namespace_occurrences_missed"] == {"default": 29}
