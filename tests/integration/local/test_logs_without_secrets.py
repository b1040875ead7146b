"""At debug level, with receivers and clients that do all they can, no secret gets into the log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import DuetimeServer
from tests.support.receiver import Receiver, raw, reply, reset

SECRET = "s3cr3t"

ANSWERS = {
    "/taken": reply(200, f'{{"token": "{SECRET}"}}'.encode(), [("set-cookie", f"session={SECRET}")]),
    "/unfollowed": reply(200, f'{{"ok": true, "nextExecuteAt": "{SECRET}"}}'.encode()),
    "/not-ok": reply(200, f'{{"ok": false, "nextExecuteAt": "{SECRET}", "why": "{SECRET}"}}'.encode()),
    "/refused": reply(403, f"no {SECRET}".encode(), [("www-authenticate", f"Bearer realm={SECRET}")]),
    "/broken": reply(500, SECRET.encode(), [("retry-after", SECRET)]),
    "/elsewhere": reply(302, b"", [("location", f"http://{SECRET}.test/?{SECRET}")]),
    "/no-http": raw(f"{SECRET} {SECRET}\r\n\r\n{SECRET}".encode(), close=True),
    "/bad-header": raw(f"HTTP/1.1 200 {SECRET}\r\n{SECRET}\r\n\r\n".encode(), close=True),
    "/reset": reset,
}
ONCE = {"maxAttempts": 1}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        for path, answer in ANSWERS.items():
            receiver.on(f"{path}?key={SECRET}", answer)
        yield receiver


@pytest.fixture
def server(tmp_path: Path, receiver: Receiver) -> Iterator[DuetimeServer]:
    hook = receiver.on(f"/hook?key={SECRET}", reply(500, SECRET.encode()))
    variables = {"DUETIME_LOG_LEVEL": "debug", "DUETIME_FAILED_HOOK_URL": hook.replace("//", f"//u:{SECRET}@")}
    with DuetimeServer("--workers", "2", cwd=tmp_path, **variables) as server:
        yield server


def timer(timer_id: str, url: str, **more: Any) -> dict[str, Any]:
    """A timer with a secret wherever a client may put one."""
    return {
        "id": timer_id,
        "delay": 0,
        "callbackUrl": url,
        "headers": {"authorization": f"Bearer {SECRET}", "x-custom": SECRET, "cookie": f"id={SECRET}"},
        "payload": {"password": SECRET, "text": SECRET},
        "retryPolicy": ONCE,
        **more,
    }


def test_no_secret_is_logged(server: DuetimeServer, receiver: Receiver, tmp_path: Path) -> None:
    urls = {path.strip("/"): receiver.url(f"{path}?key={SECRET}") for path in ANSWERS}
    urls |= {
        "closed": f"http://127.0.0.1:9/?key={SECRET}",
        "unresolved": f"http://does-not-exist.invalid/?key={SECRET}",
    }
    server.create_many([timer(timer_id, url) for timer_id, url in urls.items()])
    ends = [timer_id for timer_id in urls if timer_id not in ("taken", "unfollowed")]
    server.wait_until(
        lambda events: (
            {event.get("timer_id") for event in events if event.get("action") == "timer.failed"} >= {*ends}
        ),
        "ends of all timers",
    )
    server.wait_for("timer.response_unfollowed")
    server.wait_for("event.undelivered")

    send_nonsense(server)
    break_rows(server, tmp_path / "data" / "duetime.db")
    server.wait_for("timer.quarantined")
    break_store(server, tmp_path / "data" / "duetime.db")
    assert "no such table" in server.wait_for("poll.retried")["message"]
    server.terminate()

    leaks = [event for event in server.events if SECRET in json.dumps(event)]
    assert leaks == []
    assert not [line for line in server.noise if SECRET in line]
    # The log is not empty for another reason than that nothing happened.
    actions = {event["action"] for event in server.events}
    assert actions >= {"timer.failed", "timer.response_unfollowed", "event.undelivered", "request.served"}


def send_nonsense(server: DuetimeServer) -> None:
    """Requests that are refused, each with a secret in what is wrong."""
    timers = "/v1/namespaces/default/timers"
    headers = {"authorization": f"Bearer {SECRET}", "x-request-id": "r1"}
    url = f"http://127.0.0.1/?{SECRET}"
    bodies: list[Any] = [
        {"executeAt": SECRET, "callbackUrl": url},
        {"delay": SECRET, "callbackUrl": url},
        {"delay": 0, "callbackUrl": f"ftp://{SECRET}"},
        {"delay": 0, "callbackUrl": url, "headers": {"x": f"{SECRET}\r\n"}},
        {"delay": 0, "callbackUrl": url, "retryPolicy": {"initialInterval": SECRET}},
        {"delay": 0, "callbackUrl": url, SECRET: SECRET},
        SECRET,
    ]
    for body in bodies:
        assert server.client.post(timers, json=body, headers=headers).status_code == 400
    assert server.client.post(timers, content=f'{{"{SECRET}'.encode(), headers=headers).status_code == 400
    for query in (f"cursor={SECRET}", f"limit={SECRET}", f"{SECRET}={SECRET}", f"tag={SECRET}"):
        server.client.get(f"{timers}?{query}", headers=headers)
    server.client.request(SECRET.upper(), timers, headers=headers)


def break_rows(server: DuetimeServer, path: Path) -> None:
    """A timer that becomes unreadable while it waits, with a secret in what cannot be read."""
    due = timer("poison", "http://127.0.0.1:9/", delay="1s")
    server.ok("POST", "/timers", json=due)
    with sqlite3.connect(path, timeout=10) as connection:
        changed = connection.execute(
            "UPDATE timers SET timer_tags = ? WHERE timer_id = 'poison'", (f'{{"{SECRET}": ',)
        )
        assert changed.rowcount == 1
    connection.close()


def break_store(server: DuetimeServer, path: Path) -> None:
    """The table is gone: errors of the driver, with statements and parameters."""
    with sqlite3.connect(path, timeout=10) as connection:
        connection.execute("ALTER TABLE timers RENAME TO gone")
    connection.close()
    answer = server.client.post("/v1/namespaces/default/timers", json=timer("late", f"http://h.test/?{SECRET}"))
    assert answer.status_code >= 500
    assert SECRET not in answer.text
