"""The handler itself: routing, methods, request ids, logs, errors of the store, threads."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest

from duetime import __version__
from duetime.api.context import ApiContext
from duetime.api.handler import build_handler
from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from tests.support.api import World
from tests.support.clock import FakeClock
from tests.support.http import Api

GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}


def test_an_unknown_path(api: Api) -> None:
    for path in ("/v1", "/v2/shards", "/v1/shards/", "/v1/namespaces/default/timer", "/V1/shards"):
        answer = api.get(path)
        assert (answer.status, answer.code) == (404, "route_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/shards", "GET, HEAD, OPTIONS"),
        ("PATCH", "/v1/namespaces/default", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("DELETE", "/v1/namespaces/default/timers", "GET, HEAD, OPTIONS, POST"),
        ("POST", "/v1/namespaces/default/timers/t1", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("PROPFIND", "/health", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_wrong_method_and_what_is_allowed(api: Api, method: str, path: str, allowed: str) -> None:
    answer = api.call(method, path)
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", allowed)
    options = api.call("OPTIONS", path)
    assert (options.status, options.headers["allow"], options.text) == (204, allowed, "")


def test_options_of_nothing(api: Api) -> None:
    assert api.call("OPTIONS", "/nothing").status == 404


def test_head_is_get_without_a_body(api: Api) -> None:
    created = api.put("t1", GOOD)
    head = api.call("HEAD", api.timer("t1"))
    assert (head.status, head.text, head.headers["etag"]) == (200, "", created.headers["etag"])
    assert api.call("HEAD", api.timer("t2")).status == 404


class TestRequestId:
    def test_the_callers_comes_back(self, api: Api) -> None:
        answer = api.get("/health", headers={"x-request-id": "mine"})
        assert answer.headers["x-request-id"] == "mine"

    def test_or_the_gateways(self, api: Api) -> None:
        answer = api.get("/nothing")
        assert answer.headers["x-request-id"] == answer.json()["requestId"] == "gateway-request"

    def test_logs_know_it(self, world: World) -> None:
        seen: list[str] = []

        @contextmanager
        def log_context(request_id: str) -> Iterator[None]:
            seen.append(request_id)
            yield

        context = ApiContext(store=world.store, clock=world.clock, new_id=lambda: "x", log_context=log_context)
        Api(build_handler(context)).get("/health", headers={"x-request-id": "mine"})
        assert seen == ["mine"]


class TestLogs:
    def test_a_request_is_one_event(self, api: Api, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        api.read("secret-id", headers={"authorization": "secret-key"}, query={"token": "secret-query"})
        (record,) = (record for record in caplog.records if vars(record).get("action") == "request.served")
        facts = vars(record)
        assert facts["method"] == "GET"
        assert facts["route"] == "/v1/namespaces/<namespace>/timers/<timer_id>"
        assert (facts["status"], facts["request_id"]) == (404, "gateway-request")
        assert facts["duration_ms"] == 0
        assert "secret" not in str(facts)

    def test_a_bug_is_logged_and_not_shown(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError("inner detail")

        monkeypatch.setattr(world.store.timers, "get", fail)
        answer = world.api.read("t1")
        assert (answer.status, answer.code) == (500, "internal")
        assert "inner" not in answer.text
        (record,) = (record for record in caplog.records if vars(record).get("action") == "request.failed")
        assert record.exc_info is not None


class TestStoreErrors:
    @pytest.mark.parametrize(
        ("error", "status", "code", "retry_after"),
        [
            (StoreUnavailable("busy", retry_after_seconds=2.5), 503, "store_unavailable", "3"),
            (StoreNotReady("no tables: run duetime init"), 503, "store_not_ready", "5"),
            (StoreError("odd answer"), 500, "store_error", None),
        ],
    )
    @pytest.mark.parametrize("operation", ["get", "put", "update", "delete", "list"])
    def test_they_are_answered(
        self,
        world: World,
        monkeypatch: pytest.MonkeyPatch,
        operation: str,
        error: StoreError,
        status: int,
        code: str,
        retry_after: str | None,
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        calls = {
            "get": lambda: world.api.read("t1"),
            "put": lambda: world.api.create(GOOD),
            "update": lambda: world.api.patch("t1", {"tags": ["a"]}),
            "delete": lambda: world.api.delete("t1"),
            "list": lambda: world.api.list(),
        }
        monkeypatch.setattr(world.store.timers, operation, fail)
        if operation == "put" and code == "store_error":  # such an error to a write refuses this timer for good
            status, code = 507, "store_refused"
        answer = calls[operation]()
        assert (answer.status, answer.code, answer.headers.get("retry-after")) == (status, code, retry_after)
        assert error.message not in answer.text  # it names servers, which are the operator's business
        assert world.stored == []

    def test_a_namespace_is_remembered(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.api.create(GOOD)

        def fail(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("asked again")

        monkeypatch.setattr(world.store.catalogue, "get_namespace", fail)
        assert world.api.create(GOOD).status == 201

    def test_health(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        unknown = {"clock": "unknown", "clockOffsetSeconds": None, "shardsGivenBack": 0}
        expected = {"status": "ok", "version": __version__, "store": "ok", **unknown}
        assert world.api.get("/health").json() == expected
        for error, store in ((StoreUnavailable("x"), "unavailable"), (StoreNotReady("x"), "not_ready")):

            def fail(error: StoreError = error) -> None:
                raise error

            monkeypatch.setattr(world.store, "check", fail)
            answer = world.api.get("/health")
            assert answer.status == 503
            assert answer.json() == expected | {"status": "unavailable", "store": store}


class TestDocuments:
    def test_the_openapi_document(self, api: Api) -> None:
        answer = api.get("/v1/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["openapi"] == "3.1.0"
        assert api.get("/v1/openapi.json").text == answer.text

    def test_the_page(self, api: Api) -> None:
        answer = api.get("/docs")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.text.startswith("<!doctype html>")


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns after every few instructions, so that what they share shows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_switches")
def test_many_threads_do_not_mix_up_their_requests(world: World) -> None:
    """One handler serves all threads."""
    handler = build_handler(ApiContext(store=world.store, clock=FakeClock(), new_id=lambda: "x"))
    barrier = Barrier(4, timeout=10)

    def work(number: int) -> set[tuple[str, str]]:
        api = Api(handler)
        barrier.wait()
        # No namespace has such a name, so nothing but the handler's own state is touched.
        answers = [api.get(f"/v1/namespaces/N{number}", headers={"x-request-id": f"r{number}"}) for _ in range(200)]
        return {(answer.json()["requestId"], answer.json()["detail"]) for answer in answers}

    with ThreadPoolExecutor(4) as pool:
        for number, seen in enumerate(pool.map(work, range(4))):
            assert seen == {(f"r{number}", f"namespace 'N{number}' does not exist")}


def test_answers_are_json_for_lambda(world: World) -> None:
    handler = build_handler(ApiContext(store=world.store, clock=FakeClock(), new_id=lambda: "x"))
    event = {"rawPath": "/health", "requestContext": {"http": {"method": "GET"}}}
    assert json.loads(json.dumps(handler(event, None)))["statusCode"] == 200
