"""Which requests a server without API keys takes for those of a foreign page."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from duetime.local.browsers import OwnOriginOnly

OWN = "127.0.0.1:8080"


def ask(method: str = "POST", *headers: tuple[str, str], names: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """Status and problem; 200 when the request reached what is guarded."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a request that is refused is not read")

    scope = {
        "type": "http",
        "method": method,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
    }
    asyncio.run(OwnOriginOnly(app, names=names, new_id=lambda: "r1")(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "127.0.0.1",
        "[::1]:8080",
        "[fd00::7]",
        "10.0.0.7:80",
        "localhost:8080",
        "LOCALHOST",
        "api.localhost:8080",
    ],
)
def test_addresses_and_localhost_are_known(host: str) -> None:
    assert ask("POST", ("Host", host))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "xlocalhost",
        "2130706433",
        "0x7f.1",
        "",
        "::1",
        "[127.0.0.1]",
        "[::1",
        "127.0.0.1:8080@evil.example",
        "127.0.0.1, evil.example",
        "127.0.0.1:x",
        "m\u00fcller.example",
    ],
)
def test_any_other_name_may_have_been_made_to_lead_here(host: str) -> None:
    status, problem = ask("GET", ("Host", host))
    assert (status, problem["code"], problem["requestId"]) == (421, "unknown_host", "r1")


def test_the_operator_names_names() -> None:
    names = ("duetime.internal", "*.corp.example")
    assert [
        ask("POST", ("Host", host), names=names)[0]
        for host in ("Duetime.internal:8080", "a.corp.example", "corp.example", "internal")
    ] == [200, 200, 421, 421]


def test_every_host_header_counts() -> None:
    assert ask("POST", ("Host", OWN), ("Host", "evil.example"))[0] == 421


def test_without_a_host_there_is_no_browser() -> None:
    assert ask("GET")[0] == 200
    assert ask("POST", ("Origin", "http://127.0.0.1:8080"))[0] == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8080", 200),
        ("https://127.0.0.1:8080", 200),  # behind a proxy with TLS that leaves the host as it is
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:8080", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("127.0.0.1:8080", 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_a_page_of_another_origin_is_refused(method: str, origin: str, status: int) -> None:
    found, problem = ask(method, ("Host", OWN), ("Origin", origin))
    assert found == status
    assert status == 200 or problem["code"] == "cross_site_request"


@pytest.mark.parametrize(
    ("method", "site", "mode", "status"),
    [
        ("GET", "none", "navigate", 200),
        ("GET", "same-origin", "cors", 200),
        ("POST", "same-origin", "cors", 200),
        ("GET", "cross-site", "navigate", 200),  # a link to /docs
        ("POST", "cross-site", "navigate", 403),  # a form that sends itself
        ("GET", "cross-site", "no-cors", 403),  # an image
        ("POST", "same-site", "no-cors", 403),  # another port of this machine
    ],
)
def test_what_browsers_say_of_the_site_counts(method: str, site: str, mode: str, status: int) -> None:
    assert ask(method, ("Host", OWN), ("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode))[0] == status


def test_other_scopes_pass() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(OwnOriginOnly(app, names=(), new_id=str)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan"]
