"""Webhooks in virtual time: from the outbox over timers to a scripted receiver; pollers and store are real."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from duetime.calls.webhook_delivery import UNUSABLE_SECONDS
from duetime.domain.call_events import CallEventType
from duetime.domain.errors import StoreUnavailable
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.secrets import secret_text
from duetime.domain.timers import Rearm, TimerState
from duetime.engine.settings import EngineSettings
from duetime.runtime.local_key import LocalSecretBox, ProcessKey
from duetime.stores.port.timers import TimerRef
from duetime.testing.virtual_time import run_virtually
from duetime_client.webhooks import verify_event
from tests.support.clock import NOW as START
from tests.support.engine import make_poller
from tests.support.outbox import first_occurrences, make_event
from tests.support.scripted_sender import Script, header
from tests.support.stores import memory_store
from tests.support.webhooks import URL, WebhookWorld, event_in, life

KEY = b"0123456789abcdef0123456789abcdef"


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_events_arrive_in_order_one_after_the_other_within_a_moment(world: WebhookWorld) -> None:
    world.add_webhook()

    async def script() -> None:
        await sleep(1)
        world.emit(*life())
        await sleep(3)

    world.run(script)
    assert world.arrived() == [("call-1", number) for number in range(1, 8)]
    assert world.states() == [TimerState.FIRED] * 7
    assert world.sender.most_in_flight == 1


def test_calls_do_not_wait_for_each_other(world: WebhookWorld) -> None:
    world.add_webhook()
    stuck = {"call-3"}
    world.sender.answer = lambda request: (
        Script(status=503) if event_in(request)["aggregateId"] in stuck else Script(delay_seconds=0.05)
    )

    async def script() -> None:
        await sleep(1)
        world.emit(*(event for number in range(6) for event in life(f"call-{number}", length=3)))
        await sleep(4)

    world.run(script)
    for number in (0, 1, 2, 4, 5):
        assert [at for call, at in world.arrived() if call == f"call-{number}"] == [1, 2, 3]
    assert {at for call, at in world.arrived() if call == "call-3"} == {1}


def test_a_receiver_that_fails_for_a_while_gets_everything_in_order(world: WebhookWorld) -> None:
    world.add_webhook()
    mended_at = 120.0
    world.sender.answer = lambda request: Script(status=200 if world.clock.elapsed_seconds > mended_at else 500)

    async def script() -> None:
        await sleep(1)
        world.emit(*life(length=3))
        await sleep(30)
        world.emit(*life(length=5)[3:])  # while the first one is being retried
        await sleep(600)

    world.run(script)
    sequence = [number for _, number in world.arrived()]
    assert first_occurrences(sequence) == [1, 2, 3, 4, 5]
    assert sequence == sorted(sequence)  # nothing after an event that was not taken, and none again after it was
    assert sequence.count(1) > 3
    assert [sequence.count(number) for number in (2, 3, 4, 5)] == [1, 1, 1, 1]


def test_an_event_made_while_an_attempt_is_in_flight_waits_and_is_not_lost(world: WebhookWorld) -> None:
    world.add_webhook()
    world.sender.answer = lambda request: Script(delay_seconds=1.0)

    async def script() -> None:
        await sleep(1)
        world.emit(make_event(sequence=1))
        await sleep(0.5)
        world.emit(make_event(sequence=2))
        await sleep(0.4)
        assert world.arrived() == [("call-1", 1)]
        await sleep(5)

    world.run(script)
    assert world.arrived() == [("call-1", 1), ("call-1", 2)]


def test_after_a_dead_letter_the_later_events_go_on_and_a_redrive_delivers_it_late(world: WebhookWorld) -> None:
    world.add_webhook()
    events = life(length=3)
    refused = {1}
    world.sender.answer = lambda request: Script(status=410 if event_in(request)["sequence"] in refused else 204)

    async def script() -> None:
        await sleep(1)
        world.emit(*events)
        await sleep(5)
        dead = world.timer(events[0])
        assert (dead.state, dead.failure and dead.failure.status) == (TimerState.FAILED, 410)
        assert world.arrived() == [("call-1", 1), ("call-1", 2), ("call-1", 3)]
        refused.clear()
        world.store.timers.rearm(
            world.namespace(), [TimerRef(dead.timer_id)], rearm=Rearm.REDRIVE, now=world.clock.now()
        )
        await sleep(3)

    world.run(script)
    assert world.arrived()[3:] == [("call-1", 1)]
    assert world.timer(events[0]).state is TimerState.FIRED
    ids = [header(request, "webhook-id") for request in world.sender.requests]
    assert ids[0] == ids[3] == events[0].event_id  # a redrive is the same event


def test_one_tenants_dead_webhook_never_delays_anothers(world: WebhookWorld) -> None:
    world.add_webhook("acme", url="http://dead.test/")
    world.add_webhook("globex", url="http://alive.test/")
    world.sender.answer = lambda request: Script(status=None if "dead.test" in request.url else 200)
    late: list[float] = []

    async def script() -> None:
        await sleep(1)
        for number in range(30):
            world.emit(*life(f"dead-{number}", length=2))
        for number in range(20):
            started = world.clock.elapsed_seconds
            world.emit(*life(f"alive-{number}", tenant_id="globex", length=3))
            while len(world.arrived("globex")) < 3 * (number + 1):
                await sleep(0.05)
            late.append(world.clock.elapsed_seconds - started)
            await sleep(2)

    world.run(script)
    assert max(late) < 1.0
    assert ("dead-0", 2) not in world.arrived()


def test_a_webhook_that_is_off_holds_what_waits_and_takes_nothing_new(world: WebhookWorld) -> None:
    world.add_webhook()
    world.sender.answer = lambda request: Script(status=500)

    async def script() -> None:
        await sleep(1)
        world.emit(make_event("old"))
        await sleep(1)
        world.set_webhook(EventWebhook(url=URL, is_enabled=False))
        world.emit(make_event("new"))
        await sleep(300)
        tries = len(world.arrived())
        await sleep(300)
        assert len(world.arrived()) == tries
        world.sender.answer = lambda request: Script()
        world.set_webhook(EventWebhook(url=URL))
        await sleep(UNUSABLE_SECONDS * 2)

    world.run(script)
    assert world.arrived()[-1] == ("old", 1)
    assert {call for call, _ in world.arrived()} == {"old"}
    assert world.states() == [TimerState.FIRED]


@pytest.mark.parametrize(
    ("age_seconds", "wait_seconds"), [(0, 30), (300, 30), (3600, 360), (9000, 900), (6 * 86_400, 900)]
)
def test_what_is_held_for_long_is_looked_at_more_rarely(
    world: WebhookWorld, age_seconds: float, wait_seconds: float
) -> None:
    """Each look is a write, and a tenant may hold very many of them for a week."""
    world.add_webhook()
    event = make_event("old")
    world.emit(event)
    world.set_webhook(EventWebhook(url=URL, is_enabled=False))
    now = world.clock.now() + timedelta(seconds=age_seconds)
    (admission,) = world.gate().admit([world.timer(event)], now=now)
    assert admission.wait_until == now + timedelta(seconds=wait_seconds)


def test_another_url_counts_for_what_waits_already(world: WebhookWorld) -> None:
    world.add_webhook(url="http://wrong.test/")
    world.sender.answer = lambda request: Script(status=404 if "wrong.test" in request.url else 200)

    async def script() -> None:
        await sleep(1)
        world.emit(*life(length=2))
        await sleep(3)
        world.set_webhook(EventWebhook(url="http://right.test/"))
        await sleep(60)

    world.run(script)
    assert [request.url for request in world.sender.requests][-2:] == ["http://right.test/"] * 2
    assert world.states() == [TimerState.FIRED] * 2


def test_what_waits_for_a_webhook_that_is_removed_becomes_a_dead_letter(world: WebhookWorld) -> None:
    world.add_webhook()
    world.sender.answer = lambda request: Script(status=500)

    async def script() -> None:
        await sleep(1)
        world.emit(*life(length=3))
        await sleep(1)
        world.set_webhook(None)
        await sleep(120)

    world.run(script)
    assert world.states() == [TimerState.FAILED] * 3
    failure = world.timer(make_event()).failure
    assert failure is not None
    assert failure.message == "the webhook was removed"


def test_bodies_are_the_envelope_and_signed_so_that_both_libraries_accept_them(world: WebhookWorld) -> None:
    world.add_webhook(secret=KEY)
    event = make_event(payload_json='{"name":"Ünïcode","tags":[]}')

    async def script() -> None:
        await sleep(1)
        world.emit(event)
        await sleep(2)

    world.run(script)
    (request,) = world.sender.requests
    assert request.url == URL
    assert event_in(request) == event.document()
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = {name: header(request, name) or "" for name in names}
    assert headers["webhook-id"] == event.event_id
    assert request.body is not None
    believed = verify_event(request.body, headers, secret_text(KEY), now=world.clock.now())
    assert (believed.event_id, believed.sequence, believed.payload["name"]) == (event.event_id, 1, "Ünïcode")
    library = Webhook(secret_text(KEY))
    signed_at = START.fromtimestamp(int(headers["webhook-timestamp"] or 0), START.tzinfo)
    assert library.sign(event.event_id, signed_at, request.body.decode()) == headers["webhook-signature"]


def test_nothing_is_sent_unsigned_while_the_key_is_lost(world: WebhookWorld) -> None:
    world.add_webhook(secret=KEY)
    world.box = LocalSecretBox(ProcessKey())  # another key

    async def script() -> None:
        await sleep(1)
        world.emit(make_event())
        await sleep(60)

    world.run(script)
    assert world.sender.requests == []
    assert world.states() == [TimerState.SCHEDULED]


def test_a_poller_that_dies_in_the_middle_of_a_call_leaves_it_to_the_next_one(world: WebhookWorld) -> None:
    world.add_webhook()
    world.sender.answer = lambda request: Script(delay_seconds=0.4)

    async def script() -> None:
        first, second = world.poller("worker-a"), world.poller("worker-b")
        dying = asyncio.create_task(first.run(asyncio.Event()))
        await sleep(1)
        world.emit(*life(length=5))
        await sleep(0.7)  # the second event is in flight
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        stop = asyncio.Event()
        surviving = asyncio.create_task(second.run(stop))
        await sleep(120)
        stop.set()
        await surviving

    run_virtually(world.clock, script())
    sequence = [number for _, number in world.arrived()]
    assert first_occurrences(sequence) == [1, 2, 3, 4, 5]
    assert world.states() == [TimerState.FIRED] * 5


def test_only_wanted_types_arrive_and_in_order(world: WebhookWorld) -> None:
    world.add_webhook(event_types=(CallEventType.SUBMITTED, CallEventType.SUCCEEDED))
    kinds = [CallEventType.SUBMITTED, CallEventType.SCHEDULED, CallEventType.RUNNING, CallEventType.SUCCEEDED]
    events = [make_event(sequence=at, type_=kind) for at, kind in enumerate(kinds, 1)]

    async def script() -> None:
        await sleep(1)
        world.emit(*events)
        await sleep(2)

    world.run(script)
    assert world.arrived() == [("call-1", 1), ("call-1", 4)]


def test_a_store_that_fails_at_the_gate_is_asked_again_and_nothing_is_lost_or_overtaken(world: WebhookWorld) -> None:
    world.add_webhook()
    gate, chance, failures = world.gate(), Random(5), []

    class Failing:
        """The gate; a third of what it asks the store for fails."""

        takes, classify = gate.takes, gate.classify

        def admit(self, *arguments: Any, **options: Any) -> Any:
            self.fail()
            return gate.admit(*arguments, **options)

        def recorded(self, *arguments: Any, **options: Any) -> None:
            self.fail()
            gate.recorded(*arguments, **options)
            self.fail()  # done, and it is not known

        def fail(self) -> None:
            if chance.random() < 0.33:
                failures.append(1)
                raise StoreUnavailable("down")

    poller = make_poller(world.store, world.sender, world.clock, ordering=Failing(), secret_box=world.box)
    world.pollers.append(poller)

    async def script() -> None:
        await sleep(1)
        world.emit(*life(length=6))
        await sleep(120)

    world.run(script, poller)
    assert world.arrived() == [("call-1", number) for number in range(1, 7)]
    assert len(failures) > 3


def test_a_delivery_that_is_refused_at_the_gate_waits_alone(
    world: WebhookWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_webhook()
    gate = world.gate()

    class Refusing:
        """The gate; for a while it cannot deal with the deliveries of one call."""

        takes, classify, recorded = gate.takes, gate.classify, gate.recorded

        def admit(self, timers: Any, **options: Any) -> Any:
            if world.clock.elapsed_seconds < 8 and any("call-2" in timer.timer_id for timer in timers):
                raise KeyError("nobody foresaw it")
            return gate.admit(timers, **options)

    poller = make_poller(world.store, world.sender, world.clock, ordering=Refusing(), secret_box=world.box)
    world.pollers.append(poller)

    async def script() -> None:
        await sleep(1)
        world.emit(*(make_event(f"call-{number}", sequence=1) for number in range(1, 4)))
        await sleep(3)
        assert sorted(world.arrived()) == [("call-1", 1), ("call-3", 1)]
        await sleep(60)

    world.run(script, poller)
    assert sorted(world.arrived()) == [("call-1", 1), ("call-2", 1), ("call-3", 1)]
    refused = [record for record in caplog.records if getattr(record, "action", "") == "delivery.refused"]
    assert 1 <= len(refused) <= 3
    assert all(record.exc_info for record in refused), "a bug shows its traceback"


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    statuses=st.lists(st.sampled_from((200, 204, 301, 404, 500, 503, None)), min_size=1, max_size=5),
    pollers=st.integers(1, 3),
)
def test_whatever_the_receiver_does_order_holds_and_nothing_is_lost(
    seed: int, statuses: list[int | None], pollers: int
) -> None:
    """Events come at any time, answers are of every kind and take any time, and pollers share the shards."""
    random = Random(seed)
    with memory_store() as store:
        world = WebhookWorld(store)
        world.add_webhook()
        left = list(statuses)

        def answer(request: Any) -> Script:
            status = left.pop(0) if left else 200
            return Script(status=status, delay_seconds=random.choice((0.001, 0.3, 2.5)))

        world.sender.answer = answer
        written = dict.fromkeys(("a", "b", "c"), 0)

        async def script() -> None:
            await sleep(2)
            for _ in range(12):
                call = random.choice(list(written))
                written[call] += 1
                world.emit(make_event(call, written[call]))
                await sleep(random.choice((0.0, 0.01, 0.5, 7.0)))
            while set(world.states()) != {TimerState.FIRED} and world.clock.elapsed_seconds < 7200:
                await sleep(5)

        running = [world.poller(f"worker-{number}", settings=EngineSettings()) for number in range(pollers)]
        world.run(script, *running)
        for call, number in written.items():
            sequence = [at for other, at in world.arrived() if other == call]
            assert first_occurrences(sequence) == list(range(1, number + 1))
            assert sequence == sorted(sequence)
        assert set(world.states()) <= {TimerState.FIRED}
