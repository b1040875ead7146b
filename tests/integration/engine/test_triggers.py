"""Triggers of schedules, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.api.http.idempotency import CLAIM_SECONDS
from duetime.stores.core.store import Store
from duetime.testing import in_memory, respond
from duetime.testing.virtual_time import VirtualClock
from duetime_client import NewSchedule, RetryPolicy
from tests.integration.engine.test_schedules import make_schedule
from tests.support.api import context_for
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, put, run
from tests.support.http import Api
from tests.support.parts import Intercepted
from tests.support.schedule_api import PATH
from tests.support.scripted_sender import ScriptedSender


class Crash(BaseException):
    """The process is gone: nothing is tidied up."""


class CrashingAt:
    """Lets the n-th write of what it intercepts be the last one, before it is done or after."""

    WRITES = ("timers.put", "catalogue.put_idempotency_record")

    def __init__(self, crash_at: int, *, is_written: bool) -> None:
        self._left = crash_at
        self._is_written = is_written

    def __call__(self, name: str, operation: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        if name in self.WRITES:
            self._left -= 1
            if not self._left:
                if self._is_written:
                    operation(*arguments, **more)
                raise Crash
        return operation(*arguments, **more)


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("crash_at", [1, 2, 3])
@pytest.mark.parametrize("is_changed", [True, False], ids=["changed meanwhile", "unchanged"])
def test_a_trigger_that_is_repeated_by_its_key_after_a_crash_is_one_firing(
    store: Store, clock: VirtualClock, crash_at: int, is_written: bool, is_changed: bool
) -> None:
    """It claims the key, stores the timer, keeps the response."""
    put(store, [make_schedule(every_seconds=3600, expire_after_ms=5000)], START)
    context = context_for(store, clock)
    crashing = Intercepted(store, CrashingAt(crash_at, is_written=is_written))
    sender = ScriptedSender()

    def trigger(api: Api, key: str) -> Any:
        return api.call("POST", f"{PATH}/s1/trigger", headers={"idempotency-key": key})

    async def script() -> None:
        api = Api(build_handler(context))
        assert trigger(api, "another").status == 200
        first = Api(build_handler(context_for(crashing, clock, new_id=lambda: "crashing")))
        with pytest.raises(Crash):
            trigger(first, "k")
        if is_changed:
            assert api.call("PATCH", f"{PATH}/s1", {"payload": {"n": 2}}).status == 200
        await asyncio.sleep(CLAIM_SECONDS + 1)
        again = trigger(api, "k")
        assert again.status == 200, again.text
        await asyncio.sleep(2)
        sent = [body for body in sender.received if body["scheduledAt"] == again.json()["scheduledAt"]]
        assert len(sent) == 1
        assert sender.webhook_ids.count(again.json()["firingId"]) == 1

    run(clock, make_poller(store, sender, clock), script)

    assert len(sender.received) == 2, "it, and that of another key"


def test_what_is_triggered_stands_in_the_history_with_its_outcome() -> None:
    with in_memory() as duetime:
        schedules, receiver = duetime.client.schedules, duetime.receiver
        once = RetryPolicy(max_attempts=1)
        new = NewSchedule(callback_url="https://app.example.com/hook", every=timedelta(hours=1), retry_policy=once)
        schedules.create("default", new, schedule_id="s")
        duetime.clock.advance(hours=2.5)
        receiver.answer(respond(200, delay=timedelta(seconds=5)), 500, 200)
        seen = []
        for _ in range(2):
            schedules.trigger("default", "s")
            duetime.clock.advance(seconds=3)
            seen.append(schedules.occurrences("default", "s", count=1).past[0].state)
            duetime.clock.advance(seconds=10)
        duetime.clock.advance(hours=1)

        past = schedules.occurrences("default", "s").past

        assert seen == ["Ongoing", "Failed"]
        assert [(each.number, each.kind, each.state) for each in past] == [
            (3, "Scheduled", "Fired"),
            (0, "Triggered", "Failed"),
            (0, "Triggered", "Fired"),
            (2, "Scheduled", "Fired"),
            (1, "Scheduled", "Fired"),
        ]
        failed = past[1]
        assert failed.failure is not None
        assert (failed.failure.status, failed.attempts, failed.started_at is not None) == (500, 1, True)
        assert len(schedules.occurrences("default", "s", count=2).past) == 2

        schedules.delete("default", "s")
        schedules.create("default", new, schedule_id="s")
        assert schedules.occurrences("default", "s").past == ()
