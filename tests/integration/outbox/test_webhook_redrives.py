"""Dead letters of webhooks are redriven in virtual time: each call's events keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from duetime.app.pages import PageOfWork
from duetime.app.redrives import redrive_refs
from duetime.app.timers import Timers
from duetime.domain.timers import TimerState
from duetime.stores.port.timers import TimerFilter, TimerRef
from tests.support.dynamodb import moto_subject
from tests.support.outbox import make_event
from tests.support.scripted_sender import Script
from tests.support.stores import memory_store
from tests.support.webhooks import WebhookWorld, event_in, life

CALL_IDS = [f"call-{number}" for number in range(6)]


@pytest.fixture(params=["sqlite", "dynamodb"])
def any_world(request: pytest.FixtureRequest) -> Iterator[WebhookWorld]:
    if request.param == "sqlite":
        with memory_store() as opened:
            yield WebhookWorld(opened)
    else:
        with moto_subject() as subject:
            yield WebhookWorld(subject.store)


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def redrive_pages(world: WebhookWorld, limit: int, **conditions: Any) -> int:
    """How many were redriven by pages of ``limit``."""
    use_cases = Timers(world.store, world.clock, world.notify, retention=timedelta(days=1))
    cursor, redriven = None, 0
    while True:
        work = PageOfWork(cursor, limit, world.clock.now())
        page = use_cases.redrive_page(world.namespace(), TimerFilter(**conditions), work, correlation_id=None)
        redriven += len(page.redriven)
        cursor = page.next_cursor
        if cursor is None:
            return redriven


class Receiver:
    """Answers ``status``; what it has taken, by call, in order of arrival."""

    def __init__(self, world: WebhookWorld) -> None:
        self.status = 410
        self.taken: dict[str, list[int]] = {call_id: [] for call_id in CALL_IDS}
        world.sender.answer = self._answer

    def _answer(self, request: Any) -> Script:
        event = event_in(request)
        if self.status == 204:
            self.taken[event["aggregateId"]].append(event["sequence"])
        return Script(status=self.status, delay_seconds=0.01)


async def all_dead(world: WebhookWorld) -> Receiver:
    receiver = Receiver(world)
    await sleep(1)
    world.emit(*(event for call_id in CALL_IDS for event in life(call_id)))
    await sleep(10)
    assert set(world.states()) == {TimerState.FAILED}
    return receiver


@pytest.mark.parametrize(
    ("any_world", "limit"),
    # What a page is, is decided above the stores: on the slow one a single size shows that its pages are read on.
    [*(("sqlite", limit) for limit in (1, 5, 20, 100)), ("dynamodb", 5)],
    indirect=["any_world"],
)
def test_dead_letters_that_are_redriven_by_pages_keep_the_order_of_each_call(
    any_world: WebhookWorld, limit: int
) -> None:
    any_world.add_webhook()
    taken: dict[str, list[int]] = {}

    async def script() -> None:
        receiver = await all_dead(any_world)
        receiver.status = 204
        assert redrive_pages(any_world, limit) == 7 * len(CALL_IDS)
        await sleep(40)
        taken.update(receiver.taken)

    any_world.run(script)
    assert taken == {call_id: [1, 2, 3, 4, 5, 6, 7] for call_id in CALL_IDS}


def test_of_what_a_filter_chooses_the_order_is_kept_too_and_the_rest_stays(world: WebhookWorld) -> None:
    world.add_webhook()
    chosen = str(life()[3].type)
    wanted = [event.sequence for event in life() if str(event.type) == chosen]

    async def script() -> None:
        receiver = await all_dead(world)
        receiver.status = 204
        redrive_pages(world, 3, tag=chosen)
        await sleep(40)
        assert receiver.taken == dict.fromkeys(CALL_IDS, wanted)

    world.run(script)


def test_before_one_that_is_redriven_go_the_dead_letters_before_it(any_world: WebhookWorld) -> None:
    """In any order by hand, also the last one first: what is redriven already is not redriven again."""
    world = any_world
    world.add_webhook()
    taken: dict[str, list[int]] = {}

    async def script() -> None:
        receiver = await all_dead(world)
        receiver.status = 204
        for sequence in (5, 2, 7):
            refs = [TimerRef(f"{call_id}.{sequence}") for call_id in CALL_IDS]
            done = redrive_refs(world.store, world.namespace(), refs, now=world.clock.now())
            world.notify(done.redriven)
            await sleep(0.1)
        await sleep(40)
        taken.update(receiver.taken)

    world.run(script)
    assert taken == {call_id: [1, 2, 3, 4, 5, 6, 7] for call_id in CALL_IDS}


def test_events_that_come_while_a_call_is_redriven_wait_for_what_was(any_world: WebhookWorld) -> None:
    """Also while some of its dead letters are not redriven yet."""
    world = any_world
    world.add_webhook()
    taken: dict[str, list[int]] = {}

    async def script() -> None:
        receiver = await all_dead(world)
        receiver.status = 503  # it is tried, and again later
        refs = [TimerRef(f"{call_id}.4") for call_id in CALL_IDS]
        world.notify(redrive_refs(world.store, world.namespace(), refs, now=world.clock.now()).redriven)
        world.emit(*(make_event(call_id, 8) for call_id in CALL_IDS))
        await sleep(3)
        receiver.status = 204
        world.emit(*(make_event(call_id, 9) for call_id in CALL_IDS))
        await sleep(120)
        taken.update(receiver.taken)

    world.run(script)
    assert taken == {call_id: [1, 2, 3, 4, 8, 9] for call_id in CALL_IDS}


@pytest.mark.parametrize("status", [410, 503])
def test_a_receiver_that_is_down_again_in_the_middle_gets_the_rest_in_order(world: WebhookWorld, status: int) -> None:
    world.add_webhook()
    taken: dict[str, list[int]] = {}

    async def script() -> None:
        receiver = await all_dead(world)
        receiver.status = 204
        redrive_pages(world, 4)
        while sum(map(len, receiver.taken.values())) < 15:
            await sleep(0.005)
        receiver.status = status
        await sleep(20)
        assert 15 <= sum(map(len, receiver.taken.values())) < 42
        receiver.status = 204
        redrive_pages(world, 4)
        await sleep(300)
        taken.update(receiver.taken)

    world.run(script)
    assert taken == {call_id: [1, 2, 3, 4, 5, 6, 7] for call_id in CALL_IDS}
