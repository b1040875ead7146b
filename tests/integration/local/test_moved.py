"""A service whose store was moved, as its users know it: what they hold in their hands still works."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetime.cli.main import run
from duetime_client.webhooks import verify
from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeServer, in_seconds
from tests.support.server_stores import empty_store, server_names

CALLS = "/v1/tenants/default/service-calls"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("target", ["sqlite", *server_names()])
def test_secrets_cursors_etags_and_idempotency_keys_outlive_a_move(
    target: str, tmp_path: Path, receiver: CallbackReceiver
) -> None:
    old, file = f"sqlite:///{tmp_path}/old.db", str(tmp_path / "x.jsonl")
    new = f"sqlite:///{tmp_path}/other/new.db" if target == "sqlite" else empty_store(target)
    key = str(tmp_path / "duetime.key")
    call = {"name": "n", "request": {"method": "GET", "url": receiver.url}, "dueAt": in_seconds(3600)}
    with DuetimeServer("--store", old, cwd=tmp_path) as server:
        secret = server.client.post("/v1/namespaces/default/secrets", json={}).json()["secret"]
        for number in range(3):
            server.create(f"t{number}", executeAt=in_seconds(3600), callbackUrl=receiver.url, payload={"n": number})
        page = server.ok("GET", "/timers?limit=2")
        etag = server.client.get("/v1/namespaces/default/timers/t1").headers["etag"]
        submitted = server.client.post(CALLS, json=call, headers={"idempotency-key": "once"}).json()
        server.terminate()

    assert run(["export", "--store", old, "--output", file]) == 0
    assert run(["init", "--store", new]) == 0
    assert run(["import", "--store", new, "--input", file, "--key-file", key]) == 0

    with DuetimeServer("--store", new, "--key-file", key, cwd=tmp_path) as server:
        rest = server.ok("GET", "/timers", params={"limit": 2, "cursor": page["nextCursor"]})
        assert len({timer["id"] for timer in [*page["items"], *rest["items"]]}) == 3
        again = server.client.post(CALLS, json=call, headers={"idempotency-key": "once"})
        assert (again.status_code, again.json()["id"]) == (200, submitted["id"])
        changed = server.client.patch(
            "/v1/namespaces/default/timers/t1", json={"executeAt": in_seconds(0)}, headers={"if-match": etag}
        )
        assert changed.status_code == 200, changed.text
        arrival = receiver.wait_for_timer("t1")
    assert verify(arrival.raw, arrival.headers, secret).timer_id == "t1"
