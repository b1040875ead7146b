"""``webhook-id`` names what a receiver does once: the same for all attempts of a firing, another for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.times import format_instant
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.api import context_for
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, run
from tests.support.http import Api
from tests.support.scripted_sender import Script, ScriptedSender

URL = "http://receiver.test/"
FAST = {"initialInterval": "1s", "backoffMultiplier": 1}


class Life:
    """A timer ``t`` in virtual time: clients use the API, the poller fires, the receiver answers by script."""

    def __init__(self, store: Store, clock: VirtualClock, *answers: Script) -> None:
        self._store = store
        self._clock = clock
        self.api = Api(build_handler(context_for(store, clock)))
        remaining = list(answers)
        self.sender = ScriptedSender(lambda body: remaining.pop(0) if remaining else Script())

    def run(self, script: Callable[[], Awaitable[None]]) -> list[tuple[str, int]]:
        """What arrived: (webhook id, attempt)."""
        run(self._clock, make_poller(self._store, self.sender, self._clock), script)
        attempts = [int(str(body["attempt"])) for body in self.sender.received]
        return list(zip(self.sender.webhook_ids, attempts, strict=True))

    def put(self, **fields: Any) -> None:
        answer = self.api.put("t", {"delay": "1s", "callbackUrl": URL, "retryPolicy": FAST} | fields)
        assert answer.status in (200, 201), answer


def firings(arrived: list[tuple[str, int]]) -> list[list[int]]:
    """The attempts that arrived, by firing; fails when two firings share an id."""
    grouped: list[tuple[str, list[int]]] = []
    for webhook_id, attempt in arrived:
        if not grouped or grouped[-1][0] != webhook_id:
            grouped.append((webhook_id, []))
        grouped[-1][1].append(attempt)
    ids = [webhook_id for webhook_id, _ in grouped]
    assert len(set(ids)) == len(ids)
    return [attempts for _, attempts in grouped]


def test_all_attempts_of_a_firing_have_one_id(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, Script(503), Script(None), Script(200, b'{"ok": false}'))

    async def script() -> None:
        life.put(timeoutSeconds=2)
        await asyncio.sleep(15)

    assert firings(life.run(script)) == [[1, 2, 3, 4]]


def test_a_reschedule_is_another_firing(store: Store, clock: VirtualClock) -> None:
    next_at = format_instant(START + timedelta(seconds=10))
    rescheduling = Script(200, f'{{"nextExecuteAt": "{next_at}"}}'.encode())
    life = Life(store, clock, Script(503), rescheduling, Script(503))

    async def script() -> None:
        life.put()
        await asyncio.sleep(15)

    assert firings(life.run(script)) == [[1, 2], [1, 2]]


@pytest.mark.parametrize("same", [True, False])
def test_a_replacement_is_another_firing_whatever_it_holds(store: Store, clock: VirtualClock, same: bool) -> None:
    life = Life(store, clock)

    async def script() -> None:
        life.put(payload=1)
        await asyncio.sleep(3)
        life.put(payload=1 if same else 2)
        await asyncio.sleep(3)

    assert firings(life.run(script)) == [[1], [1]]


def test_a_replacement_between_two_attempts_is_another_firing(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, Script(503))

    async def script() -> None:
        life.put(retryPolicy={"initialInterval": "5s"})
        await asyncio.sleep(2)
        life.put()
        await asyncio.sleep(10)

    assert firings(life.run(script)) == [[1], [1]]


@pytest.mark.parametrize("change", [{"payload": "new"}, {"delay": "1s"}, {"callbackUrl": f"{URL}other"}])
def test_a_change_between_two_attempts_is_another_firing(
    store: Store, clock: VirtualClock, change: dict[str, Any]
) -> None:
    life = Life(store, clock, Script(503))

    async def script() -> None:
        life.put(retryPolicy={"initialInterval": "5s"})
        await asyncio.sleep(2)
        assert life.api.patch("t", change).status == 200
        await asyncio.sleep(10)

    assert firings(life.run(script)) == [[1], [1]]


def test_a_redrive_is_the_same_firing(store: Store, clock: VirtualClock) -> None:
    life = Life(store, clock, Script(410))

    async def script() -> None:
        life.put()
        await asyncio.sleep(3)
        assert life.api.call("POST", f"{life.api.timer('t')}/redrive").status == 200
        await asyncio.sleep(3)

    arrived = life.run(script)
    assert [attempt for _, attempt in arrived] == [1, 1]
    assert len({webhook_id for webhook_id, _ in arrived}) == 1
