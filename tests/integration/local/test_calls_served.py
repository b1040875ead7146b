"""Service calls as their users know them: ``duetime serve``, ``duetime calls`` and a receiver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.call_api import LIFE
from tests.support.commands import Cli
from tests.support.processes import DuetimeServer, in_seconds
from tests.support.receiver import Gate, Receiver, held, reply

STREAM = {"accept": "text/event-stream"}
CALLS = "/v1/tenants/default/service-calls"
Lines = Callable[..., list[Any]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuetimeServer]:
    """One for all tests that do not end it."""
    with DuetimeServer(cwd=tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def lines(cli: Cli) -> Lines:
    """What ``duetime calls ... --json`` prints."""

    def printed(*words: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in cli("calls", *words, "--json", code=code)[0].splitlines()]

    return printed


def events_of(server: DuetimeServer, call_id: str, after: int = 0) -> list[dict[str, Any]]:
    """Those of a stream, up to its end."""
    headers = STREAM | {"last-event-id": str(after)}
    with server.client.stream("GET", f"{CALLS}/{call_id}/events", headers=headers, timeout=30) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert json.loads(lines[-1]) == {"reason": "finished"}
    return [json.loads(line) for line in lines[:-1]]


def test_from_submission_to_execution(lines: Lines, receiver: Receiver) -> None:
    receiver.on(
        "/report?token=t0ken", reply(201, "ünï".encode(), [("Content-Type", "text/plain"), ("Set-Cookie", "s3cret")])
    )
    due_at = in_seconds(1.5)

    call, *events = lines(
        *("submit", receiver.url("/report?token=t0ken"), "--body-json", '{"n": 1.0}', "--due-at", due_at),
        *("--header", "Authorization: Bearer s3cret", "--tag", "a", "--correlation-id", "c1", "--follow"),
    )

    assert [event["type"] for event in events] == LIFE
    assert {event["correlationId"] for event in events} == {"c1"}
    (request,) = receiver.wait_for(1)
    assert (request.method, request.path, request.body) == ("POST", "/report?token=t0ken", b'{"n": 1.0}')
    assert request.header("authorization") == "Bearer s3cret"
    assert request.header("x-duetime-service-call-id") == call["id"]
    (done,) = lines("show", call["id"])
    assert (done["status"], done["outcome"]["status"], done["attempts"]) == ("Succeeded", 201, 1)
    assert done["dueAt"] <= done["startedAt"] <= done["finishedAt"]
    (listed,) = lines("executions", call["id"])
    (execution,) = lines("executions", call["id"], listed["id"])
    assert (execution["response"]["status"], execution["response"]["body"]) == (201, "ünï")
    assert execution["request"]["body"] == '{"n": 1.0}'
    shown = json.dumps([call, done, execution, events])
    assert "s3cret" not in shown
    assert "t0ken" not in json.dumps([execution, events])
    assert [one["id"] for one in lines("list", "--tag", "a", "--status", "Succeeded")] == [call["id"]]


def test_a_failure_is_retried_followed_and_rerun(
    server: DuetimeServer, cli: Cli, lines: Lines, receiver: Receiver
) -> None:
    receiver.on("/flaky", reply(503), reply(503), reply(200))
    policy = '{"maxAttempts": 2, "initialInterval": "100ms", "maxInterval": "100ms"}'
    call, *events = lines("submit", receiver.url("/flaky"), "--retry-policy", policy, "--follow", code=1)
    assert events[-1]["type"] == "ServiceCallFailed"
    assert [one["number"] for one in lines("executions", call["id"])] == [2, 1]
    rerun = cli("calls", "rerun", call["id"])[0].strip()
    assert [event["type"] for event in events_of(server, rerun)][-1] == "ServiceCallSucceeded"
    assert server.client.get(f"{CALLS}/{rerun}").json()["rerunOf"] == call["id"]
    receiver.wait_for(3)


def test_a_call_is_changed_before_it_is_due_and_not_while_it_runs(server: DuetimeServer, receiver: Receiver) -> None:
    gate = Gate()
    receiver.on("/second", held(gate))
    client = server.client
    body = {"name": "n", "delay": "1h", "request": {"method": "PUT", "url": receiver.url("/first"), "body": "x"}}
    path = client.post(CALLS, json=body).headers["location"]
    assert client.patch(path, json={"request": {"url": receiver.url("/second")}}).status_code == 200
    assert client.patch(path, json={"dueAt": in_seconds(0.3)}).status_code == 200
    (request,) = receiver.wait_for(1)
    assert (request.path, request.body) == ("/second", b"x")
    running = client.get(path).json()
    assert running["status"] == "Running"
    assert client.post(f"{path}/cancel").json()["code"] == "service_call_running"
    assert client.patch(path, json={"delay": 1}).json()["code"] == "service_call_running"
    assert client.patch(path, json={"starred": True}).json()["starred"] is True
    gate.open()
    assert events_of(server, running["id"], after=5)[-1]["type"] == "ServiceCallSucceeded"
    assert client.get(path).json()["expiresAt"] is None
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_a_cancelled_call_is_never_sent(server: DuetimeServer, receiver: Receiver) -> None:
    cancelled, kept = (
        server.client.post(
            CALLS,
            json={"name": "n", "dueAt": in_seconds(delay), "request": {"method": "GET", "url": receiver.url(path)}},
        ).json()["id"]
        for path, delay in (("/cancelled", 2.0), ("/kept", 2.5))
    )
    assert server.client.post(f"{CALLS}/{cancelled}/cancel").status_code == 200
    assert events_of(server, kept)[-1]["type"] == "ServiceCallSucceeded"
    assert [request.path for request in receiver.wait_for(1)] == ["/kept"]


def test_other_workers_execute_and_this_one_tells(tmp_path: Path, receiver: Receiver) -> None:
    """Streams see what any process writes, and a server that stops does not wait for them."""
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        server.wait_for_shards(16)
        ids = [
            server.client.post(
                CALLS, json={"name": f"n{number}", "request": {"method": "GET", "url": receiver.url(f"/{number}")}}
            ).json()["id"]
            for number in range(20)
        ]
        assert [events_of(server, call_id)[-1]["type"] for call_id in ids] == ["ServiceCallSucceeded"] * 20
        later = server.client.post(
            CALLS, json={"name": "later", "delay": "1h", "request": {"method": "GET", "url": receiver.url("/")}}
        ).json()["id"]
        with server.client.stream("GET", f"{CALLS}/{later}/events", headers=STREAM) as response:
            lines = response.iter_lines()
            assert next(lines) == "retry: 2000"
            server.process.terminate()
            assert not any("event: end" in line for line in lines)
        assert server.wait() == 0
    assert sorted(request.path for request in receiver.wait_for(20)) == sorted(f"/{number}" for number in range(20))
