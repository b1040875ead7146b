"""``duetime serve`` on MongoDB as a client sees it: a service call over the API, from submission to events."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from duetime.stores.open import open_store
from tests.support.callbacks import CallbackReceiver
from tests.support.mongodb import mongodb_database
from tests.support.processes import DuetimeServer

CALLS = "/v1/tenants/default/service-calls"


def test_service_calls_are_submitted_executed_and_listed(mongodb_url: str, tmp_path: Path) -> None:
    with mongodb_database(mongodb_url) as url, CallbackReceiver() as receiver:
        store = open_store(url)
        store.initialise()
        store.close()
        with DuetimeServer(cwd=tmp_path, DUETIME_STORE=url) as server:
            key = {"Idempotency-Key": "k-1"}
            body = {
                "name": "report",
                "tags": ["a"],
                "request": {"method": "POST", "url": receiver.url, "body": {"timerId": "x"}},
            }
            first = server.client.post(CALLS, json=body, headers=key)
            assert first.status_code == 202, first.text
            again = server.client.post(CALLS, json=body, headers=key)
            assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])

            call = ended(server, first.json()["id"])
            assert call["status"] == "Succeeded"
            listed = server.client.get(CALLS, params={"tag": "a", "status": "Succeeded"}).json()["items"]
            assert [each["id"] for each in listed] == [call["id"]]
            (execution,) = server.client.get(f"{CALLS}/{call['id']}/executions").json()["items"]
            assert execution["status"] == "Succeeded"
            events = server.client.get(f"{CALLS}/{call['id']}/events").json()["items"]
            assert [each["sequence"] for each in events] == list(range(1, 8))
            assert server.client.delete(f"{CALLS}/{call['id']}").status_code == 204
            assert server.client.get(f"{CALLS}/{call['id']}").status_code == 404
            assert server.terminate() == 0


def ended(server: DuetimeServer, call_id: str) -> dict[str, Any]:
    """The call once it has ended; nothing tells of it but asking."""
    deadline = time.monotonic() + 20
    while True:
        answer = server.client.get(f"{CALLS}/{call_id}")
        assert answer.status_code == 200, answer.text
        call: dict[str, Any] = answer.json()
        if call["status"] in ("Succeeded", "Failed") or time.monotonic() > deadline:
            return call
        time.sleep(0.05)
