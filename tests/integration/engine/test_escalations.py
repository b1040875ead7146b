"""Escalations in virtual time: another URL is told of each failure, once recorded, and of nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.delivery.egress import EgressPolicy
from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.times import parse_instant
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.integration.engine.test_missed_occurrences import CrashingStore
from tests.integration.engine.test_schedules import history, make_schedule
from tests.support.api import context_for
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, put, run, running
from tests.support.http import Api
from tests.support.parts import Outage
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.tenants import TARGET_ARN

HOOK, ALERTS = "http://receiver.test/", "http://alerts.test/"
ONCE = {"maxAttempts": 1, "escalateUrl": ALERTS}
TWICE = ONCE | {"maxAttempts": 2, "initialInterval": "4s"}


def failing(body: dict[str, Any]) -> Script:
    return Script() if "type" in (body["payload"] or {}) else Script(503)


class Receivers(ScriptedSender):
    """``alerts`` are the bodies that came to the other URL."""

    def __init__(self, script: Callable[[dict[str, Any]], Script]) -> None:
        super().__init__(script)
        self.alerts: list[dict[str, Any]] = []

    def for_another_poller(self) -> Receivers:
        other = Receivers(self.script)
        other.received, other.webhook_ids, other.alerts = self.received, self.webhook_ids, self.alerts
        return other

    def result_of(self, callback: Callback) -> CallbackResult:
        if callback.url in (ALERTS, TARGET_ARN):
            assert callback.body is not None
            assert not any(line.lower().startswith("authorization") for line in callback.headers)
            self.alerts.append(json.loads(callback.body))
        return super().result_of(callback)


class Life:
    """A timer ``t``, due after a second, whose receiver does what ``script`` says. Alerts are taken."""

    def __init__(
        self, store: Store, clock: VirtualClock, script: Callable[[dict[str, Any]], Script] = failing
    ) -> None:
        self._clock = clock
        context = replace(context_for(store, clock), egress=EgressPolicy(allow_targets=(TARGET_ARN,)))
        self.api = Api(build_handler(context))
        self.sender = Receivers(script)
        self.poller = make_poller(store, self.sender, clock)

    def put(self, **fields: Any) -> None:
        body = {"delay": "1s", "callbackUrl": HOOK, "retryPolicy": ONCE, "payload": {"n": 1}}
        assert self.api.put("t", body | fields).status in (200, 201)

    def run(self, script: Any) -> None:
        run(self._clock, self.poller, script)

    def read(self, timer_id: str = "t") -> dict[str, Any]:
        return dict(self.api.read(timer_id).json())

    @property
    def escalation(self) -> dict[str, Any]:
        """The timer that the failure of ``t`` names."""
        return self.read(self.read()["failure"]["escalationId"])

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return self.sender.alerts


def test_what_is_exhausted_is_escalated(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock)
    life.put(retryPolicy=TWICE, headers={"authorization": "of the receiver"}, correlationId="c", tags=["x"])

    life.run(60)

    assert (life.read()["state"], life.read()["attempts"]) == ("Failed", 2)
    (alert,) = life.alerts
    failed = alert["payload"]
    assert (failed["type"], failed["timerId"], failed["reason"], failed["status"]) == (
        "timer.failed",
        "t",
        "HttpStatus",
        503,
    )
    assert (failed["attempts"], failed["payload"]) == (2, {"n": 1})
    assert (alert["timerId"], alert["attempt"]) == (life.escalation["id"], 1)
    escalation = life.escalation
    assert (escalation["state"], escalation["callbackUrl"]) == ("Fired", ALERTS)
    assert (escalation["correlationId"], escalation["tags"], escalation["headers"]) == ("c", ["x"], None)
    assert escalation["retryPolicy"]["escalateUrl"] is None
    assert parse_instant(alert["firedAt"]) - parse_instant(failed["failedAt"]) < timedelta(seconds=0.5)


def test_a_target_is_told_in_the_place_of_a_url(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock)
    policy = ONCE | {"escalateUrl": None, "escalateTarget": {"arn": TARGET_ARN}}
    life.put(retryPolicy=policy)

    life.run(30)

    (alert,) = life.alerts
    assert (life.escalation["state"], life.escalation["target"]) == ("Fired", {"arn": TARGET_ARN})
    assert alert["payload"]["payload"] == {"n": 1}


@pytest.mark.parametrize(
    ("answer", "fields", "reason"),
    [
        (Script(404), {}, "HttpStatus"),
        (Script(200, b'{"ok": false}'), {}, "NotOk"),
        (Script(202, b'{"ack": {"within": "5s"}}'), {}, "Timeout"),
        (Script(), {"executeAt": "2020-01-01T00:00:00Z", "delay": None, "expireAfter": "1m"}, "Expired"),
    ],
    ids=["refused", "not ok", "no answer", "too late"],
)
def test_all_that_ends_as_failed_is_escalated(
    store: Store, clock: VirtualClock, answer: Script, fields: dict[str, Any], reason: str
) -> None:
    life = Life(store, clock, lambda body: failing(body) if failing(body).status == 200 else answer)
    life.put(**fields)

    life.run(30)

    (alert,) = life.alerts
    assert alert["payload"]["reason"] == reason == life.read()["failure"]["reason"]


def test_what_fires_or_is_called_off_is_not_escalated(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, lambda body: Script() if body["timerId"] == "good" else Script(503, delay_seconds=1))
    life.api.put("good", {"delay": "1s", "callbackUrl": HOOK, "retryPolicy": ONCE})
    life.put(delay="10s")

    async def script() -> None:
        await asyncio.sleep(10.5)
        assert life.api.call("POST", f"{life.api.timers}/t/cancel").status == 200, (
            "while its last attempt is in flight"
        )
        await asyncio.sleep(20)

    life.run(script)

    assert (life.read("good")["state"], life.read()["state"]) == ("Fired", "Cancelled")
    assert len(life.sender.received) == 2


def test_a_dead_mans_switch_fires_when_the_heartbeat_stops(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, lambda _: Script())

    async def script() -> None:
        for _ in range(5):
            life.put(delay="10s")
            await asyncio.sleep(8)
        assert life.sender.received == []
        await asyncio.sleep(5)

    life.run(script)

    assert len(life.sender.received) == 1
    assert life.read()["state"] == "Fired"


def test_an_escalation_is_retried_and_its_own_failure_is_not_escalated(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, lambda _: Script(404))
    life.put()

    life.run(30)

    assert life.escalation["state"] == "Failed"
    assert (life.escalation["failure"]["escalationId"], len(life.sender.received)) == (None, 2)
    life.sender.script = lambda body: Script(503 if body["attempt"] == 1 else 200)
    assert life.api.call("POST", f"{life.api.timers}/{life.escalation['id']}/redrive").status == 200
    life.run(30)
    assert (life.escalation["state"], life.escalation["attempts"]) == ("Fired", 2)
    assert len(set(life.sender.webhook_ids[1:])) == 1


def test_a_redriven_timer_escalates_again_as_another_message(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock)
    life.put()
    life.run(10)
    first = life.escalation["id"]

    life.api.call("POST", f"{life.api.timers}/t/redrive")
    life.run(10)

    assert life.escalation["id"] != first
    assert len({alert["timerId"] for alert in life.alerts}) == len(life.alerts) == 2


def test_a_slow_receiver_is_escalated_too(store: Store, clock: VirtualClock) -> None:
    """Its timer is parked by then, and belongs to no lease."""
    life = Life(
        store, clock, lambda body: failing(body) if failing(body).status == 200 else Script(503, delay_seconds=6)
    )
    life.put()

    life.run(20)

    assert life.poller.stats()["parked"] == 1
    assert life.escalation["state"] == "Fired"


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("crash_at", [1, 2])
def test_a_crash_loses_no_escalation(store: Store, clock: VirtualClock, crash_at: int, is_written: bool) -> None:
    """As the failure is recorded, and as the end of its escalation is."""
    life = Life(store, clock)
    life.put()
    crashing = CrashingStore(store, crash_at=crash_at, is_written=is_written)
    other = life.sender.for_another_poller()

    async def script() -> None:
        poller = make_poller(crashing, life.sender, clock)
        first = asyncio.create_task(poller.run(asyncio.Event(), deadline=None))
        await crashing.has_crashed.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await running(make_poller(store, other, clock, worker_id="worker-b"), 60)

    run_virtually(clock, script())

    assert (life.read()["state"], life.escalation["state"]) == ("Failed", "Fired")
    alerts = life.alerts
    is_doubled = crash_at == 2 and not is_written
    assert len(alerts) == (2 if is_doubled else 1), "only what was sent and not recorded comes again"
    assert len({alert["timerId"] for alert in alerts}) == 1
    assert {alert["payload"]["attempts"] for alert in alerts} == {1}


def test_an_outage_of_the_store_delays_the_escalation(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock)
    life.put()
    outage = Outage(store, "timers.record")
    outage.is_down = True

    async def script() -> None:
        await asyncio.sleep(20)
        assert life.alerts == []
        outage.is_down = False
        await asyncio.sleep(20)

    life.poller = make_poller(outage, life.sender, clock)
    life.run(script)

    assert len(life.alerts) == 1


@pytest.mark.parametrize("attempts", [1, 2], ids=["at once", "as a timer of its own"])
def test_an_occurrence_that_fails_is_escalated_and_its_schedule_moves_on(
    store: Store, clock: VirtualClock, attempts: int
) -> None:
    policy = TWICE | {"maxAttempts": attempts}
    put(store, [make_schedule(retry_policy_json=json.dumps(policy), payload_json='{"n": 1}', end_seconds=25)], START)
    sender = Receivers(failing)

    run(clock, make_poller(store, sender, clock), 60)

    alerts = sender.alerts
    assert [alert["payload"]["scheduleId"] for alert in alerts] == ["s1", "s1"]
    assert [alert["payload"]["executeAt"][17:19] for alert in alerts] == ["10", "20"]
    assert [alert["payload"]["attempts"] for alert in alerts] == [attempts, attempts]
    failures = [line.failure for line in history(store, clock)]
    assert [failure and failure.escalation_id for failure in failures] == [alert["timerId"] for alert in alerts]
