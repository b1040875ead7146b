"""Pages of listed origins use the API in a browser, and no others, alike on one machine and in a function."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from duetime.api.documents.openapi import openapi_document
from duetime.api.handler import build_handler
from duetime.api.http.parsing import MAX_BATCH_BYTES
from duetime.api.routes import all_routes
from duetime.domain.errors import InvalidSettings
from duetime.local.asgi import LambdaAsgiApp
from duetime.local.gateway import HttpRequest, to_event
from duetime.local.server import for_browsers
from duetime.runtime.api_wiring import with_cors
from duetime.runtime.settings import LocalSettings, ServiceCallsApiSettings, TimersApiSettings, load_settings
from tests.support.api import api_world, context_for
from tests.support.clock import NOW, FakeClock

PAGE = "https://app.example"
Ask = Callable[..., httpx.Response]


def served(handler: Any, **given: str) -> Ask:
    """As ``duetime serve`` does it."""
    settings = load_settings(LocalSettings, given, environ={})
    ids = itertools.count()
    app = for_browsers(LambdaAsgiApp(handler, clock=FakeClock(), new_id=lambda: f"r-{next(ids)}"), settings)

    def ask(method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())

    return ask


def deployed(handler: Any, **given: str) -> Ask:
    """As the functions do it."""
    settings = load_settings(TimersApiSettings, given, environ={"DUETIME_STORE": "dynamodb://timers"})
    answer = with_cors(handler, settings)

    def ask(method: str, path: str, **options: Any) -> httpx.Response:
        request = httpx.Request(method, f"http://127.0.0.1{path}", **options)
        event = to_event(
            HttpRequest(
                method=method,
                raw_path=request.url.raw_path.decode(),
                raw_query="",
                headers=tuple(request.headers.items()),
                body=request.read(),
                http_version="1.1",
                client_host="",
                request_id="r",
                received_at=NOW,
            )
        )
        result = answer(event, None)
        return httpx.Response(result["statusCode"], headers=result["headers"], text=result["body"])

    return ask


@pytest.fixture
def handler() -> Iterator[Any]:
    with api_world() as world:
        yield build_handler(context_for(world.store, world.clock))


@pytest.fixture(params=[served, deployed])
def face(request: pytest.FixtureRequest, handler: Any) -> Callable[..., Ask]:
    def make(origins: str) -> Ask:
        made: Ask = request.param(handler, cors_origins=origins)
        return made

    return make


def cors_of(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith(("access-control-", "vary"))}


def preflight(ask: Ask, path: str = "/v1/namespaces/n/timers/t", origin: str = PAGE) -> httpx.Response:
    asked = {"origin": origin, "access-control-request-method": "PUT", "access-control-request-headers": "if-match"}
    return ask("OPTIONS", path, headers=asked)


def documented_headers() -> set[str]:
    operations = [
        operation for path in openapi_document(all_routes())["paths"].values() for operation in path.values()
    ]
    parameters = [parameter for operation in operations for parameter in operation.get("parameters", ())]
    return {parameter["name"].lower() for parameter in parameters if parameter["in"] == "header"}


def test_a_page_of_a_listed_origin_asks_first_and_then_reads_what_it_gets(face: Callable[..., Ask]) -> None:
    ask = face(f"https://other.example, {PAGE}")
    allowed = preflight(ask)
    made = ask("PUT", "/v1/namespaces/n", json={"numShards": 2}, headers={"origin": PAGE})
    refused = ask("GET", "/v1/namespaces/unknown", headers={"origin": PAGE})

    assert (allowed.status_code, allowed.text) == (204, "")
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert "PUT" in allowed.headers["access-control-allow-methods"].split(", ")
    accepted = {name.lower() for name in allowed.headers["access-control-allow-headers"].split(", ")}
    assert accepted >= {"authorization", "content-type", *documented_headers()}
    assert int(allowed.headers["access-control-max-age"]) > 0
    assert (made.status_code, refused.status_code) == (201, 404)
    for response in (made, refused):
        assert cors_of(response)["access-control-allow-origin"] == PAGE
        exposed = {name.lower() for name in cors_of(response)["access-control-expose-headers"].split(", ")}
        assert exposed >= {"etag", "location", "retry-after", "x-request-id"}
    for response in (allowed, made, refused):
        assert response.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in response.headers


def test_a_question_is_answered_whatever_the_path_so_that_the_page_gets_the_problem(face: Callable[..., Ask]) -> None:
    ask = face(PAGE)
    assert preflight(ask, "/v1/nothing").status_code == 204
    assert ask("GET", "/v1/nothing", headers={"origin": PAGE}).json()["code"] == "route_not_found"
    plain = ask("OPTIONS", "/v1/namespaces/n")  # of a program
    assert "GET" in plain.headers["allow"]
    assert cors_of(plain) == {"vary": "Origin"}


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://app.example", "https://app.example:8443", "https://x.app.example", "null"],
)
def test_no_other_page_is_told_anything(face: Callable[..., Ask], origin: str) -> None:
    ask = face(PAGE)
    for response in (preflight(ask, origin=origin), ask("GET", "/health", headers={"origin": origin})):
        assert not [name for name in response.headers if name.startswith("access-control-")]


def test_by_default_there_is_none_of_it(face: Callable[..., Ask]) -> None:
    ask = face("")
    assert cors_of(preflight(ask)) == cors_of(ask("GET", "/health", headers={"origin": PAGE})) == {}


def test_without_keys_a_listed_page_passes_and_others_do_not(handler: Any) -> None:
    ask = served(handler, cors_origins=PAGE)
    site = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    assert ask("GET", "/v1/namespaces", headers={"origin": PAGE, **site}).status_code == 200
    assert ask("GET", "/v1/namespaces", headers={"origin": "https://evil.example", **site}).status_code == 403
    assert ask(
        "GET", "/v1/namespaces", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    ).is_error
    assert ask("GET", "/v1/namespaces", headers={"origin": PAGE, "host": "evil.example"}).status_code == 421


def test_what_the_local_server_refuses_by_itself_is_readable_too(handler: Any) -> None:
    ask = served(handler, cors_origins=PAGE)
    large = ask("POST", "/v1/namespaces/n/timers", content=b"x" * (MAX_BATCH_BYTES + 1), headers={"origin": PAGE})
    assert (large.status_code, large.headers["access-control-allow-origin"]) == (413, PAGE)


@pytest.mark.parametrize(
    "origins",
    [
        "*",
        "https://*.example",
        "null",
        "app.example",
        "https://app.example/",
        "https://app.example/page",
        "https://app.example:443",
        "http://app.example:80",
        "https://u@app.example",
        "https://app.example,",
        "ftp://app.example",
    ],
)
@pytest.mark.parametrize("model", [LocalSettings, TimersApiSettings, ServiceCallsApiSettings])
def test_what_is_no_origin_is_refused_at_the_start(model: Any, origins: str) -> None:
    environ = {"DUETIME_STORE": "dynamodb://timers", "DUETIME_CORS_ORIGINS": origins}
    with pytest.raises(InvalidSettings, match=r"^DUETIME_CORS_ORIGINS: must be origins like"):
        load_settings(model, environ=environ)
