"""``duetime serve`` tells a hook of timers that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeServer
from tests.support.receiver import Receiver

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
        assert (event["reason"], event["status"], event["attempts"]) == ("HttpStatus", 410, 1)
        assert (event["correlationId"], event["tags"]) == ("c1", ["x"])
        assert server.wait_for("timer.failed")["timer_id"] == "bad"
        server.wait_for("event.published")
        while server.ok("GET", "/timers/bad")["state"] != "Failed":  # until it is recorded
            assert server.process.poll() is None
        assert server.terminate() == 0
        assert SECRET not in str(server.events) + str(server.noise)
    assert len(hook.requests) == 1
