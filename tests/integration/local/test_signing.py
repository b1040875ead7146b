"""Secrets and settings of namespaces as users of ``duetime serve`` know them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from duetime_client.webhooks import verify
from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeServer, command_environment

MANY = 200


def create_secret(server: DuetimeServer, namespace: str = "default", **body: Any) -> str:
    answer = server.client.post(f"/v1/namespaces/{namespace}/secrets", json=body)
    assert answer.status_code == 201, answer.text
    secret: str = answer.json()["secret"]
    return secret


def test_callbacks_are_signed_once_there_is_a_secret(
    server: DuetimeServer, tmp_path: Path, receiver: CallbackReceiver
) -> None:
    secrets = [create_secret(server), create_secret(server)]
    server.create("t", delay="0s", callbackUrl=receiver.url, payload={"text": "Grüße"})
    arrival = receiver.wait_for_timer("t")

    for secret in secrets:
        assert Webhook(secret).verify(arrival.raw, arrival.headers) == arrival.body
        assert verify(arrival.raw, arrival.headers, secret).timer_id == "t"
    assert (tmp_path / "data" / "duetime.key").exists()


def test_the_secret_is_nowhere_but_in_its_answer(tmp_path: Path) -> None:
    with DuetimeServer(cwd=tmp_path, DUETIME_LOG_LEVEL="debug") as server:
        secret = create_secret(server)
        server.client.get("/v1/namespaces/default/secrets")
        server.terminate()
        logged = "".join([*map(str, server.events), *server.noise])
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())

    assert secret not in logged
    assert secret.encode() not in stored
    assert secret.removeprefix("whsec_").encode() not in stored


def test_a_secret_made_by_command_is_used_by_a_running_server(
    server: DuetimeServer, tmp_path: Path, receiver: CallbackReceiver
) -> None:
    command = [sys.executable, "-m", "duetime.cli", "secrets", "create", "default", "--store"]
    made = subprocess.run(
        command, cwd=tmp_path, env=command_environment(), capture_output=True, text=True, timeout=30, check=True
    )
    server.create("t", delay="0s", callbackUrl=receiver.url)
    arrival = receiver.wait_for_timer("t")

    Webhook(made.stdout.strip()).verify(arrival.raw, arrival.headers)


def test_every_worker_signs(tmp_path: Path, receiver: CallbackReceiver) -> None:
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        secret = create_secret(server)
        server.wait_for_shards(16)
        timers = [{"id": f"t{n}", "delay": "0s", "callbackUrl": receiver.url} for n in range(MANY)]
        server.create_many(timers)
        receiver.wait_for_timers(MANY, timeout_seconds=30)

    for arrival in receiver.arrivals:
        Webhook(secret).verify(arrival.raw, arrival.headers)


def test_without_the_key_timers_wait_and_are_not_lost(tmp_path: Path, receiver: CallbackReceiver) -> None:
    key = tmp_path / "data" / "duetime.key"
    with DuetimeServer(cwd=tmp_path) as server:
        secret = create_secret(server)
        server.client.put("/v1/namespaces/plain")
        server.terminate()  # else the next one waits for the leases of this one to end
    key.rename(tmp_path / "backup")

    with DuetimeServer(cwd=tmp_path) as server:
        server.create("t", delay="0s", callbackUrl=receiver.url)
        event = server.wait_for("namespace.secret_unavailable")
        assert event["namespace"] == "default"
        timer = {"id": "unsigned", "delay": "0s", "callbackUrl": receiver.url}
        assert server.client.post("/v1/namespaces/plain/timers", json=timer).status_code == 201
        receiver.wait_for_timer("unsigned")
        assert receiver.counts() == {"unsigned": 1}

        (tmp_path / "backup").rename(key)

        arrival = receiver.wait_for_timer("t", timeout_seconds=20)
    Webhook(secret).verify(arrival.raw, arrival.headers)
