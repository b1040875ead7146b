"""Secrets and settings of namespaces as users of ``duetime serve`` know them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from duetime_client.webhooks import verify
from tests.support.callbacks import CallbackReceiver
from tests.support.commands import Cli
from tests.support.processes import DuetimeServer

MANY = 200


def create_secret(server: DuetimeServer, namespace: str = "default", **body: Any) -> str:
    answer = server.client.post(f"/v1/namespaces/{namespace}/secrets", json=body)
    assert answer.status_code == 201, answer.text
    secret: str = answer.json()["secret"]
    return secret


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuetimeServer]:
    """One for all tests that do not end it. Each of these has a namespace of its own."""
    directory = tmp_path_factory.mktemp("served")
    with DuetimeServer("--workers", "2", cwd=directory, DUETIME_LOG_LEVEL="debug") as server:
        server.wait_for_shards(16)
        yield server


def test_every_worker_signs_once_there_is_a_secret(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    secrets = [create_secret(server), create_secret(server)]
    timer = {"delay": "0s", "callbackUrl": receiver.url, "payload": {"text": "Grüße"}}
    server.create_many([{"id": f"t{n}"} | timer for n in range(MANY)])
    receiver.wait_for_timers(MANY, timeout_seconds=30)

    for arrival in receiver.arrivals:
        for secret in secrets:
            assert Webhook(secret).verify(arrival.raw, arrival.headers) == arrival.body
            assert verify(arrival.raw, arrival.headers, secret).timer_id == arrival.timer_id
    assert (server.directory / "data" / "duetime.key").exists()


def test_the_secret_is_nowhere_but_in_its_answer(server: DuetimeServer) -> None:
    server.client.put("/v1/namespaces/secretive")
    secret = create_secret(server, "secretive")
    assert server.client.get("/v1/namespaces/secretive/secrets", headers={"x-request-id": "last"}).is_success
    server.wait_until(lambda events: any(event.get("request_id") == "last" for event in events), "last request")
    logged = "".join([*map(str, server.events), *server.noise])
    stored = b"".join(path.read_bytes() for path in (server.directory / "data").iterdir())

    assert secret not in logged
    assert secret.removeprefix("whsec_").encode() not in stored


def test_a_secret_made_by_command_is_used_by_a_running_server(
    server: DuetimeServer, cli: Cli, receiver: CallbackReceiver
) -> None:
    server.client.put("/v1/namespaces/orders")
    secret, _ = cli("secrets", "create", "orders", "--store")
    timer = {"id": "t", "delay": "0s", "callbackUrl": receiver.url}
    assert server.client.post("/v1/namespaces/orders/timers", json=timer).status_code == 201
    arrival = receiver.wait_for_timer("t")

    Webhook(secret.strip()).verify(arrival.raw, arrival.headers)


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
