"""``duetime serve --auth``: keys made by the command, asked for by the server, never seen in its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from duetime.local.http import is_loopback
from tests.support.commands import Cli
from tests.support.processes import DuetimeServer


def make_key(cli: Cli, role: str, *, tenant: str = "acme") -> str:
    return cli("keys", "create", "--role", role, "--tenant", tenant, "--store")[0].strip()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DuetimeServer]:
    variables = {"DUETIME_LOG_LEVEL": "debug", "DUETIME_AUTH_CACHE_SECONDS": "0"}
    with DuetimeServer("--auth", "--host", "0.0.0.0", cwd=tmp_path, **variables) as server:
        server.client.base_url = server.url.replace("0.0.0.0", "127.0.0.1")
        yield server


def test_keys_from_the_command_to_their_end(server: DuetimeServer, cli: Cli) -> None:
    assert server.of("server.authenticated")
    assert not server.of("server.open")
    assert not server.of("server.exposed")  # with keys the network may come
    call = server.client.request
    refused = call("GET", "/v1/namespaces")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="duetime"')
    assert call("GET", "/health").status_code == 200

    admin = make_key(cli, "admin")
    assert call("PUT", "/v1/namespaces/acme-orders", headers=bearer(admin)).status_code == 201
    made = call("POST", "/v1/tenants/acme/api-keys", json={"role": "writer"}, headers=bearer(admin))
    assert made.status_code == 201
    writer = made.json()["key"]
    timer = {"delay": "1h", "callbackUrl": "http://127.0.0.1:9/"}
    assert call("POST", "/v1/namespaces/acme-orders/timers", json=timer, headers=bearer(writer)).status_code == 201
    assert call("PUT", "/v1/namespaces/more", headers=bearer(writer)).status_code == 403
    stranger = make_key(cli, "admin", tenant="globex")
    assert call("GET", "/v1/namespaces/acme-orders", headers=bearer(stranger)).status_code == 404
    assert call("GET", "/v1/tenants/acme/api-keys", headers=bearer(stranger)).status_code == 404
    assert call("GET", "/v1/namespaces/default", headers=bearer(admin)).status_code == 404

    metrics = [server.client.get("/metrics", headers=headers) for headers in ({}, bearer(writer), bearer(admin))]
    assert [answer.status_code for answer in metrics] == [401, 403, 200]
    assert "www-authenticate" in metrics[0].headers
    assert "duetime_" in metrics[2].text

    cli("keys", "delete", made.json()["id"], "--tenant", "acme", "--store")
    gone = call("GET", "/v1/namespaces", headers=bearer(writer))
    assert gone.status_code == 401
    assert "invalid_token" in gone.headers["www-authenticate"]

    assert call("GET", f"/v1/namespaces?key={admin}", headers=bearer(admin)).status_code == 400
    assert call("GET", "/v1/namespaces", headers={"authorization": admin}).status_code == 401
    assert call("GET", "/v1/namespaces", headers={"authorization": f"Basic {writer}"}).status_code == 401
    server.terminate()
    written = json.dumps(server.events) + "".join(server.noise)
    assert server.of("auth.refused")
    for key in (admin, writer, stranger):
        assert key.split("_")[2][:20] not in written
    assert {event.get("tenant_id") for event in server.of("request.served")} == {None, "acme", "globex"}


def test_it_can_be_allowed_and_is_warned_of(tmp_path: Path) -> None:
    with DuetimeServer("--host", "0.0.0.0", "--open-to-network", cwd=tmp_path) as server:
        assert server.of("server.open")
        assert server.wait_for("server.exposed")["host"] == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("192.168.1.7", False),
        ("fe80::1%eth0", False),
    ],
)
def test_what_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
