"""One attempt is one request, and is told: ``duetime serve`` and a receiver whose kept connections die."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import DuetimeServer
from tests.support.receiver import Answer, Receiver, hang_up, reply, reset

CALLS = "/v1/tenants/default/service-calls"
CUT_OFF = "the connection, kept from an earlier request, was closed before a response came"
QUICK = {"maxAttempts": 3, "initialInterval": "100ms", "backoffMultiplier": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuetimeServer]:
    """One for all: each test has a receiver, and so connections, of its own."""
    with DuetimeServer(cwd=tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def wait_for(server: DuetimeServer, path: str, field: str, value: str) -> dict[str, Any]:
    pause = threading.Event()
    for _ in range(600):
        found: dict[str, Any] = server.client.get(path).raise_for_status().json()
        if found[field] == value:
            return found
        pause.wait(0.05)
    raise AssertionError(f"{found} and not {value}")


def keep_a_connection(server: DuetimeServer, receiver: Receiver) -> None:
    timer = server.ok("POST", "/timers", json={"delay": 0, "callbackUrl": receiver.url("/before")})
    wait_for(server, f"/v1/namespaces/default/timers/{timer['id']}", "state", "Fired")


def test_a_callback_that_was_cut_off_is_an_attempt_in_the_log(server: DuetimeServer, receiver: Receiver) -> None:
    """The first is sent over a connection that the timer before it has left, the others over new ones."""
    keep_a_connection(server, receiver)
    url = receiver.on("/dying", reset, hang_up, reply(200))
    timer_id = server.ok("POST", "/timers", json={"delay": 0, "callbackUrl": url, "retryPolicy": QUICK})["id"]

    wait_for(server, f"/v1/namespaces/default/timers/{timer_id}", "state", "Fired")
    attempts = server.ok("GET", f"/timers/{timer_id}/attempts")["items"]
    assert [(each["number"], each["outcome"]) for each in attempts] == [(1, "Retry"), (2, "Retry"), (3, "Fired")]
    assert (attempts[0]["errorClass"], attempts[0]["message"]) == ("protocol", CUT_OFF)
    assert len(receiver.wait_for(3, path="/dying")) == 3
    assert receiver.requests[1].connection == receiver.requests[0].connection


@pytest.mark.parametrize(("method", "ending"), [("GET", reset), ("POST", hang_up)])
def test_a_service_call_is_sent_once_per_execution(
    server: DuetimeServer, receiver: Receiver, method: str, ending: Answer
) -> None:
    keep_a_connection(server, receiver)
    body: dict[str, Any] = {"name": "n", "request": {"method": method, "url": receiver.on("/dying", ending)}}

    call = server.client.post(CALLS, json=body).raise_for_status().json()
    failed = wait_for(server, f"{CALLS}/{call['id']}", "status", "Failed")
    assert (failed["attempts"], len(receiver.wait_for(1, path="/dying"))) == (1, 1)

    again = (
        server.client.post(CALLS, json=body | {"retryPolicy": QUICK | {"maxAttempts": 2}}).raise_for_status().json()
    )
    assert wait_for(server, f"{CALLS}/{again['id']}", "status", "Failed")["attempts"] == 2
    executions = server.client.get(f"{CALLS}/{again['id']}/executions").raise_for_status().json()["items"]
    assert [each["reason"] for each in executions] == ["Network"] * 2
    assert len(receiver.wait_for(3, path="/dying")) == 3
