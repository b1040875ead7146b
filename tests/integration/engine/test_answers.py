"""Firings that wait in virtual time: a receiver takes the work with a 202 and answers later by the signed URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from duetime.api.handler import build_handler
from duetime.api.http.errors import Unauthenticated
from duetime.api.http.request import Request
from duetime.domain.principals import Principal
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.integration.engine.test_failure_events import Bus
from tests.integration.engine.test_missed_occurrences import CrashingStore
from tests.support.api import context_for
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run, running
from tests.support.http import Answer, Api
from tests.support.parts import Intercepted, Outage
from tests.support.scripted_sender import Script, ScriptedSender

PUBLIC_URL = "https://timers.example.com/base"
SETTINGS = EngineSettings(public_url=PUBLIC_URL)
TWICE = {"maxAttempts": 2, "initialInterval": "4s", "backoffMultiplier": 1}


def _refuse(request: Request) -> Principal:
    raise Unauthenticated("there are no keys", was_given=request.header("authorization") is not None)


def taken(within: object = "10m") -> Script:
    return Script(202, json.dumps({"ack": {"within": within}}).encode())


class Life:
    """A timer ``t``, due after a second. Answers come by signed URLs, to an API that knows no key."""

    def __init__(self, store: Store, clock: VirtualClock, *scripts: Script) -> None:
        self._store, self._clock = store, clock
        self.open_api = Api(build_handler(context_for(store, clock)))
        self.api = Api(build_handler(replace(context_for(store, clock), authenticate=_refuse)))
        self.scripts = list(scripts)
        self.sender = ScriptedSender(lambda body: self.scripts.pop(0) if self.scripts else Script())
        self.poller = make_poller(store, self.sender, clock, settings=SETTINGS)

    def put(self, **fields: Any) -> None:
        body = {"delay": "1s", "callbackUrl": "http://receiver.test/", "retryPolicy": TWICE, "payload": {"n": 1}}
        assert self.open_api.put("t", body | fields).status in (200, 201)

    def run(self, script: Callable[[], Awaitable[None]] | float) -> None:
        run(self._clock, self.poller, script)

    def url(self, answer: str = "ack", *, attempt: int = 1) -> str:
        """The URL of the callback of an attempt, as its receiver makes it of ``ackUrl``."""
        (url,) = {str(body["ackUrl"]) for body in self.sender.received if body["attempt"] == attempt}
        assert url.startswith(PUBLIC_URL)
        return url.removeprefix(PUBLIC_URL).replace("/ack?", f"/{answer}?")

    def answer(self, answer: str = "ack", body: dict[str, Any] | None = None, *, attempt: int = 1) -> Answer:
        parts = urlsplit(self.url(answer, attempt=attempt))
        return self.api.call("POST", parts.path, body, query=parts.query)

    @property
    def timer(self) -> dict[str, Any]:
        return dict(self.open_api.read("t").json())

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return list(self.open_api.call("GET", f"{self.open_api.timers}/t/attempts").json()["items"])


def test_work_that_is_acknowledged_in_time_is_fired_once(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken())
    life.put()

    async def script() -> None:
        await asyncio.sleep(30)
        waiting, (attempt,) = life.timer, life.attempts
        assert (waiting["state"], waiting["attempts"], waiting["failure"]) == ("Waiting", 0, None)
        assert (attempt["outcome"], attempt["status"], attempt["number"]) == ("Waiting", 202, 1)
        cancelled = life.open_api.call("POST", f"{life.open_api.timers}/t/cancel")
        assert (cancelled.status, cancelled.code) == (409, "attempt_in_flight")
        assert "nack with retry false ends it" in cancelled.json()["detail"]
        answer = life.answer()
        assert (answer.status, answer.json()["outcome"], answer.json()["answerBy"]) == (200, "Fired", None)
        await asyncio.sleep(2)

    life.run(script)

    (attempt,) = life.attempts
    assert (life.timer["state"], life.timer["attempts"]) == ("Fired", 1)
    assert (attempt["outcome"], attempt["durationMs"] // 1000) == ("Fired", 29)
    assert len(life.sender.received) == 1
    counters = life.poller.stats()
    assert (counters["waiting"], counters["fired"], counters["retried"]) == (1, 1, 0)


def test_silence_until_the_deadline_is_a_failed_attempt(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken("1m"))
    life.put()

    life.run(90)

    first, second = life.attempts
    assert (first["outcome"], first["reason"]) == ("Retry", "Timeout")
    assert "has not said by 20" in first["message"]
    assert (second["outcome"], second["number"]) == ("Fired", 2)
    sent = [body["firedAt"] for body in life.sender.received]
    assert len(sent) == 2
    assert life.timer["state"] == "Fired"
    assert len(set(life.sender.webhook_ids)) == 1


def test_silence_at_the_last_attempt_is_a_dead_letter(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken("1m"))
    bus = Bus()
    life.poller = make_poller(store, life.sender, clock, settings=SETTINGS, events=bus)
    life.put(retryPolicy={"maxAttempts": 1})

    life.run(90)

    assert (life.timer["state"], life.timer["failure"]["reason"], life.timer["attempts"]) == ("Failed", "Timeout", 1)
    (event,) = bus.taken
    assert (event.document()["reason"], event.document()["attempts"]) == ("Timeout", 1)
    assert life.answer().code == "firing_over"


@pytest.mark.parametrize(
    ("body", "state", "outcomes"),
    [(None, "Fired", ["Retry", "Fired"]), ({"retry": False, "message": "no ink"}, "Failed", ["Failed"])],
    ids=["retried", "final"],
)
def test_work_that_failed_is_tried_again_unless_that_is_no_use(
    store: Store, clock: VirtualClock, body: dict[str, Any] | None, state: str, outcomes: list[str]
) -> None:
    life = Life(store, clock, taken())
    life.put()

    async def script() -> None:
        await asyncio.sleep(60)
        answer = life.answer("nack", body)
        assert (answer.status, answer.json()["outcome"]) == (200, outcomes[0])
        await asyncio.sleep(20)
        assert life.answer("nack", body).json() == answer.json(), "again, it changes nothing"

    life.run(script)

    attempts = life.attempts
    assert life.timer["state"] == state
    assert [each["outcome"] for each in attempts] == outcomes
    assert attempts[0]["reason"] == "Nack"
    assert attempts[0]["body"] == ("no ink" if body else '{"ack": {"within": "10m"}}')


def test_heartbeats_prolong_the_wait(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken("20s"))
    life.put(retryPolicy={"maxAttempts": 1})

    async def script() -> None:
        for _ in range(3):
            await asyncio.sleep(15)
            assert life.answer("heartbeat", {"within": "20s"}).json()["outcome"] == "Waiting"
        assert life.timer["state"] == "Waiting"
        answer_by = life.answer("heartbeat", {"within": "5s"}).json()["answerBy"]
        assert answer_by == life.timer["nextAttemptAt"]
        await asyncio.sleep(10)

    life.run(script)

    assert life.timer["failure"]["reason"] == "Timeout"
    assert len(life.sender.received) == 1


def test_an_answer_before_the_202_is_recorded_is_to_come_again(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, Script(202, b'{"ack": {"within": "10m"}}', delay_seconds=10))
    life.put()

    async def script() -> None:
        await asyncio.sleep(5)
        for _ in range(2):  # in flight, and parked
            early = life.answer()
            assert (early.status, early.code, early.headers["retry-after"]) == (409, "firing_not_waiting", "1")
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        assert life.answer().status == 200
        await asyncio.sleep(2)

    life.run(script)

    assert life.timer["state"] == "Fired"
    assert len(life.sender.received) == 1


def test_an_answer_for_an_attempt_that_is_over_changes_nothing(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken("10s"), taken("10m"))
    life.put()

    async def script() -> None:
        await asyncio.sleep(30)
        assert life.answer("nack").code == "firing_over"
        assert life.answer("heartbeat", {"within": "1h"}).code == "firing_over"
        assert life.answer(attempt=2).status == 200
        assert life.answer("nack", attempt=2).code == "firing_over", "the first answer counts"
        await asyncio.sleep(2)
        assert life.answer(attempt=2).json()["outcome"] == "Fired", "again, it changes nothing"
        life.put(payload={"n": 2}, delay="1h")
        assert life.answer(attempt=2).code == "firing_over", "of the firing before"
        life.open_api.call("DELETE", f"{life.open_api.timers}/t")
        assert life.answer(attempt=2).code == "timer_not_found"

    life.run(script)


def test_a_signature_is_good_for_its_own_attempt_alone(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken("10m"))
    life.put()
    life.open_api.put("u", {"delay": "1h", "callbackUrl": "http://receiver.test/"})

    async def script() -> None:
        await asyncio.sleep(5)
        parts = urlsplit(life.url())
        for path, query in (
            (parts.path, parts.query.replace("attempt=1", "attempt=2")),
            (parts.path, parts.query.replace("attempt=1&", "")),
            (parts.path, parts.query[:-1] + ("A" if parts.query[-1] != "A" else "B")),
            (parts.path, "attempt=1&signature="),
            (parts.path, "attempt=1"),
            (parts.path.replace("/timers/t/", "/timers/u/"), parts.query),
            (parts.path.replace("/default/", "/elsewhere/"), parts.query),
            (parts.path.replace("/timers/t/", "/schedules/t/"), f"{parts.query}&scheduledAt=2026-01-01T00:00:00Z"),
        ):
            assert life.api.call("POST", path, query=query).status == 401, (path, query)
        assert life.timer["state"] == "Waiting"

    life.run(script)


def test_a_url_is_good_for_nothing_after_a_redrive(store: Store, clock: VirtualClock) -> None:
    """The attempts of the same firing are numbered from 1 again."""
    life = Life(store, clock, taken("5s"), taken("10m"))
    life.put(retryPolicy={"maxAttempts": 1})

    async def script() -> None:
        await asyncio.sleep(10)
        old = urlsplit(life.url("nack"))
        life.sender.received.clear()
        assert life.open_api.call("POST", f"{life.open_api.timers}/t/redrive").status == 200
        await asyncio.sleep(5)
        assert life.api.call("POST", old.path, {"retry": False}, query=old.query).code == "firing_over"
        assert life.timer["state"] == "Waiting"
        assert life.answer().json()["outcome"] == "Fired"
        await asyncio.sleep(2)

    life.run(script)

    assert life.timer["state"] == "Fired"


def test_nothing_is_stored_for_a_signature_that_is_wrong(store: Store, clock: VirtualClock) -> None:
    kept: list[object] = []

    def operate(name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        kept.extend(arguments if name == "catalogue.put_idempotency_record" else ())
        return operation(*arguments, **named)

    context = context_for(Intercepted(store, operate), clock)
    api = Api(build_handler(replace(context, authenticate=_refuse)))
    headers = {"idempotency-key": "k"}
    path = f"{api.timers}/t/firings/f/ack"

    assert api.call("POST", path, query="attempt=1&signature=x", headers=headers).status == 401
    assert kept == []


def test_without_a_public_url_the_key_way_works(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken())
    life.poller = make_poller(store, life.sender, clock)
    life.put()

    async def script() -> None:
        await asyncio.sleep(5)
        assert "ackUrl" not in life.sender.received[0]
        path = f"{life.open_api.timers}/t/firings/{life.sender.webhook_ids[0]}/ack"
        assert life.open_api.call("POST", path).status == 200
        await asyncio.sleep(2)

    life.run(script)

    assert life.timer["state"] == "Fired"


def test_a_change_of_labels_keeps_the_wait_and_another_message_ends_it(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, taken())
    life.put()

    async def script() -> None:
        await asyncio.sleep(5)
        life.open_api.patch("t", {"tags": ["x"]})
        assert life.timer["state"] == "Waiting"
        for action in ("cancel", "fire"):
            assert life.open_api.call("POST", f"{life.open_api.timers}/t/{action}").code == "attempt_in_flight"
        life.open_api.patch("t", {"payload": 2})
        await asyncio.sleep(2)

    life.run(script)

    assert life.timer["state"] == "Fired"
    assert [body["payload"] for body in life.sender.received] == [{"n": 1}, 2]


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("crash_at", [1, 2])
def test_a_crash_loses_no_answer(store: Store, clock: VirtualClock, crash_at: int, is_written: bool) -> None:
    """As the wait is recorded, and as what the answer means is."""
    life = Life(store, clock, taken(), taken())
    life.put()
    crashing = CrashingStore(store, crash_at=crash_at, is_written=is_written)

    async def answering() -> None:
        while not life.sender.received or life.timer["state"] != "Waiting":
            await asyncio.sleep(1)
        assert life.answer().status == 200

    async def script() -> None:
        poller = make_poller(crashing, life.sender, clock, settings=SETTINGS)
        first = asyncio.create_task(poller.run(asyncio.Event(), deadline=None))
        answer = asyncio.create_task(answering())
        await crashing.has_crashed.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        other = life.sender.for_another_poller()
        await running(make_poller(store, other, clock, worker_id="worker-b", settings=SETTINGS), 60)
        await answer

    run_virtually(clock, script())

    assert (life.timer["state"], life.timer["attempts"]) == ("Fired", 1)
    is_doubled = crash_at == 1 and not is_written
    assert len(life.sender.received) == (2 if is_doubled else 1), "but what was in flight when the poller died"


def test_deadlines_that_pass_while_nothing_can_be_recorded_wait_in_the_store(
    store: Store, clock: VirtualClock
) -> None:
    settings, unrecorded = EngineSettings(max_buffered=100, page_size=20), []
    put(store, [make_timer(f"t{number}") for number in range(600)], START)
    outage = Outage(store, "timers.record")

    async def script() -> None:
        await asyncio.sleep(30)
        outage.is_down = True
        await asyncio.sleep(90)
        unrecorded.append(poller.snapshot().gauges["unrecorded"])
        outage.is_down = False
        await asyncio.sleep(60)

    sender = ScriptedSender(lambda body: taken("1m") if body["attempt"] == 1 else Script())
    poller = make_poller(outage, sender, clock, settings=settings)
    run(clock, poller, script)

    # What shards were read before it was full is taken whole.
    assert 100 <= unrecorded[0] <= 100 + 20 * 16
    assert poller.stats()["fired"] == 600
