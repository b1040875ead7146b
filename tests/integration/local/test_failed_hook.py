"""``duetime serve`` tells a hook of timers that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.metrics import Scrape
from tests.support.processes import DuetimeServer
from tests.support.receiver import Receiver, reply

SECRET = "k3y-of-the-hook"


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with Receiver() as hook:
        yield hook


def test_a_timer_that_fails_is_posted_and_then_reads_as_failed(
    tmp_path: Path, hook: Receiver, receiver: CallbackReceiver
) -> None:
    receiver.answer = lambda arrival: (410 if arrival.timer_id == "bad" else 200, b"")
    url = hook.url(f"/failed?key={SECRET}")
    with DuetimeServer(cwd=tmp_path, DUETIME_FAILED_HOOK_URL=url, DUETIME_LOG_LEVEL="debug") as server:
        server.create("good", delay=0, callbackUrl=receiver.url)
        server.create("bad", delay=0, callbackUrl=receiver.url, correlationId="c1", tags=["x"])
        (request,) = hook.wait_for(1)
        event = json.loads(request.body)
        assert (event["type"], event["timerId"], event["namespace"]) == ("timer.failed", "bad", "default")
        assert (event["reason"], event["status"], event["attempts"]) == ("http_status", 410, 1)
        assert (event["correlationId"], event["tags"]) == ("c1", ["x"])
        assert server.wait_for("timer.failed")["timer_id"] == "bad"
        server.wait_for("event.published")
        assert server.terminate() == 0
        assert SECRET not in str(server.events) + str(server.noise)
    with DuetimeServer(cwd=tmp_path) as server:
        assert server.ok("GET", "/timers/bad")["state"] == "failed"
    assert len(hook.requests) == 1


def test_a_broken_hook_leaves_the_event_in_the_log(
    tmp_path: Path, hook: Receiver, receiver: CallbackReceiver
) -> None:
    receiver.answer = lambda arrival: (410, b"")
    url = hook.on(f"/failed?key={SECRET}", reply(503))
    with DuetimeServer(cwd=tmp_path, DUETIME_FAILED_HOOK_URL=url) as server:
        server.create("bad", delay=0, callbackUrl=receiver.url, correlationId="c1")
        logged = server.wait_for("event.undelivered")
        assert (logged["error"], logged["event"]["timerId"]) == ("status 503", "bad")
        assert logged["event"]["correlationId"] == "c1"
        scrape = Scrape(server.client.get("/metrics").text)
        assert scrape.total("duetime_events_undelivered_total") == 1
        assert server.terminate() == 0
        assert SECRET not in str(server.events)
    assert len(hook.requests) == 3
