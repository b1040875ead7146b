"""Events to the operator's URL, over the real HTTP client."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from duetime.domain.events import EventsUndelivered
from duetime.runtime import hook as hook_module
from duetime.runtime.hook import HookEvents
from duetime.runtime.wiring import make_hook
from tests.integration.events.test_eventbridge import make_event
from tests.support.receiver import WAIT_SECONDS, Answer, Gate, Receiver, held, reply, reset

Hooks = Callable[[str], HookEvents]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    made: list[HookEvents] = []

    def make(url: str) -> HookEvents:
        made.append(make_hook(url))
        return made[-1]

    yield make
    for hook in made:
        hook.close()


def test_each_event_is_a_post_of_its_json(receiver: Receiver, hooks: Hooks) -> None:
    events = [make_event(number, tags=("\ud83d",)) for number in range(40)]
    hooks(receiver.url("/failed?key=k1")).publish(events)
    requests = receiver.wait_for(40)
    assert {(request.method, request.path) for request in requests} == {("POST", "/failed?key=k1")}
    assert sorted(json.loads(request.body)["timerId"] for request in requests) == sorted(
        str(event.timer_id) for event in events
    )
    by_id = {str(event.event_id): event.document() for event in events}
    for request in requests:
        assert json.loads(request.body) == by_id[str(request.header("webhook-id"))]
        assert request.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("answer", "reason"), [(reply(500), "status 500"), (reply(302), "status 302"), (reset, "protocol")]
)
def test_an_event_that_is_not_taken_is_named(receiver: Receiver, hooks: Hooks, answer: Answer, reason: str) -> None:
    url = receiver.on("/failed", answer, reply())
    events = [make_event(0), make_event(1)]
    hook = hooks(url)
    with pytest.raises(EventsUndelivered, match=reason) as raised:
        hook.publish(events)
    assert len(raised.value.events) == 1
    hook.publish(raised.value.events)  # and is taken the next time


def test_nobody_listens(hooks: Hooks) -> None:
    with pytest.raises(EventsUndelivered, match="connect"):
        hooks("http://127.0.0.1:9/").publish([make_event()])


def test_silence_ends_within_the_engines_patience(
    receiver: Receiver, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_module, "TIMEOUT_SECONDS", 0.3)
    gate = Gate()
    url = receiver.on("/failed", held(gate))
    started = time.monotonic()
    with pytest.raises(EventsUndelivered, match="timeout") as raised:
        hooks(url).publish([make_event(number) for number in range(50)])
    assert time.monotonic() - started < 10  # one after the other they would take 15
    assert len(raised.value.events) == 50
    gate.open()


def test_user_information_is_sent_as_a_header_and_no_error_shows_the_url(receiver: Receiver, hooks: Hooks) -> None:
    url = receiver.url("/failed?key=k1").replace("http://", "http://me:p%40ss@")
    hook = hooks(url)
    hook.publish([make_event()])
    (request,) = receiver.wait_for(1)
    assert request.header("authorization") == "Basic " + base64.b64encode(b"me:p@ss").decode()
    receiver.on("/failed?key=k1", reply(500))
    with pytest.raises(EventsUndelivered) as raised:
        hook.publish([make_event()])
    assert "k1" not in str(raised.value)


def test_close_ends_what_is_being_published(
    receiver: Receiver, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_module, "TIMEOUT_SECONDS", 600.0)
    hook = hooks(receiver.on("/failed", held(Gate())))
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(hook.publish, [make_event()])
        receiver.wait_for(1)
        hook.close()
        with pytest.raises(EventsUndelivered):
            publishing.result(WAIT_SECONDS)
