"""Dead letters as operators know them: a timer fails, is found, redriven, and fires."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

from tests.support.callbacks import Arrival, CallbackReceiver
from tests.support.processes import DuetimeServer, command_environment


class Refusing:
    """Answers 400 until it is told to relent."""

    def __init__(self) -> None:
        self.has_relented = threading.Event()

    def __call__(self, arrival: Arrival) -> tuple[int, bytes]:
        return (200, b"") if self.has_relented.is_set() else (400, b"no such order")


def duetime(*arguments: str, cwd: Path, url: str) -> CompletedProcess[str]:
    return run(
        [sys.executable, "-m", "duetime.cli", *arguments],
        cwd=cwd,
        env=command_environment(DUETIME_URL=url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def create_failed(server: DuetimeServer, receiver: CallbackReceiver, *timer_ids: str, **fields: Any) -> None:
    """Timers whose only attempt was refused and recorded."""
    server.create_many([{"id": each, "delay": 0, "callbackUrl": receiver.url, **fields} for each in timer_ids])

    def has_failed(events: list[dict[str, Any]]) -> bool:
        failed = {event["timer_id"] for event in events if event.get("action") == "timer.failed"}
        return failed >= set(timer_ids)

    server.wait_until(has_failed, "failed timers")
    wait_for_state(server, "failed", *timer_ids)


def wait_for_state(server: DuetimeServer, state: str, *timer_ids: str) -> None:
    """An outcome is recorded a moment after it is logged; the API is all there is to see it by."""
    pause = threading.Event()
    for _ in range(200):
        states = {server.ok("GET", f"/timers/{each}")["state"] for each in timer_ids}
        if states == {state}:
            return
        pause.wait(0.05)
    raise AssertionError(f"{states} and not {state}")


def test_a_failed_timer_is_found_redriven_and_fires_as_the_same_message(
    server: DuetimeServer, receiver: CallbackReceiver
) -> None:
    receiver.answer = refusing = Refusing()
    create_failed(server, receiver, "order-7", payload={"n": 1.5})

    (listed,) = server.ok("GET", "/timers", params={"state": "failed", "reason": "http_status"})["items"]
    assert (listed["id"], listed["attempts"], listed["failure"]["status"]) == ("order-7", 1, 400)

    refusing.has_relented.set()
    redriven = server.ok("POST", "/timers/order-7/redrive")
    assert (redriven["state"], redriven["attempts"]) == ("scheduled", 0)
    receiver.wait_for(lambda counts: counts["order-7"] == 2)
    first, second = receiver.arrivals
    assert second.headers["webhook-id"] == first.headers["webhook-id"]
    assert {**second.body, "firedAt": None} == {**first.body, "firedAt": None}
    wait_for_state(server, "fired", "order-7")
    assert server.ok("GET", "/timers", params={"state": "failed"})["items"] == []
    server.terminate()
    assert receiver.counts() == {"order-7": 2}


def test_a_waiting_timer_is_fired_by_hand_once(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    server.create("reminder", delay="1h", callbackUrl=receiver.url)
    server.ok("POST", "/timers/reminder/fire")
    receiver.wait_for_timer("reminder")
    wait_for_state(server, "fired", "reminder")
    answer = server.client.post("/v1/namespaces/default/timers/reminder/fire")
    assert (answer.status_code, answer.json()["code"]) == (409, "timer_finished")
    server.terminate()
    assert receiver.counts() == {"reminder": 1}


def test_many_are_redriven_by_filter_and_fire_once_each(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    receiver.answer = refusing = Refusing()
    ids = [f"t{number}" for number in range(150)]
    create_failed(server, receiver, *ids, tags=["batch"])
    create_failed(server, receiver, "other")
    refusing.has_relented.set()

    redriven: list[int] = []
    body: dict[str, Any] = {"reason": "http_status", "tag": "batch", "limit": 40}
    while True:
        answer = server.ok("POST", "/redrive", json=body)
        redriven.append(answer["redriven"])
        assert answer["skipped"] == 0
        if answer["nextCursor"] is None:
            break
        body["cursor"] = answer["nextCursor"]

    assert sum(redriven) == 150
    assert max(redriven) <= 40
    receiver.wait_for(lambda counts: all(counts[each] == 2 for each in ids), timeout_seconds=30)
    wait_for_state(server, "fired", *ids)
    server.terminate()
    assert receiver.counts() == {**dict.fromkeys(ids, 2), "other": 1}


def test_the_command_line_lists_and_redrives_what_a_running_server_failed(
    server: DuetimeServer, receiver: CallbackReceiver, tmp_path: Path
) -> None:
    receiver.answer = refusing = Refusing()
    create_failed(server, receiver, "a", "b")
    refusing.has_relented.set()

    listed = duetime("timers", "list", "default", "--state", "failed", cwd=tmp_path, url=server.url)
    redriven = duetime("namespaces", "redrive", "default", "--reason", "http_status", cwd=tmp_path, url=server.url)

    assert listed.returncode == redriven.returncode == 0, listed.stderr + redriven.stderr
    assert sorted(line.split()[0] for line in listed.stdout.splitlines()[1:]) == ["a", "b"]
    assert redriven.stdout == "2 redriven, 0 skipped\n"
    receiver.wait_for(lambda counts: counts == {"a": 2, "b": 2})
