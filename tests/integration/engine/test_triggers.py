"""Triggers of schedules, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.api.http.idempotency import CLAIM_SECONDS
from duetime.stores.port.store import Store
from duetime.testing.virtual_time import VirtualClock
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
